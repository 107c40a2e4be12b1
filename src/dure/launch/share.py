"""What each worker of a machine gets of it: threads and GPUs, by way of its environment variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dure.devices import configuration
from dure.devices.configuration import Settings
from dure.devices.nvidia import Gpu
from dure.errors import SpecError

__all__ = ["POOLS", "gpus_of", "variables"]

POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables that say how many threads the libraries below NumPy and others take."""

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def variables(
    worker: int,
    workers: int,
    environ: Mapping[str, str],
    *,
    cores: int,
    gpus: Sequence[Gpu],
) -> dict[str, str]:
    """Returns the environment of one worker; what a user has set stays as it is.

    Args:
        worker: its number on this machine, from 0.
        workers: how many there are on this machine.
        environ: the environment of the launcher.
        cores: processor cores here, which the workers share evenly.
        gpus: the GPUs here that JAX can use, which they share too.

    Raises:
        SpecError: there are GPUs, and fewer than workers.
    """
    threads = max(1, cores // workers)
    chosen = configuration.parse(environ.get(configuration.VARIABLE, ""))
    if chosen.intra_op_threads is None and "PJRT_NPROC" not in environ:
        chosen = replace(chosen, intra_op_threads=threads)
    told = _told(chosen, environ)
    told.update({name: str(threads) for name in POOLS if name not in environ})
    if "KERAS_BACKEND" not in environ:
        told["KERAS_BACKEND"] = "jax"
    if gpus and _VISIBLE not in environ:
        told[_VISIBLE] = ",".join(gpu.uuid or str(gpu.index) for gpu in gpus_of(worker, workers, gpus))
    return {**environ, **told}


def gpus_of(worker: int, workers: int, gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Returns a worker's share of the GPUs: as many for each, in their order.

    Raises:
        SpecError: there are fewer than workers.
    """
    each = len(gpus) // workers
    if not each:
        raise SpecError(
            f"asked for {workers} workers on this machine, which has {len(gpus)} usable GPUs; each worker needs one of "
            f'its own. Ask for at most {len(gpus)}, or run on CPUs with {_VISIBLE}=""'
        )
    return gpus[worker * each : (worker + 1) * each]


def _told(chosen: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of the settings, but for those that are there already and say the same to JAX."""
    told = configuration.environment(chosen)
    return {name: value for name, value in told.items() if name == configuration.VARIABLE or name not in environ}
