"""What a caller asks advice for, read and refused before anything is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dure.advise.ask import check_devices, strategy_names, sync_interval
from dure.advise.cause import replicas
from dure.advise.machines import Site
from dure.devices.inventory import Device, fastest
from dure.errors import SpecError

__all__ = ["INTERVALS", "intervals", "most_devices", "strategies_for"]

INTERVALS = ("step", 10, 100, "epoch")
"""How often replicas meet, unless the caller says otherwise."""

REHEARSED = 4
"""Up to so many virtual devices are looked at on a machine of fewer cores."""


def intervals(asked: str | int | Iterable[str | int]) -> tuple[str | int, ...]:
    """Reads how often replicas meet: one way or several.

    Args:
        asked: `"step"`, a number of steps, `"epoch"`; several with commas or as a list.

    Returns:
        Each once, in the order asked.

    Raises:
        SpecError: one is none of these, or there is none.

    Example:
        >>> intervals("step,10,epoch"), intervals(16)
        (('step', 10, 'epoch'), (16,))
    """
    if isinstance(asked, str):
        asked = [part.strip() for part in asked.split(",") if part.strip()]
    elif isinstance(asked, int):
        asked = [asked]
    found = tuple(dict.fromkeys(sync_interval(one) for one in asked))
    if not found:
        raise SpecError("sync_every names no interval; write `step`, `epoch` or numbers of steps, as `step,10,100`")
    return found


def strategies_for(asked: str | Iterable[str] | None, site: Site | None, there: Sequence[Device]) -> tuple[str, ...]:
    """The strategies to predict, `single` first.

    Args:
        asked: names as `dure compare` takes them; None chooses by the machines.
        site: the machines that are not here, or None for this one.
        there: the devices of this machine.

    Raises:
        SpecError: a name is wrong, or asks for more devices than there are.
    """
    chosen = _of_here(there) if site is None else _of_site(site)
    names = chosen if asked is None else strategy_names(asked)
    if site is not None:
        _check_site(names, site)
    else:
        check_devices(names, there)
    return ("single", *(name for name in names if name != "single"))


def _of_site(site: Site) -> tuple[str, ...]:
    machines = site.machines(site.best.name)
    inside = sorted({min(2, machines[0]), machines[0]} - {1})
    across = () if len(machines) == 1 else (f"multi-worker:{sum(machines)}",)
    return ("single", *(f"mirrored:{number}" for number in inside), *across)


def _of_here(there: Sequence[Device]) -> tuple[str, ...]:
    own = _own(there)
    if not own:
        return ("single", "mirrored:2", "mirrored:4", "multi-worker:2")
    return ("single", *(f"mirrored:{number}" for number in sorted({min(2, len(own)), len(own)} - {1})))


def _own(there: Sequence[Device]) -> list[Device]:
    """The accelerators of the fastest kind that share nothing."""
    return [device for device in fastest(there) if device.kind != "cpu" and not device.virtual]


def _check_site(names: Iterable[str], site: Site) -> None:
    machines, device = site.machines(site.best.name), site.best.name
    for name in names:
        is_inside = name.startswith("mirrored")
        room = machines[0] if is_inside else sum(machines)
        if replicas(name) > room:
            where = "its fullest machine has" if is_inside else "all its machines have"
            more = f", or `multi-worker:{replicas(name)}` over several" if replicas(name) <= sum(machines) else ""
            raise SpecError(
                f"strategy `{name}` needs {replicas(name)} devices, and of `{device}`, the fastest of {site.name}, "
                f"{where} {room}; ask for at most {room}{more}"
            )


def most_devices(strategies: Iterable[str], site: Site | None, there: Sequence[Device], cores: int) -> int:
    """Up to how many devices are looked at for the number from which on more of them pay.

    Args:
        strategies: that were asked for.
        site: the machines that are not here, or None for this one.
        there: the devices of this machine.
        cores: of this machine.
    """
    if site is not None:
        return sum(site.machines(site.best.name))
    own = _own(there)
    return len(own) if own else max(REHEARSED, cores, *(replicas(name) for name in strategies))
