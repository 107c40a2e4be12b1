"""Makes items ahead of their use, in a thread that ends whenever the user of the items does."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeVar

__all__ = ["ahead"]

T = TypeVar("T")

# How often a wait looks whether somebody asked to stop.
_LOOK_S = 0.05
# How long leaving waits for an item in the making. The thread ends after that item in any case.
_JOIN_S = 2.0


class _End(NamedTuple):
    failure: BaseException | None


def ahead(make: Callable[[], Iterator[T]], *, stopped: Callable[[], bool] = lambda: False) -> Generator[T, None, None]:
    """Yields what `make()` yields, one item waiting while another is being made.

    So at most three items are alive: in use, waiting, in the making. An exception of the maker is raised
    here, after the items made before it. Close the generator to end the thread early.

    Args:
        make: called in the thread.
        stopped: looked at while waiting; True ends the items.

    Example:
        >>> list(ahead(lambda: iter([1, 2, 3])))
        [1, 2, 3]
    """
    items: queue.Queue[T | _End] = queue.Queue(maxsize=1)
    unwanted = threading.Event()
    thread = threading.Thread(target=_run, args=(make, items, unwanted), name="dure-feed", daemon=True)
    thread.start()
    try:
        while True:
            try:
                item = items.get(timeout=_LOOK_S)
            except queue.Empty:
                if stopped():
                    return
                continue
            if not isinstance(item, _End):
                yield item
                del item  # the item must not live on here while the next one is waited for
            elif item.failure is None:
                return
            else:
                try:
                    raise item.failure
                finally:
                    del item  # the failure's traceback holds this frame: no circle
    finally:
        unwanted.set()
        thread.join(_JOIN_S)


def _run(make: Callable[[], Iterator[T]], items: queue.Queue[T | _End], unwanted: threading.Event) -> None:
    failure: BaseException | None = None
    try:
        for item in make():
            if not _put(items, item, unwanted):
                break
            del item
    except BaseException as error:  # noqa: BLE001 - raised where the items are used
        failure = error
    _put(items, _End(failure), unwanted)
    del failure


def _put(items: queue.Queue[T | _End], item: T | _End, unwanted: threading.Event) -> bool:
    while not unwanted.is_set():
        try:
            items.put(item, timeout=_LOOK_S)
        except queue.Full:
            continue
        return True
    return False
