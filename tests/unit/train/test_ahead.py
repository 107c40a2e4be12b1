"""Items made ahead in a thread."""

import gc
import threading
import weakref

import pytest

from dure.train.ahead import ahead


def test_items_come_in_order_and_the_thread_ends():
    assert list(ahead(lambda: iter(range(100)))) == list(range(100))


def test_making_runs_ahead_by_two_and_no_more():
    made = []
    third = threading.Event()

    def make():
        for item in range(10):
            made.append(item)
            if item == 2:
                third.set()
            yield item

    items = ahead(make)
    assert next(items) == 0
    assert third.wait(10)
    # One is used, one waits, one is held by the thread until there is room.
    assert made == [0, 1, 2]
    items.close()


def test_a_failure_comes_after_the_items_before_it():
    def make():
        yield 1
        raise KeyError("lost")

    items = ahead(make)
    assert next(items) == 1
    with pytest.raises(KeyError, match="lost"):
        next(items)
    assert list(items) == []


def test_closing_ends_the_maker_in_its_middle():
    ended = threading.Event()

    def make():
        try:
            while True:
                yield 1
        finally:
            ended.set()

    items = ahead(make)
    next(items)
    items.close()
    assert ended.is_set()


def test_one_that_is_never_started_has_no_thread():
    items = ahead(lambda: iter([1]))
    items.close()


def test_a_wait_ends_when_somebody_asks_to_stop():
    release = threading.Event()
    stop = threading.Event()

    def make():
        yield 1
        stop.set()
        release.wait(10)
        yield 2

    def stopped():
        # Asked only while waiting; lets the maker go so that its thread can end.
        if stop.is_set():
            release.set()
        return stop.is_set()

    items = ahead(make, stopped=stopped)
    assert next(items) == 1
    assert list(items) == []


def test_nothing_holds_an_item_that_was_used():
    class Big:
        pass

    def make():
        for _ in range(3):
            yield Big()

    items = ahead(make)
    used = weakref.ref(next(items))
    next(items)
    gc.collect()
    assert used() is None
    items.close()
