"""The devices of this process: what is here, which of them a program means, and what backs them in JAX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dure import _jax
from dure.devices import accelerators, configuration, host, names
from dure.devices.accelerators import Unusable
from dure.devices.names import DeviceName, Kind
from dure.devices.nvidia import Gpu
from dure.errors import SpecError, hint

if TYPE_CHECKING:
    import jax

__all__ = ["Choice", "Device", "Unusable", "backing", "choose", "devices", "fastest", "find", "unusable"]

_RANK: Mapping[str, int] = {"tpu": 0, "gpu": 1, "cpu": 2}


@dataclass(frozen=True, slots=True)
class Device:
    """One place of this process where a program can run.

    Args:
        name: its name in this task, as `cpu:0` or `gpu:1`.
        kind: `cpu`, `gpu` or `tpu`.
        memory_bytes: its memory in bytes: a GPU's or TPU's own; of the machine's memory (or the cgroup's
            limit, if smaller) the equal share of one CPU-backed device. None where only opening the device
            would tell.
        virtual: whether it stands for more than there is: one of several CPU devices that share the machine's
            cores, or a GPU that a CPU device stands in for.
        model: what the hardware calls itself.
        compute_capability: of an NVIDIA GPU, as `9.0`.
        driver_version: of an NVIDIA GPU, as `580.65.06`.
        cuda_version: the newest CUDA that its driver serves, as `13.0`.
    """

    name: str
    kind: Kind
    memory_bytes: int | None
    virtual: bool
    model: str
    compute_capability: str | None = None
    driver_version: str | None = None
    cuda_version: str | None = None

    @property
    def index(self) -> int:
        """Its number among the devices of its kind."""
        return int(self.name.rpartition(":")[2])

    def __str__(self) -> str:
        return self.name


class Choice(NamedTuple):
    """Devices that were chosen, and a sentence to show where others were left out."""

    devices: tuple[Device, ...]
    note: str | None


def devices() -> tuple[Device, ...]:
    """Returns the devices of this process, sorted by name.

    It is no first use of JAX and takes no accelerator memory: before JAX has opened its back ends they are
    read from the configuration, the driver and the installed plugins; after, from JAX. Accelerators that are
    here and that JAX cannot use are in `unusable()`.

    Example:
        >>> devices()[0].name
        'cpu:0'
    """
    found = _from_jax() if _jax.backends_are_open() else _from_survey()
    return tuple(sorted(found, key=lambda device: (device.kind, device.index)))


def unusable() -> tuple[Unusable, ...]:
    """Returns the accelerators that are here and that JAX cannot use, each with the reason and what to do.

    Example:
        >>> [f"{missing.model}: {missing.hint}" for missing in unusable()]  # doctest: +SKIP
        ['NVIDIA H200: pip install "dure[cuda]"']
    """
    seen = accelerators.survey()
    refused = _jax.backend_errors()
    if not refused:
        return seen.unusable
    # JAX goes on without a back end that fails to open: what looked usable was not.
    lost: list[tuple[Kind, str, str | None]] = [
        *(("gpu", gpu.model, refused.get("cuda")) for gpu in seen.gpus),
        *(("tpu", one.model, refused.get("tpu")) for one in seen.tpus),
    ]
    more = "see JAX's own words with TF_CPP_MIN_LOG_LEVEL=0"
    return seen.unusable + tuple(
        Unusable(kind, model, f"JAX could not open it: {error}", more)
        for kind, model, error in lost
        if error is not None
    )


def fastest(available: Iterable[Device]) -> tuple[Device, ...]:
    """Returns the devices of the fastest kind: the TPUs, else the GPUs (virtual ones too), else the CPUs.

    Args:
        available: devices, as `devices()` returns them.
    """
    there = tuple(available)
    best = min((_RANK[device.kind] for device in there), default=None)
    return tuple(device for device in there if _RANK[device.kind] == best)


def find(name: str | DeviceName | Device, available: Sequence[Device] | None = None) -> Device:
    """Returns the one device of that name.

    Args:
        name: its name, as `"gpu:1"` or `"/device:GPU:1"`.
        available: the devices to look among; by default `devices()`.

    Raises:
        SpecError: it is no name of one device, or there is no such device; what exists is listed.
    """
    there = devices() if available is None else available
    wanted = names.one(name.name if isinstance(name, Device) else name)
    for device in there:
        if (device.kind, device.index) == (wanted.kind, wanted.index):
            return device
    asked = f"{wanted.kind}:{wanted.index}"
    raise SpecError(
        f"asked for the device {asked}, which is not here. {hint(asked, [device.name for device in there])} "
        f"Name one of them{_more_line(there, wanted.kind, wanted.index)}",
        device=asked,
    )


def backing(device: Device | str) -> jax.Device:
    """Returns the device of JAX that a device stands for; this opens JAX's back ends, as configured.

    Args:
        device: a device, or its name.

    Raises:
        SpecError: there is no such device, or JAX's own configuration contradicts `dure.configure`.
    """
    configuration.apply()
    there = _jax.local_devices()
    # Asked again now: JAX is open and says what there really is.
    one = find(device)
    if one.kind == "cpu":
        return there["cpu"][one.index]
    if one.kind == "gpu" and one.virtual:
        return there["cpu"][configuration.counts().cpu + one.index]
    return _by_kind(there)[one.kind][one.index]


def choose(
    wanted: object = None,
    *,
    strategy: str,
    available: Sequence[Device] | None = None,
) -> Choice:
    """Returns the devices that a strategy of like devices runs on.

    Args:
        wanted: how many devices of the fastest kind (int); or which ones (a list of names or of `Device`);
            None for all of the fastest kind. What a user wrote comes here as it is, and is checked here.
        strategy: name of the strategy, for messages.
        available: the devices to choose from; by default `devices()`.

    Returns:
        The devices, and a sentence where slower ones are left out.

    Raises:
        SpecError: more are asked for than there are, a name is not here or comes twice, or the names mix
            kinds.
    """
    there = devices() if available is None else tuple(available)
    best = fastest(there)
    if wanted is None or isinstance(wanted, int):
        number = len(best) if wanted is None else _checked_number(wanted, best, there, strategy)
        left = tuple(device for device in there if device.kind != best[0].kind)
        note = None
        if left:
            note = (
                f"{strategy} runs on the fastest kind of device, "
                f"{', '.join(device.name for device in best[:number])}, and leaves out "
                f"{', '.join(device.name for device in left)}; name devices to choose others"
            )
        return Choice(best[:number], note)
    if isinstance(wanted, str | bytes) or not isinstance(wanted, Sequence) or not wanted:
        raise SpecError(
            f"asked {strategy} for the devices {wanted!r}; it takes a number or a list of names. Write them "
            f"as {[device.name for device in best]}"
        )
    chosen = tuple(find(name, there) for name in wanted)
    twice = sorted({device.name for device in chosen if chosen.count(device) > 1})
    if twice:
        raise SpecError(
            f"asked {strategy} for {', '.join(twice)} more than once; two replicas on one device would wait "
            "for each other. Name each device once"
        )
    kinds = sorted({device.kind for device in chosen})
    if len(kinds) > 1:
        raise SpecError(
            f"asked {strategy} for {', '.join(device.name for device in chosen)}, which mix the kinds "
            f"{' and '.join(kinds)}; each would get an equal share of every batch, so the slowest would set "
            "the pace of all. Name devices of one kind"
        )
    return Choice(chosen, None)


def _checked_number(wanted: int, best: Sequence[Device], there: Sequence[Device], strategy: str) -> int:
    if isinstance(wanted, bool) or wanted < 1:
        raise SpecError(f"asked {strategy} for {wanted!r} devices; it takes a whole number from 1 on. Write one")
    if wanted > len(best):
        have = ", ".join(device.name for device in best)
        raise SpecError(
            f"asked {strategy} for {wanted} devices: need {wanted}, have {len(best)} of the fastest kind "
            f"({have}). Ask for {len(best)}{_more_line(there, best[0].kind, wanted - 1)}"
        )
    return wanted


def _more_line(there: Sequence[Device], kind: Kind | None, index: int | None) -> str:
    """The line that makes as many devices as that index needs, where one can be made."""
    number = (index or 0) + 1
    if kind == "cpu":
        return f", or write `dure.configure(cpu_devices={number})` before the first use"
    if kind == "gpu" and all(device.virtual for device in there if device.kind == "gpu"):
        return f", or write `dure.configure(virtual_gpus={number})` before the first use to rehearse it"
    cpus = ", ".join(f'"cpu:{number}"' for number in range(min(number, 4)))
    return (
        f", or rehearse on CPU devices: write `dure.configure(cpu_devices={number})` before the first use, "
        f"and name the devices: [{cpus}{', ...' if number > 4 else ''}]"
    )


def _from_survey() -> list[Device]:
    """What JAX will have, without opening it."""
    seen = accelerators.survey()
    platforms = _jax.platforms()
    found = [] if platforms and "cpu" not in platforms else _cpu_backed(configuration.counts())
    found += [_gpu(index, gpu) for index, gpu in enumerate(seen.gpus)]
    found += [
        Device(f"tpu:{index}", "tpu", one.memory_bytes, virtual=False, model=one.model)
        for index, one in enumerate(seen.tpus)
    ]
    return found


def _from_jax() -> list[Device]:
    """What JAX has; the driver's facts about each GPU where they can be found."""
    there = _by_kind(_jax.local_devices())
    found = _cpu_backed(configuration.counts()) if there.get("cpu") else []
    facts = accelerators.survey().gpus if there.get("gpu") else ()
    for index, one in enumerate(there.get("gpu", ())):
        found.append(_gpu(index, _facts(index, one, facts)))
    found += [
        Device(f"tpu:{index}", "tpu", _jax.memory_limit_bytes(one), virtual=False, model=one.device_kind)
        for index, one in enumerate(there.get("tpu", ()))
    ]
    return found


def _facts(index: int, one: jax.Device, facts: Sequence[Gpu]) -> Gpu:
    """What the driver says of an open GPU; where it says nothing, what JAX says."""
    # CUDA and the driver may count in different orders where models differ: then the model decides.
    same = [gpu for gpu in facts if gpu.model == one.device_kind]
    if index < len(facts) and facts[index] in same:
        return facts[index]
    if same:
        return same[0]
    memory, capability = _jax.memory_limit_bytes(one), getattr(one, "compute_capability", None)
    return Gpu(index, "", one.device_kind, memory, compute_capability=capability)


def _by_kind(there: Mapping[str, list[jax.Device]]) -> dict[Kind, list[jax.Device]]:
    """Platforms by kind: every accelerator that is no TPU (cuda, rocm, metal, ...) is a GPU to a program."""
    found: dict[Kind, list[jax.Device]] = {}
    for platform, some in there.items():
        kind: Kind = "cpu" if platform == "cpu" else "tpu" if platform == "tpu" else "gpu"
        found.setdefault(kind, []).extend(some)
    return found


def _cpu_backed(number: configuration.Counts) -> list[Device]:
    total = number.cpu + number.virtual_gpus
    share = host.memory_bytes() // max(total, 1)
    model = host.processor()
    cpus = [Device(f"cpu:{index}", "cpu", share, virtual=number.cpu > 1, model=model) for index in range(number.cpu)]
    gpus = [
        Device(f"gpu:{index}", "gpu", share, virtual=True, model=f"virtual, on {model}")
        for index in range(number.virtual_gpus)
    ]
    return cpus + gpus


def _gpu(index: int, gpu: Gpu) -> Device:
    return Device(
        f"gpu:{index}",
        "gpu",
        gpu.memory_bytes,
        virtual=False,
        model=gpu.model,
        compute_capability=gpu.compute_capability,
        driver_version=gpu.driver_version,
        cuda_version=gpu.cuda_version,
    )
