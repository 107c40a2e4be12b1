"""Where a step's time goes, found by subtracting measured runs that differ in one thing.

A step of n devices on a batch of B rows is set against an n-th of one device's step. Each control adds one
thing to the one before it, so the differences add up to the whole step exactly:

| control | adds |
| --- | --- |
| one device, B rows, divided by n | what n devices would take if nothing were lost |
| one device, ceil(B / n) rows | a smaller batch fills a device less |
| the strategy on one device, ceil(B / n) rows | the strategy itself |
| n devices that exchange nothing, B rows | devices that share cores, caches and memory |
| n devices, B rows | the exchange |
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from dure.advise.record import Control, Record

__all__ = ["Cause", "Part", "Split", "controls", "needed", "replicas", "split"]


class Cause(enum.Enum):
    """What a step of a distributed strategy spends beyond its share of the single device's step."""

    BATCH = "smaller batches"
    STRATEGY = "the strategy itself"
    CORES = "shared cores"
    EXCHANGE = "the exchange"
    START = "the start"


@dataclass(frozen=True, slots=True)
class Part:
    """What one cause takes.

    Attributes:
        cause: Which.
        seconds: Of each step; negative where this made the step shorter.
        noise_s: How far the controls' repeats lie apart: a smaller part is not shown by this run.
    """

    cause: Cause
    seconds: float
    noise_s: float

    @property
    def shown(self) -> bool:
        """Whether the part is larger than the noise of the runs that it was found from."""
        return abs(self.seconds) > self.noise_s


@dataclass(frozen=True, slots=True)
class Split:
    """One step of a strategy taken apart.

    Attributes:
        strategy: As asked, `mirrored:2`.
        devices: n.
        batch_size: B.
        single_s: One device's step at B rows, seconds.
        ideal_s: An n-th of it.
        share_s: One device's step at a replica's share of the rows, seconds.
        step_s: The strategy's step; `ideal_s` and the parts add up to it.
        parts: The causes, in the order in which they were subtracted.
    """

    strategy: str
    devices: int
    batch_size: int
    single_s: float
    ideal_s: float
    share_s: float
    step_s: float
    parts: tuple[Part, ...]

    @property
    def share(self) -> int:
        """Rows of a replica: ceil(B / n)."""
        return -(-self.batch_size // self.devices)

    def largest(self) -> Part | None:
        """The part that takes the most, or None where no part takes more than the noise."""
        costly = [part for part in self.parts if part.seconds > 0 and part.shown]
        return max(costly, key=lambda part: part.seconds, default=None)


def replicas(strategy: str) -> int:
    """How many devices a strategy trains on: 1 for `single`, n for `mirrored:n` and `multi-worker:n`."""
    return int(strategy.partition(":")[2] or 1)


def controls(strategy: str, batch_size: int) -> tuple[Control, ...]:
    """The measuring runs that take a step of `strategy` apart, the single device's first.

    Example:
        >>> for control in controls("mirrored:2", 25):
        ...     print(control)
        single at 25 rows
        single at 13 rows
        mirrored:1 at 13 rows
        mirrored:2 at 25 rows without exchange
        mirrored:2 at 25 rows
        >>> [str(control) for control in controls("multi-worker:2", 25)][2:]
        ['mirrored:1 at 13 rows', 'multi-worker:2 at 25 rows without exchange', 'multi-worker:2 at 25 rows']
    """
    kind, devices = strategy.partition(":")[0], replicas(strategy)
    full = Control("single", 1, batch_size)
    if kind == "single":
        return (full,)
    whole = Control(kind, devices, batch_size)
    if devices == 1:  # it shares no cores and exchanges nothing: only the strategy is left
        return (full, whole)
    share = -(-batch_size // devices)
    # One process of a multi-worker strategy by itself is a mirror of one device.
    alone = Control("mirrored", 1, share)
    apart = Control(kind, devices, batch_size, exchange=False)
    return (full, Control("single", 1, share), alone, apart, whole)


def needed(strategies: Iterable[str], batch_size: int) -> tuple[Control, ...]:
    """The controls that a comparison needs, each once, in the order of their first use."""
    distributed = [strategy for strategy in strategies if strategy != "single"]
    return tuple(dict.fromkeys(c for strategy in distributed for c in controls(strategy, batch_size)))


def split(record: Record, strategy: str) -> Split | None:
    """Takes one step of a strategy apart.

    Args:
        record: What was measured.
        strategy: One of the record's strategies.

    Returns:
        The parts, or None for `single` and where a control is missing.
    """
    batch_size, devices = record.settings.batch_size, replicas(strategy)
    wanted = controls(strategy, batch_size)
    probes = [probe for control in wanted if (probe := record.probe(control)) is not None]
    if strategy == "single" or len(probes) < len(wanted):
        return None
    full, whole = probes[0], probes[-1]
    ideal_s = full.middle_s / devices
    if devices == 1:
        causes: tuple[Cause, ...] = (Cause.STRATEGY,)
    else:
        causes = (Cause.BATCH, Cause.STRATEGY, Cause.CORES, Cause.EXCHANGE)
    below = [(ideal_s, full.spread_s / devices), *((p.middle_s, p.spread_s) for p in probes[1:-1])]
    above = [(probe.middle_s, probe.spread_s) for probe in probes[1:]]
    parts = tuple(
        Part(cause, high - low, noise_low + noise_high)
        for cause, (low, noise_low), (high, noise_high) in zip(causes, below, above, strict=True)
    )
    return Split(
        strategy=strategy,
        devices=devices,
        batch_size=batch_size,
        single_s=full.middle_s,
        ideal_s=ideal_s,
        share_s=full.middle_s if devices == 1 else probes[1].middle_s,
        step_s=whole.middle_s,
        parts=parts,
    )
