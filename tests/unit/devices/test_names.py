from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.devices import names
from dure.devices.names import KINDS, DeviceName, matches, meet, merge, one, parse, select
from dure.errors import SpecError

indices = st.integers(0, 999_999_999)
jobs = st.from_regex(r"\A[a-z][a-z0-9_]{0,62}\Z")
device_names = st.builds(
    DeviceName,
    job=st.none() | jobs,
    task=st.none() | indices,
    kind=st.none() | st.sampled_from(KINDS),
    index=st.none() | indices,
)
# Few values, so that two names often agree or contradict.
small = st.builds(
    DeviceName,
    job=st.none() | st.sampled_from(["ps", "worker"]),
    task=st.none() | st.integers(0, 1),
    kind=st.none() | st.sampled_from(KINDS[:2]),
    index=st.none() | st.integers(0, 1),
)
full = st.builds(
    DeviceName,
    job=st.sampled_from(["ps", "worker"]),
    task=st.integers(0, 1),
    kind=st.sampled_from(KINDS[:2]),
    index=st.integers(0, 1),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/job:worker/task:1/device:gpu:0", DeviceName("worker", 1, "gpu", 0)),
        ("/job:worker/replica:0/task:1/device:GPU:0", DeviceName("worker", 1, "gpu", 0)),
        ("/job:ps/task:3/cpu:0", DeviceName("ps", 3, "cpu", 0)),
        ("/job:ps", DeviceName("ps")),
        ("/gpu:1", DeviceName(kind="gpu", index=1)),
        ("gpu:0", DeviceName(kind="gpu", index=0)),
        ("/GPU:0", DeviceName(kind="gpu", index=0)),
        ("/Device:Gpu:0/", DeviceName(kind="gpu", index=0)),
        ("/task:1/JOB:ps", DeviceName("ps", 1)),
        ("cpu", DeviceName(kind="cpu")),
        ("/tpu:*", DeviceName(kind="tpu")),
        ("/job:*/task:*/device:*:2", DeviceName(index=2)),
        ("/device:*:*", DeviceName()),
        ("/device:cpu", DeviceName(kind="cpu")),
        ("/gpu:007", DeviceName(kind="gpu", index=7)),
        ("", DeviceName()),
        ("/", DeviceName()),
        ("/job:a_9", DeviceName("a_9")),
        (f"/job:{'a' * 63}", DeviceName("a" * 63)),
    ],
)
def test_names_are_read(text: str, expected: DeviceName) -> None:
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/job:worker/task:x", r"whose task is \"x\"; it is a whole number.* Write one, or \* for any"),
        ("/job:worker/job:ps", r"says its job twice \(worker and ps\)\. Leave one of them out"),
        ("/job:ps/job:ps", "says its job twice"),
        ("/task:1/task:1", "says its task twice"),
        ("/cpu:0/gpu:1", r"says its device kind twice \(cpu and gpu\)"),
        ("/cpu:0/device:cpu:0", "says its device kind twice"),
        ("/cpu:-1", r"whose device index is \"-1\"; it is a whole number"),
        ("/cpu:1.0", "whole number of 1 to 9 digits"),
        ("/cpu:1_0", "whole number of 1 to 9 digits"),
        ("/cpu: 0", "whole number of 1 to 9 digits"),
        ("/cpu:1000000000", "whole number of 1 to 9 digits"),
        ("/task:True", 'whose task is "True"'),
        ("x" * 10_000, r"a name of 10000 characters, which starts 'x{50,60}.* at most 256"),
        ("/cpu:0\0", r"'/cpu:0\\x00', which holds a character that is not printable ASCII"),
        ("/cpu:0\n", "not printable ASCII"),
        ("/job:w\u00f6rker", r"'/job:w\\xf6rker', which holds a character that is not printable ASCII"),
        ("/cpu:\u0665", "not printable ASCII"),
        ("/job:PS", "the job 'PS'; a job's name is lower-case letters"),
        ("/job:9a", "starts with a letter"),
        (f"/job:{'a' * 64}", "at most 63 characters"),
        ("/job:../x", 'where "x" names no part'),
        ("/job:", r'where "job:" has no value\. Write "/job:VALUE"'),
        ("/job", r'where "job" has no value'),
        ("/job:ps:1", 'where "job:ps:1" has no value'),
        ("/replica:1", r'with "replica:1"; a job here has tasks and no replicas but 0'),
        (
            "/gup:0",
            r'"gup:0" names no part and no kind of device\. Did you mean `gpu`\? There are: cpu, device',
        ),
        ("/device:npu:0", "There are: cpu, device, gpu, job, task, tpu"),
        ("//cpu:0", 'where "" is no part of a name'),
        ("/job:ps//cpu:0", 'where "" is no part of a name'),
        ("//", 'where "" is no part of a name'),
        ("/device:", 'where "device:" is no part of a name'),
        ("/device", 'where "device" is no part of a name'),
        ("/cpu:0:0", "is no part of a name"),
        ("/cpu::0", "is no part of a name"),
        ("/*:0", "is no part of a name"),
        ("\\job:ps", "names no part"),
    ],
)
def test_what_is_no_name_is_refused_with_what_was_asked(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        parse(text)
    assert str(caught.value).startswith("asked for ")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [None, 3, b"/cpu:0", ["/cpu:0"], True])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(SpecError, match="which is no text. Write a name as"):
        parse(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"job": "PS"}, "the job 'PS'"),
        ({"job": ""}, "the job ''"),
        ({"job": 3}, "the job 3"),
        ({"kind": "npu"}, r"the device kind 'npu', which is none\. Did you mean `\wpu`"),
        ({"task": -1}, "asked for task -1; it is a whole number from 0 on"),
        ({"task": True}, "asked for task True"),
        ({"task": 1.0}, r"asked for task 1\.0"),
        ({"index": 10**9}, "asked for device index 1000000000"),
        ({"index": "0"}, "asked for device index '0'"),
    ],
)
def test_a_record_that_no_name_could_say_is_refused(parts: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        DeviceName(**parts)  # type: ignore[arg-type]


@given(device_names)
def test_parse_undoes_format(name: DeviceName) -> None:
    assert parse(names.format(name)) == name == parse(name)


@given(st.text(max_size=40) | st.text("/:*0123456789abcdefghijklmnopqrstuvwxyzCPUG_-", max_size=40))
def test_any_text_is_a_name_with_one_form_or_refused(text: str) -> None:
    try:
        name = parse(text)
    except SpecError:
        return
    assert parse(str(name)) == name
    assert str(parse(str(name))) == str(name)


@given(device_names, st.data())
def test_case_order_and_slashes_do_not_matter(name: DeviceName, data: st.DataObject) -> None:
    parts = re.findall(r"/[^/]+", str(name))
    shuffled = data.draw(st.permutations(parts))
    text = "".join(
        part.upper() if not part.startswith("/job") and data.draw(st.booleans()) else part for part in shuffled
    )
    assert parse(text + data.draw(st.sampled_from(["", "/"]) if text else st.just(""))) == name
    assert parse(text.removeprefix("/")) == name


@given(small, small, small)
def test_merge_is_associative_with_the_empty_name_as_its_unit(a: DeviceName, b: DeviceName, c: DeviceName) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))
    assert merge(a, DeviceName()) == merge(DeviceName(), a) == merge(a, a) == a


@given(device_names, device_names)
def test_the_inner_request_wins_part_by_part(outer: DeviceName, inner: DeviceName) -> None:
    merged = merge(outer, inner)
    for part in ("job", "task", "kind", "index"):
        said = getattr(inner, part)
        assert getattr(merged, part) == (getattr(outer, part) if said is None else said)


def test_merge_is_tensorflows() -> None:
    assert str(merge(parse("/job:ps/gpu:1"), parse("/cpu:0"))) == "/job:ps/device:cpu:0"
    # The quirk of `DeviceSpec.make_merged_spec`: kind and index are parts of their own.
    assert str(merge(parse("/gpu:1"), parse("/device:CPU"))) == "/device:cpu:1"
    assert str(merge(parse("/gpu:1"), parse("/gpu:*"))) == "/device:gpu:1"


@given(small, small, full)
def test_meet_fits_what_both_fit_and_fails_when_nothing_can(a: DeviceName, b: DeviceName, device: DeviceName) -> None:
    both = matches(a, device) and matches(b, device)
    try:
        met = meet(a, b)
    except SpecError:
        assert not both
        return
    assert matches(met, device) == both
    assert met == meet(b, a)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("/gpu:0", "/gpu:1", r"differ in the device index \(0 and 1\), so none is"),
        ("/gpu:0", "/cpu:0", r"both `/device:gpu:0` and `/device:cpu:0`; they differ in the device kind"),
        ("/job:ps", "/job:worker/task:1", r"differ in the job \(ps and worker\)"),
        ("/task:1", "/task:2/gpu:0", "differ in the task"),
    ],
)
def test_a_contradiction_names_both(first: str, second: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        meet(parse(first), parse(second))


@given(small, small, full)
def test_match_is_monotone(wanted: DeviceName, more: DeviceName, device: DeviceName) -> None:
    # Saying more never fits more: leaving parts of a filter out keeps what it fitted.
    wider = DeviceName(
        job=wanted.job if more.job is None else None,
        task=wanted.task if more.task is None else None,
        kind=wanted.kind if more.kind is None else None,
        index=wanted.index if more.index is None else None,
    )
    if matches(wanted, device):
        assert matches(wider, device)
    assert matches(DeviceName(), device)
    assert matches(device, device)


@given(small, small, full)
def test_a_merge_fits_what_both_fit(a: DeviceName, b: DeviceName, device: DeviceName) -> None:
    if matches(a, device) and matches(b, device):
        assert matches(merge(a, b), device)


def test_what_a_device_leaves_open_fits_no_filter_that_says_it() -> None:
    assert not matches(parse("/job:ps"), parse("/gpu:0"))
    assert matches(parse("/gpu:*"), parse("/job:ps/task:0/gpu:3"))


def test_select_sorts_as_people_count() -> None:
    devices = [parse(text) for text in ("gpu:10", "gpu:9", "cpu:0", "/job:ps/task:2/gpu:0", "/job:ps/task:11/gpu:0")]
    assert [str(name) for name in select(parse("/gpu:*"), devices)] == [
        "/device:gpu:9",
        "/device:gpu:10",
        "/job:ps/task:2/device:gpu:0",
        "/job:ps/task:11/device:gpu:0",
    ]
    assert len(select(parse(""), devices)) == 5


def test_where_one_device_is_needed_a_wildcard_is_refused() -> None:
    assert one("/job:ps/gpu:1") == DeviceName("ps", None, "gpu", 1)
    with pytest.raises(SpecError, match=r"the one device '/gpu:\*', which leaves its index open.*as \"/gpu:0\""):
        one("/gpu:*")
    with pytest.raises(SpecError, match="which leaves its kind open"):
        one("/job:ps")
    with pytest.raises(SpecError, match="the one device '/device:gpu:\\*'"):
        one(DeviceName(kind="gpu"))


def test_is_one_and_is_full() -> None:
    assert parse("/job:ps/task:0/cpu:0").is_full
    assert parse("/cpu:0").is_one
    assert not parse("/cpu:0").is_full
    assert not parse("/job:ps/task:0").is_one
