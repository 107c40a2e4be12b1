"""What a `fit` leaves behind: the numbers of every epoch, and how long it took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, final

from dure.errors import CheckpointError, SpecError, hint

__all__ = ["History", "Point"]


class Point(NamedTuple):
    """One point of the curve of the loss.

    Attributes:
        step: updates of the weights so far, those of earlier `fit`s included.
        seconds: since the `fit` began.
        loss: mean over the epoch so far, as the progress bar shows it.
    """

    step: int
    seconds: float
    loss: float


@final
class History:
    """The record of one `fit`.

    `history["loss"]` is a list with a value an epoch; so are the metrics and, with validation data,
    `"val_loss"` and the others under `val_`.

    Attributes:
        metrics: name to list of values, one an epoch.
        epochs: numbers of the epochs, counted over all `fit`s of a trainer, from 0.
        epoch_seconds: seconds that each epoch trained, without validation and callbacks.
        seconds: of the whole `fit`.
        steps: updates of the weights in this `fit`.
        first_step_s: seconds from the call until the first step was done, compilation included; NaN without
            a step.
        curve: a `Point` a dispatch.
        interrupted: Ctrl-C ended it.
        staleness: how many updates were how many updates late, `{updates: count}`; empty under a synchronous
            strategy.

    Example:
        >>> history = History()
        >>> history.add_epoch(0, {"loss": 0.5, "accuracy": 0.8}, seconds=2.0)
        >>> history["loss"], history.epochs
        ([0.5], [0])
    """

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = {}
        self.epochs: list[int] = []
        self.epoch_seconds: list[float] = []
        self.seconds = 0.0
        self.steps = 0
        self.first_step_s = float("nan")
        self.curve: list[Point] = []
        self.interrupted = False
        self.staleness: dict[int, int] = {}
        self._warm_steps = 0
        self._warm_seconds = 0.0

    def __getitem__(self, name: str) -> list[float]:
        if name not in self.metrics:
            raise SpecError(f"this history has no `{name}`. {hint(name, self.metrics)} Ask for one of these.")
        return self.metrics[name]

    def __contains__(self, name: object) -> bool:
        return name in self.metrics

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def __repr__(self) -> str:
        last = ", ".join(f"{name}={values[-1]:.4g}" for name, values in self.metrics.items() if values)
        ended = ", interrupted" if self.interrupted else ""
        return f"History({len(self.epochs)} epochs, {self.steps} steps in {self.seconds:.3g} s{ended}; {last})"

    @property
    def steps_per_s(self) -> float:
        """Steps a second of training, without dispatches that compile; NaN without a step."""
        if self._warm_steps:
            return self._warm_steps / self._warm_seconds
        return self.steps / self.seconds if self.steps and self.seconds else float("nan")

    def add_dispatch(self, point: Point, count: int, seconds: float, *, compiled: bool) -> None:
        """Takes note of a dispatch.

        Args:
            point: of the curve, at its end.
            count: its steps.
            seconds: since the one before it ended, so with what was waited for data.
            compiled: whether it may have compiled something.
        """
        if not self.curve:
            self.first_step_s = point.seconds
        self.curve.append(point)
        self.steps += count
        if not compiled:
            self._warm_steps += count
            self._warm_seconds += seconds

    def add_epoch(self, epoch: int, logs: dict[str, float], seconds: float) -> None:
        """Takes note of an epoch that ended.

        Args:
            epoch: its number.
            logs: name to value.
            seconds: that it trained.
        """
        for name, value in logs.items():
            # A name that first appears in a later epoch has NaN for those before.
            self.metrics.setdefault(name, [float("nan")] * len(self.epochs)).append(float(value))
        for name in self.metrics.keys() - logs.keys():
            self.metrics[name].append(float("nan"))
        self.epochs.append(epoch)
        self.epoch_seconds.append(seconds)

    def amend_epoch(self, logs: dict[str, float]) -> None:
        """Takes over what callbacks added to the numbers of the epoch that was noted last."""
        for name, value in logs.items():
            self.metrics.setdefault(name, [float("nan")] * len(self.epochs))[-1] = float(value)

    def past(self) -> dict[str, Any]:
        """The epochs so far as plain values, for a checkpoint."""
        kept = self.to_dict()
        return {name: kept[name] for name in ("metrics", "epochs", "epoch_seconds", "steps")}

    @classmethod
    def of_past(cls, values: Mapping[str, Any]) -> History:
        """The history that goes on after the epochs of `past`.

        Raises:
            CheckpointError, ValueError, TypeError, KeyError: the values are not those of `past`.
        """
        found = cls()
        found.epochs = [int(epoch) for epoch in values["epochs"]]
        found.epoch_seconds = [float(seconds) for seconds in values["epoch_seconds"]]
        found.steps = int(values["steps"])
        found.metrics = {
            str(name): [float("nan") if value is None else float(value) for value in each]
            for name, each in values["metrics"].items()
        }
        if any(len(each) != len(found.epochs) for each in (found.epoch_seconds, *found.metrics.values())):
            raise CheckpointError(f"{len(found.epochs)} epochs, and numbers of more or fewer")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain values that JSON can carry; what is not finite becomes None."""
        return {
            "metrics": {name: [_finite(value) for value in values] for name, values in self.metrics.items()},
            "epochs": list(self.epochs),
            "epoch_seconds": list(self.epoch_seconds),
            "seconds": self.seconds,
            "steps": self.steps,
            "steps_per_s": _finite(self.steps_per_s),
            "first_step_s": _finite(self.first_step_s),
            "curve": [[step, seconds, _finite(loss)] for step, seconds, loss in self.curve],
            "interrupted": self.interrupted,
            "staleness": {str(late): count for late, count in self.staleness.items()},
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
