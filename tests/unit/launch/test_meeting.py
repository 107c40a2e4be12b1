"""Processes meet at the address of worker 0: here threads, over real sockets."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dure.cluster.spec import ClusterSpec
from dure.errors import BusyError, DeadlineError, DureError, SpecError
from dure.launch.meeting import meet
from dure.launch.ports import Ports


@pytest.fixture
def port() -> Iterator[int]:
    ports = Ports("127.0.0.1", 1)
    yield ports.numbers[0]
    ports.close()


def spec(port: int, size: int) -> ClusterSpec:
    return ClusterSpec({"worker": [f"127.0.0.1:{port}", *(f"127.0.0.1:{n}" for n in range(1, size))]})


def behind(*calls: Callable[[], object]) -> list[object]:
    """What each call gave or raised, all at the same time."""
    found: list[object] = [None] * len(calls)

    def run(place: int) -> None:
        try:
            found[place] = calls[place]()
        except DureError as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=[place]) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def chief(port: int, size: int, *, timeout_s: float = 20.0) -> Callable[[], object]:
    """Worker 0, and then what JAX does: it listens at the port."""

    def run() -> object:
        meet(spec(port, size), 0, timeout_s=timeout_s)
        with socket.create_server(("127.0.0.1", port), reuse_port=True) as coordinator:
            coordinator.settimeout(20)
            for _ in range(size - 1):
                coordinator.accept()[0].close()
        return "met"

    return run


def worker(port: int, size: int, rank: int, *, timeout_s: float = 20.0) -> Callable[[], object]:
    return lambda: meet(spec(port, size), rank, timeout_s=timeout_s)


def says(port: int, line: bytes) -> Callable[[], object]:
    """One that is no worker; returns what it is told."""

    def run() -> object:
        while True:
            try:
                link = socket.create_connection(("127.0.0.1", port), timeout=10)
                break
            except ConnectionRefusedError:
                continue
        with link, contextlib.suppress(ConnectionResetError):
            link.sendall(line)
            return link.makefile("rb").read()
        return b""

    return run


def test_all_go_on_when_all_are_there(port: int) -> None:
    assert behind(worker(port, 3, 2), chief(port, 3), worker(port, 3, 1)) == [None, "met", None]


def test_who_does_not_come_is_named_to_all(port: int) -> None:
    for error in behind(chief(port, 4, timeout_s=0.5), worker(port, 4, 2)):
        assert isinstance(error, DeadlineError)
        assert error.task == "worker:1"
        assert f"meet at 127.0.0.1:{port}, and of these did not come within 0.5 s: worker:1, worker:3." in str(error)


def test_a_chief_that_does_not_come_is_named(port: int) -> None:
    with pytest.raises(DeadlineError, match=r"worker:1 waited for 2 .* within 0\.2 s: worker:0 \(.*refused\)\. Start"):
        meet(spec(port, 2), 1, timeout_s=0.2)


def test_another_cluster_is_refused_and_the_chief_says_so(port: int) -> None:
    late, refused = behind(chief(port, 2, timeout_s=1.0), worker(port, 3, 1))
    assert isinstance(refused, SpecError)
    words = "worker:1 was told of 3 workers, and worker:0 of 2, or of other addresses"
    assert f"and is refused: {words}. Start each worker once" in str(refused)
    assert f"worker:1 (turned away: {words})" in str(late)


@pytest.mark.parametrize("rank", [0, 2, -1, True, "1", None, 10**400, [[]]])
def test_a_wrong_index_is_refused(port: int, rank: Any) -> None:
    hello = json.dumps({"rank": rank, "size": 2, "mark": ""}).encode() + b"\n"
    late, told = behind(chief(port, 2, timeout_s=1.0), says(port, hello))
    assert isinstance(late, DeadlineError)
    assert isinstance(told, bytes)
    assert "worker:0 waits for worker:1 to worker:1" in json.loads(told)["refuse"]


@pytest.mark.parametrize("line", [b"\x00" * 5000, b"[" * 4000 + b"\n", b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"1e9\n"])
def test_what_else_connects_does_no_harm(port: int, line: bytes) -> None:
    def comes_after_it() -> object:
        says(port, line)()
        return worker(port, 2, 1)()

    assert behind(chief(port, 2), comes_after_it) == ["met", None]


def test_another_program_at_the_port_is_told_from_a_chief(port: int) -> None:
    def speaks() -> None:
        with socket.create_server(("127.0.0.1", port), reuse_port=True) as other:
            link, _ = other.accept()
            with link:
                link.sendall(b"\x00\x00\x12\x04\x00")

    error = behind(speaks, worker(port, 2, 1))[1]
    assert isinstance(error, BusyError)
    assert "what listens there does not wait for it: another program, or a group that has begun already" in str(error)


@pytest.mark.parametrize("is_shared", [False, True])
def test_the_chief_does_not_share_its_port(is_shared: bool) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), reuse_port=is_shared) as taken,
        pytest.raises(BusyError, match=r"worker:0 is to listen at .*, and cannot: Address already in use\. Choose"),
    ):
        meet(spec(taken.getsockname()[1], 2), 0, timeout_s=1.0)
