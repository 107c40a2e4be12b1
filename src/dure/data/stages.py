"""The stages that a `Dataset` is composed of: each makes one pass of elements from the stage before it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeAlias, final

import numpy as np

from dure.data.prefetch import prefetched
from dure.data.tree import Array, Tree, flat, map_leaves
from dure.errors import DataError, DureError

__all__ = [
    "Batched",
    "Gathered",
    "Iterated",
    "Mapped",
    "Prefetched",
    "Repeated",
    "Rows",
    "Sharded",
    "Shuffled",
    "Stage",
    "Taken",
]

# Elements a pass: a whole number, `math.inf` for an endless stage, None when only a pass can tell.
Size: TypeAlias = float | None
Elements: TypeAlias = Generator[Any, None, None]

# How many random draws a windowed shuffle makes at once: one call a draw would cost more than the element.
DRAWS = 1_024


class Stage(Protocol):
    """One step of the way from a source to the consumer; it holds no position, so passes are independent."""

    @property
    def size(self) -> Size:
        """Elements a pass."""
        ...

    def start(self, epoch: int) -> Elements:
        """Returns a new pass. The same epoch gives the same elements in the same order."""
        ...


@final
@dataclass(frozen=True)
class Rows:
    """The numbers of the rows of arrays, 0 to count - 1; arrays are indexed where their rows are needed."""

    count: int

    @property
    def size(self) -> Size:  # noqa: D102 - see Stage, as everywhere below
        return self.count

    def start(self, epoch: int) -> Elements:  # noqa: ARG002, D102
        yield from range(self.count)


@final
@dataclass(frozen=True)
class Iterated:
    """The elements of an iterable that `factory` makes anew for each pass."""

    factory: Callable[[], Any]
    measured: object = None

    @property
    def size(self) -> Size:  # noqa: D102
        # Asked each time: a list may have grown.
        return _length(self.measured)

    def start(self, epoch: int) -> Elements:  # noqa: ARG002, D102
        number = 0
        try:
            iterator = iter(self.factory())
            while True:
                try:
                    element = next(iterator)
                except StopIteration:
                    return
                yield element
                number += 1
        except DureError:
            raise
        except Exception as error:
            raise _failed(number, "read", error) from error


@final
@dataclass(frozen=True)
class Mapped:
    """`function` of each element."""

    source: Stage
    function: Callable[[Any], Any]

    @property
    def size(self) -> Size:  # noqa: D102
        return self.source.size

    def start(self, epoch: int) -> Elements:  # noqa: D102
        with closing(self.source.start(epoch)) as elements:
            for number, element in enumerate(elements):
                try:
                    made = self.function(element)
                except DureError:
                    raise
                except Exception as error:
                    raise _failed(number, "map", error) from error
                yield made


@final
@dataclass(frozen=True)
class Shuffled:
    """All elements in another order, by `seed` and epoch; a window draws each from the next that many."""

    source: Stage
    window: int | None
    seed: int

    @property
    def size(self) -> Size:  # noqa: D102
        return self.source.size

    def start(self, epoch: int) -> Elements:  # noqa: D102
        random = np.random.default_rng([self.seed, epoch])
        with closing(self.source.start(epoch)) as elements:
            if self.window is None:
                held = list(elements)
                for index in random.permutation(len(held)).tolist():
                    yield held[index]
                return
            yield from _windowed(elements, self.window, random)


def _windowed(elements: Elements, window: int, random: np.random.Generator) -> Elements:
    """Fills a window, then gives a random one of it for each that comes, then the rest in random order."""
    held: list[Any] = []
    draws: list[int] = []
    for element in elements:
        if len(held) < window:
            held.append(element)
            continue
        if not draws:
            draws = random.integers(window, size=DRAWS).tolist()
        index = draws.pop()
        yield held[index]
        held[index] = element
    for index in random.permutation(len(held)).tolist():
        yield held[index]


@final
@dataclass(frozen=True)
class Sharded:
    """Each `count`-th element, from the `index`-th on."""

    source: Stage
    index: int
    count: int

    @property
    def size(self) -> Size:  # noqa: D102
        return _divided(self.source.size, self.count, -self.index)

    def start(self, epoch: int) -> Elements:  # noqa: D102
        with closing(self.source.start(epoch)) as elements:
            for number, element in enumerate(elements):
                if number % self.count == self.index:
                    yield element


@final
@dataclass(frozen=True)
class Taken:
    """The first `count` elements."""

    source: Stage
    count: int

    @property
    def size(self) -> Size:  # noqa: D102
        size = self.source.size
        return None if size is None and self.count else min(size or 0, self.count)

    def start(self, epoch: int) -> Elements:  # noqa: D102
        if self.count == 0:
            return
        with closing(self.source.start(epoch)) as elements:
            # Stops with the last element taken: asking for one more could wait for ever.
            for number, element in enumerate(elements, 1):
                yield element
                if number == self.count:
                    return


@final
@dataclass(frozen=True)
class Repeated:
    """The source again and again, each time as another epoch of it; `count` None is for ever."""

    source: Stage
    count: int | None

    @property
    def size(self) -> Size:  # noqa: D102
        size = self.source.size
        if self.count is None:
            return 0 if size == 0 else math.inf
        return None if size is None else size * self.count if self.count else 0

    def start(self, epoch: int) -> Elements:  # noqa: D102
        # Two passes over a source repeated n times see its epochs 0 .. 2n - 1, as 2n passes over the source
        # do. An endless one is left far behind by its next pass.
        base = epoch * self.count if self.count is not None else epoch << 32
        turn = 0
        while self.count is None or turn < self.count:
            empty = True
            with closing(self.source.start(base + turn)) as elements:
                for element in elements:
                    empty = False
                    yield element
            if empty:  # for ever nothing would hang
                return
            turn += 1


@final
@dataclass(frozen=True)
class Batched:
    """Elements stacked `rows` at a time along a new first axis."""

    source: Stage
    rows: int
    drop_remainder: bool

    @property
    def size(self) -> Size:  # noqa: D102
        return _divided(self.source.size, self.rows, 1 - self.rows if self.drop_remainder else 0)

    def start(self, epoch: int) -> Elements:  # noqa: D102
        with closing(self.source.start(epoch)) as elements:
            stack: _Stack | None = None
            for number, element in enumerate(elements):
                if stack is None:
                    stack = _Stack(element, number, self.rows)
                else:
                    stack.add(element, number)
                if stack.filled == self.rows:
                    yield stack.taken()
                    stack = None
            if stack is not None and not self.drop_remainder:
                yield stack.taken()


class _Stack:
    """Rows written into their batch as they come: one copy each, and a source may use its buffer again."""

    def __init__(self, element: Tree, number: int, rows: int) -> None:
        row, self._form = flat(element)
        self._first = number
        self._element = element
        self._places = [np.empty((rows, *leaf.shape), leaf.dtype) for leaf in row]
        self.filled = 0
        self._write(row)

    def add(self, element: Tree, number: int) -> None:
        row, form = flat(element)
        if form != self._form:
            raise DataError(
                f"asked to batch element {number} (counted from 0), which has the structure {form}: element "
                f"{self._first} of the same batch has {self._form}. Make all elements alike."
            )
        for leaf, place in zip(row, self._places, strict=True):
            if leaf.shape != place.shape[1:] or leaf.dtype != place.dtype:
                raise DataError(
                    f"asked to batch element {number} (counted from 0), which holds {leaf.dtype} "
                    f"{list(leaf.shape)}: element {self._first} of the same batch holds {place.dtype} "
                    f"{list(place.shape[1:])} there. Make all elements alike, for example by padding them to "
                    "one length in `map`."
                )
        self._write(row)

    def _write(self, row: list[Array]) -> None:
        for leaf, place in zip(row, self._places, strict=True):
            place[self.filled] = leaf
        self.filled += 1

    def taken(self) -> Tree:
        """The rows so far, in the structure of the first."""
        places = iter(self._places)
        return map_leaves(lambda _: next(places)[: self.filled], self._element)


@final
@dataclass(frozen=True, eq=False)
class Gathered:
    """Rows of arrays, `rows` at a time, from the numbers of the rows: one indexing a batch."""

    source: Stage
    arrays: Tree
    rows: int
    drop_remainder: bool

    @property
    def size(self) -> Size:  # noqa: D102
        return Batched(self.source, self.rows, self.drop_remainder).size

    def start(self, epoch: int) -> Elements:  # noqa: D102
        with closing(self.source.start(epoch)) as elements:
            while numbers := list(islice(elements, self.rows)):
                if self.drop_remainder and len(numbers) < self.rows:
                    return
                at = np.asarray(numbers, np.intp)
                yield map_leaves(operator.itemgetter(at), self.arrays)


@final
@dataclass(frozen=True)
class Prefetched:
    """The same elements, made ahead in a thread."""

    source: Stage
    depth: int

    @property
    def size(self) -> Size:  # noqa: D102
        return self.source.size

    def start(self, epoch: int) -> Elements:  # noqa: D102
        return prefetched(lambda: self.source.start(epoch), self.depth)


def _length(source: object) -> int | None:
    try:
        return len(source)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        return None


def _divided(size: Size, by: int, offset: int) -> Size:
    """Returns ceil((size + offset) / by), at least 0."""
    if size is None or math.isinf(size):
        return size
    return max(0, -(-(int(size) + offset) // by))


def _failed(number: int, verb: str, error: Exception) -> DataError:
    return DataError(
        f"asked to {verb} element {number} (counted from 0): {type(error).__name__}: {error}. "
        "Mend what makes it, or leave it out."
    )
