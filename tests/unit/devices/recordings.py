"""What `nvidia-smi` prints on various machines, and a stand-in for it that prints one of them."""

from __future__ import annotations

import shlex
from pathlib import Path

FOUR = """\
0, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, NVIDIA A40, 46068, 550.127.05, 8.6, [N/A]
1, GPU-0cf5f5ba-5f1a-4c5b-a5a8-d7a2b0f5c1de, NVIDIA A40, 46068, 550.127.05, 8.6, [N/A]
2, GPU-b3a2a2f7-8a3e-4c57-9c2f-5a4f4f0e2d11, NVIDIA A40, 46068, 550.127.05, 8.6, [N/A]
3, GPU-9f0d1c6e-7a41-4f7e-8d55-3e5ed7a6f422, NVIDIA A40, 46068, 550.127.05, 8.6, [N/A]
"""

HEADER_12 = """\
Tue Nov 11 10:02:11 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.127.05             Driver Version: 550.127.05     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
"""

HEADER_13 = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |
+-----------------------------------------+------------------------+----------------------+
"""

MIXED = """\
0, GPU-fcf41002-68b6-5900-d7d1-74026173bb44, NVIDIA A100 80GB PCIe, 81920, 535.104.05, 8.0, Disabled
1, GPU-c92e2d5d-4a69-f1cd-4df0-305f8606705a, NVIDIA A30, 24576, 535.104.05, 8.0, Enabled
"""

MIXED_LIST = """\
GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-fcf41002-68b6-5900-d7d1-74026173bb44)
GPU 1: NVIDIA A30 (UUID: GPU-c92e2d5d-4a69-f1cd-4df0-305f8606705a)
  MIG 2g.12gb     Device  0: (UUID: MIG-d5a46a2e-1d77-575d-99e3-1f96c8555a2e)
  MIG 2g.12gb     Device  1: (UUID: MIG-b8479d6e-d08f-5a92-9a24-0946db72b2a0)
"""

# One slice, as a container that was given only it sees it.
SLICE = (
    "0, GPU-7d5d2d18-e527-75f1-571c-349591a57073, NVIDIA H200 NVL, [Insufficient Permissions], "
    "580.65.06, 9.0, Enabled\n"
)

SLICE_LIST = """\
GPU 0: NVIDIA H200 NVL (UUID: GPU-7d5d2d18-e527-75f1-571c-349591a57073)
  MIG 1g.18gb     Device  0: (UUID: MIG-8210e6aa-6e55-5fcc-b76a-18069cb47525)
"""

UNIFIED = "0, GPU-2a7f6d0c-2f5e-1c8b-9d3e-6b8a4c1d0e9f, NVIDIA GB10, [N/A], 580.95.05, 12.1, [N/A]\n"

OLD_REFUSAL = 'Field "compute_cap" is not a valid field to query.\n\n'

OLD = "0, GPU-1b7f6d0c-2f5e-1c8b-9d3e-6b8a4c1d0e9f, Tesla V100-SXM2-16GB, 16160, 450.80.02\n"

LOST = """\
Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error
0, GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, NVIDIA A40, 46068, 550.127.05, 8.6, [N/A]
"""

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.127\n"


def tool(folder: Path, query: str = "", *, plain: str = HEADER_12, listing: str = "", code: int = 0) -> Path:
    """Writes an `nvidia-smi` into a folder that prints these recordings.

    Args:
        folder: where; new, so that its path was asked by nobody before.
        query: the answer to `--query-gpu`.
        plain: the answer without options.
        listing: the answer to `-L`.
        code: the exit code of a query.
    """
    folder.mkdir(parents=True)
    path = folder / "nvidia-smi"
    path.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"  --query-gpu=*) printf %s {shlex.quote(query)}; exit {code} ;;\n"
        f"  -L) printf %s {shlex.quote(listing)} ;;\n"
        f"  *) printf %s {shlex.quote(plain)} ;;\n"
        "esac\n"
    )
    path.chmod(0o700)
    return path


def card(root: Path, *, node: bool = True) -> Path:
    """Makes a tree of system files with one NVIDIA card on the bus."""
    folder = root / "sys/bus/pci/devices/0000:34:00.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text("0x10de\n")
    (folder / "class").write_text("0x030200\n")
    (root / "dev").mkdir(exist_ok=True)
    if node:
        (root / "dev/nvidia0").touch()
    return root
