"""Who is the culprit: from what is seen of all workers to a decision. Pure: no process, no clock.

One worker that dies or is stuck takes all others with it: they wait for it, or their connection to it breaks, or JAX
aborts them some seconds later. So a decision looks at all of them: of what is wrong, most is a consequence.
"""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dure.launch.board import Phase

__all__ = ["Fault", "Limits", "Raised", "Seen", "Verdict", "Wait", "What", "judge", "name_signal"]


@dataclass(frozen=True, slots=True)
class Raised:
    """The exception that left a worker's script.

    Args:
        kind: name of its class.
        message: its words.
        text: its traceback.
    """

    kind: str
    message: str
    text: str = ""

    @property
    def line(self) -> str:
        """The exception in one line, as Python ends a traceback."""
        first = next((line.strip() for line in self.message.splitlines() if line.strip()), "")
        short = first.rstrip(".") if len(first) <= 240 else f"{first[:240]}..."
        return f"{self.kind}: {short}" if short else self.kind

    @property
    def is_port_taken(self) -> bool:
        """Whether JAX's coordinator could not listen at the port that the launcher had chosen."""
        # The words of jaxlib 0.10, which does not say why.
        return self.kind == "BusyError" or "Failed to start RPC server" in self.message


@dataclass(frozen=True, slots=True)
class Seen:
    """One worker as it is seen from outside. Times are how long ago, so that they can cross machines.

    Args:
        task: as `worker:1`.
        host: name of its machine.
        pid: its process there.
        phase: what it does, or did last.
        step: training steps done.
        quiet_s: how long ago it said so, in seconds; the time that its launcher was stopped does not count.
        code: how it ended: its exit code, or minus the number of the signal; None while it is there.
        ended_s: how long ago it ended, in seconds.
        stopped_s: for how long it has been stopped by a signal, in seconds; None when it runs.
        raised: what left its script.
        by_peers: it said that JAX ended it because others are gone.
    """

    task: str
    host: str
    pid: int
    phase: Phase
    step: int
    quiet_s: float
    code: int | None = None
    ended_s: float = 0.0
    stopped_s: float | None = None
    raised: Raised | None = None
    by_peers: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether it ended otherwise than in order."""
        return self.code not in (None, 0)

    @property
    def is_echo(self) -> bool:
        """Whether it ended in a way that the end of another brings about.

        JAX aborts a process whose peers are gone, and a broken connection is an exception of its runtime.
        """
        if self.raised is not None:
            return self.raised.kind in _RUNTIME_ERRORS and _BROKEN.search(self.raised.message) is not None
        return self.code == -signal.SIGABRT and self.by_peers


_RUNTIME_ERRORS = ("JaxRuntimeError", "XlaRuntimeError")
_BROKEN = re.compile(
    r"gloo|nccl|connection|socket|peer|coordination|heartbeat|another task|barrier"
    r"|UNAVAILABLE|DEADLINE|ABORTED|CANCELLED",
    re.IGNORECASE,
)


class Limits(NamedTuple):
    """How long what may last, in seconds.

    Args:
        step_s: the step deadline: rows of data, a collective, and the wait of others for one in user code.
        stopped_s: a worker that a signal stopped, while others run.
        settle_s: how long to look for the death that brought another about.
    """

    step_s: float = 60.0
    stopped_s: float = 5.0
    settle_s: float = 0.3

    def of(self, phase: Phase) -> float:
        """How long a worker may be in a phase while another waits for it."""
        # The first program of a large model takes minutes to compile, and a script as long to import.
        return 10 * self.step_s if phase in (Phase.COMPILE, Phase.START) else self.step_s


class What(enum.Enum):
    """What a culprit has done."""

    KILLED = "killed"
    RAISED = "raised"
    EXITED = "exited"
    STOPPED = "stopped"
    LATE = "late"
    LEFT = "left"
    TOGETHER = "together"


class Wait(enum.Enum):
    """There is no fault."""

    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Fault:
    """What ends a group: the culprit, never one of its victims.

    Args:
        seen: the culprit.
        what: what it has done.
        others: how many other workers there are.
    """

    seen: Seen
    what: What
    others: int = 0

    @property
    def exit_code(self) -> int:
        """The exit code of the group: the worker's own, where it ended by itself with one."""
        code = self.seen.code
        return code if code is not None and 0 < code < 256 else 1

    def line(self, where: str = "") -> str:
        """The fault in one line.

        Args:
            where: the place in the user's code where the culprit stands, as `load.py:17 in __next__`.
        """
        seen = self.seen
        who = f"{seen.task} (host {seen.host}, pid {seen.pid})"
        at = f"at step {seen.step}" + (f" ({where})" if where else "")
        phase = seen.phase.value
        if self.what is What.RAISED:
            assert seen.raised is not None
            return f"{who} raised {seen.raised.line} {at} in {phase}"
        if self.what is What.KILLED:
            assert seen.code is not None
            return f"LostError: {who} was killed by {name_signal(-seen.code)} {at} in {phase}"
        if self.what is What.EXITED:
            return f"LostError: {who} ended with exit code {seen.code} {at} in {phase}"
        wait = "; the others wait" if self.others > 1 else "; the other waits" if self.others else ""
        if self.what is What.LEFT:
            return f"LostError: {who} has ended its script {at}{wait} for it"
        if self.what is What.STOPPED:
            return f"DeadlineError: {who} has been stopped by a signal for {seen.stopped_s or 0:.0f} s {at} in {phase}"
        if self.what is What.TOGETHER and self.others:
            return (
                f"DeadlineError: all {self.others + 1} workers have been in {phase} for {seen.quiet_s:.0f} s {at}; it "
                "does not end, and none of them is behind the others"
            )
        return f"DeadlineError: {who} has been in {phase} for {seen.quiet_s:.0f} s {at}{wait}"


Verdict = Wait | Fault


def judge(workers: Sequence[Seen], limits: Limits) -> Verdict:
    """Decides whether a group goes on, is done, or has a fault, and whose.

    Args:
        workers: all workers of the group, on all machines.
        limits: what may last how long.
    """
    others = len(workers) - 1
    dead = _dead(workers, limits)
    if dead is not None:
        return dead if isinstance(dead, Wait) else Fault(dead, _way(dead), others)
    running = [seen for seen in workers if seen.code is None]
    if not running:
        return Wait.DONE
    stopped = [seen for seen in running if seen.stopped_s is not None]
    # All at once is Ctrl-Z on a terminal.
    if len(stopped) < len(running):
        longest = max(stopped, key=lambda seen: seen.stopped_s or 0, default=None)
        verdict = _late(workers, running, limits)
        # Whoever is late while another is stopped waits for that one.
        is_late = isinstance(verdict, Fault) or (longest is not None and (longest.stopped_s or 0) > limits.stopped_s)
        return Fault(longest, What.STOPPED, others) if longest is not None and is_late else verdict
    return Wait.RUNNING


def name_signal(number: int) -> str:
    """Returns the name of a signal.

    Example:
        >>> name_signal(9), name_signal(250)
        ('SIGKILL', 'signal 250')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _dead(workers: Sequence[Seen], limits: Limits) -> Seen | Wait | None:
    """The worker whose death is the fault; a moment's wait where another's may have brought it about."""
    dead = [seen for seen in workers if seen.has_failed]
    if not dead:
        return None
    own = [seen for seen in dead if not seen.is_echo]
    # An abort may still turn out to be an echo, when the words that it left have been read.
    killed = [seen for seen in own if seen.code is not None and seen.code < 0 and seen.code != -signal.SIGABRT]
    oldest_s = max(seen.ended_s for seen in dead)
    if killed:
        return max(killed, key=lambda seen: seen.ended_s)
    if own and oldest_s >= limits.settle_s:
        return max(own, key=lambda seen: seen.ended_s)
    if not own and oldest_s >= 4 * limits.settle_s:
        # One that ended in order breaks the connections of the others, too, and is their only cause to end.
        left = [seen for seen in workers if seen.code == 0]
        return max(left or dead, key=lambda seen: seen.ended_s)
    return Wait.RUNNING


def _way(seen: Seen) -> What:
    if seen.raised is not None:
        return What.RAISED
    if seen.code == 0:
        return What.LEFT
    return What.KILLED if seen.code is not None and seen.code < 0 else What.EXITED


def _late(workers: Sequence[Seen], running: Sequence[Seen], limits: Limits) -> Verdict:
    """The one that has been stuck the longest, where one is; those who wait for it are its victims."""
    others = len(workers) - 1
    alone = (Phase.START, Phase.DATA, Phase.COMPILE)
    stuck = [seen for seen in running if seen.phase in alone and seen.quiet_s > limits.of(seen.phase)]
    waiting = [seen for seen in running if seen.phase is Phase.COLLECTIVE and seen.quiet_s > limits.step_s]
    if waiting:
        furthest = max(seen.step for seen in waiting)
        longest_s = max(seen.quiet_s for seen in waiting)
        behind = [seen for seen in workers if seen.phase is not Phase.COLLECTIVE or seen.step < furthest]
        behind = [seen for seen in behind if seen.code in (None, 0)]
        # Who still moves gets time, but not for ever: it may move without getting anywhere.
        stuck += [
            seen
            for seen in behind
            if seen.code == 0 or seen.quiet_s > limits.of(seen.phase) or longest_s > 10 * limits.step_s
        ]
        if not stuck and len(waiting) == len(workers):
            return Fault(max(waiting, key=lambda seen: seen.quiet_s), What.TOGETHER, others)
    if not stuck:
        return Wait.RUNNING
    culprit = max(stuck, key=lambda seen: seen.ended_s if seen.code == 0 else seen.quiet_s)
    has_left = culprit.code == 0 or culprit.phase is Phase.DONE
    return Fault(culprit, What.LEFT if has_left else What.LATE, others)
