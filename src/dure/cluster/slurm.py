"""What Slurm tells a process that `srun` started: the machines of its step, and its number. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from dure.cluster.text import shown
from dure.errors import SpecError

__all__ = ["VARIABLE", "Step", "hosts", "per_host", "read"]

VARIABLE = "SLURM_STEP_NUM_TASKS"
"""The variable that says that there are several tasks."""

MAX_HOSTS = 10_000
"""The most machines of one step, and so of a list that stands in few characters."""

_PORTS = 1 << 12
_FIRST_PORT = (1 << 16) - _PORTS
_TOKEN = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_RANGE = re.compile(r"([0-9]{1,12})(?:-([0-9]{1,12}))?")
_COUNT = re.compile(r"([1-9][0-9]{0,5})(?:\(x([1-9][0-9]{0,5})\))?")
_MEND = "Start the script with `srun`, or set DURE_CLUSTER and DURE_TASK by hand"


class Step(NamedTuple):
    """The addresses of a step's tasks in order, and which of them this process is."""

    addresses: list[str]
    rank: int


def read(environ: Mapping[str, str]) -> Step | None:
    """Reads a step of several tasks; None where there is none, as in a shell on one node.

    The port comes from the number of the job, as JAX derives it, so that two jobs on a machine seldom meet.

    Args:
        environ: `SLURM_STEP_NUM_TASKS`, `SLURM_PROCID`, `SLURM_STEP_NODELIST`, `SLURM_STEP_TASKS_PER_NODE` and
            `SLURM_JOB_ID` are read, and `SLURM_NODEID` where it is there.

    Raises:
        SpecError: one of them is missing or cannot be.

    Example:
        >>> step = read(
        ...     {
        ...         "SLURM_STEP_NUM_TASKS": "3",
        ...         "SLURM_PROCID": "2",
        ...         "SLURM_STEP_NODELIST": "n[1-2]",
        ...         "SLURM_STEP_TASKS_PER_NODE": "2,1",
        ...         "SLURM_JOB_ID": "7",
        ...     }
        ... )
        >>> step.addresses, step.rank
        (['n1:61447', 'n1:61448', 'n2:61447'], 2)
    """
    if environ.get(VARIABLE, "").strip() in ("", "1"):
        return None
    tasks, index, job = (_number(environ, name) for name in (VARIABLE, "SLURM_PROCID", "SLURM_JOB_ID"))
    names = hosts(_text(environ, "SLURM_STEP_NODELIST"))
    counts = per_host(_text(environ, "SLURM_STEP_TASKS_PER_NODE"))
    if len(names) != len(counts) or sum(counts) != tasks:
        raise SpecError(
            f"Slurm says {tasks} tasks, SLURM_STEP_NODELIST has {len(names)} machines, and SLURM_STEP_TASKS_PER_NODE "
            f"has {sum(counts)} tasks on {len(counts)}; they do not agree. {_MEND}"
        )
    order = _order(counts, index, environ.get("SLURM_NODEID", ""))
    seen = [0] * len(names)
    addresses = []
    for host in order:
        port = _FIRST_PORT + (job + seen[host]) % _PORTS
        addresses.append(f"{names[host]}:{port}")
        seen[host] += 1
    return Step(addresses, index)


def hosts(text: str) -> list[str]:
    """Reads a list of machines as Slurm writes it.

    Args:
        text: names with commas; numbers that differ stand in brackets, and keep their zeros.

    Raises:
        SpecError: it is no such list.

    Example:
        >>> hosts("n[1-3,7],login"), hosts("rack[1-2]n[08-09]")
        (['n1', 'n2', 'n3', 'n7', 'login'], ['rack1n08', 'rack1n09', 'rack2n08', 'rack2n09'])
    """
    found: list[str] = []
    rest = text.strip()
    while rest:
        token = _TOKEN.match(rest)
        if token is None:
            raise _wrong(text, rest)
        found += _expand(token.group(), text, MAX_HOSTS - len(found))
        rest = rest[token.end() :]
        if rest:
            if rest[0] != "," or len(rest) == 1:
                raise _wrong(text, rest)
            rest = rest[1:]
    if not found:
        raise _wrong(text, text)
    return found


def per_host(text: str) -> list[int]:
    """Reads how many tasks each machine has, as Slurm writes it.

    Raises:
        SpecError: it is not of that form.

    Example:
        >>> per_host("2(x3),1")
        [2, 2, 2, 1]
    """
    counts: list[int] = []
    for word in text.split(","):
        match = _COUNT.fullmatch(word.strip())
        times = int(match[2] or 1) if match else 0
        if match is None or len(counts) + times > MAX_HOSTS:
            raise SpecError(
                f"asked for SLURM_STEP_TASKS_PER_NODE={shown(text)}, of which {shown(word)} is no number of tasks, as "
                f"2 or 2(x3), on at most {MAX_HOSTS} machines. {_MEND}"
            )
        counts += [int(match[1])] * times
    return counts


def _expand(token: str, text: str, room: int) -> list[str]:
    """One name with brackets as all the names that it stands for."""
    found = [""]
    for part in re.split(r"(\[[^\]]*\])", token):
        if not part.startswith("["):
            found = [name + part for name in found]
            continue
        numbers: list[str] = []
        for piece in part[1:-1].split(","):
            match = _RANGE.fullmatch(piece)
            first, last = (match[1], match[2] or match[1]) if match else ("1", "0")
            if not int(first) <= int(last) < int(first) + room:
                raise _wrong(text, part)
            numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        if len(found) * len(numbers) > room:
            raise _wrong(text, part)
        found = [name + number for name in found for number in numbers]
    return found


def _order(counts: list[int], index: int, node: str) -> list[int]:
    """The machine of each task: filled one after the other, or dealt out in turn where this task's machine says so."""
    block = [host for host, count in enumerate(counts) for _ in range(count)]
    turns = [host for turn in range(max(counts)) for host, count in enumerate(counts) if turn < count]
    if not node.isdecimal() or index >= len(block) or block[index] == int(node):
        return block
    if turns[index] == int(node):
        return turns
    raise SpecError(
        f"Slurm says that task {index} is on machine {node} of the step, where neither --distribution=block "
        f"({block[index]}) nor =cyclic ({turns[index]}) puts it. Use one of the two, or set DURE_CLUSTER by hand"
    )


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise SpecError(f"Slurm says that there are several tasks, and the variable {name} is not set. {_MEND}")
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    value = _text(environ, name)
    if not re.fullmatch(r"[0-9]{1,12}", value):
        raise SpecError(f"Slurm says {name}={shown(value)}, which is no number from 0 on. {_MEND}")
    return int(value)


def _wrong(text: str, part: str) -> SpecError:
    return SpecError(
        f"asked for SLURM_STEP_NODELIST={shown(text)}, of which {shown(part)} is no list of at most {MAX_HOSTS} "
        f"machines, as n[1-3,7]. {_MEND}"
    )
