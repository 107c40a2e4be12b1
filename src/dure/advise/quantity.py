"""Numbers as a person reads them: the same text in the table, the verdict and the report."""

from __future__ import annotations

import math

__all__ = ["bytes_text", "count_text", "percent_text", "seconds_text", "signed_text"]


def seconds_text(seconds: float) -> str:
    """A time with three figures and the unit that suits it.

    Example:
        >>> (
        ...     seconds_text(0.000287),
        ...     seconds_text(0.0431),
        ...     seconds_text(8.524),
        ...     seconds_text(173),
        ...     seconds_text(4000),
        ... )
        ('287 µs', '43.1 ms', '8.52 s', '173 s', '1 h 07 min')
    """
    size = abs(seconds)
    if size >= 3600:
        minutes = round(seconds / 60)
        return f"{minutes // 60} h {minutes % 60:02d} min"
    if size >= 600:
        return f"{seconds / 60:.1f} min"
    if size >= 0.9995:
        return f"{_figures(seconds)} s"
    if size >= 0.9995e-3:
        return f"{_figures(seconds * 1e3)} ms"
    return f"{_figures(seconds * 1e6)} µs" if seconds else "0 s"


def signed_text(seconds: float) -> str:
    """A time with its sign, for a difference.

    Example:
        >>> signed_text(0.0012), signed_text(-0.0012)
        ('+1.20 ms', '-1.20 ms')
    """
    return f"{'-' if seconds < 0 else '+'}{seconds_text(abs(seconds))}"


def bytes_text(size: int) -> str:
    """A size in the unit that suits it.

    Example:
        >>> bytes_text(612 * 2**20), bytes_text(int(3.25 * 2**30))
        ('612 MiB', '3.25 GiB')
    """
    if size >= 2**30:
        return f"{_figures(size / 2**30)} GiB"
    return f"{size / 2**20:.0f} MiB"


def count_text(number: float) -> str:
    """A count or a rate with three figures, thousands set apart.

    Example:
        >>> count_text(3412.4), count_text(6.512), count_text(60000)
        ('3,412', '6.51', '60,000')
    """
    return f"{number:,.0f}" if number >= 100 else _figures(number)


def percent_text(share: float) -> str:
    """A share of a whole, in percent.

    Example:
        >>> percent_text(0.4049), percent_text(0.004)
        ('40 %', '0.4 %')
    """
    return f"{share * 100:.0f} %" if abs(share) >= 0.01 or share == 0 else f"{share * 100:.1f} %"


def _figures(number: float) -> str:
    """Three figures: 1.23, 12.3, 123."""
    if number == 0:
        return "0"
    before = math.floor(math.log10(abs(float(f"{abs(number):.3g}")))) + 1
    return f"{number:.{max(0, min(2, 3 - max(before, 1)))}f}"
