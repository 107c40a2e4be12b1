"""Calls the callbacks of a fit, Keras's among them, at the moments that each knows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol, final

from dure.errors import SpecError
from dure.train.engine import Engine
from dure.train.history import History

__all__ = ["Hooks", "list_of"]

_METHODS = ("on_start", "on_step", "on_epoch", "on_end")
_BATCH_HOOKS = (
    "on_batch_begin",
    "on_batch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_test_batch_begin",
    "on_test_batch_end",
)


class _Trainer(Protocol):
    def stop(self) -> None: ...


@final
class Hooks:
    """The callbacks of one fit, in the order they were given.

    Args:
        callbacks: of Dure's form, or of Keras.
        trainer: passed to those of Dure's form.
        engine: holds the state.
        model: the user's own model.
        params: what Keras tells its callbacks: epochs, steps.

    Raises:
        SpecError: one is no callback, or a Keras callback that needs every batch.
    """

    def __init__(
        self,
        callbacks: Iterable[object],
        *,
        trainer: _Trainer,
        engine: Engine,
        model: Any,
        params: dict[str, Any],
    ) -> None:
        keras = sys.modules.get("keras")
        self._trainer = trainer
        self._each: list[_Own | _Keras] = []
        for callback in list_of(callbacks):
            if keras is not None and isinstance(callback, keras.callbacks.Callback):
                if not isinstance(model, keras.Model):
                    raise SpecError(
                        f"{_kind(callback)} is a callback for Keras models, and this trainer's model is a "
                        f"{type(model).__name__}. Use one of `dure.callbacks`."
                    )
                self._each.append(_Keras(callback, trainer, engine, model, params))
            else:
                self._each.append(_Own(callback, trainer))

    @property
    def want_steps(self) -> bool:
        """Whether any callback is to be called after each dispatch."""
        return any(hook.wants_steps for hook in self._each)

    def most(self, step: int) -> int:
        """How many steps the next dispatch may have, so that it ends where a callback wants to be called.

        Args:
            step: updates so far.
        """
        wanted = [hook.every_steps for hook in self._each if hook.every_steps]
        return min([every - step % every for every in wanted], default=sys.maxsize)

    def start(self) -> None:
        """Training is about to start."""
        for hook in self._each:
            hook.start()

    def begin_epoch(self, epoch: int) -> None:
        """An epoch is about to start."""
        for hook in self._each:
            hook.begin_epoch(epoch)

    def step(self, step: int, logs: dict[str, float]) -> None:
        """A dispatch is done."""
        for hook in self._each:
            hook.step(step, logs)

    def validate(self, logs: dict[str, float] | None) -> None:
        """Validation is about to start (None), or has these results."""
        for hook in self._each:
            hook.validate(logs)

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        """An epoch is done; callbacks may add to `logs`."""
        for hook in self._each:
            hook.end_epoch(epoch, logs)

    def end(self, history: History, *, failed: bool) -> None:
        """Training ended; every callback is told, also when one of them fails."""
        failure: BaseException | None = None
        for hook in self._each:
            try:
                hook.end(history, failed=failed)
            except BaseException as error:  # noqa: BLE001 - raised after the others were told
                failure = failure or error
        if failure is not None and not failed:
            raise failure


@final
class _Own:
    """A callback of Dure's form."""

    def __init__(self, callback: Any, trainer: _Trainer) -> None:
        if isinstance(callback, type) or not any(callable(getattr(callback, name, None)) for name in _METHODS):
            made = f"Make one: `{callback.__name__}(...)`. " if isinstance(callback, type) else ""
            raise SpecError(
                f"{_kind(callback)} is no callback: it has none of the methods {', '.join(_METHODS)}. {made}"
                "Give an object with one of them, one of `dure.callbacks`, or an epoch callback of Keras."
            )
        self._callback = callback
        self._trainer = trainer
        every = getattr(callback, "every_steps", None)
        self.wants_steps = callable(getattr(callback, "on_step", None))
        self.every_steps: int | None = every if isinstance(every, int) and every > 0 else None

    def _call(self, name: str, *arguments: object) -> None:
        method: Callable[..., object] | None = getattr(self._callback, name, None)
        if method is not None:
            method(self._trainer, *arguments)

    def start(self) -> None:
        self._call("on_start")

    def begin_epoch(self, epoch: int) -> None:
        """Has no method for it."""

    def step(self, step: int, logs: dict[str, float]) -> None:
        self._call("on_step", step, logs)

    def validate(self, logs: dict[str, float] | None) -> None:
        """Has no method for it."""

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        self._call("on_epoch", epoch, logs)

    def end(self, history: History, *, failed: bool) -> None:
        del failed
        self._call("on_end", history)


@final
class _Keras:
    """A callback of Keras: it sees the weights in the model, and what it changes there is taken over."""

    every_steps: int | None = None
    wants_steps = False

    def __init__(self, callback: Any, trainer: _Trainer, engine: Engine, model: Any, params: dict[str, Any]) -> None:
        _refuse_batch_hooks(callback)
        self._callback = callback
        self._trainer = trainer
        self._engine = engine
        self._model = model
        self._params = params
        self._is_blind = _needs_no_weights(callback)
        # Of several processes the first one writes; the others are told nothing, and bring the weights back with it.
        self._is_idle = engine.runner.group.rank > 0 and _writes(callback)

    def _call(self, name: str, *arguments: object) -> None:
        method = getattr(self._callback, name)
        # What Keras's base class has does nothing: the weights need not come back for it.
        if getattr(method, "_is_default", False):
            return
        if not self._is_blind:
            self._engine.state.absorb()
        if not self._is_idle:
            method(*arguments)
        if not self._is_blind:
            self._engine.state.refresh()
        if getattr(self._model, "stop_training", False):
            self._trainer.stop()

    def start(self) -> None:
        self._model.stop_training = False
        self._callback.set_model(self._model)
        self._callback.set_params(self._params)
        self._call("on_train_begin", {})

    def begin_epoch(self, epoch: int) -> None:
        self._call("on_epoch_begin", epoch, {})

    def step(self, step: int, logs: dict[str, float]) -> None:
        """Keras's callbacks have nothing for a dispatch."""

    def validate(self, logs: dict[str, float] | None) -> None:
        self._call("on_test_begin" if logs is None else "on_test_end", logs or {})

    def end_epoch(self, epoch: int, logs: dict[str, float]) -> None:
        self._call("on_epoch_end", epoch, logs)

    def end(self, history: History, *, failed: bool) -> None:
        if not failed:  # Keras does not call it then, and it may save weights
            last = {name: values[-1] for name, values in history.metrics.items() if values}
            self._call("on_train_end", last)


def _refuse_batch_hooks(callback: Any) -> None:
    name = type(callback).__name__
    instead = {
        "TensorBoard": "Use `dure.callbacks.TensorBoard(path)`.",
        "BackupAndRestore": "Use `dure.callbacks.Checkpoint(path)` and `trainer.restore(path)`.",
        "ProgbarLogger": "The trainer has a progress bar of its own: `verbose=1`.",
        "TerminateOnNaN": 'Stop from a callback with `on_step(trainer, step, logs)`, looking at `logs["loss"]`.',
    }
    is_keras_own = type(callback).__module__.partition(".")[0] == "keras"
    # These have a batch hook that does nothing as long as they save once an epoch.
    if is_keras_own and getattr(callback, "save_freq", None) == "epoch" and name != "BackupAndRestore":
        return
    found = [hook for hook in _BATCH_HOOKS if not getattr(getattr(callback, hook), "_is_default", False)]
    if found:
        advice = instead.get(name) if is_keras_own else None
        raise SpecError(
            f"the Keras callback {name} has {', '.join(f'`{hook}`' for hook in found)}, and there is no "
            f"moment after each batch: many steps run in one dispatch on the device. "
            + (advice or "Do the work in `on_epoch_end`, or in `on_step(trainer, step, logs)` of a callback of ")
            + ("" if advice else "Dure's form, which is called after each dispatch.")
        )


def _needs_no_weights(callback: Any) -> bool:
    """Whether a callback is one of Keras's that look at numbers only: for it no weights travel."""
    if type(callback).__module__.partition(".")[0] != "keras":
        return False
    name = type(callback).__name__
    watches = name == "EarlyStopping" and not callback.restore_best_weights
    return watches or name in ("CSVLogger", "History", "RemoteMonitor")


def _writes(callback: Any) -> bool:
    """Whether a callback is one of Keras's, or made of one, that writes files or sends numbers away."""
    kinds = sys.modules["keras"].callbacks
    return isinstance(callback, kinds.ModelCheckpoint | kinds.CSVLogger | kinds.RemoteMonitor)


def list_of(callbacks: Any) -> list[object]:
    """The callbacks in the order given, lists in lists laid flat; a single one needs no list around it."""
    if isinstance(callbacks, list | tuple | set | frozenset):
        return [found for part in callbacks for found in (list_of(part) if isinstance(part, list | tuple) else [part])]
    return [callbacks]


def _kind(callback: object) -> str:
    shown = repr(callback)
    return shown if len(shown) < 60 else type(callback).__name__
