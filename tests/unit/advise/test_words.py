"""Advice in words, from records in which each side wins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dure.advise.counsel import Counsel, counsel
from dure.advise.outlook import Outlook
from unit.advise.outlooks import LARGE, SEED, calibration, outlook, separate, site, team

US = 1e-6


def worked(asked: Outlook) -> Counsel:
    found = counsel(asked)
    assert found == counsel(asked)
    return found


def test_one_device_wins_the_seed_case_and_the_words_say_why_and_from_where_on_not() -> None:
    found = worked(outlook())
    assert found.best == "single"
    assert found.headline.startswith("Use single: one device is predicted to be the fastest, 6.11 s.")
    two = found.reasons[0]
    assert two.startswith("mirrored:2 would take ")
    assert "times as long as single (" in two
    assert "One step takes 213 µs on one device, of which each of 2 would do 106 µs, and " in two
    assert "the exchange adds 181 µs" in two
    assert "The limit is the exchange, " in two
    assert "407 kB of gradients are summed over the devices" in two
    assert "No batch makes its step faster: even with all 60,000 rows at once shared cores take " in two
    assert two.endswith(", as one device already uses all the cores.")
    assert found.reasons[2].startswith("multi-worker:2 would take ")
    own = next(text for text in found.changes if text.startswith("Devices of their own: "))
    assert ", and pay from a batch of " in own
    assert any("no number pays: mirrored with 2 to 4, and multi-worker with 2 to 4" in text for text in found.changes)
    assert "share of the 2 cores each" in " ".join(found.remarks)


def test_from_which_batch_on_two_pay_is_said_where_there_is_one() -> None:
    found = worked(outlook(here=separate(2, latency_s=300 * US), strategies=("single", "mirrored:2")))
    line = found.lines[1]
    ((low, high),) = line.pays
    assert high is None
    assert found.reasons[0].endswith(f"Its step would pay from a batch of {low:,} on.")
    assert found.changes[0].startswith(
        f"A larger batch: mirrored:2 pays from {low:,} rows on; at {2 * low:,} its step "
    )
    there = worked(
        outlook(here=separate(2, latency_s=300 * US), strategies=("single", "mirrored:2"), batch_size=2 * low)
    )
    assert there.reasons[0].endswith(f"Its step pays from a batch of {low:,} on.")


def test_mirrored_wins_a_large_network_on_devices_of_their_own() -> None:
    asked = outlook(
        LARGE, separate(4), strategies=("single", "mirrored:2", "mirrored:4"), batch_size=512, virtual=False
    )
    found = worked(asked)
    assert found.best == "mirrored:4"
    assert found.headline.startswith("Use mirrored:4: ")
    assert found.headline.endswith("times single's, with the same numbers.")
    assert any("mirrored pays from 2 on, and is fastest with 4" in text for text in found.changes)
    assert not any("virtual" in text for text in found.remarks)


def test_processes_win_where_one_has_a_device_of_its_own() -> None:
    alone = team(2, 50 * US, 1e-11, computing=1.0, moving=separate(2).inside[0].moving)
    asked = outlook(LARGE, replace(separate(2), between=(alone,), inside=()), batch_size=512)
    found = worked(asked)
    assert found.best == "multi-worker:2"
    assert "mirrored:2: no prediction, because no such team was measured." in found.reasons


def test_local_sgd_alone_wins_and_is_not_sold_as_the_same() -> None:
    asked = outlook(LARGE, separate(2, latency_s=0.3), strategies=("single", "mirrored:2"), batch_size=512)
    found = worked(asked)
    assert found.best == "single"
    assert found.headline.startswith(
        "Use single for the same numbers: nothing that gives them is predicted to be faster."
    )
    assert "mirrored:2, meeting every epoch, is: " in found.headline
    assert any("This is local SGD: its loss curve is another one" in text for text in found.changes)


def test_nothing_is_clearly_faster() -> None:
    asked = outlook(LARGE, separate(2, latency_s=0.18), strategies=("single", "mirrored:2"), batch_size=512)
    found = worked(replace(asked, asked=replace(asked.asked, sync_every=("step",))))
    assert found.best == "single"
    assert found.headline.startswith("Use single: nothing is predicted to be clearly faster.")
    assert "would take about as long as single" in found.reasons[0]


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"inside": (team(2, 5e-3, 1e-10),)}, "The limit is the exchange, "),
        ({"inside": (team(2, US, 1e-13, computing=4.0),)}, "The limit is shared cores, "),
    ],
    ids=["exchange", "cores"],
)
def test_the_limit_is_what_takes_the_most(change, limit: str) -> None:  # type: ignore[no-untyped-def]
    found = worked(outlook(here=calibration(**change), strategies=("single", "mirrored:2")))
    assert limit in found.reasons[0]


def test_smaller_batches_are_the_limit_where_a_share_takes_as_long_as_the_whole() -> None:
    flat = replace(SEED, points=tuple(p._replace(seconds=200 * US) for p in SEED.points), points_one=())
    found = worked(outlook(flat, separate(2, latency_s=US), strategies=("single", "mirrored:2")))
    assert "The limit is smaller batches, " in found.reasons[0]
    assert "13 rows fill a device less than 25 and take 100 % of their time" in found.reasons[0]
    assert "No batch makes its step faster: even with all 60,000 rows at once smaller batches take " in found.reasons[0]


def test_local_sgd_itself_is_the_limit_where_its_choice_is_dear() -> None:
    dear = calibration(inside=(team(2, US, 1e-13, copy_s_per_byte=1e-9),))
    found = worked(outlook(here=dear, strategies=("single", "mirrored:2"), sync_every=(10,)))
    assert found.reasons[0].startswith("mirrored:2, meeting every 10 steps, would take ")
    assert "The limit is the strategy, " in found.reasons[0]
    assert "what local SGD does around a step" in found.reasons[0]


def test_a_faster_exchange_is_named_with_what_it_would_have_to_be() -> None:
    here = separate(2, latency_s=300 * US)
    found = worked(outlook(here=here, strategies=("single", "mirrored:2"), sync_every=("step",)))
    assert any(
        text.startswith("A faster exchange: mirrored:2 pays where it takes less than ") for text in found.changes
    )
    hopeless = calibration(inside=(team(2, 300 * US, 1e-13, computing=9.0),))
    found = worked(outlook(here=hopeless, strategies=("single", "mirrored:2"), sync_every=("step",)))
    assert any(text.startswith("A faster exchange would not do: without any, ") for text in found.changes)


def test_a_late_start_is_made_up_for_after_some_epochs() -> None:
    late = team(2, 50 * US, 1e-11, computing=1.0, moving=separate(2).inside[0].moving, start_s=400.0)
    asked = outlook(
        LARGE, replace(separate(2), between=(late,)), strategies=("single", "multi-worker:2"), batch_size=512, epochs=1
    )
    found = worked(asked)
    assert found.best == "single"
    text = next(text for text in found.changes if text.startswith("More epochs: "))
    assert "it starts 400 s later; from " in text
    epochs = int(text.split("from ")[1].split(" ")[0])
    longer = worked(replace(asked, asked=replace(asked.asked, epochs=epochs)))
    assert longer.lines[1].ratio < 1
    shorter = worked(replace(asked, asked=replace(asked.asked, epochs=epochs - 1)))
    assert shorter.lines[1].ratio > 1


def test_where_the_winner_would_lose_is_said() -> None:
    here = separate(4, latency_s=2e-3)
    found = worked(outlook(LARGE, here, strategies=("single", "mirrored:4"), batch_size=512))
    assert found.best == "mirrored:4"
    assert any(text.startswith("A smaller batch: below ") for text in found.changes)


def test_a_range_with_an_end_is_told_with_its_end() -> None:
    points = tuple(
        SEED.points[0]._replace(size=n, seconds=s) for n, s in ((1, 50e-6), (100, 1e-3), (200, 1.05e-3), (60_000, 0.3))
    )
    one = tuple(p._replace(seconds=s) for p, s in zip(points, (50e-6, 1e-3, 2e-3, 0.6), strict=True))
    asked = outlook(replace(SEED, points=points, points_one=one), calibration(inside=separate(2).inside))
    (line,) = (line for line in counsel(asked).lines if (line.strategy, line.sync_every) == ("mirrored:2", "step"))
    low, high = line.pays[-1]
    assert f"at batches from {low:,} to {high:,}, not at smaller or larger ones." in counsel(asked).reasons[0]


def test_only_one_device_is_no_contest() -> None:
    found = worked(outlook(strategies=("single",)))
    assert found.headline.startswith("Use single: there is nothing to set against it.")
    assert (found.reasons, found.changes) == ((), ())


def test_a_mirror_of_one_has_nobody_to_meet() -> None:
    assert "mirrored:1: as single, " in worked(outlook(strategies=("single", "mirrored:1"))).reasons[0]


def test_what_could_not_be_measured_is_named_with_its_reason() -> None:
    here = calibration(between=(), notes=("exchange between processes was not measured: it hung",))
    found = worked(outlook(here=here))
    assert any(text.startswith("multi-worker:2: no prediction, because exchange between") for text in found.reasons)
    assert "Exchange between processes was not measured: it hung." in found.remarks


def test_far_from_what_was_measured_is_less_sure() -> None:
    found = worked(outlook(batch_size=20_000))
    assert any("predicted from shares far outside of what was measured" in text for text in found.remarks)


def test_what_does_not_fit_is_not_recommended() -> None:
    small = site(devices={"gpu": {"kind": "gpu", "flops_per_s": 6e13, "bytes_per_s": 2e12, "memory_bytes": 1e6}})
    found = worked(outlook(LARGE, site=small, strategies=("single", "mirrored:8")))
    assert found.headline == "Use none of these: weights and optimizer do not fit into a device's memory."
    assert any("It does not fit: weights, optimizer and gradients take 8" in text for text in found.remarks)
