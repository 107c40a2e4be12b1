"""Node 0, and the only one of most runs: watches all workers, decides, and starts the group again."""

from __future__ import annotations

import enum
import os
import queue
import random
import signal
import time
from typing import Any, NamedTuple, final

from dure.cluster.spec import ClusterSpec
from dure.errors import DureError
from dure.launch.board import Phase
from dure.launch.group import GRACE_S, Account, Group
from dure.launch.nodes import Event, Hub, Join
from dure.launch.ports import Ports
from dure.launch.report import unpack
from dure.launch.restarts import MOST, WINDOW_S, Restarts
from dure.launch.signals import Signals
from dure.launch.station import Options, Station, say
from dure.launch.verdict import Fault, Limits, Seen, Wait, What, judge

__all__ = ["TERM_GRACE_S", "TICK_S", "Leader", "suspend"]

TICK_S = 0.1
"""How often the workers are looked at, in seconds."""

TERM_GRACE_S = 10.0
"""How long workers may take to end after SIGTERM, in seconds."""

_PORT_TRIES = 3
_ACCOUNT_S = 4.0
_ENDED_S = 12.0
_PART_S = 5.0
_INTERRUPT_S = 10.0
_UNREAD = 128 + signal.SIGPIPE


class _End(enum.Enum):
    """How one start of the group ended."""

    DONE = "done"
    FAULT = "fault"
    NODE = "node"
    ASKED = "asked"


class _Outcome(NamedTuple):
    """How one start of the group ended, and what is to be said of it."""

    end: _End
    code: int = 0
    line: str = ""
    lines: tuple[str, ...] = ()
    is_port_taken: bool = False
    grace_s: float = GRACE_S


@final
class Leader:
    """Runs a group of processes, on this machine and on those of a hub.

    Args:
        options: what was asked for.
        station: starts the workers of this machine.
        signals: what this process hears.
        hub: the other machines; None without any.
        joins: all machines by rank, this one first.
    """

    def __init__(
        self, options: Options, station: Station, signals: Signals, hub: Hub | None, joins: list[Join]
    ) -> None:
        self._options = options
        self._station = station
        self._signals = signals
        self._hub = hub
        self._joins = joins
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue() if hub is None else hub.inbox
        self._limits = Limits(options.step_timeout_s)
        self._round = 0
        self._reports: dict[int, list[Seen]] = {}
        self._interrupts = 0

    def run(self) -> int:
        """Starts the group, as often as it may be; returns the exit code."""
        restarts = Restarts(self._options.max_restarts, random.Random())
        taken = 0
        while True:
            outcome = self._once(restarts.count)
            if outcome.is_port_taken and taken < _PORT_TRIES:
                taken += 1
                continue
            pause_s = restarts.next(time.monotonic()) if outcome.end is _End.FAULT and not self._interrupts else None
            notes = [] if pause_s is not None else self._why_no_more(outcome, restarts)
            said = [*outcome.lines, *notes, *([outcome.line] if outcome.line else [])]
            self._tell({"say": "said", "lines": [line[:2000] for line in said[-200:]]})
            say(*said)
            if pause_s is None:
                return self._part(outcome.code)
            say(f"dure run: starting the group again ({restarts.count} of {restarts.limit})")
            if self._rest(pause_s):
                return self._part(128 + signal.SIGINT)

    def _why_no_more(self, outcome: _Outcome, restarts: Restarts) -> list[str]:
        if outcome.end is not _End.FAULT or not restarts.limit or self._interrupts:
            return []
        if restarts.count >= restarts.limit:
            return [f"dure run: was started again {restarts.count} of {restarts.limit} times"]
        return [f"dure run: was started again {MOST} times within {WINDOW_S / 60:.0f} minutes, and is not any more"]

    def _part(self, code: int) -> int:
        self._tell({"say": "exit", "code": code})
        if self._hub is not None:
            self._hub.part(_PART_S)
        return code

    def _rest(self, pause_s: float) -> bool:
        """Waits before a restart; returns whether it was asked to end meanwhile."""
        until_s = time.monotonic() + pause_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._signals.take() in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                return True
            time.sleep(min(left_s, TICK_S))
        return False

    def _once(self, restart: int) -> _Outcome:
        """One start of the group, to its end on all machines."""
        self._round += 1
        self._reports = {}
        ports = Ports(self._options.host, self._options.workers)
        try:
            spec = self._spec(ports.numbers)
            first = 0
            for join in self._joins:
                if join.node:
                    start = {"round": self._round, "restart": restart, "spec": spec.to_json(), "first": first}
                    self._tell({"say": "start", **start}, join.node)
                first += join.workers
            group = self._station.start(spec, 0, restart)
            outcome = _Outcome(_End.FAULT, 1)
            try:
                outcome = self._watch(group)
            finally:
                # Whatever is raised here, no machine keeps its part of the group.
                self._tell({"say": "end", "round": self._round, "grace_s": outcome.grace_s})
                group.end(grace_s=outcome.grace_s)
            self._gather_ends()
            return outcome
        finally:
            ports.close()

    def _spec(self, ports: list[int]) -> ClusterSpec:
        addresses = [f"{self._options.host}:{port}" for port in ports]
        for join in self._joins[1:]:
            host = f"[{join.peer}]" if ":" in join.peer else join.peer
            addresses += [f"{host}:{port}" for port in join.ports]
        return ClusterSpec({"worker": addresses})

    def _watch(self, group: Group) -> _Outcome:
        leaving_s = float("inf")
        while True:
            asked = self._act_on_signals(group)
            if asked is not None:
                return asked
            lost = self._hear(group)
            if lost is not None:
                return lost
            if group.is_unread:
                return _Outcome(_End.ASKED, _UNREAD)
            verdict = judge([*group.look(), *self._remote()], self._limits)
            if verdict is Wait.DONE:
                return _Outcome(_End.ASKED if self._interrupts else _End.DONE, 130 if self._interrupts else 0)
            if isinstance(verdict, Fault):
                if not (self._interrupts and _is_interrupted(verdict)):
                    return self._account(group, verdict)
                # The others may still be saving what they have.
                leaving_s = min(leaving_s, time.monotonic() + _INTERRUPT_S)
                if time.monotonic() >= leaving_s or self._is_all_over(group):
                    return _Outcome(_End.ASKED, 130)

    def _is_all_over(self, group: Group) -> bool:
        return all(seen.code is not None for seen in [*group.look(), *self._remote()])

    def _act_on_signals(self, group: Group) -> _Outcome | None:
        while (number := self._signals.take()) is not None:
            if number == signal.SIGTSTP:
                suspend(group)
            elif number == signal.SIGINT:
                outcome = self._interrupt(group)
                if outcome is not None:
                    return outcome
            else:
                group.mute()
                return _Outcome(_End.ASKED, 128 + number, grace_s=TERM_GRACE_S)
        return None

    def _interrupt(self, group: Group) -> _Outcome | None:
        """Passes Ctrl-C on; the second one ends the group."""
        self._interrupts += 1
        if self._interrupts > 1:
            group.mute()
            return _Outcome(_End.ASKED, 130, grace_s=0.0)
        group.signal(signal.SIGINT)
        self._tell({"say": "signal", "number": int(signal.SIGINT)})
        return None

    def _hear(self, group: Group) -> _Outcome | None:
        """Takes what the other machines say, waiting a moment for it."""
        for join in self._joins[1:]:
            if self._hub is not None and join.node not in self._hub.there:
                return self._lose(group, join.node)
        timeout_s = TICK_S
        while True:
            try:
                event = self._inbox.get(timeout=timeout_s) if timeout_s else self._inbox.get_nowait()
            except queue.Empty:
                return None
            timeout_s = 0.0
            outcome = self._take(group, event)
            if outcome is not None:
                return outcome

    def _take(self, group: Group, event: Event) -> _Outcome | None:
        message = event.message
        if message is None:
            return self._lose(group, event.node)
        if message.get("say") == "report" and message.get("round") == self._round:
            try:
                self._reports[event.node] = [unpack(plain) for plain in message["workers"]]
            except (DureError, KeyError, TypeError, AttributeError):
                return self._lose(group, event.node)
        elif message.get("say") == "signal":
            number = message.get("number")
            if number == signal.SIGINT:
                return self._interrupt(group)
            host = self._joins[event.node].host
            group.mute()
            line = f"LostError: node {event.node} (host {host}) was asked to end by signal {number}"
            return _Outcome(_End.NODE, 1, line, grace_s=TERM_GRACE_S)
        return None

    def _lose(self, group: Group, node: int) -> _Outcome:
        join = self._joins[node]
        group.mute()
        first = sum(one.workers for one in self._joins[:node])
        names = f"worker:{first}" + (f" to worker:{first + join.workers - 1}" if join.workers > 1 else "")
        line = (
            f"LostError: node {node} (host {join.host}) is gone: its launcher has ended or cannot be reached, and with "
            f"it {names}"
        )
        return _Outcome(_End.NODE, 1, line)

    def _remote(self) -> list[Seen]:
        """What was last heard of the workers of other machines."""
        found: list[Seen] = []
        first = self._options.workers
        for join in self._joins[1:]:
            nothing = [
                Seen(f"worker:{first + place}", join.host, 0, Phase.START, 0, 0.0) for place in range(join.workers)
            ]
            found += self._reports.get(join.node, nothing)
            first += join.workers
        return found

    def _account(self, group: Group, fault: Fault) -> _Outcome:
        """Ends the watch with all that is to be said of a fault."""
        node = self._node_of(fault.seen.task)
        group.mute(all_but=fault.seen.task)
        self._tell({"say": "mute", "round": self._round, "all_but": fault.seen.task})
        account = group.describe(fault) if node == 0 else self._ask(node, fault)
        taken = fault.seen.raised is not None and fault.seen.raised.is_port_taken and not fault.seen.step
        return _Outcome(_End.FAULT, fault.exit_code, fault.line(account.where), account.lines, taken)

    def _node_of(self, task: str) -> int:
        index, first = int(task.rpartition(":")[2]), 0
        for join in self._joins:
            first += join.workers
            if index < first:
                return join.node
        return 0

    def _ask(self, node: int, fault: Fault) -> Account:
        """Has another machine tell of a culprit that is there."""
        about = {"task": fault.seen.task, "what": fault.what.value, "others": fault.others}
        self._tell({"say": "describe", "round": self._round, **about}, node)
        deadline_s = time.monotonic() + _ACCOUNT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            try:
                event = self._inbox.get(timeout=left_s)
            except queue.Empty:
                break
            if event.node == node and event.message is None:
                break
            if event.message is not None and event.message.get("say") == "account":
                return _read_account(event.message)
        return Account()

    def _gather_ends(self) -> None:
        """Waits until the other machines have ended their part."""
        over: set[int] = set()
        deadline_s = time.monotonic() + _ENDED_S
        while self._hub is not None and self._hub.there - over and time.monotonic() < deadline_s:
            try:
                event = self._inbox.get(timeout=TICK_S)
            except queue.Empty:
                continue
            message = event.message
            if message is not None and message.get("say") == "ended" and message.get("round") == self._round:
                over.add(event.node)

    def _tell(self, message: dict[str, Any], node: int | None = None) -> None:
        if self._hub is not None:
            self._hub.tell(message, node)


def suspend(group: Group) -> None:
    """Stops the workers and then this process, as Ctrl-Z does; returns when it is told to go on."""
    group.pause()
    os.kill(os.getpid(), signal.SIGSTOP)
    group.resume()


def _is_interrupted(fault: Fault) -> bool:
    """Whether it is what Ctrl-C brings about: workers that end by it, and others that they break off from."""
    seen = fault.seen
    return fault.what is What.LEFT or seen.code in (-signal.SIGINT, 128 + signal.SIGINT) or seen.is_echo


def _read_account(message: dict[str, Any]) -> Account:
    where, lines = message.get("where"), message.get("lines")
    lines = lines if isinstance(lines, list) else []
    return Account(str(where or "")[:300], tuple(str(line)[:2000] for line in lines[:200]))
