"""What a caller asks to compare, read and refused before any process starts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dure.advise.cause import replicas
from dure.advise.record import Settings
from dure.devices.inventory import Device, fastest
from dure.errors import SpecError, hint
from dure.launch.run import MAX_WORKERS

__all__ = ["check_devices", "checked", "strategy_names", "sync_interval", "whole"]

NUMBERED = {"mirrored": "devices", "multi-worker": "processes"}
"""The strategies that take a number, and of what."""

KINDS = ("single", *NUMBERED)
"""The strategies that can be compared."""

MOST = {"mirrored": 1024, "multi-worker": MAX_WORKERS}
"""More than this is a slip of the finger, not a wish."""


def strategy_names(asked: str | Iterable[str]) -> tuple[str, ...]:
    """Reads the strategies to compare.

    Args:
        asked: `"single,mirrored:2"` or a list of such names.

    Returns:
        The names in one spelling, in the order asked.

    Raises:
        SpecError: A name is unknown, comes twice, lacks its number of devices or has a wrong one.

    Example:
        >>> strategy_names("single, mirrored:2")
        ('single', 'mirrored:2')
    """
    if isinstance(asked, str):
        asked = asked.split(",")
    names: list[str] = []
    for item in asked:
        if not isinstance(item, str):
            raise SpecError(
                f"strategy {item!r} was given as {type(item).__name__}; each trains in a process of its own, which an "
                "object cannot reach: name it, as in strategies=['single', 'mirrored:2']"
            )
        if item.strip():
            names.append(_name(item.strip()))
    if not names:
        raise SpecError("no strategy was given to compare; name some, as in `single,mirrored:2`")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SpecError(
            f"strategy `{twice}` comes {names.count(twice)} times in {', '.join(names)}; name it once and "
            "ask for "
            "more runs with `repeat` (`--repeat`)"
        )
    return tuple(names)


def _name(item: str) -> str:
    kind, colon, number = item.partition(":")
    if kind not in KINDS:
        raise SpecError(
            f"strategy `{item}` is not known. {hint(kind, KINDS)} Write `single`, `mirrored:N` for N devices of one "
            "process, or `multi-worker:N` for N processes."
        )
    if kind == "single":
        if colon:
            raise SpecError(f"strategy `{item}` has a number, and `single` trains on one device; write `single`")
        return kind
    counted, most = NUMBERED[kind], MOST[kind]
    if not colon:
        raise SpecError(f"strategy `{kind}` lacks its number of {counted}; write it after a colon, as `{kind}:2`")
    if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= most:
        raise SpecError(
            f"strategy `{item}` has `{number}` for its number of {counted}; give a whole number from 1 to {most}, as "
            f"in `{kind}:2`"
        )
    return f"{kind}:{int(number)}"


def check_devices(strategies: Iterable[str], there: Iterable[Device]) -> None:
    """Refuses more accelerators than there are. Where there are none, CPU devices are rehearsed with: any number.

    Args:
        strategies: Names, as `strategy_names` gives them.
        there: The devices of this machine.

    Raises:
        SpecError: A strategy asks for more accelerators than there are.
    """
    best = [device for device in fastest(there) if device.kind != "cpu" and not device.virtual]
    for strategy in strategies:
        if best and replicas(strategy) > len(best):
            each = ", one a process" if strategy.startswith("multi-worker") else ""
            names = ", ".join(device.name for device in best)
            raise SpecError(
                f"strategy `{strategy}` needs {replicas(strategy)} devices{each}, and this machine has {len(best)} of "
                f"its fastest kind: {names}; ask for fewer, or hide them with the environment variable "
                'JAX_PLATFORMS="cpu" to rehearse on virtual CPU devices'
            )


def sync_interval(asked: str | int) -> str | int:
    """Reads how often the replicas of a strategy meet.

    Args:
        asked: `"step"`, `"epoch"` or a number of steps, also as text.

    Raises:
        SpecError: It is none of these.

    Example:
        >>> sync_interval("16"), sync_interval("epoch")
        (16, 'epoch')
    """
    if asked in ("step", "epoch"):
        return asked
    if isinstance(asked, str) and asked.isascii() and asked.isdigit():
        asked = int(asked)
    if isinstance(asked, bool) or not isinstance(asked, int) or asked < 1:
        raise SpecError(
            f"sync_every is {asked!r}; it is `step`, `epoch` or a number of steps from 1, as in `--sync-every 16`"
        )
    return asked


def whole(name: str, value: int, *, least: int = 1) -> int:
    """Checks a whole number that was asked for.

    Args:
        name: What the number is, for the message.
        value: The number.
        least: The smallest that makes sense.

    Raises:
        SpecError: It is no whole number, or too small.

    Example:
        >>> whole("epochs", 10)
        10
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SpecError(f"{name} is {value!r}; give a whole number from {least} on")
    return value


def checked(options: Settings) -> Settings:
    """The numbers that were asked for, read and checked.

    Args:
        options: As the caller wrote them; names of strategies are read by `strategy_names`.

    Raises:
        SpecError: Something is wrong as written.
    """
    timeout_s = options.timeout_s
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise SpecError(f"timeout_s is {timeout_s!r}; give the seconds that one training run may take, above 0")
    whole("batch_size", options.batch_size)
    whole("epochs", options.epochs)
    whole("repeat", options.repeat)
    whole("seed", options.seed, least=0)
    return replace(options, sync_every=sync_interval(options.sync_every), timeout_s=float(timeout_s))
