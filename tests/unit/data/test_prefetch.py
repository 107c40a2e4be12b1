from __future__ import annotations

import gc
import threading
from collections.abc import Generator

import pytest

from dure.data.prefetch import prefetched
from dure.errors import DataError, SpecError


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dure-prefetch"]


def count(upto: int, fail_at: int | None = None, closed: list[str] | None = None) -> Generator[int, None, None]:
    try:
        for number in range(upto):
            if number == fail_at:
                raise ValueError("no such picture")
            yield number
    finally:
        if closed is not None:
            closed.append(threading.current_thread().name)


@pytest.mark.parametrize("depth", [1, 2, 100])
def test_all_elements_come_in_order_and_the_thread_ends(depth: int):
    closed: list[str] = []
    assert list(prefetched(lambda: count(50, closed=closed), depth)) == list(range(50))
    assert closed == ["dure-prefetch"]
    assert threads() == []


def test_no_thread_before_the_first_element():
    elements = prefetched(lambda: count(3), 2)
    assert threads() == []
    elements.close()


def test_no_more_than_depth_elements_are_made_ahead():
    made: list[int] = []
    room = threading.Event()

    def source() -> Generator[int, None, None]:
        for number in range(10):
            made.append(number)
            if number == 3:
                room.set()
            yield number

    elements = prefetched(source, 2)
    assert next(elements) == 0
    assert room.wait(30)  # 0 is out, 1 and 2 wait, 3 is made and finds no room
    assert len(made) == 4
    elements.close()
    assert threads() == []


def test_a_failure_comes_once_after_what_was_made_before_it():
    elements = prefetched(lambda: count(9, fail_at=3), 5)
    assert [next(elements) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match=r"asked for element 3 .*ValueError: no such picture") as caught:
        next(elements)
    assert isinstance(caught.value.__cause__, ValueError)
    assert list(elements) == []
    assert threads() == []


def test_an_error_of_ours_comes_as_it_is():
    def source() -> Generator[int, None, None]:
        yield 0
        raise SpecError("asked for 2, there is 1; ask for 1")

    elements = prefetched(source, 1)
    assert next(elements) == 0
    with pytest.raises(SpecError, match="there is 1") as caught:
        next(elements)
    assert caught.value.__cause__ is None


def test_a_source_that_cannot_start_is_told():
    def source() -> Generator[int, None, None]:
        raise OSError("disk gone")

    with pytest.raises(DataError, match=r"element 0 .*disk gone"):
        next(prefetched(source, 1))
    assert threads() == []


def test_an_interrupt_of_the_source_reaches_the_consumer():
    def source() -> Generator[int, None, None]:
        raise KeyboardInterrupt
        yield 0

    with pytest.raises(KeyboardInterrupt):
        next(prefetched(source, 1))


@pytest.mark.parametrize("leave", ["close", "drop", "cycle", "raise"])
def test_leaving_in_the_middle_ends_the_thread_and_closes_the_source(leave: str):
    closed: list[str] = []
    elements = prefetched(lambda: count(1_000, closed=closed), 2)
    assert next(elements) == 0
    (thread,) = threads()
    if leave == "close":
        elements.close()
    elif leave == "drop":
        del elements
    elif leave == "cycle":
        circle: list[object] = [elements]
        circle.append(circle)
        del elements, circle
        gc.collect()
    else:

        def consume() -> None:
            for _ in elements:
                raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            consume()
        del elements
        gc.collect()
    thread.join(30)
    assert not thread.is_alive()
    assert closed == ["dure-prefetch"]


def test_a_prefetch_of_a_prefetch_ends_both():
    elements = prefetched(lambda: prefetched(lambda: count(1_000), 2), 2)
    assert next(elements) == 0
    assert len(threads()) == 2
    elements.close()
    assert threads() == []
