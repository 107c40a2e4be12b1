"""Google TPUs of this machine, as the PCI bus and the device files show them; nothing is opened.

Source: the PCI identities are those that JAX itself looks for (`jax/_src/hardware_utils.py`); cores and
    memory a
chip are those of Google's tables of TPU versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["Tpu", "nodes", "probe"]

_VENDOR = "0x1ae0"
_GIB = 1 << 30


class Tpu(NamedTuple):
    """One TPU as JAX will count it: a chip, or a core of a chip whose cores stand alone."""

    model: str
    memory_bytes: int | None


# PCI device to the version, JAX devices a chip, and memory of one of them in GiB. Versions 2 and 3 share an
# identity on some hosts; the smaller memory is said.
_VERSIONS = {
    "0x0027": ("TPU v3", 2, 16),
    "0x005e": ("TPU v4", 1, 32),
    "0x0062": ("TPU v5p", 1, 95),
    "0x0063": ("TPU v5e", 1, 16),
    "0x006f": ("TPU v6e", 1, 32),
    "0x0076": ("TPU7x", 2, 96),
}


def probe(root: Path = Path("/")) -> tuple[Tpu, ...]:
    """Returns the TPUs of this machine; none where there are none.

    Args:
        root: where the file system starts that is looked at.
    """
    found = []
    for vendor in sorted((root / "sys/bus/pci/devices").glob("*/vendor")):
        if _read(vendor) != _VENDOR:
            continue
        known = _VERSIONS.get(_read(vendor.with_name("device")))
        if known is not None:
            model, devices, gib = known
            found += [Tpu(model, gib * _GIB)] * devices
    # A container may see the devices and not the bus.
    return tuple(found) or tuple(Tpu("TPU", None) for node in nodes(root) if node.name.startswith("accel"))


def nodes(root: Path = Path("/")) -> tuple[Path, ...]:
    """Returns the files through which a program reaches TPUs: `/dev/accel0`, or `/dev/vfio/0` on newer ones.

    Args:
        root: where the file system starts.
    """
    numbered = [*(root / "dev").glob("accel[0-9]*"), *(root / "dev/vfio").glob("[0-9]*")]
    return tuple(sorted(node for node in numbered if not node.is_dir()))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
