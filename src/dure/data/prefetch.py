"""Makes elements ahead in a thread that ends when the work ends, however that comes about."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from dure.errors import DataError, DureError

__all__ = ["prefetched"]

T = TypeVar("T")

# How long leaving waits for an element that is being made. The thread ends after that element in any case.
JOIN_S = 5.0


def prefetched(start: Callable[[], Generator[T, None, None]], depth: int) -> Generator[T, None, None]:
    """Yields what a generator yields, up to `depth` elements made ahead in a thread.

    The thread starts with the first element that is asked for. It ends when the elements are exhausted, when
    making one fails, and when this generator is closed or dropped. It is the only one that touches the
    source, and closes it.

    Args:
        start: called in the thread; returns the generator to run ahead of.
        depth: the most elements that wait, at least 1.

    Raises:
        DataError: making element k failed (k in the message, the failure chained); then nothing more comes.
    """
    line: _Line[T] = _Line(depth)
    # The thread holds the line, never this generator: dropping the generator is what ends the thread.
    thread = threading.Thread(target=_produce, args=(start, line), name="dure-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = line.take()
            if item is None:
                return
            yield item[0]
    finally:
        line.stop()
        if thread is not threading.current_thread():  # the collector of garbage runs in any thread, this one too
            thread.join(JOIN_S)


class _Line(Generic[T]):
    """What waits between the thread and its consumer."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._items: deque[T] = deque()
        # Re-entrant: a collection of garbage inside one of these methods may call `stop`.
        self._changed = threading.Condition(threading.RLock())
        self._stopped = False
        self._ended = False
        self._failure: BaseException | None = None

    def put(self, item: T) -> bool:
        """Adds an item when there is room; False when nobody wants it any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._items) < self._depth)
            if self._stopped:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def end(self, failure: BaseException | None) -> None:
        """Says that nothing more comes, and why."""
        with self._changed:
            self._ended, self._failure = True, failure
            self._changed.notify_all()

    def take(self) -> tuple[T] | None:
        """Waits for the next item; None at the end. Items made before a failure come before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended)
            if self._items:
                item = self._items.popleft()
                self._changed.notify_all()
                return (item,)
            failure, self._failure = self._failure, None
        if failure is None:
            return None
        try:
            raise failure
        finally:
            del failure  # the error holds this frame: a circle would keep its elements until the next collection

    def stop(self) -> None:
        """Says that nothing more is wanted."""
        with self._changed:
            self._stopped = True
            self._items.clear()
            self._changed.notify_all()


def _produce(start: Callable[[], Generator[T, None, None]], line: _Line[T]) -> None:
    """The thread: runs ahead, hands over the end or the failure, closes the source."""
    made = 0
    failure: BaseException | None = None
    items: Generator[T, None, None] | None = None
    try:
        items = start()
        for item in items:
            if not line.put(item):
                break
            made += 1
    except DureError as error:  # it says where by itself
        failure = error
    except Exception as error:  # noqa: BLE001 - raised in the consumer
        failure = DataError(
            f"asked for element {made} (counted from 0) ahead of its use: {type(error).__name__}: {error}. "
            "Mend what makes it, or leave it out."
        )
        failure.__cause__ = error
    except BaseException as error:  # noqa: BLE001 - an interrupt must reach the consumer as it is
        failure = error
    finally:
        if items is not None:
            items.close()
        line.end(failure)
        del failure
