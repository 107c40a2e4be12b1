"""The processes of a group meet before JAX joins them: who is missing, doubled or of another group is named.

JAX's runtime (0.10) waits too, but aborts the process without a word of who is missing, lets a second process of one
index take the first one's place, and crashes where its port is in use. So worker 0 first listens at that port itself,
and the others tell it who they are: one line of JSON each way, read with a limit and never acted on otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import selectors
import socket
import time
from typing import Any, NoReturn, final

from dure.cluster.spec import ClusterSpec
from dure.errors import BusyError, DeadlineError, LostError, SpecError

__all__ = ["meet"]

_MOST_BYTES = 4096
_LOOK_S = 0.05
_PART_S = 1.0
_HELLO_S = 5.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def meet(spec: ClusterSpec, rank: int, *, timeout_s: float) -> None:
    """Returns when all workers of a cluster are there, and the port of worker 0 is free for JAX.

    Args:
        spec: the cluster.
        rank: number of this worker.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        DeadlineError: some did not come, and which.
        SpecError: another process is this worker already, or this one was told of another cluster.
        BusyError: something else listens at the address of worker 0.
        LostError: worker 0 went away.
    """
    address, size = spec.address("worker", 0), spec.num_tasks("worker")
    mark = hashlib.sha256(spec.to_json().encode()).hexdigest()
    deadline_s = time.monotonic() + timeout_s
    if rank == 0:
        _Host(address, size, mark, deadline_s).gather(timeout_s)
    else:
        _attend(address, {"rank": rank, "size": size, "mark": mark}, deadline_s, timeout_s)


@final
class _Host:
    """Worker 0, at whose address the others say who they are."""

    def __init__(self, address: str, size: int, mark: str, deadline_s: float) -> None:
        self._address = address
        self._size = size
        self._mark = mark
        self._deadline_s = deadline_s
        self._heard: dict[socket.socket, bytes] = {}
        self._there: dict[int, socket.socket] = {}
        self._refused: list[str] = []

    def gather(self, timeout_s: float) -> None:
        """Waits for all, and lets them go on; whatever happens, the port is free then."""
        try:
            with _listen(self._address) as door, selectors.DefaultSelector() as selector:
                selector.register(door, selectors.EVENT_READ)
                while len(self._there) < self._size - 1:
                    if time.monotonic() >= self._deadline_s:
                        self._end_late(timeout_s)
                    for key, _ in selector.select(min(_PART_S, max(0.0, self._deadline_s - time.monotonic()))):
                        self._hear(selector, door, key.fileobj)
            for link in self._there.values():
                _say(link, {"go": True})
        finally:
            for link in self._heard:
                link.close()

    def _hear(self, selector: selectors.BaseSelector, door: socket.socket, source: Any) -> None:
        if source is door:
            with contextlib.suppress(OSError):
                link, _ = door.accept()
                link.setblocking(False)
                self._heard[link] = b""
                selector.register(link, selectors.EVENT_READ)
            return
        try:
            part = source.recv(_MOST_BYTES)
        except OSError:
            part = b""
        self._heard[source] += part
        answer = self._answer(source) if part else {}
        if answer is not None:
            # It went away, or is not to stay.
            _say(source, answer)
            selector.unregister(source)
            source.close()
            del self._heard[source]
            self._there = {rank: link for rank, link in self._there.items() if link is not source}

    def _answer(self, link: socket.socket) -> dict[str, Any] | None:
        """What one that is not to stay is told; None for one that may stay."""
        line = self._heard[link]
        if b"\n" not in line:
            return None if len(line) < _MOST_BYTES else {}
        told = _parse(line)
        rank = told.get("rank")
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 < rank < self._size:
            return self._refuse(
                f"it says that it is worker:{str(rank)[:20]}; worker:0 waits for worker:1 to worker:{self._size - 1}"
            )
        if told.get("size") != self._size or told.get("mark") != self._mark:
            return self._refuse(
                f"worker:{rank} was told of {str(told.get('size'))[:20]} workers, and worker:0 of {self._size}, or of "
                "other addresses"
            )
        if self._there.get(rank, link) is not link:
            return self._refuse(f"another process is worker:{rank} already")
        self._there[rank] = link
        return None

    def _refuse(self, why: str) -> dict[str, Any]:
        self._refused = [*self._refused, why][-3:]
        return {"refuse": why}

    def _end_late(self, timeout_s: float) -> NoReturn:
        missing = [rank for rank in range(1, self._size) if rank not in self._there]
        names = ", ".join(f"worker:{rank}" for rank in missing[:20]) + (", ..." if len(missing) > 20 else "")
        refused = f" (turned away: {'; '.join(self._refused)})" if self._refused else ""
        why = f"of these did not come within {timeout_s:g} s: {names}{refused}"
        for link in self._there.values():
            _say(link, {"late": why, "task": f"worker:{missing[0]}"})
        raise _late(0, self._size, self._address, why, f"worker:{missing[0]}")


def _attend(address: str, hello: dict[str, Any], deadline_s: float, timeout_s: float) -> None:
    """Tells worker 0 who this is, waits for its word, and then for JAX to listen there."""
    rank, size = hello["rank"], hello["size"]
    why = "nothing listens there"
    while time.monotonic() < deadline_s:
        try:
            link = _connect(address, deadline_s)
        except OSError as error:
            why = str(error)
            time.sleep(_LOOK_S)
            continue
        with link:
            # Worker 0 may have begun to wait later than this one; it tells when it gives up.
            line = _ask(link, hello, time.monotonic() + timeout_s + _PART_S)
        told = _parse(line)
        if "go" in told:
            break
        if "late" in told:
            raise _late(rank, size, address, str(told["late"]), str(told.get("task")))
        if "refuse" in told:
            raise SpecError(
                f"worker:{rank} asked worker:0 at {address} to be let in, and is refused: {told['refuse']}. Start each "
                "worker once, with its own index, all with the same cluster",
                task=f"worker:{rank}",
            )
        if line:
            raise BusyError(
                f"worker:{rank} asked for worker:0 at {address}, and what listens there does not wait for it: another "
                "program, or a group that has begun already. Start all workers of a group together, at a free port",
                task=f"worker:{rank}",
            )
        why = "it broke off"
    else:
        raise _late(rank, size, address, f"of these did not come within {timeout_s:g} s: worker:0 ({why})", "worker:0")
    _wait_for_jax(address, rank, deadline_s)


def _wait_for_jax(address: str, rank: int, deadline_s: float) -> None:
    """Its client tries again only after a second."""
    while time.monotonic() < deadline_s:
        try:
            _connect(address, deadline_s).close()
            return
        except OSError:
            time.sleep(_LOOK_S)
    raise LostError(
        f"worker:{rank} was let in by worker:0, which then did not start JAX's coordinator at {address}. Look at what "
        "worker:0 wrote",
        task="worker:0",
    )


def _late(rank: int, size: int, address: str, why: str, task: str) -> DeadlineError:
    return DeadlineError(
        f"worker:{rank} waited for {size} workers to meet at {address}, and {why}. Start all of them, each with its "
        "own index, or give them more time with `timeout_s`",
        task=task,
    )


def _listen(address: str) -> socket.socket:
    """A socket at the port of worker 0: of this machine alone where that is all that is asked for.

    Raises:
        BusyError: something listens there.
    """
    host, port = _split(address)
    is_here = host in _LOOPBACK
    everywhere = socket.has_dualstack_ipv6() and not is_here
    family = socket.AF_INET6 if everywhere or ":" in host else socket.AF_INET
    place = (host if is_here else "", port)
    try:
        try:
            return _open(place, family, everywhere=everywhere, is_shared=False)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or _is_answered(address):
                raise
            # The launcher keeps the port free for this process, and does not listen.
            return _open(place, family, everywhere=everywhere, is_shared=True)
    except OSError as error:
        raise BusyError(
            f"worker:0 is to listen at {address}, and cannot: {os.strerror(error.errno or 0)}. Choose another port for "
            "worker:0, or end what listens there",
            task="worker:0",
        ) from error


def _open(place: tuple[str, int], family: int, *, everywhere: bool, is_shared: bool) -> socket.socket:
    door = socket.create_server(place, family=family, dualstack_ipv6=everywhere, reuse_port=is_shared)
    door.setblocking(False)
    return door


def _is_answered(address: str) -> bool:
    try:
        _connect(address, time.monotonic() + _PART_S).close()
        return True
    except OSError:
        return False


def _connect(address: str, deadline_s: float) -> socket.socket:
    return socket.create_connection(_split(address), timeout=max(0.01, min(_HELLO_S, deadline_s - time.monotonic())))


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _ask(link: socket.socket, hello: dict[str, Any], deadline_s: float) -> bytes:
    """The answer to a line; what came of it where the other breaks off."""
    line = b""
    try:
        link.sendall(json.dumps(hello).encode() + b"\n")
        while b"\n" not in line and len(line) < _MOST_BYTES:
            link.settimeout(max(0.01, deadline_s - time.monotonic()))
            part = link.recv(_MOST_BYTES)
            if not part:
                break
            line += part
    except OSError:
        pass
    return line


def _say(link: socket.socket, message: dict[str, Any]) -> None:
    if message:
        with contextlib.suppress(OSError):
            link.send(json.dumps(message).encode() + b"\n")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}
