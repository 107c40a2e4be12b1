"""Every node but 0: starts its workers when node 0 says so, tells it what it sees, and ends them."""

from __future__ import annotations

import queue
import signal
import time
from typing import Any, final

from dure.cluster.spec import ClusterSpec
from dure.launch.group import GRACE_S, Group
from dure.launch.lead import TERM_GRACE_S, TICK_S, suspend
from dure.launch.nodes import Event, Link, refusal
from dure.launch.report import pack
from dure.launch.signals import Signals
from dure.launch.station import Options, Station, say
from dure.launch.verdict import Fault, Seen, What

__all__ = ["REPORT_S", "Follower"]

REPORT_S = 0.5
"""How often node 0 is told what is seen, in seconds; at once where a worker ended or was stopped."""


@final
class Follower:
    """Runs the part of a group on this machine.

    Args:
        options: what was asked for.
        station: starts the workers of this machine.
        signals: what this process hears.
        link: the way to node 0.
    """

    def __init__(self, options: Options, station: Station, signals: Signals, link: Link) -> None:
        self._options = options
        self._station = station
        self._signals = signals
        self._link = link
        self._group: Group | None = None
        self._round = 0
        self._told: list[tuple[int | None, bool]] = []
        self._told_at_s = 0.0
        self._interrupts = 0

    def run(self) -> int:
        """Does what node 0 says until it says that all is over; returns the exit code.

        Raises:
            DureError: node 0 does not take this node, and why.
        """
        try:
            while True:
                code = self._act_on_signals()
                if code is not None:
                    return code
                event = self._next()
                if event is not None:
                    if event.message is None:
                        return self._lose()
                    code = self._take(event.message)
                    if code is not None:
                        return code
                self._report()
        finally:
            self._end(0.0)

    def _next(self) -> Event | None:
        try:
            return self._link.inbox.get(timeout=TICK_S)
        except queue.Empty:
            return None

    def _take(self, message: dict[str, Any]) -> int | None:
        """Does what a message says; returns the exit code when that was the last."""
        word = message.get("say")
        if word == "refuse":
            raise refusal(message)
        if word == "start":
            self._start(message)
        elif word == "end":
            self._end(float(message.get("grace_s", GRACE_S)))
            self._link.tell({"say": "ended", "round": self._round})
        elif word == "mute" and self._group is not None:
            self._group.mute(all_but=str(message.get("all_but", "")))
        elif word == "describe" and self._group is not None:
            self._describe(self._group, message)
        elif word == "signal" and self._group is not None:
            self._group.signal(int(message["number"]))
        elif word == "said":
            say(*map(str, message.get("lines", [])))
        elif word == "exit":
            return int(message["code"])
        return None

    def _start(self, message: dict[str, Any]) -> None:
        self._round, restart = int(message["round"]), int(message["restart"])
        if restart:
            say(f"dure run: node 0 is starting the group again ({restart})")
        self._told = []
        spec = ClusterSpec.from_json(str(message["spec"]))
        self._group = self._station.start(spec, int(message["first"]), restart)

    def _describe(self, group: Group, message: dict[str, Any]) -> None:
        for seen in group.look():
            if seen.task == message.get("task"):
                account = group.describe(Fault(seen, What(message["what"]), int(message["others"])))
                lines = [line[:2000] for line in account.lines[-200:]]
                self._link.tell({"say": "account", "where": account.where, "lines": lines})

    def _report(self) -> None:
        if self._group is None:
            return
        seen = self._group.look()
        changed = [_state(one) for one in seen]
        now_s = time.monotonic()
        if changed != self._told or now_s - self._told_at_s >= REPORT_S:
            self._told, self._told_at_s = changed, now_s
            self._link.tell({"say": "report", "round": self._round, "workers": [pack(one) for one in seen]})

    def _act_on_signals(self) -> int | None:
        while (number := self._signals.take()) is not None:
            if number == signal.SIGTSTP and self._group is not None:
                suspend(self._group)
            elif number == signal.SIGINT and not self._interrupts:
                self._interrupts += 1
                self._link.tell({"say": "signal", "number": number})
            elif number != signal.SIGTSTP:
                self._link.tell({"say": "signal", "number": number})
                self._end(0.0 if number == signal.SIGINT else TERM_GRACE_S)
                return 128 + number
        return None

    def _lose(self) -> int:
        self._end(GRACE_S)
        say(
            f"LostError: node 0 (at {self._options.master}) is gone: its launcher has ended or cannot be reached, and "
            "with it worker:0"
        )
        return 1

    def _end(self, grace_s: float) -> None:
        group, self._group = self._group, None
        if group is not None:
            group.end(grace_s=grace_s)


def _state(seen: Seen) -> tuple[int | None, bool]:
    return seen.code, seen.stopped_s is not None
