"""One machine's devices against those of all machines: when the few win."""

from __future__ import annotations

from dataclasses import dataclass

from dure.advise.cost import Network, one_device_s
from dure.advise.machines import Site
from dure.advise.outlook import Outlook, batches
from dure.advise.reckon import exchange_s

__all__ = ["Contest", "contest"]


@dataclass(frozen=True, slots=True)
class Contest:
    """A step of the devices of the fullest machine against a step of all of them.

    Attributes:
        few: devices of one machine.
        many: devices of all machines.
        machines: how many machines.
        few_s: a step of the few.
        many_s: a step of the many.
        saved_s: what the many compute less, each.
        between_s: what the sums between the machines take.
        flips_at: the batch from which on the many win; None where the few win up to the whole of the data.
        grows: how many times as large weights and computing together would have to be for the many to win at this
            batch: 1 or less where they win already; None where no size does it.
    """

    few: int
    many: int
    machines: int
    few_s: float
    many_s: float
    saved_s: float
    between_s: float
    flips_at: int | None
    grows: float | None


def contest(outlook: Outlook, network: Network) -> Contest | None:
    """Sets one machine against all.

    Args:
        outlook: what was asked.
        network: the model on one device of the site.

    Returns:
        The contest; None where there is one machine.
    """
    site = outlook.site
    if site is None or len(site.machines(site.best.name)) < 2:
        return None
    machines = site.machines(site.best.name)
    few, many = machines[0], sum(machines)
    batch_size, size_bytes = outlook.asked.batch_size, network.gradients.size_bytes
    inside_s = exchange_s(site, machines[:1], size_bytes)
    between_s = exchange_s(site, machines, size_bytes) - inside_s
    few_s, many_s = _share_s(network, batch_size, few), _share_s(network, batch_size, many)
    flips_at = None
    for rows in reversed(batches(outlook.facts.rows)):
        if _share_s(network, rows, few) - _share_s(network, rows, many) <= between_s:
            break
        flips_at = rows
    return Contest(
        few,
        many,
        len(machines),
        few_s + inside_s,
        many_s + inside_s + between_s,
        few_s - many_s,
        between_s,
        flips_at,
        _growth(site, machines, few_s - many_s, between_s),
    )


def _share_s(network: Network, batch_size: int, number: int) -> float:
    return one_device_s(network, -(-batch_size // number), 1, 1)


def _growth(site: Site, machines: tuple[int, ...], saved_s: float, between_s: float) -> float | None:
    """Where k times the weights save k times as much and send k times the bytes: k saved = latency + k sent."""
    latency_s = exchange_s(site, machines, 0.0) - exchange_s(site, machines[:1], 0.0)
    sent_s = between_s - latency_s
    return latency_s / (saved_s - sent_s) if saved_s > sent_s else None
