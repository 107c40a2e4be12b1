from __future__ import annotations

import contextlib
import json
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

import dure
from dure.cluster.spec import ClusterSpec, Task, resolve, told
from dure.errors import SpecError

TWO = {"worker": ["10.0.0.2:2222", "10.0.0.3:2222"]}

JOBS = st.from_regex(r"[a-z][a-z0-9_]{0,62}", fullmatch=True)
HOSTS = st.one_of(
    st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9](\.[a-z]{2,5})?", fullmatch=True),
    st.ip_addresses(v=4).map(str),
    st.ip_addresses(v=6).map(lambda address: f"[{address}]"),
)
ADDRESSES = st.tuples(HOSTS, st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}")


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, list[str]]:
    names = draw(st.lists(JOBS, min_size=1, max_size=3, unique=True))
    counts = [draw(st.integers(1, 4)) for _ in names]
    addresses = draw(st.lists(ADDRESSES, min_size=sum(counts), max_size=sum(counts), unique=True))
    return {name: [addresses.pop() for _ in range(count)] for name, count in zip(names, counts, strict=True)}


@given(clusters())
def test_what_is_printed_reads_back_as_the_same(jobs: dict[str, list[str]]) -> None:
    spec = ClusterSpec(jobs)
    again = ClusterSpec.from_json(spec.to_json())
    assert again == spec
    assert hash(again) == hash(spec)
    assert str(again) == str(spec)
    assert again.to_dict() == spec.to_dict() == {job: jobs[job] for job in sorted(jobs)}


@given(clusters())
def test_the_order_of_jobs_is_no_difference(jobs: dict[str, list[str]]) -> None:
    backwards = dict(reversed(jobs.items()))
    assert ClusterSpec(backwards) == ClusterSpec(jobs)
    assert ClusterSpec(backwards).to_json() == ClusterSpec(jobs).to_json()


@given(clusters())
def test_a_dense_mapping_is_a_list(jobs: dict[str, list[str]]) -> None:
    assert ClusterSpec({job: dict(enumerate(tasks)) for job, tasks in jobs.items()}) == ClusterSpec(jobs)


@given(JOBS, st.integers(0, 10**9 - 1))
def test_a_task_reads_back(job: str, index: int) -> None:
    assert Task.parse(str(Task(job, index))) == Task(job, index)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_anything_else_is_a_typed_error(value: object) -> None:
    text = json.dumps(value)
    with contextlib.suppress(SpecError):
        assert ClusterSpec.from_json(text).jobs


def test_a_cluster_says_what_it_has() -> None:
    spec = dure.ClusterSpec({**TWO, "ps": ["[::1]:1"]})
    assert spec.jobs == ("ps", "worker")
    assert spec.tasks("worker") == (Task("worker", 0), Task("worker", 1))
    assert spec.addresses("worker") == ("10.0.0.2:2222", "10.0.0.3:2222")
    assert (spec.num_tasks("ps"), spec.address("ps", 0)) == (1, "[::1]:1")
    assert repr(spec) == "ClusterSpec({'ps': ['[::1]:1'], 'worker': ['10.0.0.2:2222', '10.0.0.3:2222']})"
    assert spec != TWO


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ({}, "has no job"),
        ([("worker", ["a:1"])], "a cluster is a dict of jobs"),
        ({"worker": []}, "job `worker` with \\[\\], which has no task"),
        ({"worker": "a:1"}, "job `worker` with 'a:1'; it is a list"),
        ({"worker": 3}, "it is a list of addresses"),
        ({"worker": ["a:1", "b:1", "a:1"]}, "worker:0 and worker:2 both have the address a:1"),
        ({"ps": ["A:1"], "worker": ["a:01"]}, "ps:0 and worker:0 both have the address a:1"),
        ({"worker": {0: "a:1", 2: "b:1"}}, "without worker:1"),
        ({"worker": {1: "a:1"}}, "without worker:0"),
        ({"worker": {-1: "a:1"}}, "task -1 of job `worker`"),
        ({"worker": {True: "a:1"}}, "task True of job `worker`"),
        ({"worker": {"0": "a:1"}}, "task '0' of job `worker`"),
        ({"": ["a:1"]}, "the job ''"),
        ({"a/b": ["a:1"]}, "the job 'a/b'"),
        ({"a" * 300: ["a:1"]}, "the job 'aaaa"),
        ({"a\0": ["a:1"]}, r"the job 'a\\x00'"),
        ({"ü": ["a:1"]}, r"the job '\\xfc'"),
        ({3: ["a:1"]}, "the job 3"),
        ({"worker": [f"a:{port}" for port in range(1, 10_002)]}, "10001 tasks; there are at most 10000"),
    ],
)
def test_a_wrong_cluster_names_the_entry(jobs: object, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        ClusterSpec(jobs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("host", "it has no port"),
        (":1", "it has no port"),
        ("host:", "no number from 1 to 65535"),
        ("host:0", "no number from 1 to 65535"),
        ("host:65536", "no number from 1 to 65535"),
        ("host:-1", "no number from 1 to 65535"),
        ("host:abc", "no number from 1 to 65535"),
        ("host:٥", "no number from 1 to 65535"),
        ("::1:22", "stands in brackets"),
        ("[::g]:22", "no IPv6 address"),
        ("http://host:22", "it is a URL"),
        ("me@host:22", "it is a URL"),
        ("ho st:22", "its host is no name"),
        ("300.1.1.1:22", "its host is no name"),
        ("-host:22", "its host is no name"),
        ("hôte:22", "its host is no name"),
        (22, "it has no port"),
    ],
)
def test_a_wrong_address_names_its_task(address: object, words: str) -> None:
    with pytest.raises(SpecError, match=f"for worker:1; .*{words}"):
        ClusterSpec({"worker": ["a:1", address]})  # type: ignore[list-item]


@pytest.mark.parametrize("index", [-1, 10**9, "0", True, 1.0, None])
def test_a_wrong_index_is_refused(index: object) -> None:
    with pytest.raises(SpecError, match="a task is a whole number from 0 on"):
        Task("worker", index)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["worker", "worker:", "worker:x", "worker:-1", ":1", "Worker:1", "worker:1:2", "", None]
)
def test_a_wrong_task_is_refused(text: object) -> None:
    with pytest.raises(SpecError, match="asked for the (task|job)"):
        Task.parse(text)  # type: ignore[arg-type]


def test_a_task_that_is_not_there_shows_what_is() -> None:
    spec = ClusterSpec({"worker": ["a:1", "b:1"], "ps": ["c:1"]})
    with pytest.raises(SpecError, match="worker:2, and job `worker` has worker:0 to worker:1"):
        spec.address("worker", 2)
    with pytest.raises(SpecError, match="ps:1, and job `ps` has ps:0 alone"):
        spec.address("ps", 1)
    with pytest.raises(SpecError, match="the job 'wroker'.* Did you mean `worker`"):
        spec.num_tasks("wroker")


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text('[cluster]\nworker = ["a:1", "b:1"]\n')
    assert ClusterSpec.from_file(path) == ClusterSpec({"worker": ["a:1", "b:1"]})
    path.write_text('[cluster.worker]\n0 = "a:1"\n1 = "b:1"\n')
    assert ClusterSpec.from_file(path) == ClusterSpec({"worker": ["a:1", "b:1"]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("worker = [", "is no TOML"),
        ('worker = ["a:1"]', "the file has worker"),
        ("", "the file has no such table"),
        ('[cluster]\nworker = ["a:1"]\n[other]\n', "the file has other"),
        ("[cluster]\nworker = [1]\n", "the address 1 for worker:0"),
        ("x" * (2 << 20), "at most 1048576"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        ClusterSpec.from_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.toml: No such file"):
        ClusterSpec.from_file(tmp_path / "none.toml")


# --- the environment ----------------------------------------------------------------------------------------------


def own(cluster: object, task: str) -> dict[str, str]:
    return {"DURE_CLUSTER": json.dumps(cluster), "DURE_TASK": task}


def tensorflow(cluster: object, kind: object = "worker", index: object = 0) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}


SLURM = {
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_STEP_NODELIST": "n[08-09]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_JOB_ID": "4096",
}


def test_nothing_says_nothing() -> None:
    assert resolve({}) is None
    with pytest.raises(SpecError, match="no variable says so"):
        ClusterSpec.from_env({})
    with pytest.raises(SpecError, match="no variable says so"):
        Task.from_env({})


def test_the_own_variables_count_first() -> None:
    member = told({**own(TWO, "worker:1"), **tensorflow({"worker": ["x:1"]}), **SLURM})
    assert member == (ClusterSpec(TWO), Task("worker", 1), "DURE_CLUSTER")
    assert ClusterSpec.from_env(own(TWO, "worker:1")) == ClusterSpec(TWO)


def test_the_chief_of_tensorflow_is_worker_0() -> None:
    jobs = {"chief": ["c:1"], "worker": ["a:1", "b:1"], "ps": ["p:1"]}
    spec = ClusterSpec({"worker": ["c:1", "a:1", "b:1"], "ps": ["p:1"]})
    assert resolve(tensorflow(jobs, "chief")) == (spec, Task("worker", 0), "TF_CONFIG")
    assert resolve(tensorflow(jobs, "worker", 1)) == (spec, Task("worker", 2), "TF_CONFIG")
    assert resolve(tensorflow(jobs, "worker", "1")) == (spec, Task("worker", 2), "TF_CONFIG")
    assert resolve(tensorflow(jobs, "ps")) == (spec, Task("ps", 0), "TF_CONFIG")
    assert resolve(tensorflow({"master": ["c:1"]}, "master")) == (
        ClusterSpec({"worker": ["c:1"]}),
        Task("worker", 0),
        "TF_CONFIG",
    )


def test_without_a_chief_the_workers_are_what_they_are() -> None:
    assert resolve(tensorflow(TWO, "worker", 1)) == (ClusterSpec(TWO), Task("worker", 1), "TF_CONFIG")


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {}}', '{"task": {"type": "worker", "index": 0}}'])
def test_tensorflow_without_a_cluster_is_alone(text: str) -> None:
    assert resolve({"TF_CONFIG": text}) is None


def test_slurm_says_who_this_is() -> None:
    member = resolve(SLURM)
    assert member is not None
    assert member.task == Task("worker", 3)
    assert member.spec.addresses("worker") == ("n08:61440", "n08:61441", "n09:61440", "n09:61441")
    assert member.told_by == "SLURM_STEP_NUM_TASKS"
    assert resolve({**SLURM, "SLURM_STEP_NUM_TASKS": "1"}) is None


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"DURE_CLUSTER": "{}"}, "DURE_CLUSTER: DURE_CLUSTER is set.* DURE_TASK is not"),
        ({"DURE_TASK": "worker:0"}, "DURE_TASK is set, to 'worker:0', and DURE_CLUSTER is not"),
        ({"DURE_CLUSTER": "{", "DURE_TASK": "worker:0"}, "DURE_CLUSTER: .* is no JSON"),
        ({"DURE_CLUSTER": "[" * (1 << 19), "DURE_TASK": "worker:0"}, "no JSON: its nesting has no end"),
        ({"DURE_CLUSTER": "[" * (2 << 20), "DURE_TASK": "worker:0"}, "of 2097152 characters"),
        (
            {"DURE_CLUSTER": '{"worker": ["a:1"], "worker": ["b:1"]}', "DURE_TASK": "worker:0"},
            "'worker' stands there twice",
        ),
        (own(TWO, "worker:2"), "DURE_CLUSTER: .*worker:2, and job `worker` has worker:0 to worker:1"),
        (own(TWO, "ps:0"), "DURE_CLUSTER: .*the job 'ps'"),
        (own({"worker": ["a:1", "a:1"]}, "worker:0"), "worker:0 and worker:1 both"),
        (own({"worker": {"0": "a:1", "2": "b:1"}}, "worker:0"), "without worker:1"),
        (own({"ps": ["a:1"]}, "ps:0"), "of the jobs ps, without a worker"),
        (tensorflow({"worker": ["a:1"]}, "chief"), "TF_CONFIG: .*the job 'chief'"),
        (tensorflow({"worker": ["a:1"]}, "evaluator"), "TF_CONFIG: .*the job 'evaluator'"),
        (tensorflow({"chief": ["a:1", "b:1"]}, "chief"), "with the chiefs chief:0, chief:1"),
        (tensorflow({"worker": ["a:1"]}, "worker", 1), "worker:1, and job `worker` has worker:0 alone"),
        (tensorflow({"worker": ["a:1"]}, "worker", -1), "a whole number from 0 on"),
        (tensorflow({"worker": ["a:1"]}, "worker", True), "a whole number from 0 on"),
        (tensorflow(["worker"]), "the cluster \\['worker'\\]; it is an object"),
        ({"TF_CONFIG": "[]"}, "asked for \\[\\]; it is an object"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}}'}, "the task None"),
        ({"TF_CONFIG": '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}'}, "the task {'type': 'worker'}"),
        ({**SLURM, "SLURM_PROCID": "4"}, "SLURM_STEP_NUM_TASKS: .*worker:4, and job `worker` has"),
    ],
)
def test_what_cannot_be_names_the_variable_and_the_entry(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        resolve(environ)
