"""What advice rests on, as plain values, and what follows from it for each strategy. Pure: no clock, no devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from dure.advise.calibration import Calibration
from dure.advise.cause import Cause, Split, replicas
from dure.advise.cost import Network, Plan, Prediction, predict
from dure.advise.machines import Site
from dure.advise.pace import Pace, pace
from dure.advise.reckon import calibration_of, efficiency, network_on
from dure.advise.record import Facts

__all__ = [
    "SAME",
    "WORTH",
    "Asked",
    "Basis",
    "Line",
    "Outlook",
    "Reach",
    "at_batch",
    "basis",
    "batches",
    "kinds",
    "lines",
    "numbers",
    "ranges",
    "reach",
    "split_part",
    "unlike",
]

FORMAT = 1
"""Version of the dictionary form."""

SAME = 0.1
"""Ratios nearer to 1 than this are called equal: the model is not sure enough to tell them apart."""

WORTH = 0.02
"""What a step has to gain at least to count as faster: curves that lie on one another do not cross."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What advice was asked for.

    Attributes:
        model: the model in words.
        data: the data in words.
        strategies: `single`, `mirrored:2`, `multi-worker:2`; `single` is always among them.
        sync_every: how often replicas meet: `step`, numbers of steps, `epoch`.
        batch_size: rows of one global batch.
        epochs: passes over the training rows.
        seed: of weights and data order.
    """

    model: str
    data: str
    strategies: tuple[str, ...]
    sync_every: tuple[str | int, ...]
    batch_size: int
    epochs: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Outlook:
    """Everything that a piece of advice rests on.

    Attributes:
        asked: what was asked for.
        facts: what the data turned out to be.
        network: what was measured of the model, on one device of this machine.
        here: what was measured of this machine.
        most: the most devices that are looked at: those that are there, or what virtual ones may stand for.
        site: the machines that were asked about, where they are not this one.
        virtual: whether the devices of `mirrored` share one processor.
        command: the command line or call that asks the same again.
        began: when, as ISO 8601 text.
        took_s: how long measuring took, seconds.
    """

    asked: Asked
    facts: Facts
    network: Network
    here: Calibration
    most: int
    site: Site | None = None
    virtual: bool = True
    command: str = ""
    began: str = ""
    took_s: float = 0.0

    @property
    def plan(self) -> Plan:
        """What is to be trained."""
        return Plan(self.asked.batch_size, self.facts.rows, self.asked.epochs)

    def to_dict(self) -> dict[str, Any]:
        """The values as JSON can carry them."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain |= {"asked": dataclasses.asdict(self.asked), "facts": dataclasses.asdict(self.facts)}
        plain |= {"network": dataclasses.asdict(self.network), "here": self.here.to_dict()}
        plain["site"] = dataclasses.asdict(self.site) if self.site else None
        return {"format": FORMAT, **plain}


class Basis(NamedTuple):
    """What the cost model reads.

    Attributes:
        network: the model on one device.
        machine: the machine, or the machines.
        share: of its roofline that a reckoned device reaches; 0 where all is measured.
    """

    network: Network
    machine: Calibration
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Line:
    """One strategy, and how often its replicas meet.

    Attributes:
        strategy: as asked, `mirrored:2`.
        sync_every: `step`, `epoch` or a number of steps.
        prediction: what it would take; None where the machine has no figures for it.
        ratio: its seconds divided by those of `single`; 0 where there is no prediction.
        pays: the ranges of batches, within the data, in which its step is faster than one device's: the first, and
            the last or None where it pays up to the whole of the data.
        fits: whether weights and optimizer fit into a device's memory.
    """

    strategy: str
    sync_every: str | int
    prediction: Prediction | None
    ratio: float = 0.0
    pays: tuple[tuple[int, int | None], ...] = ()
    fits: bool = True

    @property
    def devices(self) -> int:
        """How many devices train."""
        return replicas(self.strategy)


@dataclass(frozen=True, slots=True)
class Reach:
    """A kind of strategy over numbers of devices, at the batch asked for.

    Attributes:
        kind: `mirrored` or `multi-worker`.
        sync_every: how often replicas meet.
        seconds: of a step, by number of devices from 1.
        pays_from: the smallest number whose step is faster than one device's; None where none is.
        best: the number with the shortest step; 1 where none is faster than one device's.
    """

    kind: str
    sync_every: str | int
    seconds: tuple[tuple[int, float], ...]
    pays_from: int | None
    best: int


def basis(outlook: Outlook) -> Basis:
    """What the cost model reads: what was measured here, or what follows from it for other machines.

    Raises:
        SpecError: other machines were asked about, and XLA counted nothing of the model.
    """
    if outlook.site is None:
        return Basis(outlook.network, outlook.here)
    share = efficiency(outlook.network, outlook.here)
    wanted = {replicas(strategy) for strategy in outlook.asked.strategies} | set(numbers(outlook.most))
    machine = calibration_of(outlook.site, outlook.network, outlook.here, wanted)
    return Basis(network_on(outlook.site.best, outlook.network, share), machine, share)


def lines(outlook: Outlook, on: Basis) -> tuple[Line, ...]:
    """Every strategy with every way to meet, in the order asked; `single` first.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
    """
    single = predict(on.network, on.machine, "single", outlook.plan)
    fits = outlook.site is None or _fits(outlook, outlook.site.best.memory_bytes)
    found = [Line("single", "step", single, 1.0, fits=fits)]
    for strategy in outlook.asked.strategies:
        if strategy == "single":
            continue
        # Nobody to meet: one line says it all.
        ways = outlook.asked.sync_every if replicas(strategy) > 1 else ("step",)
        found += [_line(outlook, on, single, strategy, every, fits) for every in ways]
    return tuple(found)


def _line(outlook: Outlook, on: Basis, single: Prediction, strategy: str, every: str | int, fits: bool) -> Line:
    try:
        found = predict(on.network, on.machine, strategy, outlook.plan, every)
    except KeyError:  # the calibration could not measure such teams, and its notes say why
        return Line(strategy, every, None)
    pays = ranges(outlook, on, strategy, every) if replicas(strategy) > 1 else ()
    return Line(strategy, every, found, found.seconds / single.seconds, pays, fits)


def ranges(
    outlook: Outlook, on: Basis, strategy: str, sync_every: str | int, *, own_cores: bool = False
) -> tuple[tuple[int, int | None], ...]:
    """The batches at which a strategy's step is faster than one device's.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        strategy: as in `predict`.
        sync_every: how often replicas meet.
        own_cores: as if each device had for itself the cores that they share.

    Returns:
        Ranges of batches, to about a twentieth, as in `Line`. No batch is larger than the data.
    """
    found: list[tuple[int, int | None]] = []
    first = last = 0
    for batch_size in batches(outlook.facts.rows, replicas(strategy)):
        split = at_batch(outlook, on, strategy, sync_every, batch_size).split
        shared_s = split_part(split, Cause.CORES) if own_cores else 0.0
        if split.step_s - shared_s < (1 - WORTH) * split.single_s:
            first, last = first or batch_size, batch_size
        elif first:
            found.append((first, last))
            first = 0
    return (*found, (first, None)) if first else tuple(found)


def split_part(split: Split, cause: Cause) -> float:
    """Seconds that a cause takes of a step; 0 where it is no part of it."""
    return next((part.seconds for part in split.parts if part.cause is cause), 0.0)


def batches(rows: int, devices: int = 1) -> tuple[int, ...]:
    """Batches up to the whole of the data, each about a twentieth larger than the one before.

    Args:
        rows: of the data.
        devices: that share a batch; all have equal shares, so that a row too many does not hide what larger ones gain.

    Example:
        >>> batches(6), batches(9, 4)
        ((1, 2, 3, 4, 5, 6), (4, 8))
    """
    most = max(rows - rows % devices, min(rows, devices))
    sizes = [min(rows, devices)]
    while sizes[-1] < most:
        larger = max(sizes[-1] + devices, sizes[-1] * 21 // 20)
        sizes.append(min(most, larger - larger % devices))
    return tuple(sizes)


def _fits(outlook: Outlook, memory_bytes: float) -> bool:
    """Whether weights, optimizer and gradients fit; activations are not known."""
    network = outlook.network
    return not memory_bytes or network.state_bytes + network.gradients.size_bytes <= memory_bytes


def numbers(most: int) -> tuple[int, ...]:
    """The numbers of devices that are looked at: all small ones, then ever rarer.

    Example:
        >>> numbers(6), numbers(16)
        ((1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 7, 8, 12, 16))
    """
    found = list(range(1, max(1, min(most, 8)) + 1))
    step = 4
    while found[-1] < most:
        step = max(step, found[-1] // 2)
        found.append(min(most, found[-1] + step))
    return tuple(found)


def reach(outlook: Outlook, on: Basis, kind: str, sync_every: str | int) -> Reach | None:
    """A kind of strategy over numbers of devices.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        kind: `mirrored` or `multi-worker`.
        sync_every: how often replicas meet.

    Returns:
        Seconds by number; None where the machine has no figures for such teams.
    """
    teams = on.machine.inside if kind == "mirrored" else on.machine.between
    if not teams:
        return None
    most = max(team.number for team in teams) if outlook.site else outlook.most
    single_s = predict(on.network, on.machine, "single", outlook.plan).step_s
    names = {number: f"{kind}:{number}" for number in numbers(most)[1:]}
    found = [(1, single_s)]
    found += [(n, predict(on.network, on.machine, name, outlook.plan, sync_every).step_s) for n, name in names.items()]
    pays_from = next((number for number, seconds in found[1:] if seconds < (1 - WORTH) * single_s), None)
    best = min(found, key=lambda pair: pair[1])[0] if pays_from else 1
    return Reach(kind, sync_every, tuple(found), pays_from, best)


def at_batch(outlook: Outlook, on: Basis, strategy: str, sync_every: str | int, batch_size: int) -> Prediction:
    """A strategy at another batch.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        strategy: as in `predict`.
        sync_every: how often replicas meet.
        batch_size: rows of the other batch.
    """
    plan = replace(outlook.plan, batch_size=batch_size)
    return predict(on.network, on.machine, strategy, plan, sync_every)


def unlike(outlook: Outlook, on: Basis) -> Pace | None:
    """Unlike devices of the machines asked about, side by side; None where all are alike."""
    if outlook.site is None:
        return None
    return pace(outlook.site, outlook.network, outlook.asked.batch_size, on.share)


def kinds(strategies: Iterable[str]) -> tuple[str, ...]:
    """The kinds among strategies that have several devices, in order.

    Example:
        >>> kinds(["single", "mirrored:2", "mirrored:4", "multi-worker:2"])
        ('mirrored', 'multi-worker')
    """
    return tuple(dict.fromkeys(one.partition(":")[0] for one in strategies if replicas(one) > 1))
