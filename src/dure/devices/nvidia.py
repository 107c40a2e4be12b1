"""NVIDIA GPUs as the driver's own tool `nvidia-smi` reports them, without CUDA: it takes no memory of a GPU.

The readers of its output are pure; `probe` runs it, in a process of its own with a deadline, because a broken
driver can hang whoever asks it.
"""

from __future__ import annotations

import csv
import functools
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

__all__ = ["Gpu", "Probe", "parse_cuda_version", "parse_gpus", "parse_instances", "probe", "visible"]

TIMEOUT_S = 10.0
"""How long one call of `nvidia-smi` may take, in seconds: without persistence mode it needs several."""

_MIB = 1 << 20
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version", "compute_cap", "mig.mode.current")
# Drivers before 510 do not know the last two, and answer with an error for all.
_OLD_FIELDS = _FIELDS[:5]
# Other lines between the records are warnings about GPUs that work.
_LOST = re.compile(r"device handle|is lost|fallen off")
_MEND = "restart the machine if its driver was just updated, else reinstall NVIDIA's driver"
_INSTANCE = re.compile(r"\s+MIG\s+(?P<profile>\S+)\s+Device\s+\d+:\s+\(UUID:\s*(?P<uuid>MIG-[^)\s]+)\)")
_GPU_LINE = re.compile(r"GPU\s+(?P<index>\d+):.*\(UUID:\s*(?P<uuid>GPU-[^)\s]+)\)")


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, or one instance of a GPU that is divided (MIG), as CUDA would show it to a program.

    Args:
        index: the driver's number of the GPU.
        uuid: `GPU-...`, or `MIG-...` for an instance.
        model: as `NVIDIA H200`.
        memory_bytes: its memory in bytes; None where it shares the machine's and the driver says none.
        driver_version: as `550.127.05`.
        cuda_version: the newest CUDA that the driver serves, as `12.4`.
        compute_capability: as `9.0`.
        divided: whether it is divided into instances, so that programs see those and not itself.
    """

    index: int
    uuid: str
    model: str
    memory_bytes: int | None
    driver_version: str | None = None
    cuda_version: str | None = None
    compute_capability: str | None = None
    divided: bool = False


class Probe(NamedTuple):
    """What was found: the GPUs in the driver's order, and why there may be more than it reports."""

    gpus: tuple[Gpu, ...] = ()
    problem: str | None = None
    mend: str = ""


def probe(root: Path = Path("/")) -> Probe:
    """Asks `nvidia-smi` for the GPUs of this machine, once a process.

    Args:
        root: where the file system starts that is looked at for hardware.

    Returns:
        The GPUs, instances of divided ones included; where a GPU is here and nobody answers for it, what is
        wrong and what to do.
    """
    tool = shutil.which("nvidia-smi")
    if tool is not None:
        return _ask(tool, root)
    # A container can be given the GPUs without the driver's tools.
    numbers = sorted(int(node.name[6:]) for node in _nodes(root))
    if numbers:
        return Probe(tuple(Gpu(number, "", "NVIDIA GPU", None) for number in numbers))
    if _is_on_bus(root):
        return Probe((), "it is on the bus, and there is no NVIDIA driver", "install NVIDIA's driver")
    return Probe()


def parse_gpus(text: str, fields: Sequence[str] = _FIELDS) -> tuple[Gpu, ...]:
    """Reads the answer to `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`.

    Lines that are no record (a GPU that fell off the bus is reported in a sentence) are left out.

    Args:
        text: the output.
        fields: the names of its columns, as asked for.

    Example:
        >>> parse_gpus("0, GPU-1b, NVIDIA A40, 46068, 550.127.05, 8.6, [N/A]")[0].compute_capability
        '8.6'
    """
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(fields) or not row[0].strip().isdecimal():
            continue
        said = {name: _said(value) for name, value in zip(fields, row, strict=True)}
        memory = said["memory.total"]
        gpus.append(
            Gpu(
                index=int(row[0]),
                uuid=said["uuid"] or "",
                model=said["name"] or "NVIDIA GPU",
                memory_bytes=int(float(memory) * _MIB) if memory and re.fullmatch(r"\d+(\.\d+)?", memory) else None,
                driver_version=said["driver_version"],
                compute_capability=said.get("compute_cap"),
                divided=said.get("mig.mode.current") == "Enabled",
            )
        )
    return tuple(gpus)


def parse_cuda_version(text: str) -> str | None:
    """Reads the newest CUDA version that the driver serves from the first lines of plain `nvidia-smi`.

    Example:
        >>> parse_cuda_version("| NVIDIA-SMI 550.127.05   Driver Version: 550.127.05   CUDA Version: 12.4   |")
        '12.4'
    """
    found = re.search(r"CUDA (?:UMD )?Version\s*:\s*(\d+\.\d+)", text)
    return found.group(1) if found else None


def parse_instances(text: str) -> dict[str, tuple[tuple[str, str], ...]]:
    """Reads the instances of divided GPUs from `nvidia-smi -L`.

    Args:
        text: the output.

    Returns:
        UUID of a GPU to the profile and UUID of each instance, as `("1g.10gb", "MIG-...")`.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    owner = ""
    for line in text.splitlines():
        if gpu := _GPU_LINE.match(line):
            owner = gpu["uuid"]
        elif owner and (instance := _INSTANCE.match(line)):
            found.setdefault(owner, []).append((instance["profile"], instance["uuid"]))
    return {uuid: tuple(instances) for uuid, instances in found.items()}


def visible(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """Returns the GPUs that CUDA will show to this process, in its order.

    `CUDA_VISIBLE_DEVICES` names them by number or by the start of a UUID, and what stands behind the first
    unknown name does not count. Of divided GPUs a process sees one instance at most.
    `JAX_CUDA_VISIBLE_DEVICES` then picks among these by number. Where models differ and `CUDA_DEVICE_ORDER`
    is not `PCI_BUS_ID`, CUDA puts the fastest first; the driver's tool does not say which that is.

    Args:
        gpus: all that there are, instances included.
        environ: the environment.

    Source: CUDA C++ Programming Guide, environment variables; NVIDIA Multi-Instance GPU User Guide.
    """
    whole = [gpu for gpu in gpus if not gpu.divided and gpu.uuid[:4] != "MIG-"]
    instances = [gpu for gpu in gpus if gpu.uuid[:4] == "MIG-"]
    named = environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        seen = whole or instances[:1]
    else:
        seen = []
        for word in (word.strip() for word in named.split(",")):
            if word.isdecimal():
                match = [gpu for gpu in gpus if gpu.index == int(word) and not gpu.divided][:1]
            else:
                match = [
                    gpu for gpu in (*whole, *instances) if word[:4] in ("GPU-", "MIG-") and gpu.uuid.startswith(word)
                ]
            if len(match) != 1 or match[0] in seen:
                break
            seen += match
            if match[0].uuid[:4] == "MIG-":
                seen = seen[:1]
                break
    picked = environ.get("JAX_CUDA_VISIBLE_DEVICES", "all")
    if picked != "all":
        numbers = [int(word) for word in picked.split(",") if word.strip().isdecimal()]
        seen = [seen[number] for number in numbers if number < len(seen)]
    return tuple(seen)


@functools.cache
def _ask(tool: str, root: Path) -> Probe:
    """One conversation with the tool at that path."""
    fields: tuple[str, ...] = _FIELDS
    code, text = _query(tool, fields)
    if "not a valid field" in text:
        fields = _OLD_FIELDS
        code, text = _query(tool, fields)
    gpus = parse_gpus(text, fields)
    if not gpus:
        # The tool may be installed on a machine without a GPU: then nothing is wrong.
        if not (_nodes(root) or _is_on_bus(root) or (root / "dev/dxg").exists()):
            return Probe()
        # Its own words say what is broken; after the first line comes advice.
        words = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        end = "does not answer" if code is None else f"ended with code {code}"
        return Probe((), f"nvidia-smi {end} and says: {words[:200]}", _MEND)
    cuda = parse_cuda_version(_run(tool)[1])
    is_divided = any(gpu.divided or gpu.memory_bytes is None for gpu in gpus)
    instances = parse_instances(_run(tool, "-L")[1]) if is_divided else {}
    found: list[Gpu] = []
    for gpu in (replace(gpu, cuda_version=cuda) for gpu in gpus):
        parts = instances.get(gpu.uuid, ())
        found.append(replace(gpu, divided=gpu.divided or bool(parts)))
        found += [_instance(gpu, profile, uuid) for profile, uuid in parts]
    lost = [line.strip() for line in text.splitlines() if _LOST.search(line)]
    return Probe(tuple(found), f"nvidia-smi says: {lost[0][:200]}", _MEND) if lost else Probe(tuple(found))


def _query(tool: str, fields: Sequence[str]) -> tuple[int | None, str]:
    return _run(tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")


def _run(tool: str, *options: str) -> tuple[int | None, str]:
    """Returns exit code (None: no answer in time, or it cannot be started) and all that it printed."""
    try:
        # The tool is the one on the user's PATH, the options are ours.
        done = subprocess.run(  # noqa: S603
            [tool, *options], capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"nothing within {TIMEOUT_S:g} s"
    except OSError as error:
        return None, f"it cannot be started ({error.strerror})"
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def _instance(gpu: Gpu, profile: str, uuid: str) -> Gpu:
    """An instance of a divided GPU, under the name that CUDA gives it."""
    size = _profile_bytes(profile)
    return replace(gpu, uuid=uuid, model=f"{gpu.model} MIG {profile}", memory_bytes=size, divided=False)


def _nodes(root: Path) -> list[Path]:
    return [node for node in (root / "dev").glob("nvidia[0-9]*") if node.name[6:].isdecimal()]


def _is_on_bus(root: Path) -> bool:
    """Whether the PCI bus shows a display controller (class 03) of NVIDIA."""
    devices = (root / "sys/bus/pci/devices").glob("*")
    return any(_read(one / "vendor") == "0x10de" and _read(one / "class")[:4] == "0x03" for one in devices)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _said(value: str) -> str | None:
    """A value, or None for the tool's ways to say that it has none: `[N/A]`, `[Not Supported]`, ..."""
    value = value.strip()
    return None if not value or value.startswith("[") or value == "N/A" else value


def _profile_bytes(profile: str) -> int | None:
    """The memory of an instance as its profile, `1g.10gb`, names it: rounded up a little."""
    found = re.search(r"(\d+)gb", profile)
    return int(found.group(1)) << 30 if found else None
