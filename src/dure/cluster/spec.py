"""A cluster: named jobs of tasks, each with its address; one form that prints, reads back and compares.

Nothing here opens a socket or looks at a clock: a `ClusterSpec` says where tasks shall listen, not whether they do.
`resolve` reads what a scheduler or a launcher told this process: its cluster, and which task it is.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, final

from dure.cluster import slurm
from dure.cluster.text import MAX_TEXT_BYTES, check_address, check_job, read_json, shown
from dure.errors import SpecError, hint

__all__ = ["MAX_TASKS", "ClusterSpec", "Membership", "Task", "resolve", "told"]

MAX_TASKS = 10_000
"""The most tasks of one cluster."""

_TASK = re.compile(r"(?P<job>[^:]*):(?P<index>[0-9]{1,9})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")


@dataclass(frozen=True, slots=True, order=True)
class Task:
    """One process of a cluster.

    Args:
        job: name of its job.
        index: its number in that job, from 0.

    Raises:
        SpecError: one of the two is not of that form.

    Example:
        >>> Task.parse("worker:1")
        Task(job='worker', index=1)
        >>> str(Task("ps", 0))
        'ps:0'
    """

    job: str
    index: int

    def __post_init__(self) -> None:
        check_job(self.job)
        # A bool is an int to Python and no number of a task to anybody.
        if type(self.index) is not int or not 0 <= self.index < 10**9:
            raise SpecError(
                f"asked for task {shown(self.index)} of job `{self.job}`; a task is a whole number from 0 on. Write "
                f"one, as {self.job}:0"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads a task as `str(task)` writes it.

        Raises:
            SpecError: it is not of that form.
        """
        match = _TASK.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise SpecError(
                f"asked for the task {shown(text)}; a task is a job and a number from 0 on. Write it as worker:1"
            )
        return cls(match["job"], int(match["index"]))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Task:
        """Returns which task this process was started as.

        Args:
            environ: variables as `ClusterSpec.from_env` reads them; None takes this process's.

        Raises:
            SpecError: nothing there says so, or what it says cannot be.

        Example:
            >>> Task.from_env({"DURE_CLUSTER": '{"worker": ["a:1", "b:1"]}', "DURE_TASK": "worker:1"})
            Task(job='worker', index=1)
        """
        return told(os.environ if environ is None else environ).task

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"


@final
class ClusterSpec:
    """The jobs of a cluster and the addresses of their tasks. It does not change; equal ones hash alike.

    Args:
        jobs: name of a job to the addresses of its tasks in order, each `host:port`; or to a mapping of their
            numbers, which must run from 0 on without a hole.

    Raises:
        SpecError: there are no tasks; a name, an address or a number is none; two tasks have one address; a number is
            missing. The message names the entry.

    Example:
        >>> spec = ClusterSpec({"worker": ["10.0.0.2:2222", "10.0.0.3:2222"], "ps": ["10.0.0.1:2221"]})
        >>> spec.jobs, spec.num_tasks("worker"), spec.address("worker", 1)
        (('ps', 'worker'), 2, '10.0.0.3:2222')
        >>> print(spec)
        ps:0      10.0.0.1:2221
        worker:0  10.0.0.2:2222
        worker:1  10.0.0.3:2222
    """

    __slots__ = ("_jobs",)

    def __init__(self, jobs: Mapping[str, Sequence[str] | Mapping[int, str]]) -> None:
        if not isinstance(jobs, Mapping):
            raise SpecError(
                f"asked for a cluster of {shown(jobs)}; a cluster is a dict of jobs. Write it as "
                '{"worker": ["host:2222", "other:2222"]}'
            )
        if not jobs:
            raise SpecError(f"asked for a cluster of {shown(jobs)}, which has no job. Name at least one task")
        for job in jobs:
            check_job(job)
        self._jobs: dict[str, tuple[str, ...]] = {job: _addresses(job, jobs[job]) for job in sorted(jobs)}
        number = sum(map(len, self._jobs.values()))
        if number > MAX_TASKS:
            raise SpecError(f"asked for a cluster of {number} tasks; there are at most {MAX_TASKS}. Name fewer")
        seen: dict[str, Task] = {}
        for job, addresses in self._jobs.items():
            for index, address in enumerate(addresses):
                if address in seen:
                    raise SpecError(
                        f"asked for a cluster in which {seen[address]} and {job}:{index} both have the address "
                        f"{address}; two tasks cannot listen at one. Give each its own port"
                    )
                seen[address] = Task(job, index)

    @classmethod
    def from_json(cls, text: str) -> ClusterSpec:
        """Reads a cluster as `to_json` writes it.

        Raises:
            SpecError: it is not of that form.

        Example:
            >>> spec = ClusterSpec({"worker": ["a:1"]})
            >>> ClusterSpec.from_json(spec.to_json()) == spec
            True
        """
        return cls(_with_numbers(read_json(text, "the text of a cluster")))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> ClusterSpec:
        """Returns the cluster that this process was started in.

        `DURE_CLUSTER` (with `DURE_TASK`) says so, else `TF_CONFIG`, else Slurm's variables of a step that `srun`
        started. A chief of `TF_CONFIG` is worker 0, and its workers follow.

        Args:
            environ: variables; None takes this process's.

        Raises:
            SpecError: nothing there says so, or what it says cannot be.

        Example:
            >>> ClusterSpec.from_env({"DURE_CLUSTER": '{"worker": ["a:1"]}', "DURE_TASK": "worker:0"}).jobs
            ('worker',)
        """
        return told(os.environ if environ is None else environ).spec

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ClusterSpec:
        """Reads a cluster from a TOML file: a table `[cluster]` with one line a job.

        ```toml
        [cluster]
        worker = ["10.0.0.2:2222", "10.0.0.3:2222"]
        ```

        Raises:
            SpecError: it is not there, or not of that form.
        """
        path = Path(path)
        try:
            if path.stat().st_size > MAX_TEXT_BYTES:
                raise SpecError(
                    f"asked for the cluster of {path}, a file of {path.stat().st_size} bytes; a cluster takes at most "
                    f"{MAX_TEXT_BYTES}. Name another file"
                )
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(f"asked for the cluster of {path}: {error.strerror}. Name a file that is there") from error
        except (ValueError, RecursionError) as error:
            raise SpecError(f"asked for the cluster of {path}, which is no TOML: {error}. Mend it there") from error
        jobs = table.pop("cluster", None)
        if not isinstance(jobs, dict) or table:
            has = f"has {', '.join(sorted(table))}" if table else "has no such table"
            raise SpecError(
                f'asked for the cluster of {path}: it is one table `[cluster]` with lines as worker = ["host:2222"], '
                f"and the file {has}. Write that table alone"
            )
        return cls(_with_numbers(jobs))

    @property
    def jobs(self) -> tuple[str, ...]:
        """The names of the jobs, sorted."""
        return tuple(self._jobs)

    def num_tasks(self, job: str) -> int:
        """How many tasks a job has.

        Raises:
            SpecError: there is no such job.
        """
        return len(self.addresses(job))

    def tasks(self, job: str) -> tuple[Task, ...]:
        """The tasks of a job, in order.

        Raises:
            SpecError: there is no such job.
        """
        return tuple(Task(job, index) for index in range(self.num_tasks(job)))

    def addresses(self, job: str) -> tuple[str, ...]:
        """The addresses of a job's tasks, in order.

        Raises:
            SpecError: there is no such job.
        """
        if job not in self._jobs:
            raise SpecError(f"asked for the job {shown(job)}, which this cluster has not. {hint(str(job), self._jobs)}")
        return self._jobs[job]

    def address(self, job: str, index: int) -> str:
        """Where a task listens, `host:port`.

        Args:
            job: name of the job.
            index: number of the task in it, from 0.

        Raises:
            SpecError: there is no such task.
        """
        task = Task(job, index)
        self.check(task)
        return self._jobs[job][index]

    def check(self, task: Task) -> None:
        """Refuses a task that is not of this cluster.

        Raises:
            SpecError: it is not, with what there is.
        """
        number = self.num_tasks(task.job)
        if task.index >= number:
            there = f"{task.job}:0 alone" if number == 1 else f"{task.job}:0 to {task.job}:{number - 1}"
            raise SpecError(
                f"asked for the task {task}, and job `{task.job}` has {there}. Use one of them, or add its address",
                task=str(task),
            )

    def to_dict(self) -> dict[str, list[str]]:
        """Returns the jobs as plain lists of addresses."""
        return {job: list(addresses) for job, addresses in self._jobs.items()}

    def to_json(self) -> str:
        """Returns the cluster as one line of JSON: the same for equal ones."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSpec) and self._jobs == other._jobs

    def __hash__(self) -> int:
        return hash(tuple(self._jobs.items()))

    def __str__(self) -> str:
        rows = [(str(task), self._jobs[job][task.index]) for job in self._jobs for task in self.tasks(job)]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {address}" for name, address in rows)

    def __repr__(self) -> str:
        return f"ClusterSpec({self.to_dict()!r})"


class Membership(NamedTuple):
    """What a process was started as.

    Args:
        spec: the cluster.
        task: which of its tasks this process is.
        told_by: the environment variable that says so.
    """

    spec: ClusterSpec
    task: Task
    told_by: str


def resolve(environ: Mapping[str, str]) -> Membership | None:
    """Reads what a launcher or a scheduler told this process.

    `DURE_CLUSTER` with `DURE_TASK` counts before `TF_CONFIG`, and that before Slurm's variables of a step of several
    tasks. A chief of `TF_CONFIG` is worker 0, and its workers follow.

    Args:
        environ: the environment.

    Returns:
        The cluster, the task and the variable; None where nothing says that this is one of several.

    Raises:
        SpecError: what is said cannot be; the message names the variable and the entry.

    Example:
        >>> config = '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'
        >>> print(resolve({"TF_CONFIG": config}).task)
        worker:1
    """
    for variable, read in (("DURE_CLUSTER", _read_own), ("TF_CONFIG", _read_tensorflow), (slurm.VARIABLE, _read_slurm)):
        try:
            found = read(environ)
            if found is None:
                continue
            spec, task = found
            if "worker" not in spec.jobs:
                raise SpecError(
                    f"asked for a cluster of the jobs {', '.join(spec.jobs)}, without a worker; worker 0 is the chief, "
                    'which reports and saves. Add its address, as {"worker": ["host:2222"]}'
                )
            spec.check(task)
        except SpecError as error:
            raise SpecError(f"the environment variable {variable}: {error.message}", task=error.task) from error
        return Membership(spec, task, variable)
    return None


def told(environ: Mapping[str, str]) -> Membership:
    """Returns what the environment says; an error where it says nothing.

    Raises:
        SpecError: nothing says which process this is, or what is said cannot be.
    """
    member = resolve(environ)
    if member is None:
        raise SpecError(
            "asked what this process was started as, and no variable says so: not `DURE_CLUSTER` with `DURE_TASK`, "
            "not `TF_CONFIG`, not those of `srun`. Start it with `dure run`, or set one of them"
        )
    return member


def _read_own(environ: Mapping[str, str]) -> tuple[ClusterSpec, Task] | None:
    text, task = environ.get("DURE_CLUSTER", ""), environ.get("DURE_TASK", "")
    if not text and not task:
        return None
    if not text or not task:
        has, lacks = ("DURE_CLUSTER", "DURE_TASK") if text else ("DURE_TASK", "DURE_CLUSTER")
        raise SpecError(
            f"{has} is set, to {shown(text or task)}, and {lacks} is not; a process of a cluster needs both. Set "
            'DURE_CLUSTER=\'{"worker": ["host:2222", "other:2222"]}\' and DURE_TASK=worker:0, or unset both'
        )
    return ClusterSpec.from_json(text), Task.parse(task)


def _read_tensorflow(environ: Mapping[str, str]) -> tuple[ClusterSpec, Task] | None:
    if not environ.get("TF_CONFIG"):
        return None
    config = read_json(environ["TF_CONFIG"], "a cluster and a task")
    if not isinstance(config, dict):
        raise SpecError(f"asked for {shown(config)}; it is an object with `cluster` and `task`. Write it so")
    if not config.get("cluster"):
        return None  # TensorFlow, too, takes a process without a cluster for one alone
    jobs, task = config["cluster"], config.get("task")
    if not isinstance(jobs, dict):
        raise SpecError(f"asked for the cluster {shown(jobs)}; it is an object of jobs. Write it so")
    if not isinstance(task, dict) or not {"type", "index"} <= task.keys():
        raise SpecError(
            f'asked for the task {shown(task)}; it says which process this is, as {{"type": "worker", "index": 0}}. '
            "Write it so"
        )
    # TensorFlow takes the number of a task as a text as well.
    index = int(task["index"]) if isinstance(task["index"], str) and task["index"].isdecimal() else task["index"]
    named = ClusterSpec(_with_numbers(jobs))
    own = Task(task["type"], index)
    named.check(own)
    leads = [job for job in ("chief", "master") if job in named.jobs]
    if not leads:
        return named, own
    lead = leads[0]
    if len(leads) > 1 or named.num_tasks(lead) > 1:
        chiefs = ", ".join(str(one) for job in leads for one in named.tasks(job))
        raise SpecError(f"asked for a cluster with the chiefs {chiefs}; it has one. Make the others workers")
    others = named.addresses("worker") if "worker" in named.jobs else ()
    merged = {job: named.addresses(job) for job in named.jobs if job not in (lead, "worker")}
    spec = ClusterSpec({**merged, "worker": [*named.addresses(lead), *others]})
    if own.job == lead:
        return spec, Task("worker", 0)
    return spec, Task("worker", own.index + 1) if own.job == "worker" else own


def _read_slurm(environ: Mapping[str, str]) -> tuple[ClusterSpec, Task] | None:
    step = slurm.read(environ)
    return None if step is None else (ClusterSpec({"worker": step.addresses}), Task("worker", step.rank))


def _addresses(job: str, tasks: object) -> tuple[str, ...]:
    """The addresses of one job, each in its one form."""
    if isinstance(tasks, Mapping):
        wrong = [number for number in tasks if type(number) is not int or number < 0]
        if wrong:
            raise SpecError(
                f"asked for task {shown(wrong[0])} of job `{job}`; a task is a whole number from 0 on. Write one"
            )
        hole = next((number for number in range(len(tasks)) if number not in tasks), None)
        if hole is not None:
            raise SpecError(
                f"asked for job `{job}` with the tasks {shown(sorted(tasks))}, without {job}:{hole}; they are numbered "
                f"from 0 on without a hole. Add the address of {job}:{hole}, or number them anew"
            )
        tasks = [tasks[number] for number in range(len(tasks))]
    if isinstance(tasks, str | bytes) or not isinstance(tasks, Sequence):
        raise SpecError(
            f'asked for job `{job}` with {shown(tasks)}; it is a list of addresses. Write it as ["host:2222"]'
        )
    if not tasks:
        raise SpecError(f"asked for job `{job}` with {shown(tasks)}, which has no task. Add an address")
    return tuple(check_address(address, f"{job}:{index}") for index, address in enumerate(tasks))


def _with_numbers(jobs: Any) -> Any:
    """A cluster as JSON and TOML hold it, where the number of a task is a text."""
    if not isinstance(jobs, dict):
        return jobs
    return {
        job: {int(n) if isinstance(n, str) and _NUMBER.fullmatch(n) else n: where for n, where in tasks.items()}
        if isinstance(tasks, dict)
        else tasks
        for job, tasks in jobs.items()
    }
