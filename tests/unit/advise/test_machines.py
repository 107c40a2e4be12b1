"""Tables of machines that are not here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dure.advise.machines import Link, read, site_of
from dure.errors import SpecError
from unit.advise.outlooks import BETWEEN, EXAMPLES, GPU, INSIDE, site, table

TOML = """
[devices.gpu]
kind = "gpu"
flops_per_s = 60e12
bytes_per_s = "2 TB/s"
dispatch_s = "100 us"
memory_bytes = "80 GB"

[machines.node]
devices = { gpu = 8 }
count = 2

[links]
inside = { latency_s = 5e-6, bytes_per_s = "300 GB/s" }
between = { latency_s = "20 us", bytes_per_s = "100 Gb/s" }
"""


def test_a_table_is_read(tmp_path: Path) -> None:
    path = tmp_path / "two-of-eight.toml"
    path.write_text(TOML)
    found = read(path)
    assert found.name == "two-of-eight"
    assert found.best.name == "gpu"
    assert (found.best.flops_per_s, found.best.dispatch_s, found.best.memory_bytes) == (60e12, 1e-4, 80e9)
    assert found.best.efficiency is None
    assert found.machines("gpu") == (8, 8)
    assert found.between == Link(20e-6, 12.5e9)
    assert found.total() == {"gpu": 16}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_read(path: Path) -> None:
    assert sum(read(path).total().values()) >= 2


def test_the_fastest_device_is_found_among_machines_of_several_forms() -> None:
    devices = {"old": {**GPU, "flops_per_s": 1e12}, "new": dict(GPU)}
    machines = {"a": {"devices": {"old": 4, "new": 1}, "count": 3}, "b": {"devices": {"new": 2}}}
    found = site(devices=devices, machines=machines)
    assert found.best.name == "new"
    assert found.machines("new") == (2, 1, 1, 1)
    assert found.machines("old") == (4, 4, 4)
    assert found.total() == {"old": 12, "new": 5}


def test_one_machine_of_one_device_needs_no_link() -> None:
    found = site(machines={"box": {"devices": {"gpu": 1}}}, links={})
    assert (found.inside, found.between) == (None, None)


def without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"device": {}},
            r"the table of f.toml in f.toml has `device`, .*field of it\. Did you mean `devices`\?",
        ),
        ({"devices": {}}, r"`devices` in f.toml is \{\}; write a table for each, as `\[devices.NAME\]`"),
        ({"devices": {"gpu": 3}}, r"\[devices.gpu\] in f.toml is 3; it is a table"),
        ({"devices": {"gpu": without(GPU, "kind")}}, r"\[devices.gpu\] in f.toml lacks `kind`; it has flops_per_s, "),
        ({"devices": {"gpu": {**GPU, "kind": "gpus"}}}, r"`kind` of \[devices.gpu\] .* 'gpus'\. Did you mean `gpu`"),
        ({"devices": {"gpu": without(GPU, "flops_per_s")}}, r"lacks `flops_per_s`; .*`flops_per_s = \"60 TFLOP/s\"`"),
        (
            {"devices": {"gpu": {**GPU, "flop_per_s": 1}}},
            r"has `flop_per_s`, .*field of it\. Did you mean `flops_per_s`",
        ),
        ({"devices": {"gpu": {**GPU, "flops_per_s": -1}}}, r"`flops_per_s` of \[devices.gpu\] in f.toml is -1"),
        ({"devices": {"gpu": {**GPU, "bytes_per_s": 0}}}, r"`bytes_per_s` of .* is 0; it is above 0"),
        ({"devices": {"gpu": {**GPU, "memory_bytes": "8 Gb"}}}, r"'8 Gb', and `Gb` is no unit of it\. Did you mean"),
        ({"devices": {"gpu": {**GPU, "efficiency": 40}}}, r"`efficiency` of .* is 40; it is the share of its peak"),
        ({"devices": {"gpu": {**GPU, "efficiency": True}}}, r"`efficiency` of .* is True"),
        ({"machines": {}}, r"`machines` in f.toml is \{\}"),
        ({"machines": {"node": {}}}, r"\[machines.node\] in f.toml lacks `devices`; it has nothing"),
        ({"machines": {"node": {"devices": 8}}}, r"`devices` of \[machines.node\] .* is 8; write `devices = \{ gpu"),
        ({"machines": {"node": {"devices": {"gpus": 8}}}}, r"`gpus`, which no \[devices.gpus\] .*Did you mean `gpu`"),
        ({"machines": {"node": {"devices": {"gpu": 0}}}}, r"`gpu` of \[machines.node\] in f.toml is 0; it is how many"),
        ({"machines": {"node": {"devices": {"gpu": 1}, "count": 1.5}}}, r"`count` of \[machines.node\] .* is 1.5"),
        ({"machines": {"node": {"devices": {"gpu": 60_000}, "count": 2}}}, r"f.toml has 120,000 devices; at most"),
        ({"links": {"between": BETWEEN}}, r"nothing of the link `inside`, and a machine has 8 devices; write"),
        ({"links": {"inside": INSIDE}}, r"nothing of the link `between`, and there are 2 machines; write"),
        (
            {"links": {"outside": INSIDE}},
            r"\[links\] in f.toml has `outside`, .*field of it\. Did you mean `inside`",
        ),
        ({"links": {"inside": 5}}, r"\[links.inside\] in f.toml is 5; it is a table"),
        ({"links": {"inside": without(INSIDE, "latency_s")}}, r"\[links.inside\] in f.toml lacks `latency_s`"),
        (
            {"links": {"inside": {**INSIDE, "gb_per_s": 1}}},
            r"\[links.inside\] in f.toml has `gb_per_s`, .*field of it\. Did",
        ),
    ],
)
def test_what_is_missing_unknown_or_negative_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        site_of(table(**changes), "f", "f.toml")


def test_a_table_that_lacks_a_part_says_which() -> None:
    with pytest.raises(SpecError, match=r"lacks `machines`; it has devices, links\. Write a line as `\[machines.NAME"):
        site_of(without(table(), "machines"), "f", "f.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[devices", r"which is no TOML: .*Mend it there"),
        (b"\xff", r"which is no TOML: "),
        (b" " * (2**20 + 1), "takes at most"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "f.toml"
    path.write_bytes(text)
    with pytest.raises(SpecError, match=words):
        read(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"asked for the machines of .*: No such file or directory\. Name a file"):
        read(tmp_path / "f.toml")
