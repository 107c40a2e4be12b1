"""Quantities with units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.advise.units import BYTES, BYTES_PER_S, FLOPS_PER_S, SECONDS, quantity
from dure.errors import SpecError


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("100 Gb/s", BYTES_PER_S, 12.5e9),
        ("100Gbit/s", BYTES_PER_S, 12.5e9),
        ("300 GB/s", BYTES_PER_S, 300e9),
        ("5 us", SECONDS, 5e-6),
        ("5 µs", SECONDS, 5e-6),
        ("0.5 ms", SECONDS, 5e-4),
        ("80 GB", BYTES, 80e9),
        ("80 GiB", BYTES, 80 * 2.0**30),
        ("60 TFLOP/s", FLOPS_PER_S, 60e12),
        ("1_000 B", BYTES, 1000.0),
        (2, SECONDS, 2.0),
        (0, SECONDS, 0.0),
    ],
)
def test_numbers_and_texts_are_read(text: object, unit: dict[str, float], number: float) -> None:
    assert quantity(text, unit, "x") == number


@given(st.floats(1e-3, 1e6), st.sampled_from(sorted(BYTES_PER_S)))
def test_bits_are_an_eighth_of_bytes(number: float, unit: str) -> None:
    found = quantity(f"{number:.6f} {unit}", BYTES_PER_S, "x")
    if unit.endswith("B/s"):
        bits = f"{unit.removesuffix('B/s')}b/s"
        if bits in BYTES_PER_S:
            assert quantity(f"{number:.6f} {bits}", BYTES_PER_S, "x") * 8 == pytest.approx(found)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        ("fast", SECONDS, r"`latency_s` is 'fast', which is no number with a unit; .* as \"5 us\""),
        ("5", SECONDS, r"is '5', which is no number with a unit"),
        ("5 usec", SECONDS, r"is '5 usec', and `usec` is no unit of it\. .*There are: .*us"),
        ("100 Gbps", BYTES_PER_S, r"`Gbps` is no unit of it\. Did you mean"),
        (True, SECONDS, r"is True; write a number of s"),
        ([1], BYTES, r"is \[1\]; write a number of B, or a text with a unit, as \"80 GB\""),
        (-1, FLOPS_PER_S, r"is -1; it is a number of FLOP/s, 0 or more"),
        ("-1 us", SECONDS, r"is '-1 us'; it is a number of s, 0 or more"),
        (float("inf"), SECONDS, r"is inf; it is a number of s"),
        ("1.2.3 s", SECONDS, r"is '1.2.3 s', which is no number"),
    ],
)
def test_what_is_no_quantity_is_refused(value: object, unit: dict[str, float], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        quantity(value, unit, "`latency_s`")
