"""The loop of a `fit`: epochs, validation, callbacks, and an end that leaves everything usable."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import final

from dure.train.agree import Agreement, Reason
from dure.train.engine import Dispatch, Engine
from dure.train.feeds import Source
from dure.train.history import History, Point
from dure.train.hooks import Hooks
from dure.train.interrupt import Interrupts
from dure.train.progress import Reporter
from dure.train.record import Record

__all__ = ["Fit", "Job"]


@dataclass(frozen=True)
class Job:
    """What a fit is to do.

    Attributes:
        source: of the steps of an epoch.
        validation: of the steps of a validation, or None.
        record: where it ends, and the history that it adds to.
        steps_per_execution: steps of a dispatch, or None to find the best number.
        began: when the fit was called, by `time.perf_counter`.
    """

    source: Source
    validation: Source | None
    record: Record
    steps_per_execution: int | None
    began: float


@final
class Fit:
    """Runs a job.

    Args:
        job: what to do.
        engine: holds the state and the position.
        hooks: the callbacks.
        reporter: shows progress.
        interrupts: hears Ctrl-C.
    """

    def __init__(self, job: Job, engine: Engine, hooks: Hooks, reporter: Reporter, interrupts: Interrupts) -> None:
        self._job = job
        self._engine = engine
        self._hooks = hooks
        self._reporter = reporter
        self._interrupts = interrupts
        self._agreement = Agreement(engine.runner.group, self._wish)
        self._history = job.record.history
        self._step = 0

    def run(self) -> History:
        """Trains, and returns the record; whatever happens, the model object has the weights so far."""
        failed = True
        self._engine.state.start()
        self._step = self._engine.state.step
        try:
            self._hooks.start()
            self._epochs()
            if self._history.steps and not self._is_interrupted:
                self._engine.state.finish()
            failed = False
        finally:
            self._reporter.close()
            self._history.interrupted = self._is_interrupted
            self._history.seconds = time.perf_counter() - self._job.began
            self._end(failed=failed)
        return self._history

    def _end(self, *, failed: bool) -> None:
        """Tells the callbacks and gives the weights back; an error that is on its way is not hidden."""
        try:
            self._hooks.end(self._history, failed=failed)
        finally:
            if not self._engine.state.is_lost:
                self._engine.state.absorb()

    def _epochs(self) -> None:
        engine = self._engine
        record = self._job.record
        first = engine.position.epoch - len(self._history.epochs)
        while record.goes_on(engine.position) and self._agreement.next(1):
            title = f"epoch {engine.position.epoch - first + 1}/{record.last - first}"
            if not self._epoch(title):
                break
        # What ended early is not gone on with after a restart.
        record.last = engine.position.epoch
        if self._is_interrupted:
            self._reporter.say(f"interrupted after step {self._step:,}; the weights so far are kept")

    def _wish(self) -> Reason:
        """Why this process would stop now."""
        return "interrupt" if self._interrupts.requested else "stop" if self._engine.stop_requested else ""

    @property
    def _is_interrupted(self) -> bool:
        return self._agreement.reason == "interrupt"

    def _epoch(self, title: str) -> bool:
        """Trains and validates one epoch; says whether it came to its end."""
        engine, source, hooks = self._engine, self._job.source, self._hooks
        epoch = engine.position.epoch
        hooks.begin_epoch(epoch)
        self._reporter.begin(title, source.steps, engine.position.step)
        began = self._last = time.perf_counter()
        logs = engine.train(
            source,
            self._after,
            self._agreement,
            fixed=self._job.steps_per_execution,
            most=(lambda: hooks.most(self._step)) if hooks.want_steps else None,
        )
        seconds = time.perf_counter() - began
        if self._agreement.reason and (source.steps is None or engine.position.step < source.steps):
            self._history.add_epoch(epoch, logs, seconds)
            return False
        engine.finish_epoch()
        if self._job.validation is not None:
            logs |= self._validate(self._job.validation)
        self._reporter.end(logs)
        # A checkpoint that a callback writes now has the epoch in its history.
        self._history.add_epoch(epoch, logs, seconds)
        hooks.end_epoch(epoch, logs)
        self._history.amend_epoch(logs)
        return True

    def _after(self, dispatch: Dispatch) -> None:
        """Notes a dispatch."""
        now = dispatch.ended
        self._step += dispatch.steps
        point = Point(self._step, now - self._job.began, dispatch.logs["loss"])
        self._history.add_dispatch(point, dispatch.steps, now - self._last, compiled=dispatch.compiled)
        self._last = now
        self._reporter.advance(dispatch.steps, dispatch.logs)
        self._hooks.step(self._step, dispatch.logs)

    def _validate(self, source: Source) -> dict[str, float]:
        self._hooks.validate(None)
        # An epoch that is trained counts as done; only Ctrl-C ends its validation early.
        found = self._engine.measure(source, self._agreement)
        logs = {} if found is None else {f"val_{name}": value for name, value in found.items()}
        self._hooks.validate(logs)
        return logs
