"""The launchers of several machines: they meet at node 0, tell it what they see, and hear from it what to do."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, final

from dure.errors import DeadlineError, DureError, LostError, SecurityError, SpecError, from_dict
from dure.launch import wire
from dure.launch.wire import Channel

__all__ = ["BEAT_S", "SILENCE_S", "Event", "Hub", "Join", "Link", "refusal"]

BEAT_S = 2.0
"""How often each end says that it is there, in seconds."""

SILENCE_S = 8.0
"""Who says nothing for so long is gone, in seconds."""

_CALLERS = 16
_RETRY_S = 0.2


class Event(NamedTuple):
    """What came from a node; no message where it is gone."""

    node: int
    message: dict[str, Any] | None


class Join(NamedTuple):
    """What a node says when it comes.

    Args:
        node: its rank.
        nodes: how many it was told there are.
        workers: how many it starts.
        host: name of its machine.
        ports: what is kept free there, one a worker.
        peer: the address that it called from.
    """

    node: int
    nodes: int
    workers: int
    host: str
    ports: tuple[int, ...]
    peer: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The message."""
        return {"say": "join", **self._asdict()}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], peer: str) -> Join:
        """Reads the message.

        Raises:
            SecurityError: it is not of that form.
        """
        numbers = [plain.get(name) for name in ("node", "nodes", "workers")]
        ports, host = plain.get("ports"), plain.get("host")
        is_form = (
            plain.get("say") == "join"
            and all(type(number) is int and 0 <= number < 100_000 for number in numbers)
            and isinstance(host, str)
            and len(host) <= 256
            and isinstance(ports, list)
            and len(ports) == numbers[2]
            and all(type(port) is int and 0 < port < 65536 for port in ports)
        )
        if not is_form:
            raise SecurityError(
                f"a launcher at {peer} joins with {ascii(dict(plain))[:80]}. Use one version on all nodes"
            )
        return cls(plain["node"], plain["nodes"], plain["workers"], plain["host"], tuple(plain["ports"]), peer)


class _Ends:
    """Some channels, each read by a thread, and one more thread that says on all of them that this end is there."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.channels: dict[int, Channel] = {}
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.threads: list[threading.Thread] = []
        self.run("dure-beat", self._beat)

    def run(self, name: str, target: Any, *arguments: Any) -> None:
        """Starts a thread that `close` joins."""
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        thread.start()
        with self.lock:
            self.threads = [*(one for one in self.threads if one.is_alive()), thread]

    def read(self, node: int, channel: Channel) -> None:
        """Puts what comes into the inbox until the other end is gone."""
        try:
            while True:
                message = channel.take(SILENCE_S)
                if message.get("say") != "beat":
                    self.inbox.put(Event(node, message))
        except (LostError, SecurityError):
            channel.close()
            with self.lock:
                self.channels.pop(node, None)
            self.inbox.put(Event(node, None))

    def send(self, node: int, message: Mapping[str, Any]) -> None:
        """Sends a message; that an end is gone is heard from its reader."""
        channel = self.channels.get(node)
        if channel is not None:
            with contextlib.suppress(LostError):
                channel.send(message)

    def _beat(self) -> None:
        while not self.closing.wait(BEAT_S):
            with self.lock:
                there = list(self.channels)
            for node in there:
                self.send(node, {"say": "beat"})

    def close(self) -> None:
        """Closes all channels and joins all threads."""
        self.closing.set()
        with self.lock:
            channels, threads = list(self.channels.values()), list(self.threads)
        for channel in channels:
            channel.close()
        for thread in threads:
            thread.join(2 * wire.GREET_S)


@final
class Hub:
    """Node 0's end: waits for the other launchers, hears and tells them.

    Args:
        host: the address to listen at.
        port: its port.
        token: what all launchers share.
        own: what this node would say.

    Raises:
        SpecError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, token: bytes, own: Join) -> None:
        self._where = f"{host}:{port}"
        self._token = token
        self._own = own
        self._joined: dict[int, Join] = {}
        self._callers = threading.BoundedSemaphore(_CALLERS)
        try:
            family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
            self._listener = socket.create_server(address[:2], family=family, backlog=_CALLERS)
        except OSError as error:
            raise SpecError(
                f"asked node 0 to listen at {self._where}: {error.strerror or error}. Give `--master` an address of "
                "this machine and a free port, the same on all nodes; only one node has rank 0"
            ) from error
        self._listener.settimeout(_RETRY_S)
        self._ends = _Ends()
        self._ends.run("dure-hub", self._accept)

    @property
    def inbox(self) -> queue.SimpleQueue[Event]:
        """What comes from the other nodes."""
        return self._ends.inbox

    @property
    def there(self) -> frozenset[int]:
        """The other nodes that are connected."""
        with self._ends.lock:
            return frozenset(self._ends.channels)

    def meet(self, timeout_s: float) -> list[Join]:
        """Waits for all nodes; returns them by rank, this one first.

        Args:
            timeout_s: the longest wait, in seconds.

        Raises:
            DeadlineError: one did not come; the others are told.
            LostError: one came and went.
        """
        deadline_s = time.monotonic() + timeout_s
        try:
            while missing := [rank for rank in range(1, self._own.nodes) if rank not in self._joined]:
                if time.monotonic() > deadline_s:
                    ranks = ", ".join(map(str, missing))
                    raise DeadlineError(
                        f"node 0 waited {timeout_s:g} s at {self._where} for {self._own.nodes} nodes, and of these did "
                        f"not come: {ranks}. Start each with its own `--node-rank` and the same `--master`"
                    )
                with contextlib.suppress(queue.Empty):
                    event = self.inbox.get(timeout=_RETRY_S)
                    if event.message is None:
                        host = self._joined[event.node].host
                        raise LostError(
                            f"node {event.node} (host {host}) came and went before all were there. Look there"
                        )
        except DureError as error:
            self.tell({"say": "refuse", "error": error.to_dict()})
            raise
        return [self._own, *(self._joined[rank] for rank in sorted(self._joined))]

    def tell(self, message: Mapping[str, Any], node: int | None = None) -> None:
        """Sends a message to a node, or to all."""
        for rank in self.there if node is None else [node]:
            self._ends.send(rank, message)

    def part(self, timeout_s: float) -> None:
        """Waits until the others have closed their ends, so that they have heard the last that was told.

        Args:
            timeout_s: the longest wait, in seconds.
        """
        deadline_s = time.monotonic() + timeout_s
        while self.there and time.monotonic() < deadline_s:
            with contextlib.suppress(queue.Empty):
                self.inbox.get(timeout=_RETRY_S)

    def close(self) -> None:
        """Parts from all; twice is fine."""
        self._ends.close()
        self._listener.close()

    def _accept(self) -> None:
        while not self._ends.closing.is_set():
            try:
                link, peer = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            # Who calls and says nothing holds one of few places, and not for long.
            if self._callers.acquire(blocking=False):
                self._ends.run("dure-node", self._serve, link, str(peer[0]))
            else:
                link.close()

    def _serve(self, link: socket.socket, peer: str) -> None:
        try:
            try:
                channel = wire.answer(link, self._token)
            except (LostError, SecurityError):
                link.close()
                return
            try:
                join = Join.from_dict(channel.take(wire.GREET_S), peer)
                self._admit(join, channel)
            except DureError as error:
                with contextlib.suppress(LostError):
                    channel.send({"say": "refuse", "error": error.to_dict()})
                channel.close()
                return
        finally:
            self._callers.release()
        self._ends.read(join.node, channel)

    def _admit(self, join: Join, channel: Channel) -> None:
        own = self._own
        if join.nodes != own.nodes:
            raise SpecError(
                f"node {join.node} (host {join.host}) was started with --nodes {join.nodes}, and node 0 with --nodes "
                f"{own.nodes}. Start all with the same"
            )
        if not 0 < join.node < own.nodes:
            raise SpecError(
                f"the launcher on host {join.host} was started with --node-rank {join.node}; of {own.nodes} nodes the "
                f"others have 1 to {own.nodes - 1}. Start it with one of these"
            )
        with self._ends.lock:
            there = self._joined.get(join.node)
            if there is not None:
                raise SpecError(
                    f"the launcher on host {join.host} was started with --node-rank {join.node}, which the one on host "
                    f"{there.host} has already. Start it with another"
                )
            self._joined[join.node] = join
            self._ends.channels[join.node] = channel


@final
class Link:
    """The end of another node: what it sees goes to node 0, which tells it what to do.

    Args:
        host: where node 0 listens.
        port: its port.
        token: what all launchers share.
        join: what this node says of itself.
        timeout_s: how long to look for node 0, in seconds.

    Raises:
        DeadlineError: nobody answers there.
        SecurityError: node 0 has another token.
    """

    def __init__(self, host: str, port: int, token: bytes, join: Join, *, timeout_s: float) -> None:
        channel = _call(host, port, token, join, timeout_s)
        self._ends = _Ends()
        self._ends.channels[0] = channel
        self._ends.run("dure-link", self._ends.read, 0, channel)

    @property
    def inbox(self) -> queue.SimpleQueue[Event]:
        """What comes from node 0."""
        return self._ends.inbox

    def tell(self, message: Mapping[str, Any]) -> None:
        """Sends a message to node 0."""
        self._ends.send(0, message)

    def close(self) -> None:
        """Parts from node 0; twice is fine."""
        self._ends.close()


def refusal(message: Mapping[str, Any]) -> DureError:
    """The error that a message of refusal holds."""
    error = message.get("error")
    return from_dict(error if isinstance(error, dict) else {})


def _call(host: str, port: int, token: bytes, join: Join, timeout_s: float) -> Channel:
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            link = socket.create_connection((host.strip("[]"), port), timeout=wire.GREET_S)
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise DeadlineError(
                    f"node {join.node} waited {timeout_s:g} s for node 0 at {host}:{port}: {error.strerror or error}. "
                    "Start node 0 there, with `--node-rank 0`"
                ) from error
            time.sleep(_RETRY_S)
            continue
        try:
            channel = wire.ask(link, token)
            channel.send(join.to_dict())
            return channel
        except BaseException:
            link.close()
            raise
