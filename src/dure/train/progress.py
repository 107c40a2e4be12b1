"""What is seen while training: a bar on a terminal, a line an epoch elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TextIO, final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dure.errors import SpecError

__all__ = ["Bar", "Lines", "Reporter", "Silent", "reporter"]

_REDRAW_S = 0.25
_STALE_S = 30.0
_WIDTH = 80


class Reporter(Protocol):
    """Tells a person how training goes."""

    def begin(self, title: str, steps: int | None, done: int) -> None:
        """An epoch, or an evaluation, starts.

        Args:
            title: what it is, as `epoch 3/10`.
            steps: how many it has, where that is known.
            done: how many are behind it already.
        """
        ...

    def advance(self, steps: int, logs: dict[str, float]) -> None:
        """So many more steps are done; cheap to call after each dispatch."""
        ...

    def end(self, logs: dict[str, float]) -> None:
        """It is over; these are its results."""
        ...

    def say(self, text: str) -> None:
        """Shows a line that stays."""
        ...

    def close(self) -> None:
        """Leaves the terminal as it was; twice is fine."""
        ...


def reporter(verbose: object, *, is_chief: bool = True, once: bool = False, file: TextIO | None = None) -> Reporter:
    """Chooses how to report.

    Args:
        verbose: `"auto"`, 0 (nothing), 1 (a bar where that can be) or 2 (lines).
        is_chief: only the chief of several processes reports.
        once: a single evaluation, which `"auto"` shows on a terminal only.
        file: where to; None takes the standard output.

    Raises:
        SpecError: `verbose` is none of these.
    """
    if verbose not in ("auto", 0, 1, 2):
        raise SpecError(f'verbose is {verbose!r}; it is "auto", 0 (nothing), 1 (a bar) or 2 (a line an epoch).')
    out = file or sys.stdout
    if not is_chief or verbose == 0 or out is None:
        return Silent()
    on_terminal = out.isatty() and not _in_notebook()
    if verbose != 2 and on_terminal:
        return Bar(out)
    return Silent() if once and verbose == "auto" else Lines(out)


@final
class Silent:
    """Shows nothing."""

    def begin(self, title: str, steps: int | None, done: int) -> None:
        """Shows nothing."""

    def advance(self, steps: int, logs: dict[str, float]) -> None:
        """Shows nothing."""

    def end(self, logs: dict[str, float]) -> None:
        """Shows nothing."""

    def say(self, text: str) -> None:
        """Shows nothing."""

    def close(self) -> None:
        """Has nothing to close."""


@final
class Lines:
    """A line at the end of each epoch, and one every half minute of a long one.

    Args:
        file: where to write.
        now: tells the time in seconds.

    Example:
        >>> lines = Lines(sys.stdout, now=iter([0.0, 2.0]).__next__)
        >>> lines.begin("epoch 1/2", 100, 0)
        >>> lines.advance(100, {"loss": 0.5})
        >>> lines.end({"loss": 0.5, "val_loss": 0.75})
        epoch 1/2: loss 0.5000, val_loss 0.7500; 100 steps in 2.0 s, 50.0 steps/s
    """

    def __init__(self, file: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._now = now
        self._count = _Count()
        self._told = 0.0

    def begin(self, title: str, steps: int | None, done: int) -> None:
        """Notes the time."""
        self._told = self._now()
        self._count = _Count(title, steps, done, done, self._told)

    def advance(self, steps: int, logs: dict[str, float]) -> None:
        """Writes a line when the last one is half a minute old."""
        now = self._now()
        self._count.add(steps, now)
        if now - self._told >= _STALE_S:
            self._told = now
            self.say(f"{self._count.title}: {self._count.progress}{_listed(logs, ', ')}, {self._count.rate}")

    def end(self, logs: dict[str, float]) -> None:
        """Writes the epoch's line."""
        self.say(self._count.summary(logs))

    def say(self, text: str) -> None:
        """Writes the line."""
        print(text, file=self._file, flush=True)

    def close(self) -> None:
        """Has nothing to close."""


@final
class Bar:
    """A bar with loss, steps a second and time left, drawn four times a second; a line an epoch stays.

    Args:
        file: a terminal.
        now: tells the time in seconds.
        width: columns to fill at most.
    """

    def __init__(self, file: TextIO, *, now: Callable[[], float] = time.monotonic, width: int | None = None) -> None:
        columns = Console(file=file).width
        self._console = Console(file=file, width=min(width or columns, _WIDTH))
        self._now = now
        self._count = _Count()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._drawn = float("-inf")

    def begin(self, title: str, steps: int | None, done: int) -> None:
        """Draws an empty bar."""
        self.close()
        self._count = _Count(title, steps, done, done, self._now())
        # Refreshed by hand, from the loop: rich's own thread would take time whenever it likes.
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[told]}", markup=False),
            console=self._console,
            auto_refresh=False,
            transient=True,
            expand=True,
        )
        self._task = self._progress.add_task(title, total=steps, completed=done, told="")
        self._progress.start()
        self._draw({})

    def advance(self, steps: int, logs: dict[str, float]) -> None:
        """Moves the bar; draws it when the last drawing is a quarter of a second old."""
        now = self._now()
        self._count.add(steps, now)
        if now - self._drawn >= _REDRAW_S:
            self._draw(logs)

    def end(self, logs: dict[str, float]) -> None:
        """Takes the bar away and leaves a line."""
        self.close()
        self.say(self._count.summary(logs))

    def say(self, text: str) -> None:
        """Shows a line, above the bar where there is one."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Takes the bar away; twice is fine."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _draw(self, logs: dict[str, float]) -> None:
        if self._progress is None or self._task is None:
            return
        self._drawn = self._now()
        count = self._count
        parts: list[str] = [count.progress]
        if "loss" in logs:
            parts.append(f"loss {logs['loss']:.4f}")
        if count.done > count.before:
            parts.append(count.rate)
            if count.steps:
                parts.append(_clock((count.steps - count.done) * count.seconds_a_step))
        self._progress.update(self._task, completed=count.done, told="  ".join(parts))
        self._progress.refresh()


@dataclass
class _Count:
    """How far something is.

    Attributes:
        title: what it is.
        steps: how many it has.
        done: how many are behind it.
        before: how many were, when it began.
        began: when that was, in seconds.
        now: when the last step was done: what comes after, a validation, does not slow the rate.
    """

    title: str = ""
    steps: int | None = None
    done: int = 0
    before: int = 0
    began: float = 0.0
    now: float = 0.0

    def add(self, steps: int, now: float) -> None:
        self.done, self.now = self.done + steps, now

    @property
    def progress(self) -> str:
        return f"{self.done:,}" + (f"/{self.steps:,}" if self.steps else "") + " steps"

    @property
    def seconds_a_step(self) -> float:
        return (self.now - self.began) / max(self.done - self.before, 1)

    @property
    def rate(self) -> str:
        return _rate((self.done - self.before) / max(self.now - self.began, 1e-9))

    def summary(self, logs: dict[str, float]) -> str:
        took = f"{self.done - self.before:,} steps in {self.now - self.began:.1f} s, {self.rate}"
        return f"{self.title}:{_listed(logs, ' ')}; {took}"


def _listed(logs: dict[str, float], before: str) -> str:
    return before + ", ".join(f"{name} {value:.4f}" for name, value in logs.items()) if logs else ""


def _rate(steps_per_s: float) -> str:
    return f"{steps_per_s:,.0f} steps/s" if steps_per_s >= 100 else f"{steps_per_s:.1f} steps/s"


def _clock(seconds: float) -> str:
    """Time left.

    Example:
        >>> _clock(75), _clock(4000)
        ('1:15', '1:06:40')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _in_notebook() -> bool:
    """Whether a notebook's kernel runs this: it is no terminal, though it may say so."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"
