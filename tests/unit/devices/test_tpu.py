from __future__ import annotations

from pathlib import Path

from dure.devices import tpu


def chip(root: Path, slot: str, device: str, vendor: str = "0x1ae0") -> None:
    folder = root / "sys/bus/pci/devices" / slot
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "device").write_text(f"{device}\n")


def test_there_is_none(tmp_path: Path) -> None:
    chip(tmp_path, "0000:00:05.0", "0x0063", vendor="0x10de")
    assert tpu.probe(tmp_path) == ()
    assert tpu.nodes(tmp_path) == ()


def test_chips_are_counted_on_the_bus(tmp_path: Path) -> None:
    for slot in range(4):
        chip(tmp_path, f"0000:00:0{slot}.0", "0x0063")
    # A network card of the same maker.
    chip(tmp_path, "0000:00:09.0", "0x0042")
    assert tpu.probe(tmp_path) == (tpu.Tpu("TPU v5e", 16 << 30),) * 4


def test_a_chip_of_two_cores_is_two_devices(tmp_path: Path) -> None:
    chip(tmp_path, "0000:00:04.0", "0x0027")
    assert tpu.probe(tmp_path) == (tpu.Tpu("TPU v3", 16 << 30),) * 2


def test_device_files_count_where_the_bus_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "dev/vfio").mkdir(parents=True)
    for name in ("accel0", "accel1", "vfio/0", "vfio/vfio"):
        (tmp_path / "dev" / name).touch()
    # The folder of other makers' accelerators is no TPU.
    (tmp_path / "dev/accel").mkdir()
    assert [node.name for node in tpu.nodes(tmp_path)] == ["accel0", "accel1", "0"]
    assert tpu.probe(tmp_path) == (tpu.Tpu("TPU", None),) * 2
