"""What a reader of advice has to know besides: what is reckoned, unlike devices, several machines. Pure."""

from __future__ import annotations

from dure.advise.machines import Site
from dure.advise.outlook import Basis, Line, Outlook
from dure.advise.pace import Member, Pace
from dure.advise.quantity import bytes_text, percent_text, seconds_text
from dure.advise.versus import Contest

__all__ = ["caveats", "contest_text", "pace_text", "site_text"]

WHAT = "weights, optimizer and gradients"
"""What surely lies on a device; activations come on top."""


def pace_text(met: Pace) -> str:
    """Unlike devices side by side: who sets the pace, by how much, and what to do.

    Args:
        met: as `dure.advise.pace` reckons it.
    """
    slow, fast = met.slowest, met.fastest
    crew = " and ".join(f"{member.number} {member.name}" for member in reversed(met.members))
    said = (
        f"{crew} side by side: with equal shares of {met.share:,} rows {_one(slow)} sets the pace. It computes "
        f"{seconds_text(slow.seconds)}, {_one(fast)} {seconds_text(fast.seconds)}: {met.factor:,.1f} times as long, "
        f"and {_one(fast)} waits for {percent_text(1 - 1 / met.factor)} of that time. "
        f"A step takes {seconds_text(met.equal_s)}, against {seconds_text(met.without_s)} without {_one(slow)}."
    )
    sentences = [said, _fitted_text(met)]
    if slow.kind == "cpu" and fast.kind != "cpu":
        sentences.append(
            "So most systems leave the CPU out by default: TensorFlow's MirroredStrategy takes the CPU only where it "
            "finds no GPU, PyTorch and Horovod start one process a GPU, and Dure takes the fastest kind and refuses a "
            "mix of kinds."
        )
    return " ".join(sentences)


def _one(member: Member) -> str:
    return f"the {member.name}" if member.number == 1 else f"each {member.name}"


def _fitted_text(met: Pace) -> str:
    """What shares in proportion to speed would give."""
    if any(member.rows == 0 for member in met.members):
        idle = next(member for member in met.members if member.rows == 0)
        return f"Shares by speed would give {_one(idle)} no row at all: it is slower to start than the rest is to end."
    rows = ", ".join(f"{member.rows:,} for {_one(member)}" for member in reversed(met.members))
    gain = 1 - met.fitted_s / met.without_s
    said = (
        f"{percent_text(gain)} less than without {_one(met.slowest)}"
        if gain > 0
        else f"no gain over leaving {_one(met.slowest)} out"
    )
    return f"Shares by speed ({rows}) would take {seconds_text(met.fitted_s)}, {said}; Dure shares equally."


def contest_text(met: Contest, batch_size: int, device: str) -> str:
    """One machine's devices against those of all.

    Args:
        met: as `dure.advise.versus` reckons it.
        batch_size: that was asked for.
        device: their name.
    """
    few_win = met.few_s <= met.many_s
    winner, loser = (met.few, met.many) if few_win else (met.many, met.few)
    said = (
        f"{met.few} {device} in one machine against {met.many} in {met.machines}: at a batch of {batch_size:,} the "
        f"{winner} win, {seconds_text(min(met.few_s, met.many_s))} a step against "
        f"{seconds_text(max(met.few_s, met.many_s))} of the {loser}. Each of the {met.many} computes "
        f"{seconds_text(met.saved_s)} less, and the sums between the machines take {seconds_text(met.between_s)}."
    )
    sentences = [said]
    if met.flips_at is None:
        sentences.append(f"The {met.few} win at every batch of these data: the halved shares never save that much.")
    elif few_win:
        sentences.append(f"The {met.many} win from a batch of {met.flips_at:,} on.")
    elif met.flips_at > 1:
        sentences.append(f"Below a batch of {met.flips_at:,} the {met.few} win.")
    if few_win and met.grows is not None:
        sentences.append(
            f"At this batch a model {met.grows:,.1f} times as large, in weights and in computing, would turn it around."
        )
    elif few_win:
        sentences.append(
            "At this batch no larger model of this form turns it around: its sums would grow as much as its computing."
        )
    return " ".join(sentences)


def site_text(site: Site, share: float) -> str:
    """That the figures are a reckoning, and from what.

    Args:
        site: the machines.
        share: of the roofline that was measured here.
    """
    best = site.best
    machines = sum(host.count for host in site.hosts)
    total = " and ".join(f"{number} {name}" for name, number in site.total().items())
    reached = (
        f"{percent_text(best.efficiency)}, as the table says"
        if best.efficiency is not None
        else f"{percent_text(share)}, as this machine reaches with it"
    )
    return (
        f"A reckoning, not a measurement: {site.name} ({total} in {machines} machine{'' if machines == 1 else 's'}) is "
        f"not here. The model's operations and bytes are those that XLA counts here; {best.name} is taken to reach "
        f"{reached}, of its peak; an exchange is a sum in rings, and nothing is overlapped with it."
    )


def caveats(outlook: Outlook, on: Basis, found: tuple[Line, ...]) -> list[str]:
    """What makes the figures less sure, a sentence or two each.

    Args:
        outlook: what was asked and measured.
        on: what `basis` makes of it.
        found: all lines.
    """
    told = []
    if outlook.site is not None:
        told.append(site_text(outlook.site, on.share))
        told += _memory(outlook, outlook.site, found)
    elif outlook.virtual and any(line.devices > 1 for line in found):
        told.append(
            f"The devices of mirrored are virtual here, and the processes of multi-worker have a share of the "
            f"{outlook.here.cores} cores each. Devices of their own would not share; describe them with `--machines`."
        )
    far = [line for line in found if line.prediction is not None and line.prediction.is_extrapolated]
    if far and outlook.site is None:
        names = ", ".join(dict.fromkeys(line.strategy for line in far))
        told.append(f"{names}: predicted from shares far outside of what was measured, so less sure.")
    if outlook.site is None:
        told += [f"{note[0].upper()}{note[1:]}." for note in outlook.here.notes]
    told.append("Predicted, not trained: `dure compare` with the same options trains, and says how far this is off.")
    return told


def _memory(outlook: Outlook, site: Site, found: tuple[Line, ...]) -> list[str]:
    if all(line.fits for line in found):
        return []
    needed = outlook.network.state_bytes + outlook.network.gradients.size_bytes
    taken, there = bytes_text(int(needed)), bytes_text(int(site.best.memory_bytes))
    return [f"It does not fit: {WHAT} take {taken} on each device, and {site.best.name} has {there}."]
