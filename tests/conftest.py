"""The room that every test runs in: eight virtual devices, one thread each, and nothing left behind.

Set before JAX or Keras is imported. Programs that a test starts inherit the environment, not the eight
devices: those are set in this process alone, because such a program chooses its own.
"""

from __future__ import annotations

import os
import tempfile

# A user's own settings and caches must not decide what a test sees, and no test fetches anything.
KERAS_HOME = tempfile.TemporaryDirectory(prefix="dure-test-keras-")
os.environ["KERAS_HOME"] = KERAS_HOME.name
os.environ["DURE_DATA_URL"] = ""
OWN = (
    "DURE_DATA_DIR DURE_TRACEBACK DURE_CLUSTER DURE_TASK DURE_CONFIGURE TF_CONFIG SLURM_STEP_NUM_TASKS "
    "JAX_NUM_CPU_DEVICES PJRT_NPROC XLA_CLIENT_MEM_FRACTION XLA_PYTHON_CLIENT_MEM_FRACTION "
    "XLA_PYTHON_CLIENT_PREALLOCATE"
)
for variable in OWN.split():
    os.environ.pop(variable, None)
os.environ["KERAS_BACKEND"] = "jax"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["MPLBACKEND"] = "agg"
# Keras sets this one when it is first imported.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
# Two cores run two workers of the suite: a pool of threads in each would only make them wait for one another.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
# scikit-learn sets these two when it is imported; set here, its first import in a test changes no variable.
os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "True")
os.environ.setdefault("KMP_INIT_AT_FORK", "FALSE")

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from leaks import Room

hypothesis.settings.register_profile("dure", deadline=None, derandomize=True, max_examples=100, database=None)
hypothesis.settings.load_profile("dure")


def pytest_unconfigure() -> None:
    KERAS_HOME.cleanup()


@pytest.fixture(scope="session")
def empty_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that every test starts in; it is empty, and stays so."""
    return tmp_path_factory.mktemp("cwd")


@pytest.fixture(autouse=True)
def nothing_left(empty_dir: Path) -> Iterator[None]:
    """Fails a test after which a thread, process, variable, signal handler, shared block or file remains."""
    start = Path.cwd()
    os.chdir(empty_dir)
    room = Room(empty_dir)
    yield
    left = room.left()
    os.chdir(start)
    if left:
        pytest.fail("the test leaves something behind: " + "; ".join(left), pytrace=False)
