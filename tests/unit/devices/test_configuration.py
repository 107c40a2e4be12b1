from __future__ import annotations

import os

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dure.devices import configuration
from dure.devices.configuration import Counts, Settings, child_environment, configure, environment, parse
from dure.errors import SpecError

numbers = st.none() | st.integers(1, 512)
memories = st.none() | st.sampled_from(["all", "growth"]) | st.floats(0, 1, exclude_min=True) | st.integers(2, 1 << 60)
some_settings = st.builds(Settings, numbers, numbers, numbers, numbers, memories)


@pytest.mark.parametrize("name", ["cpu_devices", "virtual_gpus", "inter_op_threads", "intra_op_threads"])
@pytest.mark.parametrize("value", [0, -1, True, 1.0, "2", 10**9, [2], float("nan")])
def test_a_number_out_of_range_is_refused(name: str, value: object) -> None:
    with pytest.raises(SpecError, match=rf"asked for {name}=.*; it is a whole number from 1 to 1024\. Write one"):
        configure(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "gpu_memory=0; it is"),
        (-1, "gpu_memory=-1"),
        (-0.5, r"gpu_memory=-0\.5"),
        (1.5, r"gpu_memory=1\.5; it is \"all\", \"growth\", a share above 0 and up to 1, or a whole number"),
        (float("nan"), "gpu_memory=nan"),
        (float("inf"), "gpu_memory=inf"),
        (True, "gpu_memory=True"),
        ("grow", r"gpu_memory='grow'.*Did you mean `growth`\? There are: all, growth\."),
        ("0.3", r"gpu_memory='0\.3'"),
        ("", "gpu_memory=''"),
        ("x" * 10_000, r"gpu_memory='x{50,60}\.\.\."),
        ([0.3], r"gpu_memory=\[0\.3\]"),
    ],
)
def test_a_memory_that_is_none_is_refused(value: object, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        configure(gpu_memory=value)  # type: ignore[arg-type]
    assert "Write one, as gpu_memory=0.3 or gpu_memory=4 * 2**30" in str(caught.value)


def test_too_many_together_are_refused() -> None:
    with pytest.raises(SpecError, match=r"cpu_devices=1000 and virtual_gpus=100, together 1100; .* at most 1024"):
        configure(cpu_devices=1000, virtual_gpus=100)


def test_options_are_named() -> None:
    with pytest.raises(TypeError, match="positional"):
        configure(2)  # type: ignore[misc]


@given(some_settings)
def test_parse_undoes_the_text_form(chosen: Settings) -> None:
    assert parse(str(chosen)) == chosen


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "cpu_devces=2",
            r"DURE_CONFIGURE, for 'cpu_devces=2', which is no setting.*Did you mean `cpu_devices`\?",
        ),
        ("cpu_devices", "which is no setting or says one twice"),
        ("cpu_devices=2 cpu_devices=3", "says one twice"),
        ("cpu_devices=0", "asked for cpu_devices=0"),
        ("cpu_devices=two", "asked for cpu_devices='two'"),
        ("cpu_devices=", "asked for cpu_devices=''"),
        ("gpu_memory=nan", "asked for gpu_memory=nan"),
    ],
)
def test_a_variable_that_says_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        parse(text)


@pytest.mark.parametrize(
    ("chosen", "gpu_bytes", "expected"),
    [
        (Settings(), None, {}),
        (Settings(cpu_devices=2), None, {"JAX_NUM_CPU_DEVICES": "2"}),
        (Settings(virtual_gpus=3), None, {"JAX_NUM_CPU_DEVICES": "4"}),
        (Settings(2, 2, 7, 1), None, {"JAX_NUM_CPU_DEVICES": "4", "PJRT_NPROC": "4"}),
        (Settings(cpu_devices=2, intra_op_threads=6), None, {"JAX_NUM_CPU_DEVICES": "2", "PJRT_NPROC": "6"}),
        (Settings(inter_op_threads=2), None, {}),
        (Settings(gpu_memory="growth"), None, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}),
        (
            Settings(gpu_memory="all"),
            None,
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_CLIENT_MEM_FRACTION": "0.95"},
        ),
        (
            Settings(gpu_memory=0.3),
            None,
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_CLIENT_MEM_FRACTION": "0.3"},
        ),
        (
            Settings(gpu_memory=1),
            None,
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_CLIENT_MEM_FRACTION": "1"},
        ),
        (
            Settings(gpu_memory=4 << 30),
            16 << 30,
            {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_CLIENT_MEM_FRACTION": "0.25"},
        ),
        # Bytes of a GPU that is not there: kept for a process that has one.
        (Settings(gpu_memory=4 << 30), None, {}),
    ],
)
def test_the_environment_tells_jax(chosen: Settings, gpu_bytes: int | None, expected: dict[str, str]) -> None:
    told = environment(chosen, gpu_bytes)
    assert parse(told.pop("DURE_CONFIGURE", "")) == chosen
    assert told == expected


def test_a_childs_environment_holds_its_own_settings_alone() -> None:
    base = {
        "PATH": "/bin",
        **environment(Settings(4, 2, 2, 8, 0.5)),
        "XLA_FLAGS": "--xla_a=1 --xla_force_host_platform_device_count=8 --xla_b=2",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": ".5",
    }
    child = child_environment(Settings(cpu_devices=2), base)
    assert child == {
        "PATH": "/bin",
        "XLA_FLAGS": "--xla_a=1  --xla_b=2",
        "DURE_CONFIGURE": "cpu_devices=2",
        "JAX_NUM_CPU_DEVICES": "2",
    }


class TestOnceJaxIsOpen:
    """This process has eight CPU devices, open from here on."""

    @pytest.fixture(autouse=True)
    def opened(self) -> None:
        assert len(jax.devices("cpu")) == 8

    def test_what_is_so_already_may_be_asked_for(self) -> None:
        configure(cpu_devices=8)
        configure()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (
                {"cpu_devices": 2},
                "asked for cpu_devices=2, and JAX has opened .* with cpu_devices=8; .*before anything",
            ),
            (
                {"cpu_devices": 8, "virtual_gpus": 2},
                "asked for virtual_gpus=2, and JAX .* already, without one",
            ),
            ({"intra_op_threads": 2}, "asked for intra_op_threads=2.* or start a new process"),
            ({"inter_op_threads": 2}, "asked for inter_op_threads=2"),
            ({"gpu_memory": "growth"}, "asked for gpu_memory=growth"),
        ],
    )
    def test_a_change_is_refused(self, options: dict[str, object], words: str) -> None:
        before = dict(os.environ)
        with pytest.raises(SpecError, match=words):
            configure(**options)  # type: ignore[arg-type]
        assert dict(os.environ) == before

    def test_what_was_chosen_before_may_be_said_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURE_CONFIGURE", "cpu_devices=6 virtual_gpus=2 inter_op_threads=3 gpu_memory=0.5")
        configure(cpu_devices=6, virtual_gpus=2, inter_op_threads=3, gpu_memory=0.5)
        assert configuration.counts() == Counts(6, 2)
        with pytest.raises(SpecError, match=r"asked for virtual_gpus=3, .* with virtual_gpus=2"):
            configure(virtual_gpus=3)

    def test_settings_that_jax_did_not_follow_count_for_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURE_CONFIGURE", "cpu_devices=1 virtual_gpus=2")
        assert configuration.counts() == Counts(8, 0)

    def test_apply_has_nothing_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURE_CONFIGURE", "cpu_devices=1")
        configuration.apply()
        assert "JAX_NUM_CPU_DEVICES" not in os.environ
