"""Data on its way to the devices: held there whole, or streamed in chunks made while the last one trains."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Iterator
from typing import NamedTuple, Protocol, final

import jax
import numpy as np

from dure.data.batches import Batches, BatchRows
from dure.errors import DataError
from dure.models.pure import Batch
from dure.strategy.base import Feed, Runner
from dure.train.ahead import ahead
from dure.train.buffers import Buffers
from dure.train.epochs import Plan, Position, order
from dure.train.inputs import Rows, narrowed, struct_of

__all__ = ["CHUNK_BYTES", "Chunk", "Loader", "Resident", "Source", "Streamed"]

CHUNK_BYTES = 32 * 2**20
"""How much of streamed data goes to the devices at once: long enough to hide the next chunk's making."""

_GATHER_S = 0.1


class Chunk(NamedTuple):
    """Some steps that are ready to run.

    Attributes:
        feed: their rows, on the devices.
        start: the feed's first step to run.
        steps: how many to run.
        kind: equal for chunks that the same compiled program runs.
    """

    feed: Feed
    start: int
    steps: int
    kind: Hashable


class Source(Protocol):
    """Where the steps of an epoch come from."""

    @property
    def steps(self) -> int | None:
        """Steps of an epoch; None when only the first epoch tells."""
        ...

    @property
    def plan(self) -> str:
        """How the data are cut into steps, to be compared when an epoch goes on after a restart."""
        ...

    def chunks(self, position: Position) -> Generator[Chunk, None, None]:
        """The rest of an epoch from a position on. Close the generator to end it early."""
        ...


@final
class Resident:
    """Arrays that stay on the devices: an epoch sends the order of rows, and nothing else.

    Args:
        runner: of the strategy.
        rows: all of them; sent at once.
        plan: how they are cut into steps.
    """

    def __init__(self, runner: Runner, rows: Rows, plan: Plan) -> None:
        self._runner = runner
        self._held = runner.hold(rows.whole())
        self._plan = plan

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self._plan.steps

    @property
    def plan(self) -> str:
        """The plan as a text."""
        return str(self._plan)

    def chunks(self, position: Position) -> Generator[Chunk, None, None]:
        """The full steps as one chunk, then the short one."""
        plan = self._plan
        places = order(plan, position.seed, position.turn)
        edge = plan.full_steps * plan.batch_size
        if position.step < plan.full_steps:
            feed = self._runner.feed(self._held, places[:edge].reshape(plan.full_steps, plan.batch_size))
            yield Chunk(feed, position.step, plan.full_steps - position.step, self._kind(plan.full_steps))
        if plan.last_rows and position.step < plan.steps:
            yield Chunk(self._runner.feed(self._held, places[None, edge:]), 0, 1, self._kind(1))

    def _kind(self, steps: int) -> Hashable:
        return "held", self._plan, steps


@final
class Streamed:
    """Arrays that do not fit: a thread gathers the rows of the next chunk while the last one trains.

    Args:
        runner: of the strategy.
        rows: all of them; they stay where they are.
        plan: how they are cut into steps.
        stopped: looked at while waiting for a chunk.
        chunk_bytes: about how much goes at once.
    """

    def __init__(
        self,
        runner: Runner,
        rows: Rows,
        plan: Plan,
        *,
        stopped: Callable[[], bool] = lambda: False,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._runner = runner
        self._rows = rows
        self._plan = plan
        self._stopped = stopped
        self._buffers = Buffers()
        step_bytes = max(1, rows.size_bytes * plan.batch_size // rows.num_rows)
        self._chunk_steps = min(max(1, chunk_bytes // step_bytes), max(1, plan.full_steps))

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return self._plan.steps

    @property
    def plan(self) -> str:
        """The plan as a text."""
        return str(self._plan)

    def chunks(self, position: Position) -> Generator[Chunk, None, None]:
        """Chunks of equal length, the last one shorter, then the short step."""
        return ahead(lambda: self._make(position), stopped=self._stopped)

    def _make(self, position: Position) -> Iterator[Chunk]:
        plan = self._plan
        places = order(plan, position.seed, position.turn)
        edge = plan.full_steps * plan.batch_size
        full = places[:edge].reshape(plan.full_steps, plan.batch_size)
        for first in range(position.step, plan.full_steps, self._chunk_steps):
            yield self._chunk(full[first : first + self._chunk_steps])
        if plan.last_rows and position.step < plan.steps:
            yield self._chunk(places[None, edge:])

    def _chunk(self, places: np.ndarray) -> Chunk:
        steps, batch = places.shape
        feed = self._runner.stream(self._rows.take(places, self._buffers.empty))
        return Chunk(feed, 0, steps, ("streamed", batch, self._chunk_steps))


@final
class Loader:
    """Batches that something else makes, stacked into chunks by a thread while their shapes are the same.

    Args:
        runner: of the strategy.
        batches: what makes them.
        follows_epochs: a pass has the number of the trainer's epoch, rather than the one after the last pass.
        only_inputs: leave out targets and weights.
        check: called with each batch and its number; raises when it is not to be trained on.
        stopped: looked at while waiting for a chunk.
        chunk_bytes: about how much goes at once.
    """

    def __init__(
        self,
        runner: Runner,
        batches: Batches,
        *,
        follows_epochs: bool = False,
        only_inputs: bool = False,
        check: Callable[[Batch, int], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._group = runner.group
        self._name = f"loader {runner.group.turn()}"
        self._runner = runner
        self._batches = batches
        self._follows_epochs = follows_epochs
        self._only_inputs = only_inputs
        self._check = check
        self._stopped = stopped
        self._chunk_bytes = chunk_bytes
        self._buffers = Buffers()
        self._begun: tuple[Position, Batch, Iterator[BatchRows]] | None = None
        self._frames: dict[Hashable, int] = {}

    @property
    def steps(self) -> int | None:
        """Steps of an epoch, where the data tell."""
        return self._batches.size

    @property
    def plan(self) -> str:
        """What can be said of batches before they are made."""
        return "batches of a loader"

    def first(self, position: Position) -> Batch:
        """The first batch from a position on; `chunks` from the same position gives it again.

        Raises:
            DataError: there is none.
        """
        if self._begun is None or self._begun[0] != position:
            self.close()
            passing = self._pass(position)
            try:
                rows = next(passing)
            except StopIteration:
                raise DataError(
                    f"the data end before batch {position.step} of the epoch, where training is to go on. "
                    f"Give the data that the checkpoint was made with, or start an epoch anew with `seed=`."
                ) from None
            self._begun = (position, self._narrow(rows), passing)
        return self._begun[1]

    def chunks(self, position: Position) -> Generator[Chunk, None, None]:
        """Chunks of as many batches as come in a tenth of a second, or fit into the chunk's bytes."""
        return ahead(lambda: self._make(position), stopped=self._stopped)

    def close(self) -> None:
        """Ends a pass that was begun and not used."""
        if self._begun is not None:
            passing, self._begun = self._begun[2], None
            _close(passing)

    def _narrow(self, rows: BatchRows) -> Batch:
        kept = (rows.x, None, None) if self._only_inputs else tuple(rows)
        return Batch(*jax.tree.map(lambda leaf: narrowed(leaf, "an array of a batch"), kept))

    def _pass(self, position: Position) -> Iterator[BatchRows]:
        epoch = position.turn if self._follows_epochs else None
        return self._batches.iterate(epoch=epoch, skip=position.step)

    def _make(self, position: Position) -> Iterator[Chunk]:
        self.first(position)
        assert self._begun is not None
        _, batch, passing = self._begun
        self._begun = None
        try:
            yield from self._stacked(batch, passing, position.step)
        finally:
            _close(passing)

    def _stacked(self, batch: Batch, passing: Iterator[BatchRows], number: int) -> Iterator[Chunk]:
        waiting: list[Batch] = []
        kind: Hashable = None
        since = time.perf_counter()
        following: Batch | None = batch
        while following is not None:
            batch = following
            if self._check is not None:
                self._check(batch, number)
            if waiting and _kind(batch) != kind:
                yield self._chunk(waiting, kind)
                waiting, since = [], time.perf_counter()
            kind = _kind(batch)
            waiting.append(batch)
            if len(waiting) >= self._frame(kind, batch, len(waiting), since):
                yield self._chunk(waiting, kind)
                waiting, since = [], time.perf_counter()
            number += 1
            rows = next(passing, None)
            following = None if rows is None else self._narrow(rows)
        if waiting:
            yield self._chunk(waiting, kind)

    def _frame(self, kind: Hashable, batch: Batch, waiting: int, since: float) -> int:
        """How many batches of a kind make a chunk: chosen once, so that one program runs them all."""
        if kind not in self._frames:
            most = max(1, self._chunk_bytes // max(1, _size_bytes(batch)))
            # Which is a matter of time: the chief chooses, and the others wait for its word.
            if self._group.rank == 0 and waiting < most and time.perf_counter() - since < _GATHER_S:
                return most
            self._choose(kind, waiting)
        return self._frames[kind]

    def _choose(self, kind: Hashable, steps: int) -> None:
        self._frames[kind] = self._group.lead(self._name, steps)

    def _chunk(self, waiting: list[Batch], kind: Hashable) -> Chunk:
        if kind not in self._frames:
            self._choose(kind, len(waiting))
        feed = self._runner.stream(Batch(*jax.tree.map(self._stack, *waiting)))
        return Chunk(feed, 0, len(waiting), ("loaded", kind, self._frames[kind]))

    def _stack(self, *leaves: np.ndarray) -> np.ndarray:
        return np.stack(leaves, out=self._buffers.empty((len(leaves), *leaves[0].shape), leaves[0].dtype))


def _size_bytes(batch: Batch) -> int:
    return sum(int(leaf.nbytes) for leaf in jax.tree.leaves(batch))


def _kind(batch: Batch) -> Hashable:
    leaves, tree = jax.tree.flatten(struct_of(batch))
    return tree, tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)


def _close(passing: Iterator[BatchRows]) -> None:
    close = getattr(passing, "close", None)
    if close is not None:
        close()
