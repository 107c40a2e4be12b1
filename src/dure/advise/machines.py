"""Machines that are not here, described in TOML: their devices, how many, and the links between them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dure.advise.units import BYTES, BYTES_PER_S, FLOPS_PER_S, SECONDS, Unit, quantity
from dure.errors import SpecError, hint

__all__ = ["Host", "Link", "Processor", "Site", "read", "site_of"]

MAX_BYTES = 2**20
"""A longer file is no table of machines."""

MOST = 65_536
"""More devices than this is a slip of the finger."""

KINDS = ("cpu", "gpu", "tpu")


@dataclass(frozen=True, slots=True)
class Processor:
    """One device as its data sheet, or a measurement, has it.

    Attributes:
        name: what the table calls it.
        kind: `cpu`, `gpu` or `tpu`.
        flops_per_s: its peak in the numbers that the model computes in.
        bytes_per_s: of its own memory.
        dispatch_s: what a step takes before it computes anything: launching its kernels.
        memory_bytes: of its own; 0 where nothing is said of it.
        efficiency: share of its peak that a large step reaches; None takes the share that was measured here.
    """

    name: str
    kind: str
    flops_per_s: float
    bytes_per_s: float
    dispatch_s: float = 0.0
    memory_bytes: float = 0.0
    efficiency: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """Machines of one form.

    Attributes:
        name: what the table calls them.
        devices: name and number of the devices in each.
        count: how many such machines.
    """

    name: str
    devices: tuple[tuple[str, int], ...]
    count: int = 1

    def number(self, device: str) -> int:
        """How many devices of a name each machine has."""
        return dict(self.devices).get(device, 0)


@dataclass(frozen=True, slots=True)
class Link:
    """A way for bytes.

    Attributes:
        latency_s: what a message takes however short it is.
        bytes_per_s: in each direction; inside a machine of each device, between machines of each machine.
    """

    latency_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Site:
    """All of a table.

    Attributes:
        name: of the file, without its ending.
        devices: the processors by name.
        hosts: the machines.
        inside: the link between devices of a machine; None where each machine has one device.
        between: the link between machines; None where there is one machine.
    """

    name: str
    devices: Mapping[str, Processor]
    hosts: tuple[Host, ...]
    inside: Link | None = None
    between: Link | None = None

    @property
    def best(self) -> Processor:
        """The device with the highest peak: strategies train on these alone."""
        used = {name for host in self.hosts for name, _ in host.devices}
        return max((self.devices[name] for name in sorted(used)), key=lambda one: one.flops_per_s)

    def machines(self, device: str) -> tuple[int, ...]:
        """How many devices of a name each machine has that has any, the fullest machine first."""
        found = [host.number(device) for host in self.hosts for _ in range(host.count)]
        return tuple(sorted((number for number in found if number), reverse=True))

    def total(self) -> dict[str, int]:
        """How many devices there are of each name."""
        found: dict[str, int] = {}
        for host in self.hosts:
            for name, number in host.devices:
                found[name] = found.get(name, 0) + number * host.count
        return found


def read(path: str | os.PathLike[str]) -> Site:
    """Reads a table of machines.

    ```toml
    [devices.gpu]
    kind = "gpu"
    flops_per_s = "60 TFLOP/s"
    bytes_per_s = "2 TB/s"
    dispatch_s = "100 us"
    memory_bytes = "80 GB"

    [machines.box]
    devices = { gpu = 8 }
    count = 2

    [links]
    inside = { latency_s = "5 us", bytes_per_s = "300 GB/s" }
    between = { latency_s = "20 us", bytes_per_s = "100 Gb/s" }
    ```

    Args:
        path: of a TOML file of this form.

    Raises:
        SpecError: it is not there, no TOML, or not of this form.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecError(
                f"asked for the machines of {path}, a file of {path.stat().st_size} bytes; such a table takes at most "
                f"{MAX_BYTES}. Name another file"
            )
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"asked for the machines of {path}: {error.strerror}. Name a file that is there") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError(f"asked for the machines of {path}, which is no TOML: {error}. Mend it there") from error
    return site_of(table, path.stem, str(path))


def site_of(table: Mapping[str, Any], name: str, where: str) -> Site:
    """The site that a table describes.

    Args:
        table: as TOML reads it: `devices`, `machines`, `links`.
        name: of the site.
        where: the file, for messages.

    Raises:
        SpecError: something is missing, unknown, or no such quantity.
    """
    fields = _Fields(table, f"the table of {where}", where)
    fields.only(("devices", "machines", "links"))
    devices = {key: _processor(key, _table(one, f"[devices.{key}]", where)) for key, one in fields.named("devices")}
    hosts = tuple(_host(key, _table(one, f"[machines.{key}]", where), devices) for key, one in fields.named("machines"))
    links = _table(table.get("links", {}), "[links]", where)
    links.only(("inside", "between"))
    site = Site(name, devices, hosts, _link(links, "inside"), _link(links, "between"))
    if sum(site.total().values()) > MOST:
        raise SpecError(f"{where} has {sum(site.total().values()):,} devices; at most {MOST:,} are looked at")
    _check_links(site, where)
    return site


@dataclass(frozen=True, slots=True)
class _Fields:
    """One table, and where it stands."""

    values: Mapping[str, Any]
    what: str
    where: str

    def only(self, known: tuple[str, ...]) -> None:
        unknown = next((key for key in self.values if key not in known), None)
        if unknown is not None:
            raise SpecError(
                f"{self.what} in {self.where} has `{unknown}`, which is no field of it. {hint(unknown, known)}"
            )

    def need(self, key: str, sample: str) -> Any:
        if key not in self.values:
            has = ", ".join(self.values) or "nothing"
            raise SpecError(f"{self.what} in {self.where} lacks `{key}`; it has {has}. Write a line as `{sample}`")
        return self.values[key]

    def named(self, key: str) -> list[tuple[str, Any]]:
        found = self.need(key, f"[{key}.NAME]")
        if not isinstance(found, dict) or not found:
            raise SpecError(f"`{key}` in {self.where} is {found!r}; write a table for each, as `[{key}.NAME]`")
        return list(found.items())

    def amount(self, key: str, unit: Unit, sample: str) -> float:
        found = quantity(self.need(key, sample), unit, f"`{key}` of {self.what} in {self.where}")
        if found == 0 and key.endswith("_per_s"):
            raise SpecError(f"`{key}` of {self.what} in {self.where} is {self.values[key]!r}; it is above 0: mend it")
        return found


def _table(value: object, what: str, where: str) -> _Fields:
    if not isinstance(value, dict):
        raise SpecError(f"{what} in {where} is {value!r}; it is a table with a line for each of its fields")
    return _Fields(value, what, where)


def _processor(name: str, fields: _Fields) -> Processor:
    fields.only(("kind", "flops_per_s", "bytes_per_s", "dispatch_s", "memory_bytes", "efficiency"))
    kind = fields.need("kind", 'kind = "gpu"')
    if kind not in KINDS:
        raise SpecError(f"`kind` of {fields.what} in {fields.where} is {kind!r}. {hint(str(kind), KINDS)}")
    efficiency = fields.values.get("efficiency")
    if efficiency is not None and (
        isinstance(efficiency, bool) or not isinstance(efficiency, int | float) or not 0 < efficiency <= 1
    ):
        raise SpecError(
            f"`efficiency` of {fields.what} in {fields.where} is {efficiency!r}; it is the share of its peak that a "
            "large step reaches, above 0 and at most 1, as 0.4"
        )
    return Processor(
        name,
        str(kind),
        fields.amount("flops_per_s", FLOPS_PER_S, 'flops_per_s = "60 TFLOP/s"'),
        fields.amount("bytes_per_s", BYTES_PER_S, 'bytes_per_s = "2 TB/s"'),
        fields.amount("dispatch_s", SECONDS, "") if "dispatch_s" in fields.values else 0.0,
        fields.amount("memory_bytes", BYTES, "") if "memory_bytes" in fields.values else 0.0,
        efficiency,
    )


def _host(name: str, fields: _Fields, devices: Mapping[str, Processor]) -> Host:
    fields.only(("devices", "count"))
    found = fields.need("devices", "devices = { gpu = 8 }")
    if not isinstance(found, dict) or not found:
        raise SpecError(f"`devices` of {fields.what} in {fields.where} is {found!r}; write `devices = {{ gpu = 8 }}`")
    for device, number in found.items():
        if device not in devices:
            raise SpecError(
                f"{fields.what} in {fields.where} has the device `{device}`, which no [devices.{device}] describes. "
                f"{hint(device, devices)}"
            )
        _whole(number, f"`{device}` of {fields.what} in {fields.where}")
    count = _whole(fields.values.get("count", 1), f"`count` of {fields.what} in {fields.where}")
    return Host(name, tuple(found.items()), count)


def _whole(number: object, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise SpecError(f"{what} is {number!r}; it is how many, a whole number from 1 to {MOST:,}")
    return number


def _link(links: _Fields, name: str) -> Link | None:
    if name not in links.values:
        return None
    fields = _table(links.values[name], f"[links.{name}]", links.where)
    fields.only(("latency_s", "bytes_per_s"))
    latency_s = fields.amount("latency_s", SECONDS, 'latency_s = "20 us"')
    return Link(latency_s, fields.amount("bytes_per_s", BYTES_PER_S, 'bytes_per_s = "100 Gb/s"'))


def _check_links(site: Site, where: str) -> None:
    """Refuses devices that no link joins."""
    machines = sum(host.count for host in site.hosts)
    most = max(sum(number for _, number in host.devices) for host in site.hosts)
    missing = {}
    if most > 1 and site.inside is None:
        missing["inside"] = f"a machine has {most} devices"
    if machines > 1 and site.between is None:
        missing["between"] = f"there are {machines} machines"
    for name, why in missing.items():
        raise SpecError(
            f"{where} says nothing of the link `{name}`, and {why}; write `[links.{name}]` with "
            '`latency_s = "20 us"` and `bytes_per_s = "100 Gb/s"`'
        )
