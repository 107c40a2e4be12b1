"""The table of advice."""

from __future__ import annotations

import pytest

from dure.advise import listing
from dure.advise.counsel import counsel
from dure.advise.outlook import Outlook
from unit.advise.outlooks import GPU, LARGE, calibration, outlook, separate, site

SEVERAL = [
    outlook(),
    outlook(here=calibration(between=())),
    outlook(LARGE, separate(8), strategies=("single", "mirrored:2", "mirrored:8"), batch_size=512),
    outlook(LARGE, site=site(), strategies=("single", "mirrored:8", "multi-worker:16"), batch_size=1024, epochs=10**6),
    outlook(strategies=("single", "multi-worker:256", "mirrored:1024"), sync_every=("step", 1_000_000)),
    outlook(LARGE, site=site(devices={"gpu": {**GPU, "memory_bytes": 1e6}}), strategies=("single", "mirrored:8")),
]


@pytest.mark.parametrize("asked", SEVERAL, ids=range(len(SEVERAL)))
def test_it_fits_80_columns(asked: Outlook) -> None:
    text = listing.text(counsel(asked))
    assert max(len(line) for line in text.splitlines()) <= 80
    head = text.splitlines()[0].split()
    assert head[:5] == ["strategy", "meets", "time", "ratio", "steps/s"]


def test_a_row_says_what_is_predicted() -> None:
    found = listing.rows(counsel(outlook()))
    assert found[0] == ("single", "-", "6.11 s", "1.00", "4,695", "-", "-")
    assert (found[1].strategy, found[1].meets, found[1].limit) == ("mirrored:2", "step", "the exchange 47 %")
    assert [row.meets for row in found[1:5]] == ["step", "10", "100", "epoch"]


def test_what_is_not_known_or_too_large_is_said() -> None:
    found = listing.rows(counsel(SEVERAL[1]))
    assert found[-1] == ("multi-worker:2", "epoch", "not known", "-", "-", "-", "-")
    assert {row.time for row in listing.rows(counsel(SEVERAL[5]))} == {"too large"}


def test_batches_that_pay_are_a_range() -> None:
    found = counsel(
        outlook(LARGE, separate(2), strategies=("single", "mirrored:2"), sync_every=("step",), batch_size=512)
    )
    low, high = found.lines[1].pays[-1]
    assert high is None
    assert listing.rows(found)[1].pays == ("any" if low == 1 else f"{low:,}+")
    assert listing.rows(counsel(outlook()))[1].pays == "none"


def test_the_notes_say_where_the_devices_lie() -> None:
    told = " ".join(listing.notes(SEVERAL[3]))
    assert "On a-site: devices are gpu; mirrored stays in one machine, multi-worker:16 is 8 + 8 in 2 machines." in told
    assert "On this machine: a processor, 2 cores." in " ".join(listing.notes(SEVERAL[0]))
    assert "60,000 rows; 10 epochs of batches of 25." in listing.notes(SEVERAL[0])[0]
