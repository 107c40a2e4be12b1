"""Unlike devices side by side: who sets the pace, by how much, and what shares by speed would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dure.advise.cost import Network
from dure.advise.machines import Processor, Site
from dure.advise.reckon import exchange_s, step_s

__all__ = ["Member", "Pace", "pace", "shares"]


@dataclass(frozen=True, slots=True)
class Member:
    """All devices of one name in such a group.

    Attributes:
        name: of the device.
        kind: `cpu`, `gpu` or `tpu`.
        number: how many.
        seconds: that each computes for an equal share.
        rows: of each, where shares follow the speed; the last ones have one row less.
    """

    name: str
    kind: str
    number: int
    seconds: float
    rows: int


@dataclass(frozen=True, slots=True)
class Pace:
    """A step of all devices of a site together.

    Attributes:
        members: the devices, the slowest first.
        share: rows of each, where all have the same.
        equal_s: a step with equal shares, exchange included.
        fitted_s: a step with shares by speed, exchange included.
        without_s: a step of the fastest kind alone, equal shares, exchange included.
    """

    members: tuple[Member, ...]
    share: int
    equal_s: float
    fitted_s: float
    without_s: float

    @property
    def slowest(self) -> Member:
        """Who sets the pace."""
        return self.members[0]

    @property
    def fastest(self) -> Member:
        """Who waits the longest."""
        return self.members[-1]

    @property
    def factor(self) -> float:
        """How much longer the slowest computes than the fastest, with equal shares."""
        return self.slowest.seconds / self.fastest.seconds


def pace(site: Site, network: Network, batch_size: int, share: float) -> Pace | None:
    """A step of unlike devices.

    Args:
        site: the machines.
        network: what XLA counts of the model.
        batch_size: rows of the global batch.
        share: of its roofline that a device reaches, where the table has none.

    Returns:
        Who sets the pace; None where all devices are alike.
    """
    total = site.total()
    if len(total) < 2:
        return None
    best = site.best
    crew = [site.devices[name] for name, number in total.items() for _ in range(number)]
    equal = -(-batch_size // len(crew))
    rows = shares(crew, network, batch_size, share)
    seconds = {name: step_s(site.devices[name], network, equal, share) for name in total}
    most = {name: max(r for r, one in zip(rows, crew, strict=True) if one.name == name) for name in total}
    parts = tuple(sum(number for _, number in host.devices) for host in site.hosts for _ in range(host.count))
    met_s = exchange_s(site, parts, network.gradients.size_bytes)
    own = site.machines(best.name)
    own_s = step_s(best, network, -(-batch_size // sum(own)), share)
    own_met_s = exchange_s(site, own, network.gradients.size_bytes)
    working = [name for name in total if most[name]]
    if working == [best.name]:
        fitted_s = own_s + own_met_s
    else:
        fitted_s = max(step_s(site.devices[name], network, most[name], share) for name in working) + met_s
    members = [Member(name, site.devices[name].kind, total[name], seconds[name], most[name]) for name in total]
    members.sort(key=lambda member: (-member.seconds, member.name))
    return Pace(tuple(members), equal, max(seconds.values()) + met_s, fitted_s, own_s + own_met_s)


def shares(crew: Sequence[Processor], network: Network, batch_size: int, share: float) -> tuple[int, ...]:
    """Rows of each device, so that the last of them is done as early as can be.

    Args:
        crew: the devices.
        network: what XLA counts of the model.
        batch_size: rows to be shared out.
        share: as in `pace`.

    Returns:
        Whole rows that add up to the batch; a device that is slower to start than the others are to end gets none.
    """

    def rows_in(processor: Processor, seconds: float) -> int:
        low, high = 0, batch_size
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if step_s(processor, network, middle, share) <= seconds else (low, middle - 1)
        return low

    unlike = {processor.name: processor for processor in crew}
    below, enough = 0.0, min(step_s(one, network, batch_size, share) for one in unlike.values())
    for _ in range(60):
        middle = (below + enough) / 2
        found = {name: rows_in(one, middle) for name, one in unlike.items()}
        if sum(found[one.name] for one in crew) >= batch_size:
            enough = middle
        else:
            below = middle
    most = {name: rows_in(one, enough) for name, one in unlike.items()}
    left, given = batch_size, []
    for processor in crew:
        given.append(min(left, most[processor.name]))
        left -= given[-1]
    return tuple(given)
