"""Which accelerators this process can use before JAX has opened anything, and why not the others.

JAX uses an accelerator if the hardware is there, the driver answers, the plugin is installed, and neither
`JAX_PLATFORMS` nor `CUDA_VISIBLE_DEVICES` leaves it out. Each of these is looked at here without opening a
back end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from typing import NamedTuple

from dure import _jax
from dure.devices import nvidia, tpu
from dure.devices.names import Kind
from dure.devices.nvidia import Gpu
from dure.devices.tpu import Tpu

__all__ = ["Survey", "Unusable", "judge", "plugins", "smallest_gpu_bytes", "survey"]


class Unusable(NamedTuple):
    """An accelerator that is here and that JAX cannot use: why, and what to do about it."""

    kind: Kind
    model: str
    reason: str
    hint: str


class Survey(NamedTuple):
    """What JAX will find, in its order, and what it cannot use."""

    gpus: tuple[Gpu, ...]
    tpus: tuple[Tpu, ...]
    unusable: tuple[Unusable, ...]


def survey() -> Survey:
    """Looks at the hardware, the installed plugins and the environment; opens nothing, takes no memory."""
    return judge(nvidia.probe(), tpu.probe(), plugins(), _jax.platforms(), os.environ, has_nodes=bool(tpu.nodes()))


def smallest_gpu_bytes() -> int | None:
    """Returns the memory of the smallest usable GPU in bytes; None without one."""
    return min((gpu.memory_bytes for gpu in survey().gpus if gpu.memory_bytes is not None), default=None)


def plugins() -> frozenset[str]:
    """Returns which of JAX's plugins are installed: `cuda12`, `cuda13`, `tpu`."""
    packages = {
        "cuda12": ("jax-cuda12-plugin", "jax-cuda12-pjrt"),
        "cuda13": ("jax-cuda13-plugin", "jax-cuda13-pjrt"),
        "tpu": ("libtpu",),
    }
    return frozenset(name for name, parts in packages.items() if all(_is_installed(part) for part in parts))


def judge(
    found: nvidia.Probe,
    tpus: tuple[Tpu, ...],
    installed: frozenset[str],
    platforms: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    has_nodes: bool,
) -> Survey:
    """Decides which accelerators JAX can use; a pure function of what was looked at.

    Args:
        found: the GPUs.
        tpus: the TPUs.
        installed: the plugins, as `plugins` names them.
        platforms: the platforms that JAX is limited to; none if it is not.
        environ: the environment.
        has_nodes: whether TPUs can be reached through device files.

    Returns:
        What can be used, and for the rest the reason and the line that mends it.
    """
    seen = nvidia.visible(found.gpus, environ)
    unusable: list[Unusable] = []
    if found.problem is not None:
        unusable.append(Unusable("gpu", "NVIDIA GPU", found.problem, found.mend))
    whole = [gpu for gpu in found.gpus if gpu not in seen and (not gpu.divided or not _has_instances(gpu, found.gpus))]
    unusable += [Unusable("gpu", gpu.model, *_why_hidden(gpu, environ)) for gpu in whole]
    reason = _why_no_gpu(seen, installed, platforms)
    if reason is not None:
        unusable += [Unusable("gpu", gpu.model, *reason) for gpu in seen]
        seen = ()
    reason = _why_no_tpu(installed, platforms, has_nodes=has_nodes)
    if reason is not None:
        unusable += [Unusable("tpu", one.model, *reason) for one in tpus]
        tpus = ()
    return Survey(seen, tpus, tuple(unusable))


def _why_hidden(gpu: Gpu, environ: Mapping[str, str]) -> tuple[str, str]:
    if gpu.divided:
        return "it is in MIG mode and has no instance", "make an instance: sudo nvidia-smi mig -cgi 0 -C"
    for name in ("CUDA_VISIBLE_DEVICES", "JAX_CUDA_VISIBLE_DEVICES"):
        if name in environ:
            return (
                f"the environment variable {name} is {environ[name]!r} and leaves it out",
                f"unset {name}, or name it there",
            )
    return (
        "CUDA shows a process one MIG instance, and this is another",
        f"choose it: CUDA_VISIBLE_DEVICES={gpu.uuid}",
    )


def _why_no_gpu(seen: tuple[Gpu, ...], installed: frozenset[str], platforms: tuple[str, ...]) -> tuple[str, str] | None:
    if not seen:
        return None
    # A driver for CUDA 12 cannot run what is built for 13; one for 13 runs both.
    serves = seen[0].cuda_version
    is_old = serves is not None and int(serves.split(".")[0]) < 13
    line = 'pip install "jax[cuda12]"' if is_old else 'pip install "dure[cuda]"'
    if not installed & {"cuda12", "cuda13"}:
        return "JAX's plugin for CUDA is not installed", line
    if is_old and "cuda12" not in installed:
        return (
            f"the plugin is for CUDA 13, and the driver serves CUDA {serves}",
            f"update the driver to 580 or later, or {line}",
        )
    return _why_left_out(platforms, ("cuda", "gpu"))


def _why_no_tpu(installed: frozenset[str], platforms: tuple[str, ...], *, has_nodes: bool) -> tuple[str, str] | None:
    if not has_nodes:
        return (
            "it is on the bus and has no device file here",
            "give this container the device files /dev/accel* or /dev/vfio",
        )
    if "tpu" not in installed:
        return "the package libtpu is not installed", 'pip install "dure[tpu]"'
    return _why_left_out(platforms, ("tpu",))


def _why_left_out(platforms: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, str] | None:
    if not platforms or set(platforms) & set(names):
        return None
    said = ",".join(platforms)
    return (
        f"JAX_PLATFORMS is {said!r} and leaves it out",
        f"unset JAX_PLATFORMS, or write JAX_PLATFORMS={names[0]},{said}",
    )


def _has_instances(gpu: Gpu, gpus: tuple[Gpu, ...]) -> bool:
    return any(other.index == gpu.index and other is not gpu for other in gpus)


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
