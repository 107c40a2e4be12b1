"""What runs on a model's state, dispatch by dispatch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, final

import jax
import numpy as np

from dure.launch.board import Phase
from dure.models.pure import Batch, Outline, PureModel, PyTree
from dure.strategy.base import Feed, Metrics, Runner
from dure.train.agree import Agreement
from dure.train.digest import check_equal
from dure.train.epochs import Position
from dure.train.feeds import Chunk, Source
from dure.train.live import LiveState
from dure.train.pace import Pace

__all__ = ["Dispatch", "Engine"]


class Dispatch(NamedTuple):
    """What a dispatch did.

    Attributes:
        steps: how many it ran.
        logs: the metrics over the epoch so far.
        compiled: it may have compiled something.
        ended: when its results were there, by `time.perf_counter`.
    """

    steps: int
    logs: dict[str, float]
    compiled: bool
    ended: float


@final
class Engine:
    """Runs a model for one trainer.

    Args:
        model: the network as pure functions.
        runner: the model on the strategy's devices.
        seed: of fresh weights, of the random streams and of the order of rows.
    """

    def __init__(self, model: PureModel, runner: Runner, seed: int) -> None:
        self.runner = runner
        self.state = LiveState(model, runner, seed)
        self._model = model
        self._outlines: dict[Hashable, Outline] = {}
        self._paces: dict[Hashable, Pace] = {}
        self._predicted: set[Hashable] = set()
        self._warm: set[Hashable] = set()
        self.sample: Batch | None = None
        """Shapes and dtypes of a batch that the model was prepared for."""
        self.position = Position(seed=seed)
        """Where training is."""
        self.seen: Metrics | None = None
        """The metrics over the unfinished epoch so far, on the host; None between epochs."""
        self.stop_requested = False
        """A callback wants training to end."""

    def prepare(self, batch: Batch) -> Outline:
        """Builds and checks the model for a kind of batch; nothing is compiled.

        Args:
            batch: shapes and dtypes.

        Raises:
            SpecError: the model does not take such data.
        """
        kind = _kind(batch)
        if kind not in self._outlines:
            if len(self._outlines) > 64:
                self._outlines.clear()
            self._outlines[kind] = self._model.prepare(batch)
            self.sample = batch
            self._predicted.add(_kind(batch.x))
            # A model that is built from data has its weights only now.
            self.state.forget(only_fresh=True)
        return self._outlines[kind]

    def go_to(self, position: Position, seen: Metrics | None = None) -> None:
        """Goes on from another position.

        Args:
            position: where.
            seen: the metrics over the epoch up to there.
        """
        self.position, self.seen = position, seen

    def finish_epoch(self) -> None:
        """Goes to the start of the next epoch; the replicas are made equal, and are seen to be so.

        Raises:
            StepError: one of them has other weights than the others.
        """
        self.go_to(self.position.finished())
        self._enter(Phase.COLLECTIVE)
        check_equal(self.state.sync(), self.runner.group, step=self.state.step)
        self._enter(Phase.USER)

    def empty_metrics(self) -> PyTree:
        """The accumulators of a model that was prepared, without an example, on the host."""
        return self._model.new_metrics()

    def train(
        self,
        source: Source,
        after: Callable[[Dispatch], None],
        agreement: Agreement,
        *,
        fixed: int | None = None,
        most: Callable[[], int] | None = None,
    ) -> dict[str, float]:
        """Trains from `position` to the end of its epoch.

        Args:
            source: of the steps.
            after: called after each dispatch.
            agreement: says before each dispatch how many steps it has, and where to end the epoch.
            fixed: steps of a dispatch, when the user has a wish.
            most: how many steps the next dispatch may have; then `after` finds the state as that dispatch
                left it. Without it the next dispatch runs while `after` reads the numbers of the last one.

        Returns:
            The metrics over the epoch, with what was trained of it before.
        """
        metrics = self.runner.new_metrics(self.seen)
        reports = _Reports(self.runner, after)
        if self.seen is not None:  # perhaps there is no step left, only the end of the epoch
            reports.logs = self.runner.result(self.seen)
        with contextlib.closing(source.chunks(self.position)) as chunks:
            for feed, start, steps, kind in self._watched(chunks, agreement):
                pace = self._pace(("train", kind), fixed)
                done = 0
                while done < steps:
                    count = pace.next(steps - done)
                    self._enter(Phase.COLLECTIVE)
                    count = agreement.next(count if most is None else min(count, most()))
                    if not count:
                        break
                    compiled = self._is_cold("train", kind)
                    self._enter(Phase.COMPILE if compiled else Phase.COLLECTIVE)
                    began = time.perf_counter()
                    metrics = self._dispatch(metrics, feed, start + done, count)
                    self.position = self.position.advanced(count, source.plan)
                    self._enter(Phase.USER)
                    reports.flush()
                    self._enter(Phase.COMPILE if compiled else Phase.COLLECTIVE)
                    found = self.seen = self._wait(metrics)
                    ended = time.perf_counter()
                    if not compiled:
                        pace.record(count, ended - began)
                    done += count
                    reports.add(found, Dispatch(count, {}, compiled, ended))
                    if most is not None:
                        self._enter(Phase.USER)
                        reports.flush()
                if agreement.reason:
                    break
        self._enter(Phase.USER)
        reports.flush()
        self._enter(Phase.COLLECTIVE)
        # Ctrl-C ends a wait for data too: then there was no dispatch to decide before.
        agreement.next(1)
        self._enter(Phase.USER)
        return reports.logs

    def _dispatch(self, metrics: Metrics, feed: Feed, start: int, count: int) -> Metrics:
        placed = self.state.start()
        with self.state.checked():
            placed, metrics = self.runner.train(placed, metrics, feed, start, count)
            self.state.take(placed, count)
        return metrics

    def _wait(self, metrics: Metrics) -> Metrics:
        """Waits for a dispatch, and copies its metrics to the host: the next dispatch will use them up."""
        with self.state.checked():
            return self.runner.fetch(metrics)

    def _watched(self, chunks: Iterator[Chunk], agreement: Agreement) -> Iterator[Chunk]:
        """The chunks that all processes have; while one is awaited, who watches is told so."""
        while True:
            self._enter(Phase.DATA)
            chunk = next(chunks, None)
            self._enter(Phase.COLLECTIVE)
            if not agreement.goes_on(chunk and f"{chunk.steps} steps of {chunk.kind}") or chunk is None:
                return
            yield chunk

    def _enter(self, phase: Phase) -> None:
        self.runner.watch.enter(phase, self.state.step)

    def measure(
        self, source: Source, agreement: Agreement, after: Callable[[Dispatch], None] = lambda _: None
    ) -> dict[str, float] | None:
        """Evaluates every step of a source.

        Args:
            source: of the steps.
            agreement: says before each dispatch how many steps it has; Ctrl-C gives up.
            after: called after each dispatch.

        Returns:
            The metrics, or None when it was given up.
        """
        self._enter(Phase.COLLECTIVE)
        placed = self.state.sync()
        metrics = self.runner.new_metrics()
        with contextlib.closing(source.chunks(Position())) as chunks:
            for feed, start, steps, kind in self._watched(chunks, agreement):
                pace = self._pace(("measure", kind), None)
                done = 0
                while done < steps:
                    self._enter(Phase.COLLECTIVE)
                    count = agreement.next(pace.next(steps - done), through_stop=True)
                    if not count:
                        return None
                    compiled = self._is_cold("measure", kind)
                    self._enter(Phase.COMPILE if compiled else Phase.COLLECTIVE)
                    began = time.perf_counter()
                    metrics = self.runner.measure(placed, metrics, feed, start + done, count)
                    jax.block_until_ready(metrics)
                    if not compiled:
                        pace.record(count, time.perf_counter() - began)
                    done += count
                    self._enter(Phase.USER)
                    after(Dispatch(count, {}, compiled, time.perf_counter()))
        self._enter(Phase.COLLECTIVE)
        if not agreement.next(1, through_stop=True):
            return None
        found = self.runner.result(self.runner.fetch(metrics))
        self._enter(Phase.USER)
        return found

    def predict(self, source: Source) -> PyTree:
        """The outputs for every row of a source, in order, on the host."""
        placed = self.state.sync()
        agreement = Agreement(self.runner.group)
        parts: list[PyTree] = []
        with contextlib.closing(source.chunks(Position())) as chunks:
            for feed, start, steps, _ in self._watched(chunks, agreement):
                self._enter(Phase.COLLECTIVE)
                parts += [self.runner.predict(placed, feed, index) for index in range(start, start + steps)]
        self._enter(Phase.USER)
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

    def check_predict(self, x: PyTree) -> None:
        """Builds and checks the model for inputs of a kind that it was not prepared for with targets.

        Raises:
            SpecError: the model does not take them.
        """
        kind = _kind(x)
        if kind in self._predicted:
            return
        self._model.prepare(Batch(x), predicting=True)
        self._predicted.add(kind)
        # A model that is built from data has its weights only now.
        self.state.forget(only_fresh=True)

    def _pace(self, kind: Hashable, fixed: int | None) -> Pace:
        if fixed is not None:
            return Pace(fixed=fixed)
        if len(self._paces) > 256:
            self._paces.clear()
        return self._paces.setdefault(kind, Pace())

    def _is_cold(self, name: str, kind: Hashable) -> bool:
        """Whether this is the first dispatch of a kind."""
        known = (name, kind) in self._warm
        self._warm.add((name, kind))
        return not known


@final
class _Reports:
    """Tells of dispatches, the last one perhaps only when the next is on its way.

    Args:
        runner: reads metrics.
        after: is told.
    """

    def __init__(self, runner: Runner, after: Callable[[Dispatch], None]) -> None:
        self._runner = runner
        self._after = after
        self._waiting: tuple[Metrics, Dispatch] | None = None
        self.logs: dict[str, float] = {}

    def add(self, metrics: Metrics, dispatch: Dispatch) -> None:
        """Notes a dispatch and its metrics, on the host."""
        self._waiting = metrics, dispatch

    def flush(self) -> None:
        """Tells of the dispatch that was noted last."""
        if self._waiting is not None:
            (metrics, dispatch), self._waiting = self._waiting, None
            self.logs = self._runner.result(metrics)
            self._after(dispatch._replace(logs=self.logs))


def _kind(tree: PyTree) -> Hashable:
    """The shapes and dtypes of data, but for the number of rows: a model that takes 32 takes 25."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((leaf.shape[1:], str(leaf.dtype)) for leaf in leaves)
