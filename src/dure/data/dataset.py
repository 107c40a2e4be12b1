"""`Dataset`: a stream of elements, composed lazily, passed over as often as wanted."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, final

from dure.data.stages import (
    Batched,
    Gathered,
    Iterated,
    Mapped,
    Prefetched,
    Repeated,
    Rows,
    Sharded,
    Shuffled,
    Stage,
    Taken,
)
from dure.data.tree import Tree, as_array, leaves, map_leaves, numbers_as_arrays
from dure.errors import DataError, SpecError

__all__ = ["Dataset", "Pass", "Position", "whole_number"]


class Position(NamedTuple):
    """Where a pass stands; two whole numbers, so that any checkpoint can hold it.

    Args:
        epoch: number of the pass, from 0.
        elements: how many elements of it have been given.
    """

    epoch: int
    elements: int


@final
class Pass:
    """One pass over a `Dataset`: an iterator that knows its position and can be closed.

    Args:
        stage: the last stage of the data set.
        position: where to start; the elements before it are made and dropped.
    """

    def __init__(self, stage: Stage, position: Position) -> None:
        self._elements = stage.start(position.epoch)
        self._epoch = position.epoch
        self._given = 0
        self._skip = position.elements

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        while self._given < self._skip:
            next(self._elements)
            self._given += 1
        element = next(self._elements)
        self._given += 1
        return element

    def state(self) -> Position:
        """Returns the position after the last element given: `Dataset.iterate` goes on from there."""
        return Position(self._epoch, max(self._given, self._skip))

    def close(self) -> None:
        """Ends the pass and its threads; twice is fine."""
        self._elements.close()

    def __enter__(self) -> Pass:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@final
class Dataset:
    """A stream of elements, composed lazily: nothing is read before a pass asks for it.

    An element is an array, or a tuple, list or dict of them. Each method returns a new data set; each `for`
    is a pass of its own. The first pass is epoch 0, the next epoch 1: a shuffle gives each another order, and
    the same seed gives the same orders in every process.

    Made by `Dataset.from_arrays` or `Dataset.from_iterable`.

    Example:
        >>> import numpy as np
        >>> x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
        >>> data = Dataset.from_arrays(x, y).map(lambda row: (row[0] / 10, row[1])).batch(2)
        >>> [y.tolist() for x, y in data]
        [[0, 1], [2, 3], [4]]
        >>> len(data)
        3
    """

    def __init__(self, stage: Stage, arrays: Tree = None) -> None:
        # With `arrays`, the stage gives numbers of their rows: shuffles and shards then move numbers, not
        # rows.
        self._stage = stage
        self._arrays = arrays
        self._epochs = itertools.count()

    @staticmethod
    def from_arrays(x: Tree, y: Tree = None, weight: Tree = None) -> Dataset:
        """Returns the rows of arrays as elements: x, (x, y) or (x, y, weight).

        Args:
            x: arrays [rows, ...], or a tuple, list or dict of them.
            y: targets [rows, ...], likewise.
            weight: [rows]; how much each row counts. Needs y.

        Raises:
            DataError: the lengths differ, or something is no array.
            SpecError: weight without y.

        Example:
            >>> list(Dataset.from_arrays([10, 20], [0, 1]).shuffle(seed=3))[0]
            (np.int64(20), np.int64(1))
        """
        if weight is not None and y is None:
            raise SpecError(
                f"asked for Dataset.from_arrays with weight={weight!r:.60} and no y: a weight is the third part "
                "of (x, y, weight). Give y too."
            )
        named = {"x": x, "y": y, "weight": weight}
        given = {
            name: map_leaves(as_array, numbers_as_arrays(part)) for name, part in named.items() if part is not None
        }
        lengths = {name: [_rows(name, leaf) for leaf in leaves(part)] for name, part in given.items()}
        found = {length for each in lengths.values() for length in each}
        if len(found) != 1:
            raise DataError(
                f"asked for Dataset.from_arrays of arrays with these numbers of rows: "
                f"{', '.join(f'{name} {each}' for name, each in lengths.items())}. They must be one number."
            )
        arrays = tuple(given.values()) if y is not None else given["x"]
        return Dataset(Rows(found.pop()), arrays)

    @staticmethod
    def from_iterable(source: object) -> Dataset:
        """Returns the elements of an iterable, read anew in each pass.

        Args:
            source: a function that returns an iterable (a generator function, for example), or an iterable
                that can be passed over again (a list, a loader). Elements that wait in a shuffle or a
                prefetch must not share a buffer that the source overwrites; `batch` copies each as it comes.

        Raises:
            SpecError: an iterator, which one pass would use up.

        Example:
            >>> def numbers():
            ...     yield from (1, 2, 3)
            >>> list(Dataset.from_iterable(numbers).repeat(2))
            [1, 2, 3, 1, 2, 3]
        """
        if callable(source) and not isinstance(source, Iterable):
            return Dataset(Iterated(source))
        if not isinstance(source, Iterable) and not hasattr(source, "__getitem__"):
            raise SpecError(
                f"asked for Dataset.from_iterable of a {type(source).__name__}, which is no iterable and no "
                "function. Pass a function that returns an iterable, or an iterable such as a list or a "
                "loader."
            )
        if isinstance(source, Iterator):
            raise SpecError(
                f"asked for Dataset.from_iterable of a {type(source).__name__}, which one pass uses up. Pass "
                "the function that makes it, without calling it, or an iterable that starts anew, such as a "
                "list."
            )
        return Dataset(Iterated(lambda: source, source))

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        """Returns `function` of each element; a tuple comes as one argument.

        Args:
            function: element to element. What it raises becomes a `DataError` with the element's number.
        """
        return Dataset(Mapped(self._whole(), function))

    def shuffle(self, buffer_size: int | None = None, *, seed: int = 0) -> Dataset:
        """Returns the elements in an order that `seed` and the epoch decide.

        Args:
            buffer_size: each element is drawn from the next that many; None draws from the whole, which is
                held in memory (of arrays, only the numbers of the rows).
            seed: any whole number from 0.

        Raises:
            SpecError: a wrong number, or the whole of an endless data set.
        """
        window = None if buffer_size is None else whole_number("Dataset.shuffle", "buffer_size", buffer_size, 1)
        if window is None and self._stage.size == math.inf:
            raise SpecError(
                f"asked to shuffle the whole of {self!r}, which has no whole. "
                "Give buffer_size=, or call shuffle before repeat."
            )
        return Dataset(Shuffled(self._stage, window, whole_number("Dataset.shuffle", "seed", seed, 0)), self._arrays)

    def batch(self, rows: int, *, drop_remainder: bool = False) -> Dataset:
        """Returns elements stacked along a new first axis.

        Args:
            rows: elements a batch.
            drop_remainder: leave out a last batch that is shorter.
        """
        rows = whole_number("Dataset.batch", "rows", rows, 1)
        if self._arrays is not None:
            return Dataset(Gathered(self._stage, self._arrays, rows, drop_remainder))
        return Dataset(Batched(self._stage, rows, drop_remainder))

    def shard(self, index: int, count: int) -> Dataset:
        """Returns each `count`-th element, from the `index`-th on; together the shards hold each once.

        Args:
            index: which shard, 0 to count - 1.
            count: how many shards there are.
        """
        count = whole_number("Dataset.shard", "count", count, 1)
        index = whole_number("Dataset.shard", "index", index, 0)
        if index >= count:
            raise SpecError(f"asked for shard index {index} of {count}: there are 0 to {count - 1}. Use one of them.")
        return Dataset(Sharded(self._stage, index, count), self._arrays)

    def take(self, count: int) -> Dataset:
        """Returns the first `count` elements, or all if there are fewer."""
        return Dataset(Taken(self._stage, whole_number("Dataset.take", "count", count, 0)), self._arrays)

    def repeat(self, count: int | None = None) -> Dataset:
        """Returns the data set `count` times over, each time as another epoch; without a number, for ever."""
        times = None if count is None else whole_number("Dataset.repeat", "count", count, 0)
        return Dataset(Repeated(self._stage, times), self._arrays)

    def prefetch(self, count: int = 2) -> Dataset:
        """Returns the same elements, up to `count` of them made ahead in a thread.

        The thread lives as long as a pass: it ends with the last element, with a failure, and when the pass
        is closed or dropped.
        """
        return Dataset(Prefetched(self._whole(), whole_number("Dataset.prefetch", "count", count, 1)))

    def iterate(self, position: Position | tuple[int, int] | None = None) -> Pass:
        """Starts a pass, which can be asked for its position and closed.

        Args:
            position: what `Pass.state` returned: goes on after that element, which means making and dropping
                those before it. Without it, the next epoch from its start.

        Example:
            >>> data = Dataset.from_arrays([1, 2, 3, 4, 5]).shuffle(seed=1)
            >>> first = data.iterate()
            >>> seen = [int(next(first)), int(next(first))]
            >>> rest = [int(each) for each in data.iterate(first.state())]
            >>> sorted(seen + rest)
            [1, 2, 3, 4, 5]
        """
        if position is None:
            return Pass(self._whole(), Position(next(self._epochs), 0))
        epoch, elements = position
        start = Position(
            whole_number("Dataset.iterate", "epoch", epoch, 0),
            whole_number("Dataset.iterate", "elements", elements, 0),
        )
        self._epochs = itertools.count(start.epoch + 1)
        return Pass(self._whole(), start)

    def __iter__(self) -> Pass:
        return self.iterate()

    @property
    def size(self) -> float | None:
        """Elements a pass: a whole number, `math.inf` when it never ends, None when only a pass can tell."""
        return self._stage.size

    def __len__(self) -> int:
        size = self._stage.size
        if size is None or math.isinf(size):
            # The one class that Python's own `list` and `len` understand.
            raise TypeError(
                "asked for the length of a data set that "
                f"{'never ends' if size else 'only a pass can measure'}. Look at `size`, or count in a loop."
            )
        return int(size)

    def __bool__(self) -> bool:
        # `if data:` asks whether there is one; a length it may not have.
        return True

    def __repr__(self) -> str:
        size = self._stage.size
        told = "length unknown" if size is None else "endless" if math.isinf(size) else f"{int(size):,} elements"
        return f"Dataset({told})"

    def _whole(self) -> Stage:
        """The stage that gives elements, not numbers of rows."""
        arrays = self._arrays
        if arrays is None:
            return self._stage
        return Mapped(self._stage, lambda row: map_leaves(operator.itemgetter(row), arrays))


def _rows(name: str, leaf: Any) -> int:
    if leaf.ndim == 0:
        raise DataError(
            f"asked for Dataset.from_arrays with {name}={leaf!r}, which has no rows. Give an array [rows, ...]."
        )
    return int(leaf.shape[0])


def whole_number(asked: str, name: str, value: object, least: int) -> int:
    """Returns an argument as a whole number, refusing all else; True is no number.

    Args:
        asked: what was called, for the error.
        name: name of the argument.
        value: what was given.
        least: the smallest value allowed.

    Raises:
        SpecError: not a whole number, or below `least`.

    Example:
        >>> whole_number("batch", "rows", 32, 1)
        32
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise SpecError(f"asked for {asked} with {name}={value!r}: it must be a whole number of at least {least}.")
    return number
