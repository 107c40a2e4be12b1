"""`dure.compare`: trains one model under several strategies, each in a fresh process, and says what pays."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from dure.advise import ask, child, table
from dure.advise.bench import Plan, measure
from dure.advise.record import Record, Settings
from dure.advise.reference import data_reference, model_reference
from dure.advise.report import fragment, page, write
from dure.advise.verdict import Judgement, Verdict, judge
from dure.devices.inventory import devices
from dure.errors import SpecError

__all__ = ["STRATEGIES", "Comparison", "compare", "plan"]

STRATEGIES = ("single", "mirrored:1", "mirrored:2", "multi-worker:2")
"""What is compared unless the caller says otherwise."""


@final
class Comparison:
    """What `compare` measured, in words, as a table, and as a page.

    Args:
        record: Everything that was measured.
    """

    def __init__(self, record: Record) -> None:
        self.record = record

    @cached_property
    def judged(self) -> Verdict:
        """The verdict with its numbers: the best strategy, and of the others ratio, interval and causes."""
        return judge(self.record)

    @property
    def verdict(self) -> str:
        """What pays, by how much, why, and what to do, in plain words."""
        return self.judged.text

    @property
    def table(self) -> str:
        """One line a strategy, as text of at most 80 columns."""
        return table.text(self.record)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report: one HTML file that needs no network.

        Args:
            path: Where; a file that is there is replaced.

        Returns:
            The path written.

        Raises:
            SpecError: The folder is not there or cannot be written.
        """
        return write(Path(path), page(self.record))

    def to_dict(self) -> dict[str, Any]:
        """The record, the table's rows and the verdict as plain values that JSON can carry."""
        judged = self.judged
        return {
            **self.record.to_dict(),
            "table": [row._asdict() for row in table.rows(self.record)],
            "verdict": {
                "best": judged.best,
                "text": judged.text,
                "judgements": [_plain(j) for j in judged.judgements],
            },
        }

    def __str__(self) -> str:
        return f"{self.table}\n\n{self.verdict}"

    def _repr_html_(self) -> str:
        return fragment(self.record)


def compare(
    model: object = None,
    data: object = "fashion_mnist",
    *,
    strategies: str | Iterable[str] = STRATEGIES,
    epochs: int = 10,
    batch_size: int = 25,
    repeat: int = 2,
    sync_every: str | int = "step",
    seed: int = 0,
    timeout_s: float = 1800.0,
    predict: bool = True,
    progress: bool = True,
) -> Comparison:
    """Trains a model under several strategies, each in a fresh process, and says what pays and why.

    This process's own devices are not touched: it works from a notebook, and as often as one likes. A script that
    calls it keeps the call under `if __name__ == "__main__":`, because the fresh processes import the script.

    Args:
        model: `"module:function"`, or the function itself, of no arguments, that returns a compiled Keras
            model or a `dure.Model`; or a compiled Keras model. None is the seed network: 784-128-10 with
            dropout.
        data: The name of a data set (images become float32 from 0 to 1, in the shape that the model takes);
            `(x, y)` or `((x, y), (x_test, y_test))` with arrays `[rows, ...]`; or a function, or
            `"module:function"`, that returns such arrays.
        strategies: What to compare: `single`, `mirrored:N` (N devices of one process) and `multi-worker:N` (N
            processes of this machine). N devices that are not there are rehearsed on virtual CPU devices, and the
            table says so.
        epochs: Passes over the training rows.
        batch_size: Rows of one global batch.
        repeat: How many times each strategy trains; every other time in turned-around order. With two, one whose
            first run took twice as long as that of `single` is not run again: repeats scatter far less.
        sync_every: How often the replicas meet: `"step"`, a number of steps, or `"epoch"`.
        seed: Seed of weights, shuffle and dropout, the same for all.
        timeout_s: What one training run may take, seconds; then it is ended, and named in the result.
        predict: Whether to predict the times before the runs, from one device and this machine's calibration.
        progress: Whether to write a line to stderr when a run begins and ends.

    Returns:
        The result: `.table`, `.verdict`, `.save(path)`, `.to_dict()`.

    Raises:
        SpecError: Something is wrong as written, or cannot reach a fresh process.
        DataError: The data are missing or damaged.
        KeyboardInterrupt: Ctrl-C, after the processes were ended and the table so far was written to stderr.

    Example:
        >>> result = dure.compare("networks:make_model", "digits", epochs=5)  # doctest: +SKIP
        >>> print(result.table)  # doctest: +SKIP
        >>> compare(strategies=["single", "mirored:2"])
        Traceback (most recent call last):
        ...
        dure.errors.SpecError: strategy `mirored:2` is not known. Did you mean `mirrored`? ...
    """
    options = Settings("", "", (), batch_size, epochs, repeat, sync_every, seed, timeout_s, predict)
    say = _print if progress else _keep_silent
    asked = plan(model, data, strategies, options, command=_call(model, data, strategies, options))
    comparison = Comparison(measure(asked, say))
    if comparison.record.interrupted:
        say(comparison.table)
        raise KeyboardInterrupt
    return comparison


def plan(model: object, data: object, strategies: str | Iterable[str], options: Settings, *, command: str) -> Plan:
    """Checks what was asked and makes it ready to travel.

    Args:
        model: As in `compare`.
        data: As in `compare`.
        strategies: As in `compare`.
        options: The numbers that were asked for.
        command: What measures the same again.

    Raises:
        SpecError: Something is wrong as written, or cannot reach a fresh process.
    """
    if os.environ.get(child.INSIDE):
        raise SpecError(
            "`dure.compare` was called by a process that itself trains for a comparison: it imports the script for "
            'its model. Put the call under `if __name__ == "__main__":`'
        )
    checked = ask.checked(replace(options, strategies=ask.strategy_names(strategies)))
    ask.check_devices(checked.strategies, devices())
    folder = tempfile.TemporaryDirectory(prefix="dure-compare-")  # made with mode 0700
    try:
        model_plain, model_words = model_reference(model, Path(folder.name))
        data_plain, data_words = data_reference(data, Path(folder.name))
    except BaseException:
        folder.cleanup()
        raise
    request = {"model": model_plain, "data": data_plain, "folder": folder.name, "seed": checked.seed}
    return Plan(replace(checked, model=model_words, data=data_words), request, folder, command)


def _plain(judgement: Judgement) -> dict[str, Any]:
    """A judgement as plain values; an unknown ratio is None, because JSON has no NaN."""
    parts = judgement.split
    return {
        "strategy": judgement.strategy,
        "outcome": judgement.outcome.value,
        **{name: _number(getattr(judgement, name)) for name in ("ratio", "low", "high")},
        "step_s": parts and parts.step_s,
        "single_step_s": parts and parts.single_s,
        "ideal_step_s": parts and parts.ideal_s,
        "causes_s": {part.cause.value: part.seconds for part in parts.parts} if parts else None,
        "main_cause": judgement.main and judgement.main.cause.value,
        "text": judgement.text,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _call(model: object, data: object, strategies: str | Iterable[str], options: Settings) -> str:
    """The call in one line; objects by their names or types."""
    shown = ["None" if model is None else _shown(model), _shown(data), f"strategies={_shown(strategies)}"]
    names = ("epochs", "batch_size", "repeat", "sync_every", "seed")
    shown += [f"{name}={getattr(options, name)!r}" for name in names]
    shown += [] if options.predicts else ["predict=False"]
    return f"dure.compare({', '.join(shown)})"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return repr(list(value))
    return str(getattr(value, "__qualname__", type(value).__name__))


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _keep_silent(line: str) -> None:
    """Takes lines that nobody wants to see."""
