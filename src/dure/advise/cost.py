"""The cost model: how long a step takes under a strategy, from one device's measured step. Records in, records out.

A step of n replicas is taken apart as `dure.advise.cause` takes measured ones apart: an n-th of one device's step, what
smaller batches lose, what the strategy adds, what shared cores cost, and the exchange. Pure: no clock, no devices.
`docs/design/cost.md` has the closed forms and their sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from dure.advise.calibration import Calibration, Exchange, Point, Team, interpolated
from dure.advise.cause import Cause, Part, Split, replicas

__all__ = ["Load", "Network", "Plan", "Prediction", "crossing", "one_device_s", "predict"]

MOST_ROWS = 2**20
"""Batches beyond this are not looked at for a crossing."""


class Load(NamedTuple):
    """What is exchanged at once.

    Attributes:
        arrays: how many arrays: inside a process each is a message.
        size_bytes: of all of them together.
        messages: how many there are between processes, where arrays of a dtype travel as one.
    """

    arrays: int
    size_bytes: float
    messages: int = 1


@dataclass(frozen=True, slots=True)
class Network:
    """What the cost model has to know of a model.

    Attributes:
        points: seconds of one device's training step by rows, measured with all cores.
        points_one: the same with one thread; empty where the device is no CPU.
        gradients: what replicas exchange in a step.
        state: what they exchange when they average under local SGD.
        state_bytes: weights and optimizer of one replica.
        flops: floating point operations of a step, by rows.
        traffic: bytes that a step reads and writes, by rows, as XLA counts them.
        first_step_s: seconds until the first step is done: tracing and compiling.
    """

    points: tuple[Point, ...]
    points_one: tuple[Point, ...]
    gradients: Load
    state: Load
    state_bytes: float
    flops: tuple[Point, ...] = ()
    traffic: tuple[Point, ...] = ()
    first_step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be trained.

    Attributes:
        batch_size: rows of one global batch.
        rows: training rows of an epoch.
        epochs: passes over them.
    """

    batch_size: int
    rows: int
    epochs: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, the short last one too."""
        return max(1, -(-self.rows // self.batch_size))

    @property
    def steps(self) -> int:
        """Steps of all epochs."""
        return self.steps_per_epoch * self.epochs


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a strategy is predicted to take.

    Attributes:
        strategy: as asked, `mirrored:2`.
        sync_every: `step`, `epoch` or a number of steps.
        seconds: of the whole training: start and steps.
        start_s: until the first step is done.
        split: its step taken apart; of one device the step alone.
        is_extrapolated: whether it rests on rows or devices outside what was measured.
    """

    strategy: str
    sync_every: str | int
    seconds: float
    start_s: float
    split: Split
    is_extrapolated: bool = False

    @property
    def step_s(self) -> float:
        """Seconds a step."""
        return self.split.step_s

    @property
    def limit(self) -> Cause | None:
        """What takes the most beyond an n-th of one device's step; None where that is all there is."""
        largest = self.split.largest()
        return None if largest is None else largest.cause


def one_device_s(network: Network, rows: float, threads: float, cores: int) -> float:
    """A step of one device by itself.

    Args:
        network: the model.
        rows: of the step.
        threads: that compute; between one and all cores by Amdahl's law through the two that were measured.
        cores: how many the measurement with all of them had.

    Returns:
        Seconds.
    """
    full = interpolated(network.points, rows)
    if not network.points_one or threads >= cores or cores == 1:
        return full
    one = interpolated(network.points_one, rows)
    shared = max(0.0, one - full) * (1 / threads - 1 / cores) / (1 - 1 / cores)
    return full + shared if threads > 1 else one


def predict(
    network: Network, machine: Calibration, strategy: str, plan: Plan, sync_every: str | int = "step"
) -> Prediction:
    """Predicts one strategy on the machine that was calibrated.

    Args:
        network: what was measured of one device.
        machine: what was measured of the machine.
        strategy: `single`, `mirrored:N` or `multi-worker:N`, the latter in N processes of one CPU device each.
        plan: what is trained.
        sync_every: how often replicas meet.

    Returns:
        The prediction.

    Raises:
        KeyError: the machine has no figures for such teams.
    """
    number = replicas(strategy)
    kind = strategy.partition(":")[0]
    single_s = one_device_s(network, plan.batch_size, machine.cores, machine.cores)
    start_s = network.first_step_s
    if number == 1:
        parts = () if kind == "single" else (Part(Cause.STRATEGY, 0.0, 0.0),)
        split = Split(strategy, 1, plan.batch_size, single_s, single_s, single_s, single_s, parts)
    else:
        team = team_of(machine.inside if kind == "mirrored" else machine.between, number, kind)
        split = _split(network, machine, team, strategy, plan, sync_every)
        start_s += team.start_s
    seconds = start_s + (plan.steps - 1) * split.step_s
    known = network.points_one if number > 1 and network.points_one else network.points
    outside = not known[0].size / 2 <= split.share <= known[-1].size * 2
    return Prediction(strategy, sync_every, seconds, start_s, split, outside)


def team_of(teams: Sequence[Team], number: int, kind: str) -> Team:
    """What was measured, or follows from what was measured, of a team of so many.

    Args:
        teams: those that were measured, the smallest first.
        number: how many are asked for.
        kind: `mirrored` or `multi-worker`, for the message and the form of the exchange.

    Raises:
        KeyError: none was measured.
    """
    if not teams:
        raise KeyError(kind)
    measured = next((team for team in teams if team.number == number), None)
    if measured is not None:
        return measured
    if len(teams) == 1 or kind != "mirrored":
        return _ring(teams[0], number)
    return _line(teams[0], teams[-1], number)


def _ring(team: Team, number: int) -> Team:
    """A larger team whose members stand in a ring: 2 (n - 1) messages of an n-th each."""
    turns = (number - 1) / (team.number - 1)
    share = (1 - 1 / number) / (1 - 1 / team.number)
    latency_s = team.exchange.sizes[0].seconds
    sizes = tuple(Point(p.size, latency_s * turns + (p.seconds - latency_s) * share) for p in team.exchange.sizes)
    exchange = replace(team.exchange, sizes=sizes, array_s=team.exchange.array_s * turns)
    return replace(team, number=number, exchange=exchange)


def _line(small: Team, large: Team, number: int) -> Team:
    """A team of another size, on the line through two that were measured."""

    def at(low: float, high: float) -> float:
        return max(0.0, low + (high - low) * (number - small.number) / (large.number - small.number))

    def each(low: Sequence[Point], high: Sequence[Point]) -> tuple[Point, ...]:
        return tuple(Point(a.size, at(a.seconds, b.seconds)) for a, b in zip(low, high, strict=True))

    exchange = Exchange(
        each(small.exchange.sizes, large.exchange.sizes),
        small.exchange.arrays,
        at(small.exchange.array_s, large.exchange.array_s),
    )
    return Team(
        number,
        max(1.0, at(small.computing, large.computing)),
        tuple(Point(p.size, max(1.0, p.seconds)) for p in each(small.moving, large.moving)),
        exchange,
        large.start_s,
        at(small.copy_s_per_byte, large.copy_s_per_byte),
    )


def _split(
    network: Network, machine: Calibration, team: Team, strategy: str, plan: Plan, sync_every: str | int
) -> Split:
    """One step of several replicas taken apart."""
    number, cores = team.number, machine.cores
    single_s = one_device_s(network, plan.batch_size, cores, cores)
    share = -(-plan.batch_size // number)
    busy_s = _busy_s(network, team, share, cores)
    batch_s = one_device_s(network, share, cores, cores)
    is_local = sync_every != "step"
    load = network.state if is_local else network.gradients
    messages = load.arrays if strategy.startswith("mirrored") else load.messages
    meetings = _meetings(plan, sync_every)
    exchange_s = team.exchange.seconds(messages, load.size_bytes) * meetings
    # XLA copies a state that goes through a choice: to average or not, and which of two numbers of rows.
    choices = (1 + (plan.batch_size % number > 0)) if is_local else 0
    strategy_s = choices * team.copy_s_per_byte * network.state_bytes * meetings
    parts = (
        Part(Cause.BATCH, batch_s - single_s / number, 0.0),
        Part(Cause.STRATEGY, strategy_s, 0.0),
        Part(Cause.CORES, busy_s - batch_s, 0.0),
        Part(Cause.EXCHANGE, exchange_s, 0.0),
    )
    step_s = busy_s + strategy_s + exchange_s
    return Split(strategy, number, plan.batch_size, single_s, single_s / number, batch_s, step_s, parts)


def _busy_s(network: Network, team: Team, share: int, cores: int) -> float:
    """A replica's step without exchange, while all others compute too.

    What grows with the rows is computing; what does not is the update, which moves weights through memory.
    """
    is_shared = bool(network.points_one)
    threads = max(1.0, cores / team.number) if is_shared else cores
    turns = max(1.0, team.number / cores) if is_shared else 1.0
    alone_s = one_device_s(network, share, threads, cores)
    fixed_s = min(one_device_s(network, 0, threads, cores), alone_s)
    moving = interpolated(team.moving, min(network.gradients.size_bytes, team.moving[-1].size))
    return turns * ((alone_s - fixed_s) * team.computing + fixed_s * max(1.0, moving))


def _meetings(plan: Plan, sync_every: str | int) -> float:
    """How often replicas meet, a step: with gradients at each, else every so many and at the end of an epoch."""
    if sync_every == "step":
        return 1.0
    steps = plan.steps_per_epoch
    within = 0 if sync_every == "epoch" else steps // int(sync_every)
    return (within + 1) / steps


def crossing(
    network: Network, machine: Calibration, strategy: str, plan: Plan, sync_every: str | int = "step"
) -> int | None:
    """The batch from which on a strategy is faster than one device.

    Args:
        network: what was measured of one device.
        machine: what was measured of the machine.
        strategy: `mirrored:N` or `multi-worker:N`.
        plan: what is trained; its batch does not matter.
        sync_every: how often replicas meet.

    Returns:
        The smallest batch from which on every larger one that was looked at is faster too, to about a twentieth;
        None where none is.
    """

    def pays(batch_size: int) -> bool:
        there = replace(plan, batch_size=batch_size, rows=max(plan.rows, batch_size))
        split = predict(network, machine, strategy, there, sync_every).split
        return split.step_s < split.single_s

    sizes = [1]
    while sizes[-1] < MOST_ROWS:
        sizes.append(max(sizes[-1] + 1, sizes[-1] * 21 // 20))
    found = None
    for batch_size in reversed(sizes):
        if not pays(batch_size):
            break
        found = batch_size
    return found
