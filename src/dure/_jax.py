"""The one door to `jax.extend`, `jax.experimental`, `jax.export` and `jax._src`.

Nothing is imported at the top: `dure.configure` comes through here and must not import JAX. Each function
names the part of JAX that it stands for, so that a new version of JAX is met in one file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    from jax.extend.core import ClosedJaxpr

Array = Any

__all__ = [
    "ask",
    "backend_errors",
    "backends_are_open",
    "bind",
    "bodies",
    "closed",
    "cpu_device_setting",
    "forget",
    "is_imported",
    "is_literal",
    "join",
    "joined",
    "local_devices",
    "memory_limit_bytes",
    "peek",
    "platforms",
    "set_cpu_devices",
    "tell",
    "threefry_bits",
]


def backends_are_open() -> bool:
    """Returns whether JAX has opened its back ends in this process, without opening or importing anything.

    Stands for `jax._src.xla_bridge.backends_are_initialized` (no public form in 0.10).
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    # A module that is being imported by another thread may not have the name yet: then nothing is open.
    opened = getattr(bridge, "backends_are_initialized", None)
    return bool(opened()) if opened is not None else False


def cpu_device_setting() -> int | None:
    """Returns the number of CPU devices that JAX's own configuration says.

    Stands for `jax.config.jax_num_cpu_devices`.

    Returns:
        The number; None where JAX is not imported, or nothing is said.
    """
    config = getattr(sys.modules.get("jax"), "config", None)
    number = getattr(config, "jax_num_cpu_devices", -1)
    return number if number >= 0 else None


def set_cpu_devices(number: int) -> None:
    """Sets the number of CPU devices in JAX's own configuration where JAX is imported already.

    Stands for `jax.config.update("jax_num_cpu_devices", number)`, which raises once the back ends are open.

    Args:
        number: how many CPU devices JAX is to open.
    """
    config = getattr(sys.modules.get("jax"), "config", None)
    if config is not None:
        config.update("jax_num_cpu_devices", number)


def local_devices() -> dict[str, list[jax.Device]]:
    """Opens JAX's back ends and returns this process's devices, by platform, each list in JAX's order.

    Stands for `jax._src.xla_bridge.backends`: `jax.local_devices()` gives those of one platform only, and
    which platforms there are has no public form in 0.10.

    Returns:
        Platform (`cpu`, `gpu`, `tpu`) to its devices.
    """
    from jax._src import xla_bridge

    found: dict[str, list[jax.Device]] = {}
    for client in xla_bridge.backends().values():
        mine = sorted(client.local_devices(), key=lambda device: device.id)
        found.setdefault(client.platform, []).extend(mine)
    return found


def is_imported() -> bool:
    """Returns whether this process has imported JAX, which then has read its environment variables."""
    return hasattr(sys.modules.get("jax"), "config")


def platforms() -> tuple[str, ...]:
    """Returns the platforms that JAX is limited to, in its words; none if it takes what there is.

    Stands for `jax.config.jax_platforms` and, where JAX is not imported, the variable that sets it.
    """
    config = getattr(sys.modules.get("jax"), "config", None)
    text = os.environ.get("JAX_PLATFORMS", "") if config is None else config.jax_platforms or ""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def threefry_bits(key_high: Array, key_low: Array, count_high: Array, count_low: Array) -> Array:
    """Hashes 64-bit counters into 32 bits each, as `jax.random.bits` does where threefry is partitionable.

    Stands for `jax.extend.random.threefry2x32_p`.

    Args:
        key_high: uint32 scalar.
        key_low: uint32 scalar.
        count_high: uint32 `[n]`.
        count_low: uint32 `[n]`.

    Returns:
        uint32 `[n]`.
    """
    import jax.extend.random
    import jax.numpy as jnp

    shape = count_low.shape
    keys = (jnp.broadcast_to(part, shape) for part in (key_high, key_low))
    high, low = jax.extend.random.threefry2x32_p.bind(*keys, count_high, count_low)
    return high ^ low


def bind(primitive: Any, values: Sequence[Array], params: Mapping[str, Any]) -> list[Array]:
    """Applies a primitive to arrays; always a list of results. Stands for the body of `jax.core.eval_jaxpr`."""
    result = primitive.bind(*values, **primitive.get_bind_params(dict(params)))
    return list(result) if primitive.multiple_results else [result]


def is_literal(atom: Any) -> bool:
    """Says whether an operand of an equation is a constant written into it. Stands for `jax.extend.core.Literal`."""
    import jax.extend.core

    return isinstance(atom, jax.extend.core.Literal)


def closed(program: Any) -> ClosedJaxpr:
    """The program with its constants, if it came without. Stands for `jax.extend.core.ClosedJaxpr`."""
    import jax.extend.core

    is_closed = isinstance(program, jax.extend.core.ClosedJaxpr)
    return program if is_closed else jax.extend.core.ClosedJaxpr(program, ())


def bodies(params: Mapping[str, Any]) -> list[ClosedJaxpr]:
    """Returns the programs that an equation holds. Stands for `jax._src.core.jaxprs_in_params`.

    Args:
        params: the equation's parameters.
    """
    import jax.extend.core

    kinds = (jax.extend.core.Jaxpr, jax.extend.core.ClosedJaxpr)
    parts = [part for param in params.values() for part in (param if isinstance(param, tuple | list) else (param,))]
    return [closed(part) for part in parts if isinstance(part, kinds)]


def memory_limit_bytes(device: jax.Device) -> int | None:
    """Returns how much memory the allocator of an open device may use, in bytes; None where it does not say.

    Stands for `Device.memory_stats()`, which back ends without an allocator of their own answer with None or
    refuse.

    Args:
        device: an open device.
    """
    try:
        stats = device.memory_stats()
    # A back end that cannot say raises its own error class, an XlaRuntimeError.
    except RuntimeError:
        return None
    return int(stats["bytes_limit"]) if stats and "bytes_limit" in stats else None


def backend_errors() -> dict[str, str]:
    """Returns what went wrong with the back ends that JAX tried to open and goes on without, by platform.

    Stands for `jax._src.xla_bridge._backend_errors` (no public form in 0.10).
    """
    bridge = sys.modules.get("jax._src.xla_bridge")
    return dict(getattr(bridge, "_backend_errors", {}))


def join(coordinator: str, size: int, rank: int, *, bind: str, timeout_s: float) -> None:
    """Joins this process to others; returns when all are there.

    Stands for `jax.distributed.initialize`.

    Args:
        coordinator: `host:port` at which rank 0 listens.
        size: how many processes there are.
        rank: number of this one.
        bind: `host:port` that rank 0 binds; JAX's own choice is every address of the machine.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        RuntimeError: they did not come, or the port is taken.
    """
    import jax

    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ:
        # It catches SIGTERM, and the process goes on as if nothing had been asked (jaxlib 0.10.2).
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        coordinator,
        size,
        rank,
        coordinator_bind_address=bind,
        cluster_detection_method="deactivate",
        initialization_timeout=max(1, round(timeout_s)),
        heartbeat_timeout_seconds=10,
    )


def joined() -> tuple[int, int] | None:
    """Returns this process's rank and the number of processes that are joined; None where it is alone.

    Stands for `jax._src.distributed.global_state`, which knows it without opening the back ends.
    """
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return None if state is None or state.client is None else (state.process_id, state.num_processes)


def _service() -> Any:
    """The key-value service of the joined processes. Stands for `jax._src.distributed.global_state.client`."""
    from jax._src import distributed

    return distributed.global_state.client


def tell(key: str, text: str) -> None:
    """Leaves a text with the key-value service of the joined processes."""
    _service().key_value_set(key, text, allow_overwrite=True)


def ask(key: str, *, timeout_s: float) -> str | None:
    """Waits for a text with the key-value service; None when it is not there in time."""
    import jax

    try:
        return str(_service().blocking_key_value_get(key, max(1, int(timeout_s * 1000))))
    except jax.errors.JaxRuntimeError as error:
        if "DEADLINE_EXCEEDED" in str(error):
            return None
        raise


def peek(key: str) -> str | None:
    """Looks for a text with the key-value service, without waiting."""
    import jax

    try:
        return str(_service().key_value_try_get(key))
    except jax.errors.JaxRuntimeError as error:
        if "NOT_FOUND" in str(error):
            return None
        raise


def forget(key: str) -> None:
    """Removes a text from the key-value service."""
    _service().key_value_delete(key)
