from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dure.errors import SecurityError, SpecError
from dure.launch.run import check, run
from dure.launch.station import Options


@pytest.fixture
def options(tmp_path: Path) -> Options:
    script = tmp_path / "train.py"
    script.write_text("")
    return Options((str(script),), 2)


def test_good_options_pass(options: Options) -> None:
    assert check(options, is_network_trusted=False) == options
    module = replace(options, command=("-m", "package.module", "--flag"))
    assert check(module, is_network_trusted=False) == module


def test_the_address_of_node_0_gets_its_one_form(options: Options) -> None:
    checked = check(replace(options, nodes=2, master="LocalHost:0777"), is_network_trusted=False)
    assert (checked.master, checked.host, checked.port) == ("localhost:777", "localhost", 777)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"workers": 0}, "--workers 0; it is a whole number from 1 to 256"),
        ({"workers": 257}, "--workers 257"),
        ({"nodes": 0}, "--nodes 0"),
        ({"nodes": 2, "node_rank": 2, "master": "localhost:7"}, "--node-rank 2; it is a whole number from 0 to 1"),
        ({"node_rank": -1}, "--node-rank -1"),
        ({"max_restarts": -1}, "--max-restarts -1"),
        ({"step_timeout_s": 0.0}, "--step-timeout 0"),
        ({"step_timeout_s": float("nan")}, "--step-timeout nan"),
        ({"start_timeout_s": -1.0}, "--start-timeout -1"),
        ({"command": ()}, "asked to run nothing"),
        ({"command": ("-m",)}, "a module with -m, and none is named"),
        ({"command": ("none.py",)}, "the script none.py, which is not in"),
        ({"master": "localhost:7"}, "with one node"),
        ({"nodes": 2}, "nothing says where node 0 is"),
        ({"nodes": 2, "master": "localhost"}, "for --master; it has no port"),
    ],
)
def test_wrong_options_are_named(options: Options, change: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        check(replace(options, **change), is_network_trusted=False)


@pytest.mark.parametrize("master", ["10.0.0.1:7", "node1:7", "[2001:db8::1]:7", "0.0.0.0:7"])
def test_a_network_is_to_be_trusted_expressly(options: Options, master: str) -> None:
    several = replace(options, nodes=2, master=master)
    with pytest.raises(SecurityError, match="have neither password nor encryption.*--trusted-network"):
        check(several, is_network_trusted=False)
    assert check(several, is_network_trusted=True).master == master


@pytest.mark.parametrize("master", ["127.0.0.1:7", "localhost:7", "[::1]:7"])
def test_the_own_machine_needs_no_such_word(options: Options, master: str) -> None:
    assert check(replace(options, nodes=2, master=master), is_network_trusted=False).master == master


def test_several_machines_always_need_a_token(options: Options) -> None:
    with pytest.raises(SecurityError, match="neither `--token-file` nor DURE_TOKEN"):
        run(replace(options, nodes=2, master="127.0.0.1:7"), environ={})
