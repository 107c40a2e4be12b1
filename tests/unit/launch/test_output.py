from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import hypothesis.strategies as st
from hypothesis import given

from dure.launch.output import MAX_LINE_BYTES, TAIL_LINES, Lines, Pump


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_however_bytes_come_the_lines_are_the_same(pieces: list[bytes]) -> None:
    lines = Lines()
    whole = b"".join(pieces)
    found = b"".join(line for piece in pieces for line in lines.feed(piece)) + b"".join(lines.end())
    assert found == (whole if whole.endswith(b"\n") or not whole else whole + b"\n")


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    lines = Lines()
    pieces = [piece for _ in range(100) for piece in lines.feed(b"x" * 10_000)]
    assert max(map(len, pieces)) == MAX_LINE_BYTES + 1
    assert len(lines.rest) <= MAX_LINE_BYTES


class Sink:
    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.err: list[bytes] = []


@contextmanager
def pumped(sink: Sink, *, is_prefixed: bool = True, muted: str | None = None) -> Iterator[tuple[Pump, list[int]]]:
    """A pump of two workers, and the ends into which they write: stdout and stderr of each."""
    pump = Pump(sink.out.append, sink.err.append, is_prefixed=is_prefixed)
    ends = []
    for task in ("worker:0", "worker:1"):
        pipes = [os.pipe(), os.pipe()]
        ends += [end for _, end in pipes]
        pump.add(task, *(os.fdopen(start, "rb", buffering=0) for start, _ in pipes))
    try:
        if muted is not None:
            pump.mute(all_but=muted)
        pump.start()
        yield pump, ends
    finally:
        for end in ends:
            os.close(end)
        pump.close()


def test_stdout_is_passed_as_it_is_and_stderr_with_its_worker() -> None:
    sink = Sink()
    with pumped(sink) as (_, ends):
        for end, text in zip(ends, (b"out 0\n", b"err 0\n", b"out \xff1\n", b"err 1"), strict=True):
            os.write(end, text)
    assert sorted(sink.out) == [b"out 0\n", b"out \xff1\n"]
    assert sorted(sink.err) == [b"[worker:0] err 0\n", b"[worker:1] err 1\n"]


def test_what_gloo_says_of_itself_is_left_out() -> None:
    sink = Sink()
    with pumped(sink) as (_, ends):
        noise = b"[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peer ranks is : 1\n"
        os.write(ends[0], noise + b"[Gloo] Rank 0 says more\n")
    assert sink.out == [b"[Gloo] Rank 0 says more\n"]


def test_one_worker_has_no_prefix() -> None:
    sink = Sink()
    with pumped(sink, is_prefixed=False) as (_, ends):
        os.write(ends[1], b"err\n")
    assert sink.err == [b"err\n"]


def test_after_a_fault_the_culprit_alone_is_shown() -> None:
    sink = Sink()
    with pumped(sink, muted="worker:1") as (pump, ends):
        for end in ends:
            os.write(end, b"text\n")
    assert (sink.out, sink.err) == ([b"text\n"], [b"[worker:1] text\n"])
    # What is not shown is kept all the same.
    assert pump.tail("worker:0") == ["text", "text"]


def test_what_is_held_back_of_a_victim_is_dropped() -> None:
    sink = Sink()
    with pumped(sink) as (pump, ends):
        os.write(ends[1], b"noise\n")
        os.write(ends[3], b"cause\n")
        while not (pump.tail("worker:0") and pump.tail("worker:1")):
            pass
        pump.mute(all_but="worker:1")
    assert sink.err == [b"[worker:1] cause\n"]


def test_while_it_is_not_known_who_was_first_nothing_is_shown() -> None:
    sink = Sink()
    with pumped(sink) as (pump, ends):
        pump.hold()
        os.write(ends[1], b"text\n")
        while not pump.tail("worker:0"):
            pass
        pump._release(everything=False)
        assert sink.err == []
    assert sink.err == [b"[worker:0] text\n"]


def test_the_last_lines_are_kept() -> None:
    sink = Sink()
    with pumped(sink) as (pump, ends):
        os.write(ends[0], b"".join(b"%d\n" % number for number in range(300)))
    assert pump.tail("worker:0") == [str(number) for number in range(300 - TAIL_LINES, 300)]
    assert pump.tail("nobody") == []


def test_a_reader_that_is_gone_is_noticed() -> None:
    def refuse(line: bytes) -> None:
        raise BrokenPipeError

    sink = Sink()
    pump = Pump(refuse, sink.err.append, is_prefixed=False)
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    pump.add("worker:0", os.fdopen(out, "rb", buffering=0), os.fdopen(err, "rb", buffering=0))
    os.write(out_end, b"text\n" * 3)
    pump.start()
    os.close(out_end)
    os.close(err_end)
    pump.close()
    assert pump.is_broken
