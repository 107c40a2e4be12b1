"""The callbacks of Dure's own form; `dure.callbacks` is their public door and says what a callback is."""

from __future__ import annotations

import csv
import math
import os
import time
from pathlib import Path
from typing import Any, Literal, Protocol, final

from dure import checkpoint
from dure.errors import SpecError, hint
from dure.models.pure import TrainState
from dure.train.history import History
from dure.train.inputs import whole_number

__all__ = ["CSVLog", "Callback", "Checkpoint", "EarlyStopping", "Subject", "TensorBoard"]


class Subject(Protocol):
    """What a callback may ask of the trainer that calls it."""

    state: TrainState

    is_chief: bool
    """Whether this process writes files: the first of several."""

    history: History
    """The record of the fit that runs; it begins with epochs where the fit was begun before a restart."""

    @property
    def step(self) -> int:
        """Updates of the weights so far."""
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint."""
        ...

    def stop(self) -> None:
        """Ends training after the dispatch or epoch that is being reported."""
        ...


class Callback(Protocol):
    """All the methods that a callback may have; it may lack any of them."""

    def on_start(self, trainer: Subject) -> None:
        """Training is about to start."""
        ...

    def on_step(self, trainer: Subject, step: int, logs: dict[str, float]) -> None:
        """A dispatch is done."""
        ...

    def on_epoch(self, trainer: Subject, epoch: int, logs: dict[str, float]) -> None:
        """An epoch is done; what is added to `logs` gets into the history."""
        ...

    def on_end(self, trainer: Subject, history: History) -> None:
        """Training ended."""
        ...


@final
class Checkpoint:
    """Saves checkpoints below a directory, one a step number: `<path>/step-00002400`.

    `trainer.restore(path)` goes on from the newest that is undamaged. Under `dure run --max-restarts` a `fit` with this
    callback does so by itself when the group is started again, from the newest that this run has written: it ends
    where it would have, with the same history. So do the `fit`s that were over by then, which train nothing.

    Args:
        path: the directory; made when it is missing.
        every: `"epoch"`, or a number of steps: then a dispatch ends at each multiple of it.
        keep: how many to keep, the newest ones; None keeps all.

    Raises:
        SpecError: an option is none of these.

    Example:
        >>> Checkpoint("runs/mnist", every=500, keep=2).every_steps
        500
    """

    def __init__(
        self, path: str | os.PathLike[str], *, every: int | Literal["epoch"] = "epoch", keep: int | None = 3
    ) -> None:
        self.path = Path(path)
        if isinstance(every, str) and every != "epoch":
            raise SpecError(f'every is {every!r}; it is "epoch" or a number of steps, such as `every=500`.')
        self.every_steps = None if every == "epoch" else whole_number("every", every)
        self._keep = None if keep is None else whole_number("keep", keep)

    def on_start(self, trainer: Subject) -> None:
        """Removes what an earlier run that was killed left half written."""
        if trainer.is_chief and self.path.is_dir():
            checkpoint.sweep(self.path)

    def on_step(self, trainer: Subject, step: int, _logs: dict[str, float]) -> None:
        """Saves at each multiple of `every` steps."""
        if self.every_steps is not None and step % self.every_steps == 0:
            self._save(trainer)

    def on_epoch(self, trainer: Subject, _epoch: int, _logs: dict[str, float]) -> None:
        """Saves with `every="epoch"`."""
        if self.every_steps is None:
            self._save(trainer)

    def _save(self, trainer: Subject) -> None:
        trainer.save(checkpoint.step_path(self.path, trainer.step))
        if trainer.is_chief and self._keep is not None:
            checkpoint.prune(self.path, self._keep)


@final
class EarlyStopping:
    """Stops when a number has not got better for some epochs.

    Args:
        monitor: its name in the history, as `"val_loss"`.
        patience: how many epochs in a row without an improvement end training.
        min_delta: how much better counts as better.
        mode: `"min"`, `"max"`, or `"auto"`: more is better for a name with `acc`, `auc`, `precision`,
            `recall` or `f1` in it, less for all others.
        restore_best: go back to the weights, and the optimizer's state, of the best epoch.

    Raises:
        SpecError: an option is none of these; while training, that there is no such number.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int = 0,
        min_delta: float = 0.0,
        mode: Literal["auto", "min", "max"] = "auto",
        restore_best: bool = False,
    ) -> None:
        if mode not in ("auto", "min", "max"):
            raise SpecError(f'mode is {mode!r}; it is "auto", "min" or "max".')
        if not isinstance(min_delta, int | float) or not min_delta >= 0:
            raise SpecError(f"min_delta is {min_delta!r}; it is a number that is not negative, such as 0.001.")
        self._monitor = monitor
        self._patience = whole_number("patience", patience, least=0)
        self._min_delta = float(min_delta)
        more = any(part in monitor.lower() for part in ("acc", "auc", "precision", "recall", "f1"))
        self._sign = 1.0 if mode == "max" or (mode == "auto" and more) else -1.0
        self._restore_best = restore_best
        self._forget()

    def _forget(self) -> None:
        self._best = -math.inf
        self._waited = 0
        self._best_state: TrainState | None = None
        self.best_epoch: int | None = None
        self.stopped_epoch: int | None = None

    def on_start(self, trainer: Subject) -> None:
        """Forgets an earlier fit; looks again at the epochs of this one from before a restart."""
        self._forget()
        history = trainer.history
        for place, epoch in enumerate(history.epochs):
            self._look(epoch, {name: values[place] for name, values in history.metrics.items()})
        if self.stopped_epoch is not None:
            trainer.stop()

    def on_epoch(self, trainer: Subject, epoch: int, logs: dict[str, float]) -> None:
        """Compares, and stops the trainer when patience is at its end."""
        is_better = self._look(epoch, logs)
        if is_better and self._restore_best:
            self._best_state = trainer.state
        if self.stopped_epoch is not None:
            trainer.stop()

    def _look(self, epoch: int, logs: dict[str, float]) -> bool:
        """Whether an epoch is the best so far."""
        if self._monitor not in logs:
            raise SpecError(
                f"EarlyStopping looks at `{self._monitor}`, which this training does not give. "
                f"{hint(self._monitor, logs)} Choose one of them, or give validation data for those with "
                f"`val_`."
            )
        value = self._sign * logs[self._monitor]
        if value > self._best + self._min_delta or self.best_epoch is None:
            # NaN is better than nothing and worse than everything.
            self._best, self.best_epoch, self._waited = (-math.inf if math.isnan(value) else value), epoch, 0
            return True
        self._waited += 1
        if self._waited >= max(1, self._patience):
            self.stopped_epoch = epoch
        return False

    def on_end(self, trainer: Subject, _history: History) -> None:
        """Puts the best epoch's state back, if that was asked for."""
        if self._best_state is not None:
            trainer.state = self._best_state
            self._best_state = None


@final
class CSVLog:
    """Writes a line of comma-separated numbers an epoch, with a line of names on top.

    Args:
        path: the file; its folder is made when it is missing.
        append: go on with a file that is there, rather than start it anew.
    """

    def __init__(self, path: str | os.PathLike[str], *, append: bool = False) -> None:
        self.path = Path(path)
        self._append = append
        self._names: list[str] = []

    def on_start(self, trainer: Subject) -> None:
        """Makes the file, or reads the names in it; after a restart it goes on from the last checkpoint."""
        if not trainer.is_chief:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._names = []
        epochs = trainer.history.epochs
        if epochs and self.path.exists():
            self._cut(epochs[-1])
        if (self._append or epochs) and self.path.exists():
            with self.path.open(newline="", encoding="utf-8") as file:
                self._names = next(csv.reader(file), [])
        else:
            self.path.write_text("", encoding="utf-8")

    def _cut(self, last: int) -> None:
        """Takes out the lines of epochs that are trained once more, after those that are kept."""
        with self.path.open(newline="", encoding="utf-8") as file:
            names, *rows = [*csv.reader(file)] or [[]]
        if "epoch" not in names:
            return
        place = names.index("epoch")
        kept = [row for row in rows if len(row) > place and not (row[place].isdigit() and int(row[place]) > last)]
        draft = self.path.with_name(f"{self.path.name}.part")
        with draft.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([names, *kept])
        draft.replace(self.path)

    def on_epoch(self, trainer: Subject, epoch: int, logs: dict[str, float]) -> None:
        """Adds the epoch's line; it is on disk before training goes on."""
        if not trainer.is_chief:
            return
        row = {"epoch": epoch, "step": trainer.step, **logs}
        with self.path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if not self._names:
                self._names = list(row)
                writer.writerow(self._names)
            # What appears later has no column; what is missing leaves its column empty.
            writer.writerow([row.get(name, "") for name in self._names])


@final
class TensorBoard:
    """Writes curves for TensorBoard: metrics an epoch, and the loss and the speed of each dispatch.

    Needs the extra `tensorboard`.

    Args:
        path: the log directory.

    Raises:
        SpecError: the extra is not installed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise SpecError(
                f"the callback TensorBoard({str(path)!r}) writes its logs with a package that is not "
                f"installed ({error}). Install it: `pip install 'dure[tensorboard]'`."
            ) from error
        self.path = Path(path)
        self._event, self._summary, self._open = Event, Summary, EventFileWriter
        self._writer: Any = None
        self._last: tuple[int, float] | None = None

    def on_start(self, trainer: Subject) -> None:
        """Opens the file of events."""
        self._writer = self._open(str(self.path)) if trainer.is_chief else None
        self._last = None

    def on_step(self, _trainer: Subject, step: int, logs: dict[str, float]) -> None:
        """Writes the loss over the epoch so far, and steps a second since the last dispatch."""
        now = time.time()
        values = {"dispatch/loss": logs["loss"]} if "loss" in logs else {}
        if self._last is not None and now > self._last[1]:
            values["dispatch/steps_per_s"] = (step - self._last[0]) / (now - self._last[1])
        self._last = (step, now)
        self._write(step, values)

    def on_epoch(self, _trainer: Subject, epoch: int, logs: dict[str, float]) -> None:
        """Writes the epoch's metrics, those of training and of validation under one name each."""
        named = {
            f"{name.removeprefix('val_')}/{'validation' if name.startswith('val_') else 'train'}": value
            for name, value in logs.items()
        }
        self._write(epoch, named)
        if self._writer is not None:
            self._writer.flush()

    def on_end(self, _trainer: Subject, _history: History) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, step: int, values: dict[str, float]) -> None:
        if self._writer is None:
            return
        parts = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=step, summary=self._summary(value=parts)))
