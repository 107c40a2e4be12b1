from __future__ import annotations

import pytest

from dure.devices.nvidia import Gpu
from dure.errors import SpecError
from dure.launch import share

GPUS = [Gpu(index, f"GPU-{index}", "NVIDIA A40", 2**30) for index in range(5)]


def test_threads_are_shared_out() -> None:
    told = share.variables(0, 2, {"LANG": "C"}, cores=8, gpus=())
    assert told == {
        "LANG": "C",
        "DURE_CONFIGURE": "intra_op_threads=4",
        "PJRT_NPROC": "4",
        "OMP_NUM_THREADS": "4",
        "OPENBLAS_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "4",
        "KERAS_BACKEND": "jax",
    }


def test_more_workers_than_cores_get_one_thread_each() -> None:
    assert share.variables(3, 4, {}, cores=2, gpus=())["OMP_NUM_THREADS"] == "1"


def test_what_the_user_has_set_stays() -> None:
    said = {
        "DURE_CONFIGURE": "cpu_devices=2 intra_op_threads=3",
        "JAX_NUM_CPU_DEVICES": "2",
        "PJRT_NPROC": "3",
        "OMP_NUM_THREADS": "7",
        "OPENBLAS_NUM_THREADS": "7",
        "MKL_NUM_THREADS": "7",
        "KERAS_BACKEND": "torch",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "XLA_CLIENT_MEM_FRACTION": "0.3",
    }
    assert share.variables(0, 2, said, cores=8, gpus=GPUS) == said


def test_a_pool_set_by_hand_is_not_overruled() -> None:
    told = share.variables(0, 2, {"PJRT_NPROC": "3"}, cores=8, gpus=())
    assert told["PJRT_NPROC"] == "3"
    assert "DURE_CONFIGURE" not in told


@pytest.mark.parametrize(("worker", "seen"), [(0, "GPU-0,GPU-1"), (1, "GPU-2,GPU-3")])
def test_gpus_are_shared_out_evenly(worker: int, seen: str) -> None:
    assert share.variables(worker, 2, {}, cores=8, gpus=GPUS)["CUDA_VISIBLE_DEVICES"] == seen


def test_a_gpu_without_an_identity_goes_by_its_number() -> None:
    told = share.variables(1, 2, {}, cores=8, gpus=[Gpu(0, "", "x", None), Gpu(1, "", "x", None)])
    assert told["CUDA_VISIBLE_DEVICES"] == "1"


def test_fewer_gpus_than_workers_are_refused() -> None:
    with pytest.raises(SpecError, match="6 workers on this machine, which has 5 usable GPUs"):
        share.variables(0, 6, {}, cores=8, gpus=GPUS)
    assert "CUDA_VISIBLE_DEVICES" in share.variables(0, 6, {"CUDA_VISIBLE_DEVICES": ""}, cores=8, gpus=GPUS)
