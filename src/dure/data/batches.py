"""Batches from whatever yields them: the trainer's reading of the loaders that users have."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, final

import numpy as np

from dure.data.dataset import Dataset, Position, whole_number
from dure.data.tree import Array, Tree, as_array, leaves, map_leaves, numbers_as_arrays, structure
from dure.errors import DataError, DureError, SpecError

__all__ = ["Batches", "BatchRows", "as_batches"]


# tf.data's `cardinality` of a data set without end.
TF_INFINITE = -1


class BatchRows(NamedTuple):
    """One batch: trees of NumPy arrays whose first axis is the same number of rows.

    Args:
        x: inputs [rows, ...], one array or a tuple, list or dict of them.
        y: targets [rows, ...], likewise; None when there are none.
        weight: float32 [rows]; None when every row counts 1.
    """

    x: Tree
    y: Tree
    weight: Array | None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(next(leaves(self.x)).shape[0])


def as_batches(data: object, *, steps: int | None = None) -> Batches:
    """Returns the batches in what a user has, to be passed over once an epoch.

    Args:
        data: an iterable of batches (`Dataset`, tf.data, Grain, a torch `DataLoader`, a list, a Keras
            `PyDataset`, a generator), or a function that returns one. A batch is x, (x, y) or (x, y, weight);
            a dict is x. Arrays may be NumPy's, JAX's, TensorFlow's or torch's.
        steps: batches a pass; then the next pass goes on where this one ended, which endless data need.

    Raises:
        SpecError: `data` is an array, a dict of arrays, text, or nothing that yields batches; steps below 1.
        DataError: the data are known to be endless, and `steps` is not given.

    Example:
        >>> batches = as_batches([([1.0, 2.0], [0, 1]), ([3.0], [1])])
        >>> [batch.rows for batch in batches]
        [2, 1]
    """
    return Batches(data, steps=steps)


@final
class Batches:
    """What `as_batches` returns: each iteration is one epoch's pass of `BatchRows`.

    Args:
        data: as `as_batches` takes it.
        steps: as `as_batches` takes it.
    """

    def __init__(self, data: object, *, steps: int | None = None) -> None:
        self._kind = type(data).__name__
        self._start = _starter(data)
        self._data = data
        self._steps = None if steps is None else whole_number("as_batches", "steps", steps, 1)
        # An iterator is its own iterator: what it gave is gone, and nobody can start it again.
        self._once = isinstance(data, Iterator)
        # Only of these is it known that they give fresh arrays: all others may overwrite a buffer that they
        # gave.
        self._fresh = isinstance(data, Dataset) or hasattr(data, "as_numpy_iterator")
        self._form: str | None = None
        self._passes = 0
        self._live: Iterator[Any] | None = None
        if steps is None and _is_endless(data):
            raise DataError(
                f"asked for passes over a {self._kind} that never ends. Give the number of batches an epoch "
                "(`steps_per_epoch=` of `fit`), or leave out its `repeat()`."
            )

    @property
    def size(self) -> int | None:
        """Batches a pass, when that is known before one: `steps`, or the data's own length."""
        return self._steps if self._steps is not None else _length(self._data)

    def __iter__(self) -> Iterator[BatchRows]:
        return self.iterate()

    def iterate(self, *, epoch: int | None = None, skip: int = 0) -> Generator[BatchRows, None, None]:
        """Makes one pass.

        Args:
            epoch: number of the pass, from 0, which decides a `Dataset`'s order; None is the pass after the
                last one.
            skip: batches of the pass to leave out, to go on in its middle after a restart. They are read and
                dropped.

        Raises:
            DataError: there is no batch, a batch cannot be read or is not like the first, or an iterator is
                used up.
        """
        used = self._once and self._passes > 0
        epoch = self._passes if epoch is None else epoch
        self._passes = epoch + 1
        source = self._open(epoch)
        try:
            for number in itertools.count() if self._steps is None else range(self._steps):
                try:
                    element = next(source)
                except StopIteration:
                    if number > 0 and self._steps is None:
                        return
                    raise self._ended(number, used=used) from None
                except DureError:
                    raise
                except Exception as error:
                    raise _unread(self._kind, number, error) from error
                if number >= skip:
                    yield self._read(element, number)
        finally:
            if source is not self._live and not self._once:
                _close(source)

    def _open(self, epoch: int) -> Iterator[Any]:
        if self._steps is not None:
            if self._live is None:
                self._live = self._on_and_on(epoch * self._steps)
            return self._live
        if isinstance(self._data, Dataset):
            return self._data.iterate(Position(epoch, 0))
        try:
            return iter(self._start())
        except DureError:
            raise
        except Exception as error:
            raise _unread(self._kind, 0, error) from error

    def _on_and_on(self, given: int) -> Generator[Any, None, None]:
        """One stream for all passes, started again where the data end and can start again."""
        if isinstance(self._data, Dataset):
            size = self._data.size
            whole = int(size) if size is not None and 0 < size < math.inf else None
            place = Position(given // whole, given % whole) if whole else Position(0, given)
            while True:
                empty = True
                for element in self._data.iterate(place):
                    empty = False
                    yield element
                if empty:
                    return
                place = Position(place.epoch + 1, 0)
        while True:
            empty = True
            for element in self._start():
                empty = False
                yield element
            if empty or self._once:
                return

    def _ended(self, number: int, *, used: bool) -> DataError:
        if used and number == 0:
            return DataError(
                f"asked for another pass over a {self._kind}: its first pass used it up. Pass the function "
                "that makes it, without calling it, or something that starts anew, such as a list or a "
                "Dataset."
            )
        if number == 0:
            return DataError(
                f"asked to read batches from a {self._kind}: it gives none (an iterator that was read before "
                "gives none either). Give at least one batch."
            )
        return DataError(
            f"asked for {self._steps} batches a pass from a {self._kind}: it ended after {number}. Ask for "
            "fewer, or pass something that starts anew, such as the function that makes it."
        )

    def _read(self, element: Any, number: int) -> BatchRows:
        """Returns an element as a batch, its lengths checked, and its form against the first batch's."""
        x, y, weight = _parts(element, number)
        take = as_array if self._fresh else _owned
        try:
            batch = BatchRows(map_leaves(take, x), map_leaves(take, y), None if weight is None else take(weight))
        except DataError as error:
            raise DataError(f"asked to read batch {number} (counted from 0): {error.message}") from error
        _check_rows(batch, number)
        form = structure(tuple(batch), lambda leaf: f"{leaf.dtype}[{', '.join('*' * leaf.ndim)}]")
        if self._form is None:
            self._form = form
        elif form != self._form:
            raise DataError(
                f"asked to read batch {number} (counted from 0) of a {self._kind}, which has the form (x, y, "
                f"weight) = {form}: the first batch had {self._form}. Make all batches alike; only lengths "
                "may differ."
            )
        return batch._replace(weight=None if batch.weight is None else batch.weight.astype(np.float32))


def _parts(element: Any, number: int) -> tuple[Tree, Tree, Any]:
    """Takes x, (x, y) or (x, y, weight) apart."""
    element = numbers_as_arrays(element)
    if not isinstance(element, tuple | list):
        return element, None, None
    if not 1 <= len(element) <= 3:
        raise DataError(
            f"asked to read batch {number} (counted from 0), a {type(element).__name__} of {len(element)} "
            "parts: a batch is x, (x, y) or (x, y, weight). Put several inputs into a tuple or a dict of "
            "their own, as x."
        )
    x, y, weight = (*element, None, None)[:3]
    return x, y, weight


def _check_rows(batch: BatchRows, number: int) -> None:
    """Refuses a batch whose parts do not have one number of rows, at least 1."""
    shapes = {
        name: [leaf.shape for leaf in leaves(part)]
        for name, part in zip(("x", "y", "weight"), batch, strict=True)
        if part is not None
    }
    told = "; ".join(f"{name} {' '.join(str(list(shape)) for shape in each)}" for name, each in shapes.items())
    counts = {shape[0] if shape else None for each in shapes.values() for shape in each}
    if not shapes.get("x") or len(counts) != 1 or None in counts or 0 in counts:
        raise DataError(
            f"asked to read batch {number} (counted from 0), which has the shapes {told or 'of nothing'}: "
            "every part needs the same first axis [rows, ...], of at least one row. Give batches, not "
            "single examples (a Dataset makes them with `batch`)."
        )
    if batch.weight is not None and batch.weight.ndim != 1:
        raise DataError(
            f"asked to read batch {number} (counted from 0), whose weight has the shape "
            f"{list(batch.weight.shape)}: a weight is one number a row, [rows]. Give that."
        )


def _owned(value: object) -> Array:
    """Returns a leaf as an array that nobody else can write to."""
    array = as_array(value)
    return array if array.flags.owndata and array is not value else array.copy()


def _starter(data: Any) -> Callable[[], Iterable[Any]]:
    """Returns what starts a pass over the data."""
    several = isinstance(data, tuple) and any(hasattr(part, "shape") for part in data)
    if several or isinstance(data, Mapping | str | bytes) or (hasattr(data, "shape") and hasattr(data, "dtype")):
        raise SpecError(
            f"asked for the batches of a {type(data).__name__}: that is data, not something that yields "
            "batches. Pass arrays as x and y, or make batches of them: Dataset.from_arrays(x, y).batch(32)."
        )
    if callable(getattr(data, "as_numpy_iterator", None)):
        return data.as_numpy_iterator  # type: ignore[no-any-return]
    told_of_epochs = callable(getattr(data, "on_epoch_begin", None)) or callable(getattr(data, "on_epoch_end", None))
    if told_of_epochs or (hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Iterable)):
        return lambda: _by_index(data)
    if isinstance(data, Iterable):
        return lambda: data
    if callable(data):
        return data  # type: ignore[no-any-return]
    raise SpecError(
        f"asked for the batches of a {type(data).__name__}: it is no iterable and no function. Pass arrays, "
        "a Dataset, a loader (tf.data, Grain, torch), a list of batches, or a function that returns one of "
        "these."
    )


def _by_index(data: Any) -> Iterator[Any]:
    """A pass over numbered batches, as Keras's `PyDataset` has; it is told when an epoch starts and ends."""
    getattr(data, "on_epoch_begin", lambda: None)()
    yield from data if isinstance(data, Iterable) else (data[index] for index in range(len(data)))
    getattr(data, "on_epoch_end", lambda: None)()


def _is_endless(data: Any) -> bool:
    if isinstance(data, Dataset):
        return data.size == math.inf
    if callable(getattr(data, "cardinality", None)):
        return int(data.cardinality()) == TF_INFINITE
    if hasattr(data, "num_batches") and data.num_batches is None:  # an endless PyDataset
        return True
    return _length(data) == sys.maxsize  # what Grain says of its endless data sets


def _length(data: object) -> int | None:
    try:
        return len(data)  # type: ignore[arg-type]
    except OverflowError:
        return sys.maxsize
    except (TypeError, NotImplementedError):
        return None


def _close(source: Iterator[Any]) -> None:
    close = getattr(source, "close", None)
    if callable(close):
        close()


def _unread(kind: str, number: int, error: Exception) -> DataError:
    return DataError(
        f"asked to read batch {number} (counted from 0) of a {kind}: {type(error).__name__}: {error}. "
        "Mend what makes it, or leave it out."
    )
