"""`SingleDevice` and `Mirrored`: one copy of a model, or a copy on each of several like devices of one machine."""

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self, final

import jax

from dure.devices.inventory import Device, backing, choose
from dure.errors import ClosedError, SpecError
from dure.models.pure import PureModel
from dure.strategy.base import UNWATCHED, Runner, Watch
from dure.strategy.group import ALONE, Group
from dure.strategy.local import LocalRunner
from dure.strategy.spmd import MeshRunner

RESIDENT_SHARE = 4
"""Data may take one part in so many of a device's memory: the rest is for weights, their optimizer and activations."""

UNKNOWN_MEMORY_BYTES = 8 * 2**30
"""Taken for a device that does not tell its memory."""


def resident_bytes(devices: Sequence[Device]) -> int:
    """How many bytes of data may stay on each device."""
    return min(device.memory_bytes or UNKNOWN_MEMORY_BYTES for device in devices) // RESIDENT_SHARE


@final
class SingleDevice:
    """Trains on one device.

    Args:
        target: the address of a server to train at; there are no servers yet, so None.
        device: name of the device, as `"cpu:0"`; None takes the first of the fastest kind.

    Raises:
        SpecError: there is no such device, or a target is given.

    Example:
        >>> SingleDevice(device="cpu:0").num_replicas
        1
    """

    def __init__(self, target: str | None = None, *, device: str | None = None) -> None:
        if target is not None:
            raise SpecError(
                f"asked to train at `{target}`, and this version of Dure has no servers to train at; leave `target` out"
            )
        wanted = 1 if device is None else [device]
        self.devices = choose(wanted, strategy="SingleDevice").devices
        self._is_closed = False

    num_replicas = 1
    is_chief = True

    def open(self, model: PureModel) -> Runner:
        """Puts a model on the device.

        Raises:
            ClosedError: the strategy is closed.
        """
        refuse_closed(self, is_closed=self._is_closed)
        places = [backing(device) for device in self.devices]
        return MeshRunner(model, places, is_mirrored=False, resident_bytes=resident_bytes(self.devices))

    def close(self) -> None:
        """Ends the strategy; twice is fine."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SingleDevice({self.devices[0]})"


@final
class Mirrored:
    """Keeps a copy of the model on each of several like devices and shares every batch out among them.

    With `sync_every="step"` the gradients are summed at every step and the result is the single device's: the last
    short batch, dropout, batch statistics and metrics included. With a number or `"epoch"` each replica trains by
    itself on its share and the weights are averaged every so many steps and at each epoch's end (local SGD): fewer
    exchanges, other numbers.

    Args:
        num_devices: how many devices of the fastest kind; None takes all of them.
        devices: names of the devices instead, as `["gpu:0", "gpu:1"]`; they must be of one kind.
        sync_every: `"step"`, a number of steps, or `"epoch"`.
        optimizer_state: under local SGD, `"average"` it with the weights or `"keep"` each replica's own.

    Raises:
        SpecError: there are not so many devices, they mix kinds, or an option is none of these.

    Example:
        >>> Mirrored(num_devices=1).num_replicas
        1
    """

    def __init__(
        self,
        num_devices: int | None = None,
        *,
        devices: Sequence[str] | None = None,
        sync_every: int | Literal["step", "epoch"] = "step",
        optimizer_state: Literal["average", "keep"] = "average",
    ) -> None:
        if num_devices is not None and devices is not None:
            raise SpecError(f"asked for {num_devices} devices and for {list(devices)} by name; give one of the two")
        check_sync(sync_every, optimizer_state)
        choice = choose(devices if devices is not None else num_devices, strategy="Mirrored")
        if choice.note:
            print(choice.note, file=sys.stderr)
        self.devices = choice.devices
        self._sync_every = sync_every
        self._keeps_optimizer = optimizer_state == "keep"
        self._is_closed = False

    is_chief = True

    @property
    def num_replicas(self) -> int:
        """Copies of the model: one a device."""
        return len(self.devices)

    def open(self, model: PureModel) -> Runner:
        """Puts a copy of a model on every device.

        Raises:
            ClosedError: the strategy is closed.
        """
        refuse_closed(self, is_closed=self._is_closed)
        places = [backing(device) for device in self.devices]
        return mirrored_runner(
            model,
            places,
            sync_every=self._sync_every,
            keeps_optimizer=self._keeps_optimizer,
            resident_bytes=resident_bytes(self.devices),
        )

    def close(self) -> None:
        """Ends the strategy; twice is fine."""
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(map(str, self.devices))
        every = "" if self._sync_every == "step" else f", sync_every={self._sync_every!r}"
        return f"Mirrored({names}{every})"


def mirrored_runner(
    model: PureModel,
    places: Sequence[jax.Device],
    *,
    sync_every: int | Literal["step", "epoch"],
    keeps_optimizer: bool,
    resident_bytes: int,
    group: Group = ALONE,
    watch: Watch = UNWATCHED,
) -> Runner:
    """A copy of a model on every device, the gradients summed at each step or the weights averaged now and then."""
    if sync_every == "step":
        return MeshRunner(model, places, is_mirrored=True, resident_bytes=resident_bytes, group=group, watch=watch)
    return LocalRunner(
        model,
        places,
        sync_every=sync_every if isinstance(sync_every, int) else None,
        keeps_optimizer=keeps_optimizer,
        resident_bytes=resident_bytes,
        group=group,
        watch=watch,
    )


def check_sync(sync_every: object, optimizer_state: object) -> None:
    """Refuses what is no way for replicas to meet.

    Raises:
        SpecError: one of the two is none of its values.
    """
    is_number = isinstance(sync_every, int) and not isinstance(sync_every, bool) and sync_every >= 1
    if not is_number and sync_every not in ("step", "epoch"):
        raise SpecError(f'asked for sync_every={sync_every!r}; it is "step", "epoch", or a number of steps from 1 on')
    if optimizer_state not in ("average", "keep"):
        raise SpecError(f'asked for optimizer_state={optimizer_state!r}; it is "average" or "keep"')


def refuse_closed(strategy: object, *, is_closed: bool) -> None:
    """Raises `ClosedError` for a strategy whose `with` block has ended."""
    if is_closed:
        raise ClosedError(f"{strategy!r} is closed: its `with` block has ended; make a new one")
