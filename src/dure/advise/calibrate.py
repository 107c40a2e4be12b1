"""Measures this machine for the cost model, each part in a fresh process, and keeps the result for the next time."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from dure.advise import child, readings
from dure.advise.calibration import Calibration, Team
from dure.devices import configuration, host
from dure.devices.inventory import Device, devices, fastest
from dure.errors import StepError

__all__ = [
    "Answers",
    "assembled",
    "cache_file",
    "calibrate",
    "could_keep",
    "keep",
    "kept",
    "known",
    "measure",
    "measured_anew",
]

TEAMS = (2, 4)
"""Of how many devices the exchange is measured."""

TIMEOUT_S = 60.0
"""What one measuring process may take."""

Say = Callable[[str], None]


def calibrate(say: Say, *, again: bool = False) -> Calibration:
    """The calibration of this machine: the kept one where it still holds, else measured now and kept.

    Args:
        say: takes a line that says what is done.
        again: measure in any case.

    Raises:
        StepError: what a device does by itself could not be measured.
    """
    found = None if again else kept(known())
    return found or measured_anew(say)[0]


def measured_anew(say: Say) -> tuple[Calibration, bool]:
    """Measures this machine and keeps the result for the next time.

    Args:
        say: takes a line that says what is done.

    Returns:
        The calibration, and whether it could be kept.

    Raises:
        StepError: what a device does by itself could not be measured.
    """
    say("measuring this machine: about 10 s, once; `dure devices --calibrate` does it again")
    found = measure(known(), say)
    return found, could_keep(found, say)


def known() -> dict[str, str]:
    """What a calibration holds for: devices, cores, versions and threads."""
    here = fastest(devices())
    variables = ("PJRT_NPROC", "XLA_FLAGS", "JAX_PLATFORMS")
    set_by_hand = {name: os.environ[name] for name in variables if name in os.environ}
    threads = dataclasses.replace(configuration.settings(), cpu_devices=None, virtual_gpus=None)
    return {
        "devices": _in_words(here),
        "cores": str(host.cores()),
        "threads": str(threads),
        "environment": " ".join(f"{name}={value}" for name, value in sorted(set_by_hand.items())),
        **{package: metadata.version(package) for package in ("dure", "jax", "jaxlib")},
    }


def _in_words(here: Sequence[Device]) -> str:
    """The devices, virtual ones as the one processor that they share."""
    first = here[0]
    number = len(here) if first.kind != "cpu" and not first.virtual else 1
    return f"{first.model}" if number == 1 else f"{number} x {first.model}"


def cache_file(key: Mapping[str, str]) -> Path:
    """Where the calibration of a machine is kept: below `XDG_CACHE_HOME`, or `~/.cache`.

    Args:
        key: what it holds for.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(json.dumps(dict(key), sort_keys=True).encode()).hexdigest()
    return Path(base) / "dure" / f"calibration-{digest[:16]}.json"


def kept(key: Mapping[str, str]) -> Calibration | None:
    """The calibration that was kept; None where there is none, or it is damaged or of another machine.

    Args:
        key: what it has to hold for.
    """
    try:
        found = Calibration.from_dict(json.loads(cache_file(key).read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError):  # a SpecError is a ValueError too
        return None
    return found if dict(found.key) == dict(key) else None


def keep(found: Calibration) -> Path:
    """Writes a calibration for the next time, readable by the user alone; returns where.

    Raises:
        OSError: the folder cannot be made or written.
    """
    path = cache_file(found.key)
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump(found.to_dict(), file, allow_nan=False)
        draft.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return path


def could_keep(found: Calibration, say: Say) -> bool:
    """Keeps a calibration where that can be done: a folder that cannot be written is no reason to fail.

    Args:
        found: what was measured.
        say: takes a line where it could not be kept.
    """
    try:
        keep(found)
    except OSError as error:
        say(f"the calibration cannot be kept ({error}); it will be measured again next time")
        return False
    return True


class Answers(NamedTuple):
    """What the measuring processes answered.

    Attributes:
        devices: by number of devices, the smallest first.
        pair: two processes; its times of one are of its share of the cores.
        one: with one thread; None where devices are no CPUs.
    """

    devices: Mapping[int, child.Ended]
    pair: child.Ended
    one: child.Ended | None


def measure(key: Mapping[str, str], say: Say) -> Calibration:
    """Measures this machine now.

    Args:
        key: what the result holds for.
        say: takes a line where a part could not be measured.

    Raises:
        StepError: what a device does by itself could not be measured.
    """
    began = time.monotonic()
    best = fastest(devices())
    own = [device for device in best if device.kind != "cpu" and not device.virtual]
    cores = host.cores()
    numbers = [number for number in TEAMS if not own or number <= len(own)]
    answers = {number: _asked({"gauge": "devices", "devices": number}, number) for number in numbers or (1,)}
    if own:
        pair, one = child.Ended(reason="each process would need accelerators of its own"), None
    else:
        threads = max(1, cores // 2)
        pair = _asked({"gauge": "pair"}, 1, threads=threads)
        one = pair if threads == 1 else _asked({"gauge": "devices", "devices": 1}, 1, threads=1)
    found = assembled(Answers(answers, pair, one), key, best[0].kind, cores)
    for note in found.notes:
        say(note)
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return dataclasses.replace(found, made=made, took_s=time.monotonic() - began)


def assembled(answers: Answers, key: Mapping[str, str], kind: str, cores: int) -> Calibration:
    """A calibration of what was answered; what is missing of it is in its notes.

    Args:
        answers: of the measuring processes.
        key: what the result holds for.
        kind: of the devices.
        cores: that CPU devices share.

    Raises:
        StepError: what a device does by itself was not answered.
    """
    first, one, pair = next(iter(answers.devices.values())), answers.one, answers.pair
    if first.result is None:
        raise StepError(f"a process was to measure this machine, and {first.reason}; its last lines: {_tail(first)}")
    failed = {number: answer.reason for number, answer in answers.devices.items() if not answer.result}
    notes = [f"{number} devices could not be measured: {reason}" for number, reason in failed.items()]
    if pair.result is None:
        notes.append(f"exchange between processes was not measured: {pair.reason}")
    alone, single = first.result["times"], one.result["times"] if one and one.result else None
    teams: list[Team] = []
    for number, answer in answers.devices.items():
        if answer.result and number > 1:
            copy_s_per_byte = teams[0].copy_s_per_byte if teams else None
            teams.append(readings.inside(number, answer.result["times"], alone, single, cores, copy_s_per_byte))
    return Calibration(
        device=key["devices"],
        kind=kind,
        cores=cores,
        dispatch_s=first.result["dispatch_s"],
        flops_per_s=readings.flops_per_s(alone),
        bytes_per_s=readings.bytes_per_s(alone),
        flops_per_s_one=readings.flops_per_s(single) if single else 0.0,
        bytes_per_s_one=readings.bytes_per_s(single) if single else 0.0,
        inside=tuple(teams),
        between=(_between(pair.result, teams[0].copy_s_per_byte if teams else 0.0),) if pair.result else (),
        key=dict(key),
        notes=tuple(notes),
    )


def _asked(request: dict[str, Any], cpu_devices: int, *, threads: int | None = None) -> child.Ended:
    """What a measuring process answers."""
    environment = child.environment_for(cpu_devices, threads=threads)
    return child.run(
        request, environment=environment, timeout_s=TIMEOUT_S, on_event=lambda _: None, module="dure.advise.gauge"
    )


def _between(result: Mapping[str, Any], copy_s_per_byte: float) -> Team:
    return readings.between(2, result["times"], result["start_s"], copy_s_per_byte)


def _tail(ended: child.Ended) -> str:
    return " | ".join(ended.tail[-3:]) or "none"
