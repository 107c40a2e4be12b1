"""`Trainer`: trains a model under a strategy; the same calls whatever the strategy."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self, final

import jax
import numpy as np

from dure.errors import BusyError, ClosedError, SpecError, near
from dure.launch.start import start_of
from dure.models import adapt
from dure.models.pure import PyTree, TrainState
from dure.strategy.base import Strategy
from dure.strategy.group import check_alike
from dure.train import saving
from dure.train.agree import Agreement
from dure.train.arrange import Cut, Desk, Given, read, read_pair
from dure.train.callbacks import Checkpoint
from dure.train.engine import Dispatch, Engine
from dure.train.epochs import Position
from dure.train.feeds import Source
from dure.train.fit import Fit, Job
from dure.train.history import History
from dure.train.hooks import Hooks, list_of
from dure.train.inputs import divide, whole_number
from dure.train.interrupt import Interrupts
from dure.train.progress import Reporter, reporter
from dure.train.record import Fits, Record

__all__ = ["Trainer"]

_NUMBERS = itertools.count()
"""Tells the trainers of a process apart; a process that is started again makes the same ones in the same order."""


@final
class Trainer:
    """Trains a model under a strategy.

    Args:
        model: a `dure.Model`, or a compiled Keras 3 model on the JAX backend.
        strategy: where to train, as `dure.SingleDevice()` or `dure.Mirrored(num_devices=2)`.
        seed: of a `dure.Model`'s weights, of the order of rows and of dropout; a Keras model has weights
            already.
        resident_bytes: how many bytes of data may stay on each device; None takes a quarter of its memory, 0
            streams everything.

    Raises:
        SpecError: the model or the strategy is none.

    Example:
        >>> import dure, jax.numpy as jnp, numpy as np, optax
        >>> model = dure.Model(
        ...     init=lambda key: {"w": jnp.zeros(3)},
        ...     apply=lambda params, x, *, key, training: x @ params["w"],
        ...     loss=lambda outputs, targets: (outputs - targets) ** 2,
        ...     optimizer=optax.sgd(0.1),
        ... )
        >>> x = np.eye(3, dtype=np.float32)
        >>> with dure.SingleDevice() as strategy, dure.Trainer(model, strategy) as trainer:
        ...     history = trainer.fit(x, [1.0, 2.0, 3.0] @ x, epochs=60, batch_size=1, verbose=0)
        ...     outputs = trainer.predict(x)
        >>> outputs.round(3).tolist()
        [1.0, 2.0, 3.0]
    """

    def __init__(self, model: object, strategy: Strategy, *, seed: int = 0, resident_bytes: int | None = None) -> None:
        _check_strategy(strategy)
        self._user_model = model
        self._model = adapt.pure(model)
        self._strategy = strategy
        self.is_chief = strategy.is_chief
        """Whether this process, the first of its strategy, reports and writes files."""
        self._engine = Engine(self._model, strategy.open(self._model), whole_number("seed", seed, least=0))
        self._resident_bytes = (
            self._engine.runner.resident_bytes
            if resident_bytes is None
            else whole_number("resident_bytes", resident_bytes, least=0)
        )
        self._is_closed = False
        self._is_fitting = False
        number, start = next(_NUMBERS), start_of()
        self._run = saving.Run(f"{start.run} trainer {number}" if start.run else None, Fits(is_kept=bool(start.run)))
        self.history = History()
        """The record of the `fit` that runs, or ran last; after a restart with what it had given before."""
        self._is_new = start.number > 0
        """Whether its first `fit` looks for what an earlier start of this process has left."""

    # --- training -----------------------------------------------------------------------------------------

    def fit(  # noqa: PLR0913 - these are the names that Keras has taught its users
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int = 1,
        batch_size: int = 32,
        validation_data: Any = None,
        validation_split: float = 0.0,
        validation_batch_size: int | None = None,
        sample_weight: Any = None,
        shuffle: bool = True,
        seed: int | None = None,
        callbacks: Iterable[object] = (),
        verbose: int | str = "auto",
        steps_per_execution: int | None = None,
        steps_per_epoch: int | None = None,
        check_finite: bool = False,
    ) -> History:
        """Trains for some epochs; called again, it goes on from where it was.

        An epoch that was left in its middle, by Ctrl-C or by restoring a checkpoint made there, is ended
        first and does not count among `epochs`. Ctrl-C ends training after the dispatch that runs, with the
        weights so far; a second one raises `KeyboardInterrupt`. A Keras model has its weights back whenever
        `fit` ends.

        Args:
            x: inputs `[rows, ...]`: an array, or a dict, tuple or list of them; or batches: a
                `dure.data.Dataset`, a loader (tf.data, Grain, torch), a list of `(x, y)` pairs, or a
                function that returns one of these.
            y: targets `[rows, ...]`, likewise; batches hold their own.
            epochs: how many.
            batch_size: rows of a step, over all replicas. The last step of an epoch has what is left.
            validation_data: `(x, y)`, `(x, y, weight)` or batches, evaluated after each epoch.
            validation_split: share of the arrays' last rows to validate with instead.
            validation_batch_size: rows of a validation step; None takes `batch_size`.
            sample_weight: float `[rows]`; how much each row counts.
            shuffle: each epoch takes arrays in another order, which depends on the seed and the epoch alone.
            seed: starts the order of rows and the model's random draws anew; without it they go on.
            callbacks: of `dure.callbacks`, objects of that form, or Keras's epoch callbacks.
            verbose: `"auto"`, 0 (nothing), 1 (a bar), 2 (a line an epoch).
            steps_per_execution: steps of a dispatch; None finds the number that takes a tenth of a second.
            steps_per_epoch: batches of an epoch, for those that never end; not for arrays.
            check_finite: refuse NaN and infinite values in the data.

        Returns:
            The record of this fit.

        Raises:
            SpecError: an option is out of range, or the model does not take such data.
            DataError: the data do not fit together, or hold what cannot be trained on.
        """
        began = time.perf_counter()
        epochs = whole_number("epochs", epochs, least=0)
        seed = _optional("seed", seed, least=0)
        steps_per_execution = _optional("steps_per_execution", steps_per_execution)
        cut = _cut(batch_size, shuffle, steps_per_epoch, check_finite)
        watched_rows = _optional("validation_batch_size", validation_batch_size) or cut.batch_size
        watched_cut = cut._replace(batch_size=watched_rows, shuffle=False, steps=None)
        shown = reporter(verbose, is_chief=self._strategy.is_chief)
        engine = self._engine
        with self._fitting(), Interrupts() as interrupts, self._desk(interrupts) as desk:
            record, position = self._begin(callbacks, epochs, seed, shown)
            if record.is_over:
                return record.history
            given, watched = _split(read(x, y, sample_weight), validation_data, validation_split)
            passes = record.last - position.epoch
            _check_passes(given, passes, cut, "x")
            _check_passes(watched, passes, cut._replace(steps=None), "validation_data")
            options = {"epochs": passes, "cut": str(cut), "position": str(position), "steps": steps_per_execution}
            _check_everywhere(engine, "fit", given, watched, options)
            lay = desk.check(given, cut, position)
            lay_watched = None if watched is None else desk.check(watched, watched_cut, Position())
            hooks = Hooks(
                callbacks,
                trainer=self,
                engine=engine,
                model=self._user_model,
                params={"epochs": epochs, "steps": given.steps(cut), "verbose": 0},
            )
            source = lay()
            _check_same_data(position, source)
            engine.state.refresh()
            if seed is not None and not record.is_resumed:
                engine.go_to(position)
                engine.state.reseed(seed)
            job = Job(source, lay_watched and lay_watched(), record, steps_per_execution, began)
            return Fit(job, engine, hooks, shown, interrupts).run()

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int = 32,
        sample_weight: Any = None,
        verbose: int | str = "auto",
    ) -> dict[str, float]:
        """Measures the loss and the metrics; each row counts once, also in a short last batch.

        Args:
            x: as for `fit`.
            y: as for `fit`.
            batch_size: rows of a step, over all replicas.
            sample_weight: float `[rows]`; how much each row counts.
            verbose: `"auto"` (a bar on a terminal, else nothing), 0 (nothing), 1 or 2.

        Returns:
            Name to value, `"loss"` first.

        Raises:
            SpecError: an option is out of range, or the model does not take such data.
            DataError: the data do not fit together.
        """
        cut = Cut(whole_number("batch_size", batch_size))
        shown = reporter(verbose, is_chief=self._strategy.is_chief, once=True)
        self._check_open()
        with self._desk() as desk, contextlib.closing(shown):
            given = read(x, y, sample_weight)
            _check_everywhere(self._engine, "evaluate", given, None, {"cut": str(cut)})
            source = desk.check(given, cut, Position())()
            self._engine.state.refresh()
            shown.begin("evaluation", source.steps, 0)

            def tell(dispatch: Dispatch) -> None:
                shown.advance(dispatch.steps, {})

            results = self._engine.measure(source, Agreement(self._engine.runner.group), tell)
            assert results is not None  # nothing gives up
            shown.end(results)
        return results

    def predict(self, x: Any, *, batch_size: int = 32) -> PyTree:
        """Computes the outputs for all rows, in order.

        Args:
            x: inputs as for `fit`; of batches that hold targets too, only the inputs count.
            batch_size: rows of a step, over all replicas.

        Returns:
            NumPy arrays `[rows, ...]`, one or a tree of them, as the model gives them.

        Raises:
            SpecError: an option is out of range, or the model does not take such data.
            DataError: the data do not fit together.
        """
        cut = Cut(whole_number("batch_size", batch_size))
        self._check_open()
        with self._desk() as desk:
            given = read(x)
            _check_everywhere(self._engine, "predict", given, None, {"cut": str(cut)})
            source = desk.check_inputs(given, cut)
            self._engine.state.refresh()
            return self._engine.predict(source)

    def stop(self) -> None:
        """Ends the `fit` that runs, after the dispatch or epoch that is being reported: for callbacks."""
        self._engine.stop_requested = True

    # --- state --------------------------------------------------------------------------------------------

    @property
    def state(self) -> TrainState:
        """Everything that training changes, as NumPy arrays in the single device's shapes; can be set."""
        self._check_open()
        return self._engine.state.gather()

    @state.setter
    def state(self, state: TrainState) -> None:
        self._check_open()
        _check_alike(state, self._engine.state.form())
        self._engine.state.load(state)
        self._engine.state.absorb()

    @property
    def params(self) -> PyTree:
        """The trained weights, as NumPy arrays."""
        return self.state.params

    @property
    def step(self) -> int:
        """Updates of the weights so far."""
        return self._engine.state.step

    @property
    def epoch(self) -> int:
        """Epochs that are finished, over all `fit`s."""
        return self._engine.position.epoch

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint: weights, optimizer, random streams, and the position in the epoch.

        An older checkpoint at the path is replaced in one step. When this returns, the checkpoint is on the
        disk.

        Args:
            path: a directory, made by this call.

        Raises:
            CheckpointError: the path holds something else, or the disk refuses.
        """
        self._check_open()
        saving.save(self._engine, path, strategy=repr(self._strategy), run=self._run)

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes back to a checkpoint, whichever strategy and number of devices it was made under.

        Every file is compared with its digest. A Keras model gets the weights too.

        Args:
            path: what was given to `save`, or a directory of the callback `Checkpoint`: then the newest that
                is undamaged, with a warning for each that is not.

        Raises:
            CheckpointError: there is none, it is damaged, or it is of another model.
        """
        self._check_open()
        if self._is_fitting:
            raise BusyError(f"restore({str(path)!r}) was called while `fit` runs. Call it before or after.")
        saving.restore(self._engine, path)
        self._engine.state.absorb()

    def close(self) -> None:
        """Lets go of the arrays on the devices; twice is fine. The strategy stays open."""
        if not self._is_closed:
            self._is_closed = True
            self._engine.state.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Trainer({type(self._user_model).__name__}, {self._strategy!r})"

    # --- small parts --------------------------------------------------------------------------------------

    def _begin(self, callbacks: Any, epochs: int, seed: int | None, shown: Reporter) -> tuple[Record, Position]:
        """The record of a fit and where it begins: where `dure run` has started this process again, in its middle."""
        folder = next((callback.path for callback in list_of(callbacks) if isinstance(callback, Checkpoint)), None)
        engine = self._engine
        if self._is_new and folder is not None:
            self._is_new = False
            found = saving.resume(engine, folder, self._run)
            if found is not None:
                engine.state.absorb()
                shown.say(f"started again: goes on after step {engine.state.step:,}, from {found}")
        position = engine.position if seed is None else engine.position.seeded(seed)
        record = self._run.fits.begin(position, epochs=epochs)
        self.history = record.history
        return record, engine.position if record.is_resumed else position

    def _desk(self, interrupts: Interrupts | None = None) -> Desk:
        if interrupts is None:
            return Desk(self._engine, self._resident_bytes)
        return Desk(self._engine, self._resident_bytes, lambda: interrupts.requested)

    @contextlib.contextmanager
    def _fitting(self) -> Iterator[None]:
        self._check_open()
        if self._is_fitting:
            raise BusyError(f"{self!r} is in a `fit` already. Wait for its end, or make another Trainer.")
        self._is_fitting = True
        self._engine.stop_requested = False
        try:
            yield
        finally:
            self._is_fitting = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError(f"{self!r} is closed. Make a new one.")


def _split(given: Given, validation_data: Any, share: Any) -> tuple[Given, Given | None]:
    """The data to train on and those to validate with."""
    if share == 0.0 and not isinstance(share, bool):
        return given, None if validation_data is None else read_pair(validation_data)
    if validation_data is not None:
        raise SpecError(f"validation_data and validation_split={share!r} are both given. Give one of them.")
    if given.rows is None:
        raise SpecError(
            f"validation_split={share!r} takes the last rows of arrays, and x is a "
            f"{type(given.batches).__name__}. Give `validation_data=`."
        )
    train, watched = divide(given.rows, share)
    return Given(train, None), Given(watched, None)


def _check_everywhere(engine: Engine, call: str, given: Given, watched: Given | None, options: dict[str, Any]) -> None:
    """Refuses a call that one of several processes makes with other data or options."""
    if engine.runner.group.size > 1:
        validation = {} if watched is None else watched.told("validation ")
        check_alike(engine.runner.group, call, {**options, **given.told(), **validation})


def _check_passes(given: Given | None, passes: int, cut: Cut, name: str) -> None:
    if given is not None and isinstance(given.batches, Iterator) and passes > 1 and cut.steps is None:
        raise SpecError(
            f"{name} is a {type(given.batches).__name__}, which can be passed over once, and {passes} passes "
            f"are asked for. Give the function that makes it, without calling it, or something that starts "
            f"anew: a list, a Dataset."
        )


def _check_same_data(position: Position, source: Source) -> None:
    if position.step and position.plan != source.plan:
        raise SpecError(
            f"the epoch that is to be ended stands at step {position.step} of {position.plan}, and these "
            f"data are {source.plan}. Give the same data, batch_size and shuffle, or start an epoch anew "
            f"with `seed=`."
        )


def _check_alike(given: Any, current: TrainState) -> None:
    same = jax.tree.structure(given) == jax.tree.structure(current)  # type: ignore[operator]
    if not same:
        raise SpecError(
            f"state is {type(given).__name__} of another structure than this trainer's state. Set what "
            "`trainer.state` of the same model and optimizer returned."
        )
    for (path, leaf), known in zip(jax.tree.leaves_with_path(given), jax.tree.leaves(current), strict=True):
        found = (np.shape(leaf), np.asarray(leaf).dtype)
        if found != (known.shape, known.dtype):
            raise SpecError(
                f"state{jax.tree_util.keystr(path)} is {found[1]} {list(found[0])}, and this trainer's is "
                f"{known.dtype} {list(known.shape)}. Set what `trainer.state` of the same model returned."
            )


def _check_strategy(strategy: object) -> None:
    written = {
        "single": "dure.SingleDevice()",
        "singledevice": "dure.SingleDevice()",
        "mirrored": "dure.Mirrored(num_devices=2)",
    }
    if isinstance(strategy, str):
        name = strategy.partition(":")[0].lower().replace("_", "")
        guess = written.get(name) or written.get((near(name, written) or ["mirrored"])[0])
        raise SpecError(
            f"strategy is the text {strategy!r}, and it is an object that opens devices. Write "
            f"`Trainer(model, {guess})`."
        )
    if isinstance(strategy, type):
        raise SpecError(f"strategy is the class {strategy.__name__}. Make one: `{strategy.__name__}()`.")
    if not all(callable(getattr(strategy, name, None)) for name in ("open", "close")):
        raise SpecError(
            f"strategy is a {type(strategy).__name__}, which is none. Write `Trainer(model, "
            f"dure.SingleDevice())` or `Trainer(model, dure.Mirrored(num_devices=2))`."
        )


def _cut(batch_size: object, shuffle: object, steps: object, check_finite: object) -> Cut:
    return Cut(
        whole_number("batch_size", batch_size),
        _flag("shuffle", shuffle),
        _optional("steps_per_epoch", steps),
        _flag("check_finite", check_finite),
    )


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise SpecError(f"{name} is {value!r} ({type(value).__name__}); it is True or False.")
    return bool(value)


def _optional(name: str, value: object, *, least: int = 1) -> int | None:
    return None if value is None else whole_number(name, value, least=least)
