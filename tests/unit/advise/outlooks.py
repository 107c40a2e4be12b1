"""What advice rests on, made by hand: each says what was measured, a test says what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dure.advise.calibration import Calibration, Exchange, Point, Team
from dure.advise.cost import Load, Network
from dure.advise.machines import Site, site_of
from dure.advise.outlook import Asked, Outlook
from dure.advise.record import Facts

US = 1e-6

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "machines"

SEED = Network(
    points=(Point(7, 120 * US), Point(25, 213 * US), Point(512, 2600 * US)),
    points_one=(Point(7, 130 * US), Point(25, 300 * US), Point(512, 4900 * US)),
    gradients=Load(4, 407_080.0),
    state=Load(19, 1_221_268.0, 5),
    state_bytes=1_221_268.0,
    flops=(Point(7, 4.1e6), Point(25, 11.6e6), Point(512, 215e6)),
    traffic=(Point(7, 5.0e6), Point(25, 5.4e6), Point(512, 15.7e6)),
    first_step_s=1.0,
)
"""784-128-10 on two cores."""

LARGE = Network(
    points=(Point(128, 0.100), Point(256, 0.190), Point(512, 0.370)),
    points_one=(),
    gradients=Load(6, 23.2e6),
    state=Load(26, 69.6e6, 5),
    state_bytes=69.6e6,
    flops=(Point(128, 4.0e9), Point(256, 8.0e9), Point(512, 16.0e9)),
    traffic=(Point(128, 0.30e9), Point(256, 0.31e9), Point(512, 0.33e9)),
    first_step_s=1.5,
)
"""784-2048-2048-10."""


def team(number: int, latency_s: float, s_per_byte: float, **changes: Any) -> Team:
    """A team whose exchange takes a + b x bytes, and whose members slow one another down by a tenth."""
    sizes = tuple(Point(size, latency_s + s_per_byte * size) for size in (2.0**12, 2.0**24))
    values: dict[str, Any] = {"computing": 1.1, "moving": (Point(2.0**16, 1.1), Point(2.0**24, 1.3))}
    return Team(number, exchange=Exchange(sizes), **{**values, **changes})


def calibration(**changes: Any) -> Calibration:
    """Two cores; an exchange in a process takes 0.18 ms for the seed network, between processes 2.7 ms."""
    values: dict[str, Any] = {
        "device": "a processor",
        "kind": "cpu",
        "cores": 2,
        "dispatch_s": 6 * US,
        "flops_per_s": 190e9,
        "bytes_per_s": 16e9,
        "flops_per_s_one": 100e9,
        "bytes_per_s_one": 10e9,
        "inside": (team(2, 140 * US, 1e-10), team(4, 180 * US, 2e-10)),
        "between": (team(2, 2500 * US, 5e-10, start_s=0.9),),
        "key": {"dure": "0.1.0", "jax": "0.10.2", "jaxlib": "0.10.2"},
        "made": "2026-01-01T00:00:00+00:00",
    }
    return Calibration(**{**values, **changes})


def separate(number: int, latency_s: float = 20 * US, s_per_byte: float = 1e-11) -> Calibration:
    """Devices that share nothing."""
    alone = {"computing": 1.0, "moving": (Point(1.0, 1.0),)}
    teams = tuple(team(n, latency_s, s_per_byte, **alone) for n in range(2, number + 1))
    return calibration(kind="gpu", inside=teams, between=())


def outlook(
    network: Network = SEED,
    here: Calibration | None = None,
    *,
    strategies: tuple[str, ...] = ("single", "mirrored:2", "mirrored:4", "multi-worker:2"),
    sync_every: tuple[str | int, ...] = ("step", 10, 100, "epoch"),
    batch_size: int = 25,
    epochs: int = 10,
    site: Site | None = None,
    most: int = 4,
    **changes: Any,
) -> Outlook:
    """The seed case, unless something else is said."""
    asked = Asked("the seed network", "fashion_mnist", strategies, sync_every, batch_size, epochs)
    values: dict[str, Any] = {"facts": Facts(60_000, 10_000, "784 float32"), "site": site, "command": "dure advise"}
    values |= {"began": "2026-01-01T00:00:00+00:00", "took_s": 12.0}
    return Outlook(asked, network=network, here=here or calibration(), most=most, **{**values, **changes})


GPU = {"kind": "gpu", "flops_per_s": "60 TFLOP/s", "bytes_per_s": "2 TB/s", "efficiency": 0.4}
INSIDE = {"latency_s": "2 us", "bytes_per_s": "300 GB/s"}
BETWEEN = {"latency_s": "20 us", "bytes_per_s": "100 Gb/s"}


def table(**changes: Any) -> dict[str, Any]:
    """Two machines of eight GPUs, as TOML reads it."""
    values: dict[str, Any] = {
        "devices": {"gpu": dict(GPU)},
        "machines": {"node": {"devices": {"gpu": 8}, "count": 2}},
        "links": {"inside": dict(INSIDE), "between": dict(BETWEEN)},
    }
    return {**values, **changes}


def site(**changes: Any) -> Site:
    """The site of `table`."""
    return site_of(table(**changes), "a-site", "a-site.toml")


def beside(cpu_flops_per_s: float = 1e12, **cpu: Any) -> Site:
    """One GPU beside one CPU."""
    slow = {"kind": "cpu", "flops_per_s": cpu_flops_per_s, "bytes_per_s": "50 GB/s", "efficiency": 0.4, **cpu}
    links = {"inside": {"latency_s": "20 us", "bytes_per_s": "16 GB/s"}}
    box = {"box": {"devices": {"gpu": 1, "cpu": 1}}}
    return site(devices={"gpu": dict(GPU), "cpu": slow}, machines=box, links=links)
