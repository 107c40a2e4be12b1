"""From what a user gives to the steps of an epoch: read, checked against the model, then sent or streamed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, final

import jax
import numpy as np

from dure.data.batches import as_batches
from dure.data.dataset import Dataset
from dure.errors import SpecError
from dure.launch.board import Phase
from dure.models.pure import Batch
from dure.train.engine import Engine
from dure.train.epochs import Plan, Position
from dure.train.feeds import Loader, Resident, Source, Streamed
from dure.train.inputs import Rows, check_finite, check_labels, is_arrays, named_leaves, rows_of, struct_of

__all__ = ["Cut", "Desk", "read", "read_pair"]


class Cut(NamedTuple):
    """How data are cut into steps, and looked at before.

    Attributes:
        batch_size: rows of a step; only arrays are cut.
        shuffle: each epoch in another order; only arrays.
        steps: batches of an epoch, for those that never end; not for arrays.
        check_finite: refuse NaN and infinite values.
    """

    batch_size: int = 32
    shuffle: bool = False
    steps: int | None = None
    check_finite: bool = False


class Given(NamedTuple):
    """Data that were read.

    Attributes:
        rows: arrays, or None.
        batches: whatever yields batches, or None.
    """

    rows: Rows | None
    batches: Any

    def steps(self, cut: Cut) -> int | None:
        """Steps of an epoch, where that is known without making a pass."""
        if self.rows is not None:
            return Plan(self.rows.num_rows, cut.batch_size, cut.shuffle).steps
        return as_batches(self.batches, steps=cut.steps).size

    def told(self, name: str = "") -> dict[str, str]:
        """What several processes compare: shapes and dtypes, and a sum over some rows.

        Args:
            name: stands before the names of the arrays.
        """
        if self.rows is None:
            return {f"{name}data": type(self.batches).__name__}
        places = np.linspace(0, self.rows.num_rows - 1, min(self.rows.num_rows, 64)).astype(np.int64)
        return {
            f"{name}{leaf_name}": f"{leaf.dtype} {list(leaf.shape)}, whose rows sum to "
            f"{zlib.crc32(np.ascontiguousarray(leaf[places]).tobytes()):08x}"
            for leaf_name, leaf in named_leaves(self.rows.batch)
        }


def read(x: Any, y: Any = None, weight: Any = None) -> Given:
    """Tells arrays from what yields batches, and reads the arrays.

    Raises:
        DataError: the arrays do not fit together.
        SpecError: targets or weights beside something that yields batches.
    """
    if y is not None or weight is not None:
        if not is_arrays(x):
            raise SpecError(
                f"x is a {type(x).__name__}, which is no array, and "
                f"{'y' if y is not None else 'sample_weight'} is given beside it. Give arrays, or batches "
                f"that hold their own: `(x, y)` or `(x, y, weight)`."
            )
        return Given(rows_of(x, y, weight), None)
    return Given(rows_of(x), None) if is_arrays(x) else Given(None, x)


def read_pair(data: Any) -> Given:
    """Reads validation data: `(x, y)`, `(x, y, weight)`, or what yields batches.

    Raises:
        DataError: the arrays do not fit together.
        SpecError: it is arrays without targets, or a tuple of another length.
    """
    if isinstance(data, Given):
        return data
    if isinstance(data, tuple | list) and data and is_arrays(data[0]) and not _is_list_of_batches(data):
        if len(data) not in (2, 3):
            raise SpecError(
                f"validation_data has {len(data)} parts, and it is `(x, y)` or `(x, y, weight)`. Several "
                f"inputs are one part: `((left, right), y)`."
            )
        return Given(rows_of(*data), None)
    if is_arrays(data):
        raise SpecError(
            f"validation_data is a {type(data).__name__}, and it is `(x, y)`, `(x, y, weight)` or batches. "
            f"Write `validation_data=(x, y)`."
        )
    return Given(None, data)


def _is_list_of_batches(data: Any) -> bool:
    return isinstance(data, list) and all(isinstance(part, tuple | list | dict) for part in data)


@final
@dataclass
class Desk:
    """Checks data against the model and lays them out; one a call of the trainer.

    Attributes:
        engine: the model, and where the data go.
        room_bytes: how many more bytes may stay on each device.
        stopped: looked at while waiting for data.
        loaders: what it has made of data that yield batches; closed at the end of a `with`.
    """

    engine: Engine
    room_bytes: int
    stopped: Callable[[], bool] = lambda: False
    loaders: list[Loader] = field(default_factory=list)

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for loader in self.loaders:
            loader.close()

    def check(self, given: Given, cut: Cut, position: Position) -> Callable[[], Source]:
        """Checks data, and returns what lays them out: so that all are checked before any is sent.

        Args:
            given: the data.
            cut: how they are cut.
            position: where their first pass begins.

        Raises:
            DataError: the data hold what cannot be trained on.
            SpecError: the model does not take them, or an option is not for such data.
        """
        if given.rows is not None:
            return self._check_rows(given.rows, cut)
        return self._check_batches(given.batches, cut, position)

    def check_inputs(self, given: Given, cut: Cut) -> Source:
        """Checks data of which only the inputs count, and lays them out in order.

        Raises:
            DataError: the data cannot be read.
            SpecError: the model does not take them.
        """
        if given.rows is None:
            loader = Loader(self.engine.runner, as_batches(given.batches), only_inputs=True, stopped=self.stopped)
            self.loaders.append(loader)
            self.engine.check_predict(struct_of(self._first(loader, Position())).x)
            return loader
        rows = given.rows
        plan = Plan(rows.num_rows, cut.batch_size, shuffle=False)
        self.engine.check_predict(rows.struct(min(plan.batch_size, plan.rows)).x)
        return self._lay(rows, plan)

    def _check_rows(self, rows: Rows, cut: Cut) -> Callable[[], Source]:
        if cut.steps is not None:
            raise SpecError(
                f"steps_per_epoch={cut.steps} is for batches that never end, and x is arrays of "
                f"{rows.num_rows} rows: an epoch takes each row once. Leave it out, or give fewer rows."
            )
        if cut.check_finite:
            check_finite(rows)
        plan = Plan(rows.num_rows, cut.batch_size, cut.shuffle)
        outline = self.engine.prepare(rows.struct(min(plan.batch_size, plan.rows)))
        check_labels(rows, outline.classes)

        return lambda: self._lay(rows, plan)

    def _lay(self, rows: Rows, plan: Plan) -> Source:
        if rows.size_bytes > self.room_bytes:
            return Streamed(self.engine.runner, rows, plan, stopped=self.stopped)
        self.room_bytes -= rows.size_bytes
        return Resident(self.engine.runner, rows, plan)

    def _check_batches(self, data: Any, cut: Cut, position: Position) -> Callable[[], Source]:
        def check(batch: Batch, number: int) -> None:
            rows = Rows(batch, len(jax.tree.leaves(batch.x)[0]))
            where = f"batch {number} (counted from 0): "
            if cut.check_finite:
                check_finite(rows, where)
            check_labels(rows, self.engine.prepare(struct_of(batch)).classes, where)

        loader = Loader(
            self.engine.runner,
            as_batches(data, steps=cut.steps),
            follows_epochs=isinstance(data, Dataset),
            check=check,
            stopped=self.stopped,
        )
        self.loaders.append(loader)
        check(self._first(loader, position), position.step)
        return lambda: loader

    def _first(self, loader: Loader, position: Position) -> Batch:
        """The first batch of a pass; who watches is told that it is waited for."""
        watch, step = self.engine.runner.watch, self.engine.state.step
        watch.enter(Phase.DATA, step)
        batch = loader.first(position)
        watch.enter(Phase.USER, step)
        return batch
