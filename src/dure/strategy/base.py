"""What a strategy is: where state lies, how a batch is split, how gradients meet, when a step ends."""

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, final

import numpy as np

from dure.launch.board import Phase
from dure.models.pure import Array, Batch, PureModel, PyTree, TrainState
from dure.strategy.group import Group

Placed = Any
"""A `TrainState` as it lies on a strategy's devices; only the runner that made it reads it."""

Metrics = Any
"""A model's accumulators as they lie on a strategy's devices."""


class Held(NamedTuple):
    """A data set whose rows stay on the devices.

    Attributes:
        rows: leaves `[num_rows, ...]` on every device.
        num_rows: how many there are.
    """

    rows: Batch
    num_rows: int


class Feed(NamedTuple):
    """The rows of some steps, on the devices.

    Attributes:
        data: held rows `[num_rows, ...]`, or the steps' own rows `[steps, replicas, share, ...]`.
        order: which held rows make each step, int32 `[steps, replicas, share]`; None where `data` are the steps' own.
        batch: rows of a step, over all replicas.
        steps: how many steps there are.
    """

    data: Batch
    order: Array | None
    batch: int
    steps: int


class Watch(Protocol):
    """Is told what a process does, so that who watches it from outside can say what it waits for."""

    def enter(self, phase: Phase, step: int) -> None:
        """The process is about to do something that may take long.

        Args:
            phase: what.
            step: updates of the weights so far.
        """
        ...

    def waiting(self) -> AbstractContextManager[None]:
        """The calling thread waits for other processes until the end of the `with`."""
        ...


@final
class Unwatched:
    """Nobody looks."""

    def enter(self, phase: Phase, step: int) -> None:
        """Nothing."""

    def waiting(self) -> AbstractContextManager[None]:
        """Nothing."""
        return nullcontext()


UNWATCHED = Unwatched()


class Runner(Protocol):
    """A model on a strategy's devices; made by `Strategy.open`, one a trainer.

    Every method that computes returns before the devices are done; `gather`, `fetch` and `predict` wait for them. Where
    there are several processes, each makes the same calls in the same order, but for `gather` and `result`.
    """

    resident_bytes: int
    """How many bytes of data may stay on the devices."""

    group: Group
    """The processes that the devices belong to."""

    watch: Watch
    """Is told what this process waits for."""

    def place(self, state: TrainState, *, from_chief: bool = False) -> Placed:
        """Copies a state to the devices; the caller's arrays are not aliased.

        Args:
            state: host arrays.
            from_chief: the chief's state goes to every process, whatever they have themselves.
        """
        ...

    def gather(self, placed: Placed) -> TrainState:
        """A host copy in the single device's shapes. Under local SGD call `sync` before."""
        ...

    def sync(self, placed: Placed) -> Placed:
        """Makes the replicas equal: averages them under local SGD, else gives back what it got."""
        ...

    def hold(self, rows: Batch) -> Held:
        """Sends a data set to the devices to stay; leaves `[num_rows, ...]`."""
        ...

    def feed(self, held: Held, order: np.ndarray) -> Feed:
        """Steps over held rows.

        Args:
            held: the data set.
            order: int32 `[steps, batch]`, which rows make each step.
        """
        ...

    def stream(self, rows: Batch) -> Feed:
        """Sends the rows of some steps to the devices; leaves `[steps, batch, ...]`. May be called from any thread."""
        ...

    def train(self, placed: Placed, metrics: Metrics, feed: Feed, start: int, count: int) -> tuple[Placed, Metrics]:
        """Runs `count` training steps of the feed from `start` on in one dispatch; uses up `placed` and `metrics`."""
        ...

    def measure(self, placed: Placed, metrics: Metrics, feed: Feed, start: int, count: int) -> Metrics:
        """Adds `count` evaluation steps of the feed to the metrics, which it uses up."""
        ...

    def predict(self, placed: Placed, feed: Feed, index: int) -> PyTree:
        """The outputs of one step of the feed, NumPy leaves `[batch, ...]`."""
        ...

    def new_metrics(self, seen: Metrics | None = None) -> Metrics:
        """Accumulators on the devices.

        Args:
            seen: what `fetch` brought to the host of others, to go on from; None makes empty ones.
        """
        ...

    def fetch(self, arrays: PyTree) -> PyTree:
        """A host copy of metrics, or of other arrays on the devices; does not use them up."""
        ...

    def result(self, metrics: Metrics) -> dict[str, float]:
        """The values of metrics that `fetch` brought to the host."""
        ...


class Strategy(Protocol):
    """Spreads a model's training over devices; the trainer knows strategies only by this."""

    @property
    def num_replicas(self) -> int:
        """Copies of the model."""
        ...

    @property
    def is_chief(self) -> bool:
        """Whether this process reports and saves."""
        ...

    def open(self, model: PureModel) -> Runner:
        """Puts a model on the strategy's devices."""
        ...

    def close(self) -> None:
        """Releases what the strategy opened; twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
