"""What machines that are not here would take: a roofline for their devices, closed forms for their links.

The result is a `Network` and a `Calibration` like those that are measured, so that one cost model serves both. It is a
reckoning: what is measured here (operations, bytes, and the share of its peak that this machine reaches) meets what a
table says of the other devices.

Source: Williams, Waterman, Patterson, "Roofline" (2009); Thakur, Rabenseifner, Gropp, "Optimization of collective
communication operations in MPICH" (2005), for the ring and its two halves, one inside and one between machines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dure.advise.calibration import Calibration, Exchange, Point, Team, interpolated
from dure.advise.cost import Network
from dure.advise.machines import Link, Processor, Site
from dure.errors import SpecError

__all__ = ["calibration_of", "efficiency", "exchange_s", "network_on", "spread", "step_s"]

LARGEST = 2**20
"""Rows up to which a step is reckoned."""

ALONE = (Point(1.0, 1.0),)
"""Of devices that share nothing: none is slowed down by another."""


def efficiency(network: Network, here: Calibration) -> float:
    """The share of this machine's roofline that the largest measured step reaches.

    Args:
        network: what was measured of the model, with what XLA counts.
        here: this machine.

    Returns:
        Above 0, at most 1: a step whose data stay in a cache may be faster than main memory allows.

    Raises:
        SpecError: XLA counted nothing, so nothing can be reckoned for other machines.
    """
    if not network.flops or not network.traffic or network.flops[-1].seconds <= 0:
        raise SpecError(
            f"machines that are not here were asked for, and XLA counted {len(network.flops)} times what operations a "
            "step of this model holds; measure on those machines themselves with `dure advise`"
        )
    rows, seconds = network.points[-1]
    floor_s = max(_flops(network, rows) / here.flops_per_s, _traffic(network, rows) / here.bytes_per_s)
    return min(1.0, floor_s / seconds)


def _flops(network: Network, rows: float) -> float:
    return interpolated(network.flops, rows)


def _traffic(network: Network, rows: float) -> float:
    return interpolated(network.traffic, rows)


def step_s(processor: Processor, network: Network, rows: float, share: float) -> float:
    """What a step of one device would take.

    Args:
        processor: the device.
        network: what XLA counts of the model.
        rows: of the step.
        share: of its roofline that it reaches, where the table has none.

    Returns:
        Seconds: the launch, and the slower of computing and moving.
    """
    floor_s = max(_flops(network, rows) / processor.flops_per_s, _traffic(network, rows) / processor.bytes_per_s)
    return processor.dispatch_s + floor_s / (processor.efficiency or share)


def network_on(processor: Processor, network: Network, share: float) -> Network:
    """The model as one device of another machine would train it.

    Args:
        processor: the device.
        network: the model, measured here.
        share: of the roofline, as `efficiency` gives it.
    """
    rows = [0, *(2**power for power in range(LARGEST.bit_length()))]
    points = tuple(Point(count, step_s(processor, network, count, share)) for count in rows)
    return replace(network, points=points, points_one=())


def spread(machines: tuple[int, ...], number: int) -> tuple[int, ...]:
    """How many of so many devices lie in each machine: one machine is filled before the next.

    Example:
        >>> spread((8, 8), 8), spread((8, 8), 12)
        ((8,), (8, 4))
    """
    found: list[int] = []
    for room in machines:
        if number:
            found.append(min(room, number))
            number -= found[-1]
    return tuple(found)


def exchange_s(site: Site, parts: tuple[int, ...], size_bytes: float) -> float:
    """What an all-reduce takes: sums inside each machine, sums between machines, results inside again.

    Args:
        site: whose links.
        parts: how many devices take part in each machine.
        size_bytes: that every device brings.

    Returns:
        Seconds: 2 (n - 1) messages of an n-th each inside the fullest machine, the same between the machines.
    """

    def ring_s(link: Link | None, number: int) -> float:
        if link is None or number < 2:
            return 0.0
        return 2 * (number - 1) * (link.latency_s + size_bytes / number / link.bytes_per_s)

    return ring_s(site.inside, max(parts)) + ring_s(site.between, len(parts))


def calibration_of(site: Site, network: Network, here: Calibration, numbers: Iterable[int]) -> Calibration:
    """The site as if it had been calibrated, for its fastest kind of device.

    Args:
        site: the machines.
        network: what replicas of it exchange.
        here: this machine, for what its table does not say: how long processes take to start.
        numbers: of devices that are of interest; those that are not there are left out.
    """
    best = site.best
    machines = site.machines(best.name)
    start_s = max((team.start_s for team in here.between), default=0.0)
    wanted = sorted({number for number in numbers if number > 1})
    largest = max(network.state.size_bytes, network.gradients.size_bytes, 2.0)

    def team(number: int, start_s: float) -> Team:
        parts = spread(machines, number)
        # Arrays are joined to one message, as XLA joins the all-reduces of accelerators; local SGD's choice is taken
        # to read and write once what it chooses from.
        sizes = tuple(Point(size, exchange_s(site, parts, size)) for size in (1.0, largest))
        return Team(number, 1.0, ALONE, Exchange(sizes), start_s, 2 / best.bytes_per_s)

    return Calibration(
        device=f"{best.name} of {site.name}",
        kind=best.kind,
        cores=1,
        dispatch_s=best.dispatch_s,
        flops_per_s=best.flops_per_s,
        bytes_per_s=best.bytes_per_s,
        inside=tuple(team(number, 0.0) for number in wanted if number <= machines[0]),
        between=tuple(team(number, start_s) for number in wanted if number <= sum(machines)),
        key={"machines": site.name},
    )
