from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dure.devices import nvidia
from dure.devices.nvidia import Gpu, Probe
from unit.devices import recordings

WHOLE = [Gpu(index, f"GPU-{index}aa", "NVIDIA A40", 46068 << 20) for index in range(3)]
DIVIDED = Gpu(3, "GPU-3aa", "NVIDIA A30", 24 << 30, divided=True)
PARTS = [Gpu(3, f"MIG-{part}bb", "NVIDIA A30 MIG 2g.12gb", 12 << 30) for part in range(2)]


def put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", str(folder))


def test_several_gpus_are_read() -> None:
    gpus = nvidia.parse_gpus(recordings.FOUR)
    assert [gpu.index for gpu in gpus] == [0, 1, 2, 3]
    assert gpus[1] == Gpu(
        index=1,
        uuid="GPU-0cf5f5ba-5f1a-4c5b-a5a8-d7a2b0f5c1de",
        model="NVIDIA A40",
        memory_bytes=46068 << 20,
        driver_version="550.127.05",
        compute_capability="8.6",
    )


def test_what_the_driver_does_not_say_is_none() -> None:
    (gpu,) = nvidia.parse_gpus(recordings.UNIFIED)
    assert (gpu.model, gpu.memory_bytes, gpu.compute_capability) == ("NVIDIA GB10", None, "12.1")


@pytest.mark.parametrize("text", ["", "\n\n", recordings.NO_DRIVER, recordings.MISMATCH, "0, GPU-1\n", "x, y, z"])
def test_what_is_no_record_is_no_gpu(text: str) -> None:
    assert nvidia.parse_gpus(text) == ()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (recordings.HEADER_12, "12.4"),
        (recordings.HEADER_13, "13.3"),
        ("| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: N/A |", None),
        (recordings.NO_DRIVER, None),
        ("", None),
    ],
)
def test_the_cuda_version_is_in_the_header_old_and_new(text: str, version: str | None) -> None:
    assert nvidia.parse_cuda_version(text) == version


def test_instances_belong_to_the_gpu_above_them() -> None:
    assert nvidia.parse_instances(recordings.MIXED_LIST) == {
        "GPU-c92e2d5d-4a69-f1cd-4df0-305f8606705a": (
            ("2g.12gb", "MIG-d5a46a2e-1d77-575d-99e3-1f96c8555a2e"),
            ("2g.12gb", "MIG-b8479d6e-d08f-5a92-9a24-0946db72b2a0"),
        )
    }
    assert nvidia.parse_instances("  MIG 1g.5gb  Device  0: (UUID: MIG-1)\n") == {}


class TestProbe:
    def test_no_tool_and_no_card_is_nothing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        put_on_path(monkeypatch, tmp_path)
        assert nvidia.probe(tmp_path) == Probe()

    def test_a_card_without_a_driver_is_said(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        put_on_path(monkeypatch, tmp_path)
        found = nvidia.probe(recordings.card(tmp_path, node=False))
        assert found == Probe((), "it is on the bus, and there is no NVIDIA driver", "install NVIDIA's driver")

    def test_another_makers_card_is_none(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        put_on_path(monkeypatch, tmp_path)
        recordings.card(tmp_path, node=False)
        (tmp_path / "sys/bus/pci/devices/0000:34:00.0/vendor").write_text("0x1002\n")
        assert nvidia.probe(tmp_path) == Probe()

    def test_device_files_without_the_tool_are_gpus(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        put_on_path(monkeypatch, tmp_path)
        recordings.card(tmp_path)
        for name in ("nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm"):
            (tmp_path / "dev" / name).touch()
        assert [gpu.index for gpu in nvidia.probe(tmp_path).gpus] == [0, 2, 10]

    def test_several_gpus(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        put_on_path(monkeypatch, recordings.tool(tmp_path / "bin", recordings.FOUR).parent)
        found = nvidia.probe(tmp_path)
        assert len(found.gpus) == 4
        assert {gpu.cuda_version for gpu in found.gpus} == {"12.4"}
        assert found.problem is None

    def test_a_divided_gpu_has_its_instances_behind_it(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = recordings.tool(tmp_path / "bin", recordings.MIXED, listing=recordings.MIXED_LIST)
        put_on_path(monkeypatch, path.parent)
        gpus = nvidia.probe(tmp_path).gpus
        assert [gpu.model for gpu in gpus] == [
            "NVIDIA A100 80GB PCIe",
            "NVIDIA A30",
            "NVIDIA A30 MIG 2g.12gb",
            "NVIDIA A30 MIG 2g.12gb",
        ]
        assert [gpu.divided for gpu in gpus] == [False, True, False, False]
        assert gpus[2].memory_bytes == 12 << 30
        assert gpus[2].driver_version == "535.104.05"

    def test_a_slice_alone_in_a_container(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = recordings.tool(
            tmp_path / "bin", recordings.SLICE, listing=recordings.SLICE_LIST, plain=recordings.HEADER_13
        )
        put_on_path(monkeypatch, path.parent)
        (one,) = nvidia.visible(nvidia.probe(tmp_path).gpus, {})
        assert (one.model, one.memory_bytes, one.cuda_version) == (
            "NVIDIA H200 NVL MIG 1g.18gb",
            18 << 30,
            "13.3",
        )

    def test_an_old_driver_is_asked_for_less(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = recordings.tool(tmp_path / "bin")
        path.write_text(
            "#!/bin/sh\n"
            'case "$1" in\n'
            f"  *compute_cap*) printf %s '{recordings.OLD_REFUSAL}'; exit 2 ;;\n"
            f"  --query-gpu=*) printf %s '{recordings.OLD}' ;;\n"
            "  *) echo '| NVIDIA-SMI 450.80.02  Driver Version: 450.80.02  CUDA Version: 11.0  |' ;;\n"
            "esac\n"
        )
        put_on_path(monkeypatch, path.parent)
        (gpu,) = nvidia.probe(tmp_path).gpus
        assert (gpu.memory_bytes, gpu.compute_capability, gpu.cuda_version) == (16160 << 20, None, "11.0")

    @pytest.mark.parametrize(
        ("text", "code", "words"),
        [
            (recordings.NO_DRIVER, 9, "nvidia-smi ended with code 9 and says: NVIDIA-SMI has failed because"),
            (recordings.MISMATCH, 18, "code 18 and says: Failed to initialize NVML: Driver/library version"),
            ("No devices were found\n", 6, "code 6 and says: No devices were found"),
            ("", 255, "nvidia-smi ended with code 255 and says: nothing"),
        ],
    )
    def test_a_broken_driver_is_said_in_its_own_words(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, code: int, words: str
    ) -> None:
        put_on_path(monkeypatch, recordings.tool(tmp_path / "bin", text, code=code).parent)
        found = nvidia.probe(recordings.card(tmp_path))
        assert found.gpus == ()
        assert words in str(found.problem)
        assert "restart the machine" in found.mend

    @pytest.mark.parametrize("text", [recordings.NO_DRIVER, "No devices were found\n"])
    def test_the_tool_without_a_card_is_no_fault(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
    ) -> None:
        put_on_path(monkeypatch, recordings.tool(tmp_path / "bin", text, code=9).parent)
        assert nvidia.probe(tmp_path) == Probe()

    def test_a_lost_gpu_is_said_beside_the_others(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        put_on_path(monkeypatch, recordings.tool(tmp_path / "bin", recordings.LOST, code=15).parent)
        found = nvidia.probe(tmp_path)
        assert [gpu.index for gpu in found.gpus] == [0]
        assert "device handle for GPU1: 0000:34:00.0" in str(found.problem)

    def test_a_warning_between_the_records_is_no_fault(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        text = recordings.FOUR + "WARNING: infoROM is corrupted at gpu 0000:84:00.0\n"
        put_on_path(monkeypatch, recordings.tool(tmp_path / "bin", text).parent)
        found = nvidia.probe(tmp_path)
        assert (len(found.gpus), found.problem) == (4, None)

    def test_a_driver_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = recordings.tool(tmp_path / "bin")
        # It waits for a writer that never comes, as a hung driver waits for its hardware.
        os.mkfifo(tmp_path / "never")
        path.write_text(f"#!/bin/sh\nread -r line < '{tmp_path}/never'\n")
        monkeypatch.setattr(nvidia, "TIMEOUT_S", 0.2)
        put_on_path(monkeypatch, path.parent)
        assert nvidia.probe(recordings.card(tmp_path)).problem == (
            "nvidia-smi does not answer and says: nothing within 0.2 s"
        )

    def test_a_tool_that_cannot_start_is_said(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = recordings.tool(tmp_path / "bin")
        path.write_bytes(b"\x7fELF not really")
        put_on_path(monkeypatch, path.parent)
        assert "it cannot be started" in str(nvidia.probe(recordings.card(tmp_path)).problem)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, [2, 0]),
        ({"CUDA_VISIBLE_DEVICES": " 2 , 1"}, [2, 1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "0,9,1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "1,1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-0aa"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-"}, []),
        ({"CUDA_VISIBLE_DEVICES": "none"}, []),
        ({"JAX_CUDA_VISIBLE_DEVICES": "all"}, [0, 1, 2]),
        ({"JAX_CUDA_VISIBLE_DEVICES": "2,9"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "2,1", "JAX_CUDA_VISIBLE_DEVICES": "1"}, [1]),
    ],
)
def test_the_environment_chooses_among_gpus(environ: dict[str, str], expected: list[int]) -> None:
    assert [gpu.index for gpu in nvidia.visible(WHOLE, environ)] == expected


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ["MIG-0bb"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1bb"}, ["MIG-1bb"]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1bb,MIG-0bb"}, ["MIG-1bb"]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, ["MIG-0bb"]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-3aa"}, []),
    ],
)
def test_a_process_sees_one_instance(environ: dict[str, str], expected: list[str]) -> None:
    assert [gpu.uuid for gpu in nvidia.visible([DIVIDED, *PARTS], environ)] == expected


def test_whole_gpus_come_before_instances() -> None:
    assert list(nvidia.visible([*WHOLE, DIVIDED, *PARTS], {})) == WHOLE
    assert nvidia.visible([replace(DIVIDED, index=0)], {}) == ()
