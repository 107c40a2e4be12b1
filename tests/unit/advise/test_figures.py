"""A calibration in words fits a narrow terminal, and says what was found and what was not."""

from __future__ import annotations

from dure.advise import figures
from unit.advise.outlooks import calibration, separate

PAGE = """\
Measured in 8.4 s: a processor, 2 cores
Kept in a-file

                    dispatch   computing      memory
one device           6.00 µs 190 GFLOP/s   16.0 GB/s
with one thread              100 GFLOP/s   10.0 GB/s

An all-reduce takes a + b x bytes:
                           a      64 KiB       2 MiB      16 MiB           b
2 devices             140 µs      147 µs      350 µs     1.82 ms    0.100 ns
4 devices             181 µs      193 µs      599 µs     3.54 ms    0.200 ns
2 processes          2.50 ms     2.53 ms     3.55 ms     10.9 ms    0.500 ns

While all of them work, each takes so many times as long:
                   computing      memory     joining
2 devices               1.10        1.30
4 devices               1.10        1.30
2 processes             1.10        1.30      900 ms
Not measured: the weather"""


def test_all_is_in_80_columns() -> None:
    shown = figures.lines(calibration(took_s=8.4, notes=("the weather",)), "a-file")
    assert "\n".join(shown) == PAGE
    assert max(map(len, shown)) <= 80


def test_what_has_no_meaning_is_left_out() -> None:
    shown = "\n".join(figures.lines(separate(2)))
    assert "processes" not in shown
    alone = figures.lines(calibration(inside=(), between=(), flops_per_s_one=0.0))
    assert len(alone) == 4
    assert not any("Kept" in line for line in alone)
