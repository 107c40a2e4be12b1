"""Settings before and after the first use of JAX, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unit.devices import recordings

OURS = ("DURE_CONFIGURE", "JAX_NUM_CPU_DEVICES", "PJRT_NPROC", "XLA_FLAGS", "JAX_PLATFORMS")


def python(program: str, folder: Path, **variables: str) -> dict[str, object]:
    """Runs a program in a fresh process; it prints one line of JSON."""
    base = {name: value for name, value in os.environ.items() if name not in OURS}
    outcome = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        env={**base, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return dict(json.loads(outcome.stdout))


def test_a_setting_holds_for_whoever_opens_jax(tmp_path: Path) -> None:
    said = python(
        """
import json, os, sys
import dure
dure.configure(cpu_devices=2, gpu_memory="growth")
dure.configure(virtual_gpus=2, inter_op_threads=3, intra_op_threads=1)
jax_free = not any(name in sys.modules for name in ("jax", "numpy"))
before = dure.devices()
still_free = "jax" not in sys.modules
import jax
from dure import _jax
assert not _jax.backends_are_open()
jax.devices()
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
dure.configure(cpu_devices=2, virtual_gpus=2, inter_op_threads=3, intra_op_threads=1, gpu_memory="growth")
try:
    dure.configure(virtual_gpus=3)
except dure.errors.SpecError as error:
    refused = str(error)
from dure.devices.inventory import backing
print(json.dumps({
    "jax_free": jax_free, "still_free": still_free, "same": before == dure.devices(),
    "names": [device.name for device in before], "backing": [backing(device).id for device in before],
    "threads": names.count("tf_XLAEigen"), "refused": refused,
}))
""",
        tmp_path,
    )
    assert said["jax_free"]
    assert said["still_free"]
    assert said["same"]
    assert said["names"] == ["cpu:0", "cpu:1", "gpu:0", "gpu:1"]
    assert said["backing"] == [0, 1, 2, 3]
    # The pool that was asked for, and never fewer threads than devices.
    assert said["threads"] == 4
    assert "asked for virtual_gpus=3" in str(said["refused"])


def test_a_setting_holds_after_jax_is_imported(tmp_path: Path) -> None:
    said = python(
        """
import json
import jax
import dure
dure.configure(cpu_devices=4)
dure.configure(cpu_devices=3, intra_op_threads=5)
import os
first = len(jax.devices())
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
threads = names.count("tf_XLAEigen")
print(json.dumps({"first": first, "threads": threads, "variable": os.environ["PJRT_NPROC"]}))
""",
        tmp_path,
    )
    assert said == {"first": 3, "threads": 5, "variable": "5"}


def test_the_first_use_closes_the_door(tmp_path: Path) -> None:
    said = python(
        """
import json
import os
import dure
import jax
# JAX has read its variables when it was imported, and nobody reads this one any more.
os.environ["JAX_NUM_CPU_DEVICES"] = "9"
assert len(dure.devices()) == 1
from dure import _jax
listed_opens = _jax.backends_are_open()
jax.numpy.zeros(3)
try:
    dure.configure(cpu_devices=2)
except dure.errors.SpecError as error:
    print(json.dumps({"listed_opens": listed_opens, "refused": str(error), "devices": len(jax.devices())}))
""",
        tmp_path,
    )
    assert said["listed_opens"] is False
    assert said["devices"] == 1
    assert "asked for cpu_devices=2, and JAX has opened its devices in this process already, with cpu_devices=1" in str(
        said["refused"]
    )


def test_a_child_process_starts_configured_and_may_choose_anew(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        """
import json
import dure
from dure.devices import configuration
inherited = [device.name for device in dure.devices()]
dure.configure(cpu_devices=4)
own = [device.name for device in dure.devices()]
print(json.dumps({"inherited": inherited, "own": own, "settings": str(configuration.settings())}))
"""
    )
    said = python(
        """
import os, sys
import dure
dure.configure(cpu_devices=2, virtual_gpus=1)
os.execv(sys.executable, [sys.executable, "child.py"])
""",
        tmp_path,
    )
    assert said["inherited"] == ["cpu:0", "cpu:1", "gpu:0"]
    assert said["own"] == ["cpu:0", "cpu:1", "cpu:2", "cpu:3", "gpu:0"]
    assert said["settings"] == "cpu_devices=4 virtual_gpus=1"


@pytest.mark.parametrize(
    ("variables", "options", "words"),
    [
        (
            {"JAX_NUM_CPU_DEVICES": "8"},
            "cpu_devices=2",
            (
                "asked for cpu_devices=2, which makes 2 CPU devices of JAX, and the environment variable "
                "JAX_NUM_CPU_DEVICES says 8. Take out one of the two"
            ),
        ),
        (
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=3"},
            "cpu_devices=2, virtual_gpus=2",
            (
                "asked for cpu_devices=2 and virtual_gpus=2, which makes 4 CPU devices of JAX, and "
                "--xla_force_host_platform_device_count in the environment variable XLA_FLAGS says 3"
            ),
        ),
        ({"PJRT_NPROC": "6"}, "intra_op_threads=2", "the environment variable PJRT_NPROC says 6"),
        ({"XLA_CLIENT_MEM_FRACTION": ".5"}, "gpu_memory=0.3", "XLA_CLIENT_MEM_FRACTION says .5"),
        (
            {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"},
            "gpu_memory='all'",
            "XLA_PYTHON_CLIENT_MEM_FRACTION says .5",
        ),
        (
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"},
            "gpu_memory='growth'",
            ("asked for gpu_memory=growth, and the environment variable XLA_PYTHON_CLIENT_PREALLOCATE says true"),
        ),
    ],
)
def test_what_contradicts_the_environment_is_refused_with_both(
    tmp_path: Path, variables: dict[str, str], options: str, words: str
) -> None:
    said = python(
        f"""
import json
import dure
try:
    dure.configure({options})
except dure.errors.SpecError as error:
    print(json.dumps({{"refused": str(error)}}))
""",
        tmp_path,
        **variables,
    )
    assert words in str(said["refused"])


@pytest.mark.parametrize(
    ("variables", "options", "names"),
    [
        ({"JAX_NUM_CPU_DEVICES": "3"}, "", ["cpu:0", "cpu:1", "cpu:2"]),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, "", ["cpu:0", "cpu:1"]),
        ({"JAX_NUM_CPU_DEVICES": "3"}, "cpu_devices=3", ["cpu:0", "cpu:1", "cpu:2"]),
        ({"JAX_NUM_CPU_DEVICES": "3"}, "virtual_gpus=2", ["cpu:0", "gpu:0", "gpu:1"]),
        ({"JAX_NUM_CPU_DEVICES": "nonsense"}, "", ["cpu:0"]),
        ({"JAX_PLATFORMS": "cuda"}, "", []),
        ({}, "virtual_gpus=1", ["cpu:0", "gpu:0"]),
    ],
)
def test_the_list_is_what_jax_will_open(
    tmp_path: Path, variables: dict[str, str], options: str, names: list[str]
) -> None:
    said = python(
        f"""
import json
import dure
dure.configure({options})
print(json.dumps({{"names": [device.name for device in dure.devices()]}}))
""",
        tmp_path,
        **variables,
    )
    assert said["names"] == names


def test_a_setting_of_jax_itself_is_not_overruled(tmp_path: Path) -> None:
    said = python(
        """
import json
import jax
import dure
jax.config.update("jax_num_cpu_devices", 3)
listed = [device.name for device in dure.devices()]
refused = []
def attempt(call):
    try:
        call()
    except dure.errors.SpecError as error:
        refused.append(str(error))
attempt(lambda: dure.configure(cpu_devices=2))
dure.configure(cpu_devices=3)
jax.config.update("jax_num_cpu_devices", 5)
from dure.devices.inventory import backing
attempt(lambda: backing("cpu:0"))
print(json.dumps({"listed": listed, "refused": refused}))
""",
        tmp_path,
    )
    assert said["listed"] == ["cpu:0", "cpu:1", "cpu:2"]
    first, second = said["refused"]  # type: ignore[misc]
    assert "asked for cpu_devices=2" in first
    assert "jax.config.jax_num_cpu_devices says 3" in first
    assert "asked for cpu_devices=3" in second
    assert "jax.config.jax_num_cpu_devices says 5" in second


def test_virtual_gpus_beside_real_ones_are_refused(tmp_path: Path) -> None:
    recordings.tool(tmp_path / "bin", recordings.FOUR)
    for name in ("jax_cuda12_plugin", "jax_cuda12_pjrt"):
        folder = tmp_path / f"{name}-0.10.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.10.2\n")
    said = python(
        """
import json
import dure
dure.configure(cpu_devices=2, gpu_memory=4 * 2**30)
import os
share = os.environ["XLA_CLIENT_MEM_FRACTION"]
refused = []
for options in ({"virtual_gpus": 2}, {"gpu_memory": 10**12}):
    try:
        dure.configure(**options)
    except dure.errors.SpecError as error:
        refused.append(str(error))
dure.configure(gpu_memory="growth")
print(json.dumps({"refused": refused, "share": share, "now": os.environ.get("XLA_CLIENT_MEM_FRACTION"),
                  "names": [device.name for device in dure.devices()]}))
""",
        tmp_path,
        PATH=str(tmp_path / "bin"),
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
    first, second = said["refused"]  # type: ignore[misc]
    assert "asked for virtual_gpus=2, and there are real ones: gpu:0 (NVIDIA A40), gpu:1" in first
    assert 'hide the real ones with the environment variable CUDA_VISIBLE_DEVICES=""' in first
    assert f"asked for gpu_memory=1000000000000 bytes, and the smallest GPU here has {46068 << 20}" in second
    assert float(str(said["share"])) == pytest.approx((4 << 30) / (46068 << 20), rel=1e-5)
    assert said["now"] is None
    assert said["names"] == ["cpu:0", "cpu:1", "gpu:0", "gpu:1", "gpu:2", "gpu:3"]
