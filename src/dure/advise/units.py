"""Quantities as a person writes them, `100 Gb/s` or `5 us`, read into seconds, bytes and operations."""

from __future__ import annotations

import math
import re

from dure.errors import SpecError, hint

__all__ = ["BYTES", "BYTES_PER_S", "FLOPS_PER_S", "SECONDS", "Unit", "quantity"]

Unit = dict[str, float]
"""Names of units, each with what one of it is in the unit without a prefix."""

_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}

SECONDS: Unit = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
BYTES: Unit = {f"{prefix}B": size for prefix, size in {**_PREFIXES, **_BINARY}.items()}
FLOPS_PER_S: Unit = {f"{prefix}FLOP/s": size for prefix, size in _PREFIXES.items()}
# Links are sold by bits, memory by bytes: one letter tells them apart, as everywhere in the field.
BYTES_PER_S: Unit = {
    **{f"{prefix}/s": size for prefix, size in BYTES.items()},
    **{f"{prefix}{bit}/s": size / 8 for prefix, size in _PREFIXES.items() for bit in ("b", "bit")},
}

_WRITTEN = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9.]\S*)\s*")


def quantity(value: object, unit: Unit, where: str) -> float:
    """Reads a number in the unit without a prefix, or a text of a number and a unit.

    Args:
        value: what was written.
        unit: the units that are understood, the one without a prefix first.
        where: what it is, for the message, as `flops_per_s of [devices.gpu]`.

    Returns:
        The quantity, 0 or more.

    Raises:
        SpecError: it is no such quantity, or below zero.

    Example:
        >>> quantity("100 Gb/s", BYTES_PER_S, "x"), quantity("5 us", SECONDS, "x"), quantity(8e9, BYTES, "x")
        (12500000000.0, 5e-06, 8000000000.0)
    """
    plain = next(iter(unit))
    if isinstance(value, str):
        written = _WRITTEN.fullmatch(value)
        if written is None:
            raise SpecError(
                f"{where} is {value!r}, which is no number with a unit; write a number of {plain}, or a text as "
                f'"{_sample(unit)}"'
            )
        if written[2] not in unit:
            raise SpecError(f"{where} is {value!r}, and `{written[2]}` is no unit of it. {hint(written[2], unit)}")
        return _checked(float(written[1].replace("_", "")) * unit[written[2]], value, where, plain)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecError(f'{where} is {value!r}; write a number of {plain}, or a text with a unit, as "{_sample(unit)}"')
    return _checked(float(value), value, where, plain)


def _checked(number: float, value: object, where: str, plain: str) -> float:
    if not math.isfinite(number) or number < 0:
        raise SpecError(f"{where} is {value!r}; it is a number of {plain}, 0 or more: mend it")
    return float(f"{number:.15g}")  # 5 us is 5e-06, not the nearest product of binary fractions


def _sample(unit: Unit) -> str:
    """What such a quantity may look like."""
    return {"s": "5 us", "B": "80 GB", "FLOP/s": "60 TFLOP/s"}.get(next(iter(unit)), "100 Gb/s")
