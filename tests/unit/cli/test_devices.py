from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dure.cli import devices as command
from dure.devices.accelerators import Unusable
from dure.devices.inventory import Device
from unit.devices import recordings

RUN = [sys.executable, "-c", "from dure.cli import main; main()", "devices"]
CPU = Device("cpu:0", "cpu", 24 << 30, virtual=False, model="AMD EPYC")
GPU = Device("gpu:0", "gpu", 143771 << 20, False, "NVIDIA H200", "9.0", "580.65.06", "13.0")


def environment(**variables: str) -> dict[str, str]:
    hidden = ("XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS")
    return {**{name: value for name, value in os.environ.items() if name not in hidden}, **variables}


def run(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RUN, *options], env=environment(**variables), capture_output=True, text=True, check=False)


def test_the_list_is_plain_where_nobody_looks() -> None:
    outcome = run(DURE_CONFIGURE="cpu_devices=2 virtual_gpus=1")
    assert outcome.returncode == 0, outcome.stderr
    titles, *rows, remark = outcome.stdout.splitlines()
    assert titles.split() == ["name", "kind", "model", "memory", "virtual"]
    assert [row.split()[:2] for row in rows] == [["cpu:0", "cpu"], ["cpu:1", "cpu"], ["gpu:0", "gpu"]]
    assert remark.startswith("Virtual devices share the cores of this machine (")
    assert "\x1b" not in outcome.stdout


def test_json_is_for_programs(tmp_path: Path) -> None:
    path = str(recordings.tool(tmp_path / "bin", recordings.FOUR).parent)
    outcome = run("--json", PATH=path)
    record = json.loads(outcome.stdout)
    assert [one["name"] for one in record["devices"]] == ["cpu:0"]
    assert record["devices"][0]["memory_bytes"] > 0
    assert record["devices"][0]["virtual"] is False
    assert [one["hint"] for one in record["unusable"]] == ['pip install "jax[cuda12]"'] * 4


def test_what_is_missing_is_said_once_with_the_line_to_install(tmp_path: Path) -> None:
    path = str(recordings.tool(tmp_path / "bin", recordings.FOUR, plain=recordings.HEADER_13).parent)
    outcome = run(PATH=path)
    assert outcome.stdout.splitlines()[-1] == (
        'Not usable: 4 x NVIDIA A40: JAX\'s plugin for CUDA is not installed. To use it: pip install "dure[cuda]"'
    )


def test_a_wrong_setting_is_one_message() -> None:
    outcome = run(DURE_CONFIGURE="cpu_devces=2")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("SpecError: asked, by the environment variable DURE_CONFIGURE,")
    assert "Traceback" not in outcome.stderr


def test_a_table_of_gpus_fits_a_terminal_of_80_columns() -> None:
    ours, theirs = pty.openpty()
    program = (
        "from dure.cli.devices import _print_table\n"
        "from dure.devices.inventory import Device\n"
        f"_print_table([{CPU!r}, {GPU!r}])\n"
    )
    with os.fdopen(ours, "rb", buffering=0) as screen:
        outcome = subprocess.run(
            [sys.executable, "-c", program],
            env=environment(COLUMNS="80", NO_COLOR="1"),
            stdout=theirs,
            stderr=subprocess.PIPE,
            check=False,
        )
        os.close(theirs)
        text = b""
        # A terminal whose other end is closed answers with an error at its end.
        try:
            while piece := screen.read(4096):
                text += piece
        except OSError:
            pass
    assert outcome.returncode == 0, outcome.stderr
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()
    assert max(map(len, lines)) <= 80
    row = next(line for line in lines if "gpu:0" in line)
    assert row.split() == ["gpu:0", "gpu", "NVIDIA", "H200", "140.4", "GiB", "no", "9.0", "580.65.06", "13.0"]


def test_the_columns_of_gpus_come_with_a_gpu() -> None:
    assert command.rows([CPU])[0] == ("name", "kind", "model", "memory", "virtual")
    assert command.rows([CPU, GPU])[0][-3:] == ("compute", "driver", "CUDA")
    assert command.rows([CPU, GPU])[1][-3:] == ("-", "-", "-")


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(None, "-"), (0, "0.0 GiB"), (1 << 30, "1.0 GiB"), (143771 << 20, "140.4 GiB")]
)
def test_memory_reads_as_people_say_it(size_bytes: int | None, text: str) -> None:
    assert command.memory_text(size_bytes) == text


def test_what_differs_is_said_apart() -> None:
    missing = [Unusable("gpu", "NVIDIA A40", reason, "mend it") for reason in ("b", "a", "b")]
    assert command.remarks([CPU], missing) == [
        "Not usable: NVIDIA A40: a. To use it: mend it",
        "Not usable: 2 x NVIDIA A40: b. To use it: mend it",
    ]
