from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from dure.devices import host


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_smallest_limit_on_the_way_to_the_root_holds(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job.scope\n",
            "sys/fs/cgroup/user.slice/job.scope/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/memory.max": "2147483648\n",
            "sys/fs/cgroup/memory.max": "8589934592\n",
        },
    )
    assert host.cgroup_limit_bytes(tmp_path) == 2 << 30


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/docker/3f2c\n", "sys/fs/cgroup/memory.max": "1073741824\n"},
    )
    assert host.cgroup_limit_bytes(tmp_path) == 1 << 30


def test_version_1_has_its_own_file_and_its_own_word_for_no_limit(tmp_path: Path) -> None:
    lines = "4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n"
    write(
        tmp_path,
        {
            "proc/self/cgroup": lines,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "536870912\n",
        },
    )
    assert host.cgroup_limit_bytes(tmp_path) == 512 << 20
    (tmp_path / "sys/fs/cgroup/memory/job/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert host.cgroup_limit_bytes(tmp_path) is None


@pytest.mark.parametrize("lines", ["", "garbage\n", "0::/../../etc\n", "4:memory:/nowhere\n"])
def test_without_a_readable_limit_there_is_none(tmp_path: Path, lines: str) -> None:
    write(tmp_path, {"proc/self/cgroup": lines})
    assert host.cgroup_limit_bytes(tmp_path) is None


def test_the_smaller_of_machine_and_limit_is_said(tmp_path: Path) -> None:
    machine = psutil.virtual_memory().total
    assert host.memory_bytes(tmp_path) == machine
    write(tmp_path, {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1000000\n"})
    assert host.memory_bytes(tmp_path) == 1_000_000
    write(tmp_path, {"sys/fs/cgroup/memory.max": f"{machine * 2}\n"})
    assert host.memory_bytes(tmp_path) == machine


def test_the_processor_says_its_name(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 7B13\n"})
    assert host.processor(tmp_path) == "AMD EPYC 7B13"


def test_a_silent_processor_has_its_architecture(tmp_path: Path) -> None:
    assert host.processor(tmp_path)


def test_cores_are_those_that_the_process_may_use() -> None:
    assert 1 <= host.cores() <= (os.cpu_count() or 1)
