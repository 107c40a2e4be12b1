"""`MultiWorkerMirrored`: a copy of the model on every device of several processes, on one machine or many."""

import itertools
import os
import socket
import sys
from types import TracebackType
from typing import Literal, Self, final

import jax

from dure import _jax
from dure.cluster.spec import Membership, resolve
from dure.devices.inventory import Device, backing, choose
from dure.errors import LostError, SpecError
from dure.launch import board
from dure.launch.board import Phase
from dure.launch.meeting import meet
from dure.models.pure import PureModel
from dure.strategy.base import UNWATCHED, Runner, Watch
from dure.strategy.group import ALONE, Group, Processes, check_alike
from dure.strategy.mirrored import check_sync, mirrored_runner, refuse_closed, resident_bytes

_NUMBERS = itertools.count()
"""Tells the strategies of a process apart; every process of a group makes the same ones in the same order."""


@final
class MultiWorkerMirrored:
    """Keeps a copy of the model on the devices of several processes and shares every batch out among them.

    Every process runs the same script, is given the same data and takes its own rows of each batch; the numbers are the
    single device's. JAX's distributed runtime joins the processes (Gloo between CPUs, NCCL between GPUs), and the
    gradients of a step meet in one message. `dure run --workers 2 script.py` starts them, as does a scheduler.

    Args:
        num_devices: how many devices of this process, of the fastest kind; None takes all of them.
        sync_every: `"step"`, a number of steps, or `"epoch"` (local SGD). An exchange between processes takes
            milliseconds: this decides what distribution costs.
        optimizer_state: under local SGD, `"average"` it with the weights or `"keep"` each replica's own.
        timeout_s: how long to wait for the other processes to come, and for their answers, seconds.

    Raises:
        SpecError: nothing says which process this is; the processes differ; an option is none of these.
        DeadlineError: the other processes did not come.
    """

    def __init__(
        self,
        num_devices: int | None = None,
        *,
        sync_every: int | Literal["step", "epoch"] = "step",
        optimizer_state: Literal["average", "keep"] = "average",
        timeout_s: float = 600.0,
    ) -> None:
        check_sync(sync_every, optimizer_state)
        self._member = _membership()
        self._timeout_s = timeout_s
        self._sync_every = sync_every
        self._keeps_optimizer = optimizer_state == "keep"
        self._watch: Watch = board.here() or UNWATCHED
        self._watch.enter(Phase.COLLECTIVE, 0)
        self._rank, self._size = _join(self._member, timeout_s)
        self._name = f"dure/{next(_NUMBERS)}"
        self._trainers = itertools.count()
        choice = choose(num_devices, strategy="MultiWorkerMirrored")
        self.devices: tuple[Device, ...] = choice.devices
        self._places = self._meet(self._group("start"))
        self._watch.enter(Phase.USER, 0)
        self._is_closed = False

    @property
    def num_replicas(self) -> int:
        """Copies of the model: one a device of every process."""
        return len(self._places)

    @property
    def num_workers(self) -> int:
        """How many processes there are."""
        return self._size

    @property
    def is_chief(self) -> bool:
        """Whether this process, the first, reports and saves."""
        return self._rank == 0

    def open(self, model: PureModel) -> Runner:
        """Puts a copy of a model on every device of every process.

        Raises:
            ClosedError: the strategy is closed.
        """
        refuse_closed(self, is_closed=self._is_closed)
        return mirrored_runner(
            model,
            self._places,
            sync_every=self._sync_every,
            keeps_optimizer=self._keeps_optimizer,
            resident_bytes=resident_bytes(self.devices),
            group=self._group(f"trainer {next(self._trainers)}"),
            watch=self._watch,
        )

    def close(self) -> None:
        """Ends the strategy; twice is fine. The processes stay joined until they end."""
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
        return f"MultiWorkerMirrored({self._size} workers, each {names}{every})"

    def _group(self, name: str) -> Group:
        if self._size == 1:
            return ALONE
        name = f"{self._name}/{name}"
        return Processes(self._rank, self._size, name=name, timeout_s=self._timeout_s, watch=self._watch)

    def _meet(self, group: Group) -> list[jax.Device]:
        """The devices of all processes, in the order of the processes."""
        mine = [backing(device) for device in self.devices]
        about = {
            "devices": [device.kind for device in self.devices],
            "sync_every": self._sync_every,
            "keeps_optimizer": self._keeps_optimizer,
            "jax": jax.__version__,
            "python": ".".join(map(str, sys.version_info[:2])),
        }
        check_alike(group, f"MultiWorkerMirrored on {socket.gethostname()}", about)
        there = {device.id: device for device in mine[0].client.devices()}
        return [there[number] for ids in group.each("devices", [device.id for device in mine]) for number in ids]


def _membership() -> Membership:
    member = resolve(os.environ)
    if member is None:
        raise SpecError(
            "asked for MultiWorkerMirrored, and nothing says which of several processes this is. Start the script with "
            "`dure run --workers 2 script.py`; or set DURE_CLUSTER and DURE_TASK, or TF_CONFIG; or start it by `srun`"
        )
    others = sorted(set(member.spec.jobs) - {"worker"})
    if others or member.task.job != "worker":
        raise SpecError(
            f"asked for MultiWorkerMirrored, whose processes are workers, and {member.told_by} says that this is "
            f"{member.task} of a cluster with the jobs {', '.join(member.spec.jobs)}. Leave out {', '.join(others)}"
        )
    return member


def _join(member: Membership, timeout_s: float) -> tuple[int, int]:
    """Joins the processes, once; returns this one's rank and their number."""
    rank, size = member.task.index, member.spec.num_tasks("worker")
    if size == 1:
        return rank, size
    known = _jax.joined()
    if known is not None:
        if known != (rank, size):
            raise SpecError(
                f"{member.told_by} says that this is worker:{rank} of {size}, and JAX was joined as process "
                f"{known[0]} of {known[1]}. Leave out `jax.distributed.initialize`, or give it the same"
            )
        return known
    if _jax.backends_are_open():
        raise SpecError(
            f"MultiWorkerMirrored joins worker:{rank} to the others before JAX opens its devices, and JAX has opened "
            "them in this process already. Make the strategy first, before any array or model"
        )
    address = member.spec.address("worker", 0)
    host, _, port = address.rpartition(":")
    # A service without a password listens where it must, not on every address of the machine.
    bind = address if host in ("127.0.0.1", "localhost", "[::1]") else f"[::]:{port}"
    meet(member.spec, rank, timeout_s=timeout_s)
    try:
        _jax.join(address, size, rank, bind=bind, timeout_s=timeout_s)
    except RuntimeError as error:
        raise LostError(
            f"worker:{rank} met the {size - 1} others at {address}, and JAX did not join them: "
            f"{str(error).splitlines()[0][:200]}. Look at what the other workers wrote",
            task=f"worker:{rank}",
        ) from error
    return rank, size
