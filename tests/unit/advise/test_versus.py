"""Eight devices in one machine against sixteen in two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dure.advise.cost import Load, Network
from dure.advise.outlook import Outlook, basis
from dure.advise.versus import Contest, contest
from unit.advise.outlooks import LARGE, SEED, outlook, site


def met(network: Network, batch_size: int, **changes: object) -> Contest:
    asked = outlook(network, site=site(**changes), batch_size=batch_size, strategies=("single", "mirrored:8"))
    found = contest(asked, on(asked))
    assert found is not None
    return found


def on(asked: Outlook) -> Network:
    return basis(asked).network


def test_the_eight_win_a_small_network() -> None:
    found = met(SEED, 1024)
    assert (found.few, found.many, found.machines) == (8, 16, 2)
    assert found.few_s < found.many_s
    # 2 messages of half of 407 kB at 12.5 GB/s, and twice 20 us.
    assert found.between_s == pytest.approx(2 * (20e-6 + 407_080 / 2 / 12.5e9))
    assert found.many_s - found.few_s == pytest.approx(found.between_s - found.saved_s)


def test_where_it_flips_follows_from_the_closed_form() -> None:
    found = met(LARGE, 1024)
    row_s = 16e9 / 512 / 60e12 / 0.4
    # Where computing decides, a share's half is B / 16 rows: it has to save what the sums between machines take.
    closed_form = 16 * 2 * (20e-6 + 23.2e6 / 2 / 12.5e9) / row_s
    assert found.flips_at == pytest.approx(closed_form, rel=0.08)
    assert met(LARGE, found.flips_at * 9 // 10).few_s < met(LARGE, found.flips_at * 9 // 10).many_s
    assert met(LARGE, found.flips_at * 11 // 10).few_s > met(LARGE, found.flips_at * 11 // 10).many_s


def test_a_faster_link_moves_the_flip_down() -> None:
    fast = {"inside": {"latency_s": 2e-6, "bytes_per_s": 300e9}, "between": {"latency_s": 2e-6, "bytes_per_s": 400e9}}
    slow, quick = met(LARGE, 1024).flips_at, met(LARGE, 1024, links=fast).flips_at
    assert slow is not None
    assert quick is not None
    assert quick < slow / 5


def test_no_flip_beyond_the_data() -> None:
    slow = {"inside": {"latency_s": 2e-6, "bytes_per_s": 300e9}, "between": {"latency_s": 1.0, "bytes_per_s": 1e6}}
    assert met(LARGE, 1024, links=slow).flips_at is None


def test_a_larger_network_turns_it_around_only_where_computing_grows_faster_than_its_sums() -> None:
    # Few weights, much computing, as a convolution has.
    flops = tuple(point._replace(seconds=0.3 * point.seconds) for point in LARGE.flops)
    traffic = tuple(point._replace(seconds=1e6) for point in LARGE.traffic)
    heavy = replace(LARGE, gradients=Load(6, 0.5e6), flops=flops, traffic=traffic)
    found = met(heavy, 2048)
    assert found.few_s < found.many_s
    assert found.grows == pytest.approx(4, rel=0.1)
    assert found.grows is not None
    grown = replace(
        heavy,
        gradients=Load(6, 0.5e6 * found.grows),
        flops=tuple(point._replace(seconds=point.seconds * found.grows) for point in heavy.flops),
        traffic=tuple(point._replace(seconds=point.seconds * found.grows) for point in heavy.traffic),
    )
    assert met(grown, 2048).few_s == pytest.approx(met(grown, 2048).many_s, rel=0.02)
    assert met(SEED, 256).grows is None  # its weights cost more to send than to use


def test_one_machine_has_nobody_to_be_set_against() -> None:
    asked = outlook(LARGE, site=site(machines={"box": {"devices": {"gpu": 8}}}))
    assert contest(asked, on(asked)) is None
    assert contest(outlook(), SEED) is None
