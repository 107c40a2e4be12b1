"""How this process's devices are set up: `configure`, what is in force, and what JAX is told.

JAX opens its back ends once in a process, at its first use, and reads then how many CPU devices there shall
be, how many threads, how much of a GPU's memory to take. So a setting is given before and put where JAX will
look: into the environment, and into JAX's own configuration where JAX is imported already. The settings
    themselves are kept in the
environment too (`DURE_CONFIGURE`), the one place of a process that a child process inherits: a child starts
configured as its parent is, and may configure itself anew.

This module does not import JAX.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from dure import _jax
from dure.devices import accelerators
from dure.errors import SpecError, hint

__all__ = [
    "MAX_CPU_DEVICES",
    "VARIABLE",
    "Counts",
    "Settings",
    "apply",
    "child_environment",
    "configure",
    "counts",
    "environment",
    "parse",
    "settings",
]

VARIABLE = "DURE_CONFIGURE"
"""The environment variable that holds the settings in force."""

MAX_CPU_DEVICES = 1024
"""The most CPU devices, virtual GPUs included: each costs a thread or two."""

_FIRST_USE = (
    "Call `dure.configure` before anything uses JAX (before the first array, `jax.devices()`, a Keras layer "
    "or a strategy's first step), or start a new process"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What `configure` was told; None where nothing was said and JAX's own default holds.

    Args:
        cpu_devices: number of CPU devices, `cpu:0` on.
        virtual_gpus: number of GPUs that CPU devices stand in for, `gpu:0` on.
        inter_op_threads: how many regions of a placed program one task runs at the same time.
        intra_op_threads: threads of XLA's CPU pool.
        gpu_memory: `"all"`, `"growth"`, a share (0 < share <= 1) or bytes.
    """

    cpu_devices: int | None = None
    virtual_gpus: int | None = None
    inter_op_threads: int | None = None
    intra_op_threads: int | None = None
    gpu_memory: str | float | None = None

    @property
    def cpu_backed(self) -> int | None:
        """The number of CPU devices that JAX has to open, virtual GPUs included; None if neither was said."""
        if self.cpu_devices is None and self.virtual_gpus is None:
            return None
        return (self.cpu_devices or 1) + (self.virtual_gpus or 0)

    def __str__(self) -> str:
        said = ((field.name, getattr(self, field.name)) for field in fields(self))
        return " ".join(f"{name}={value}" for name, value in said if value is not None)


class Counts(NamedTuple):
    """How the CPU devices of JAX are named here: the first are `cpu:i`, the others `gpu:j`."""

    cpu: int
    virtual_gpus: int


def configure(
    *,
    cpu_devices: int | None = None,
    virtual_gpus: int | None = None,
    inter_op_threads: int | None = None,
    intra_op_threads: int | None = None,
    gpu_memory: str | float | None = None,
) -> None:
    """Says how this process's devices are to be set up; before the first use of JAX, else it is an error.

    Listing devices (`dure.devices()`) is no use. What is left out stays as it was. The same setting again is
    fine at any time. Child processes start with the same settings.

    Args:
        cpu_devices: number of CPU devices, 1 on. They share the machine's cores and memory.
        virtual_gpus: number of devices named `gpu:0` on that CPU devices stand in for, 1 on, so that a
            program for several GPUs is rehearsed on a machine that has none. Where JAX can use a real GPU
            they are refused.
        inter_op_threads: how many regions of a placed program one task may run at the same time, 1 on.
        intra_op_threads: threads of the one pool in which XLA computes on all CPU devices of the process, 1
            on. There are never fewer than CPU devices: with fewer, devices that wait for one another in a
            collective could hold every thread.
        gpu_memory: how much of each GPU's memory JAX takes: `"all"` (95 %, at the start), `"growth"` (what is
            needed, when it is), a share of it (0.3), or bytes (4 * 2**30). JAX's default is 75 % at the
            start. It says nothing about other devices.

    Raises:
        SpecError: a value is out of range; JAX has opened its back ends with another setting; the environment
            or `jax.config` says otherwise; virtual GPUs are asked for beside real ones.

    Example:
        >>> dure.configure(cpu_devices=2, virtual_gpus=2)  # doctest: +SKIP
        >>> [device.name for device in dure.devices()]  # doctest: +SKIP
        ['cpu:0', 'cpu:1', 'gpu:0', 'gpu:1']
    """
    asked = Settings(cpu_devices, virtual_gpus, inter_op_threads, intra_op_threads, gpu_memory)
    _check_values(asked)
    before = settings()
    if _jax.backends_are_open():
        _refuse_changes(asked, _in_force(before))
        return
    after = _join(before, asked)
    _refuse_other_counts(before, asked, after)
    if asked.virtual_gpus:
        _refuse_beside_real_gpus(asked.virtual_gpus)
    memory = _gpu_bytes(before, after)
    wanted = _as_bytes(after.gpu_memory)
    if wanted is not None and memory is not None and wanted > memory:
        raise SpecError(
            f"asked for gpu_memory={wanted} bytes, and the smallest GPU here has {memory}. Ask for less, or "
            "for a share, as gpu_memory=0.5"
        )
    told, tells = environment(before, memory), environment(after, memory)
    _refuse_other_variables(asked, told, tells)
    _tell(os.environ, told, tells)
    if after.cpu_backed is not None:
        _jax.set_cpu_devices(after.cpu_backed)


def settings() -> Settings:
    """Returns the settings in force: what `configure` was told here or in the process that started this one.

    Raises:
        SpecError: somebody wrote something else into `DURE_CONFIGURE`.
    """
    return parse(os.environ.get(VARIABLE, ""))


def counts() -> Counts:
    """Returns how many CPU devices and virtual GPUs there are, or will be once JAX opens its back ends.

    JAX's own configuration (`jax.config`, `JAX_NUM_CPU_DEVICES`, XLA's flag) may have been changed by others
    since `configure`. Then it says how many devices there are, and none of them is a virtual GPU.
    """
    chosen = settings()
    if _jax.backends_are_open():
        there: int | None = len(_jax.local_devices().get("cpu", ()))
    else:
        there = _told_to_jax(os.environ).number
    if there is None or there == chosen.cpu_backed:
        return Counts(chosen.cpu_devices or 1, chosen.virtual_gpus or 0)
    return Counts(there, 0)


def apply() -> None:
    """Makes sure that JAX will open its back ends as configured; called right before the first use.

    `configure` has done so already for the process it was called in. A child process that inherited the
    settings, or a program that changed JAX's configuration in between, meets it here.

    Raises:
        SpecError: JAX's own configuration was changed since and contradicts.
    """
    if _jax.backends_are_open():
        return
    chosen = settings()
    _refuse_other_counts(Settings(), chosen, chosen)
    _tell(os.environ, {}, environment(chosen, _gpu_bytes(chosen)))
    if chosen.cpu_backed is not None:
        _jax.set_cpu_devices(chosen.cpu_backed)


def environment(chosen: Settings, gpu_bytes: int | None = None) -> dict[str, str]:
    """Returns the environment variables that make a fresh process start with these settings.

    Args:
        chosen: the settings.
        gpu_bytes: memory of the smallest GPU in bytes, which turns bytes into the share that XLA takes.

    Example:
        >>> environment(Settings(cpu_devices=2, intra_op_threads=1))["PJRT_NPROC"]
        '2'
    """
    tells = {}
    if str(chosen):
        tells[VARIABLE] = str(chosen)
    if chosen.cpu_backed is not None:
        tells["JAX_NUM_CPU_DEVICES"] = str(chosen.cpu_backed)
    if chosen.intra_op_threads is not None:
        # XLA itself never takes fewer than its devices; written out, the variable says what there will be.
        tells["PJRT_NPROC"] = str(max(chosen.intra_op_threads, chosen.cpu_backed or 1))
    if chosen.gpu_memory == "growth":
        tells["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    elif (share := _share(chosen.gpu_memory, gpu_bytes)) is not None:
        tells["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
        tells["XLA_CLIENT_MEM_FRACTION"] = f"{share:.6g}"
    return tells


def child_environment(chosen: Settings, base: Mapping[str, str], gpu_bytes: int | None = None) -> dict[str, str]:
    """Returns the environment for a child process that is to have these settings and none of this process's.

    Args:
        chosen: the settings of the child; `Settings()` for a child that configures itself.
        base: the environment to start from, as `os.environ`.
        gpu_bytes: as in `environment`.

    Example:
        >>> child_environment(Settings(), {"LANG": "C", "JAX_NUM_CPU_DEVICES": "8"})
        {'LANG': 'C'}
    """
    ours = {VARIABLE, "JAX_NUM_CPU_DEVICES", "PJRT_NPROC", *_MEMORY}
    child = {name: value for name, value in base.items() if name not in ours}
    if "XLA_FLAGS" in child:
        child["XLA_FLAGS"] = _FLAG.sub("", child["XLA_FLAGS"]).strip()
    return {**child, **environment(chosen, gpu_bytes)}


def parse(text: str) -> Settings:
    """Reads settings as `str(settings)` writes them.

    Args:
        text: `name=value` words, as `cpu_devices=2 gpu_memory=growth`.

    Raises:
        SpecError: it is not of that form.

    Example:
        >>> parse("cpu_devices=2 gpu_memory=0.5")
        Settings(cpu_devices=2, virtual_gpus=None, inter_op_threads=None, intra_op_threads=None,
        gpu_memory=0.5)
    """
    known = [field.name for field in fields(Settings)]
    said: dict[str, int | float | str] = {}
    for word in text.split():
        name, mark, value = word.partition("=")
        if name not in known or not mark or name in said:
            raise SpecError(
                f"asked, by the environment variable {VARIABLE}, for {word[:80]!r}, which is no setting or "
                f"says one twice. {hint(name[:80], known)} Write it as cpu_devices=2, or unset it"
            )
        said[name] = _number(value)
    read = replace(Settings(), **said)  # type: ignore[arg-type]
    _check_values(read)
    return read


_FLAG = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
_MEMORY = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE")
_TELLS = {"intra_op_threads": ("PJRT_NPROC",), "gpu_memory": _MEMORY}


class _Told(NamedTuple):
    """How many CPU devices somebody has told JAX to open, and where it is written."""

    number: int | None
    where: str


def _told_to_jax(environ: Mapping[str, str]) -> _Told:
    """Looks where JAX will look, in its order."""
    config = _jax.cpu_device_setting()
    if config is not None:
        return _Told(config, "jax.config.jax_num_cpu_devices")
    variable = environ.get("JAX_NUM_CPU_DEVICES", "")
    # Once JAX is imported it has read the variable, and nobody reads it again.
    if variable.isdecimal() and not _jax.is_imported():
        return _Told(int(variable), "the environment variable JAX_NUM_CPU_DEVICES")
    flags = _FLAG.findall(environ.get("XLA_FLAGS", ""))
    if flags:
        return _Told(int(flags[-1]), "--xla_force_host_platform_device_count in the environment variable XLA_FLAGS")
    return _Told(None, "")


def _check_values(asked: Settings) -> None:
    for name in ("cpu_devices", "virtual_gpus", "inter_op_threads", "intra_op_threads"):
        value = getattr(asked, name)
        if value is None:
            continue
        # A bool is an int to Python and a slip of the keyboard here.
        if type(value) is not int or not 1 <= value <= MAX_CPU_DEVICES:
            raise SpecError(
                f"asked for {name}={_shown(value)}; it is a whole number from 1 to {MAX_CPU_DEVICES}. Write "
                "one, or leave it out for the default"
            )
    if (asked.cpu_backed or 1) > MAX_CPU_DEVICES:
        raise SpecError(
            f"asked for cpu_devices={asked.cpu_devices} and virtual_gpus={asked.virtual_gpus}, together "
            f"{asked.cpu_backed}; a process has at most {MAX_CPU_DEVICES}. Ask for fewer"
        )
    if not _is_memory(asked.gpu_memory):
        value = asked.gpu_memory
        near_miss = f" {hint(value, ['all', 'growth'])}" if isinstance(value, str) else ""
        raise SpecError(
            f'asked for gpu_memory={_shown(value)}; it is "all", "growth", a share above 0 and up to 1, or a '
            f"whole number of bytes above 1.{near_miss} Write one, as gpu_memory=0.3 or gpu_memory=4 * 2**30"
        )


def _join(before: Settings, asked: Settings) -> Settings:
    """What was asked now, and where nothing was, what was asked before or JAX was told by others."""
    said = {field.name: getattr(asked, field.name) for field in fields(asked) if getattr(asked, field.name) is not None}
    after = replace(before, **said)
    told = _told_to_jax(os.environ).number
    # "JAX has eight devices" and "two are to be GPUs" is no contradiction: six stay CPUs.
    if after.cpu_devices is None and after.virtual_gpus and told is not None and told > after.virtual_gpus:
        after = replace(after, cpu_devices=told - after.virtual_gpus)
    return after


def _in_force(before: Settings) -> Settings:
    """The settings once JAX is open: of the devices, those that it has, whoever asked for them."""
    there = counts()
    return replace(before, cpu_devices=there.cpu, virtual_gpus=there.virtual_gpus or None)


def _refuse_changes(asked: Settings, force: Settings) -> None:
    for field in fields(asked):
        value, now = getattr(asked, field.name), getattr(force, field.name)
        if value is not None and value != now:
            has = "without one" if now is None else f"with {field.name}={now}"
            raise SpecError(
                f"asked for {field.name}={value}, and JAX has opened its devices in this process already, "
                f"{has}; they cannot be changed any more. {_FIRST_USE}"
            )


def _refuse_other_counts(before: Settings, asked: Settings, after: Settings) -> None:
    told = _told_to_jax(os.environ)
    asks = asked.cpu_devices is not None or asked.virtual_gpus is not None
    if asks and told.number is not None and told.number not in (before.cpu_backed, after.cpu_backed):
        says = " and ".join(
            f"{name}={value}"
            for name, value in (("cpu_devices", asked.cpu_devices), ("virtual_gpus", asked.virtual_gpus))
            if value is not None
        )
        raise SpecError(
            f"asked for {says}, which makes {after.cpu_backed} CPU devices of JAX, and {told.where} says "
            f"{told.number}. Take out one of the two"
        )


def _refuse_beside_real_gpus(virtual_gpus: int) -> None:
    real = accelerators.survey().gpus
    if real:
        names = ", ".join(f"gpu:{index} ({gpu.model})" for index, gpu in enumerate(real))
        raise SpecError(
            f"asked for virtual_gpus={virtual_gpus}, and there are real ones: {names}; the same names would "
            "mean two "
            "things. Leave it out, or hide the real ones with the environment variable "
            'CUDA_VISIBLE_DEVICES=""'
        )


def _refuse_other_variables(asked: Settings, told: Mapping[str, str], tells: Mapping[str, str]) -> None:
    """Refuses what a person has set by hand otherwise: to overwrite it in silence would be to ignore it."""
    for name, variables in _TELLS.items():
        value = getattr(asked, name)
        for variable in variables if value is not None else ():
            there = os.environ.get(variable)
            if there is None or there in (told.get(variable), tells.get(variable)):
                continue
            raise SpecError(
                f"asked for {name}={value}, and the environment variable {variable} says {there}. Take out "
                "one of the two"
            )


def _tell(environ: MutableMapping[str, str], told: Mapping[str, str], tells: Mapping[str, str]) -> None:
    for variable in told.keys() - tells.keys():
        if environ.get(variable) == told[variable]:
            del environ[variable]
    environ.update(tells)


def _is_memory(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if value is None or isinstance(value, str):
        return value in (None, "all", "growth")
    return _as_bytes(value) is not None or (isinstance(value, int | float) and 0 < value <= 1)


def _as_bytes(memory: object) -> int | None:
    """The number of bytes, if that is what the setting says."""
    return memory if isinstance(memory, int) and not isinstance(memory, bool) and memory > 1 else None


def _gpu_bytes(*some: Settings) -> int | None:
    """The memory of the smallest GPU, looked for only where a setting counts in bytes."""
    is_needed = any(_as_bytes(one.gpu_memory) is not None for one in some)
    return accelerators.smallest_gpu_bytes() if is_needed else None


def _share(memory: str | float | None, gpu_bytes: int | None) -> float | None:
    """The share of a GPU's memory that XLA is to take; None where nothing is said or bytes meet no GPU."""
    if memory is None or isinstance(memory, str):
        # What CUDA, cuBLAS, cuDNN and NCCL take for themselves lies outside XLA's share.
        return 0.95 if memory == "all" else None
    wanted = _as_bytes(memory)
    if wanted is None:
        return float(memory)
    return None if gpu_bytes is None else wanted / gpu_bytes


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _shown(value: object) -> str:
    shown = ascii(value)
    return shown if len(shown) <= 80 else f"{shown[:60]}..."
