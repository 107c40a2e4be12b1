from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import jax
import psutil
import pytest

import dure
from dure import _jax
from dure.devices import host, inventory
from dure.devices.inventory import Device, backing, choose, fastest, find, unusable
from dure.errors import SpecError
from unit.devices import recordings


def device(name: str, *, virtual: bool = False) -> Device:
    return Device(name, name[:3], 1 << 30, virtual, "some model")  # type: ignore[arg-type]


CPUS = tuple(device(f"cpu:{index}", virtual=True) for index in range(3))
GPUS = tuple(device(f"gpu:{index}") for index in range(2))
VIRTUAL = tuple(device(f"gpu:{index}", virtual=True) for index in range(2))
TPUS = tuple(device(f"tpu:{index}") for index in range(4))


@pytest.fixture(autouse=True)
def opened() -> None:
    """This process has eight CPU devices, open from here on."""
    assert len(jax.devices("cpu")) == 8


class TestDevices:
    def test_they_are_jaxs_own_sorted_by_name(self) -> None:
        found = dure.devices()
        assert [one.name for one in found] == [f"cpu:{index}" for index in range(8)]
        assert {one.kind for one in found} == {"cpu"}
        # Eight devices share one machine.
        assert all(one.virtual for one in found)

    def test_memory_is_an_equal_share_of_what_the_process_may_use(self) -> None:
        found = dure.devices()
        total = sum(one.memory_bytes or 0 for one in found)
        assert host.memory_bytes() - 8 < total <= min(host.memory_bytes(), psutil.virtual_memory().total)

    def test_virtual_gpus_are_named_after_the_cpus(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURE_CONFIGURE", "cpu_devices=5 virtual_gpus=3")
        found = dure.devices()
        assert [one.name for one in found][4:] == ["cpu:4", "gpu:0", "gpu:1", "gpu:2"]
        assert all(one.virtual for one in found)
        assert found[7].model.startswith("virtual, on ")
        assert [backing(one) for one in found] == jax.devices("cpu")
        assert backing("/GPU:2") == jax.devices("cpu")[7]

    def test_one_cpu_beside_virtual_gpus_is_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DURE_CONFIGURE", "virtual_gpus=7")
        found = dure.devices()
        assert [one.virtual for one in found] == [False] + [True] * 7

    def test_ten_come_after_nine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_jax, "backends_are_open", lambda: False)
        monkeypatch.setattr(_jax, "cpu_device_setting", lambda: 11)
        assert [one.index for one in dure.devices()] == list(range(11))

    def test_gpus_are_listed_before_jax_opens(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("jax_cuda12_plugin", "jax_cuda12_pjrt"):
            folder = tmp_path / f"{name}-0.10.2.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.10.2\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PATH", str(recordings.tool(tmp_path / "bin", recordings.FOUR).parent))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(_jax, "backends_are_open", lambda: False)
        monkeypatch.setattr(_jax, "platforms", lambda: ())
        found = [one for one in dure.devices() if one.kind == "gpu"]
        assert [one.name for one in found] == ["gpu:0", "gpu:1", "gpu:2", "gpu:3"]
        assert found[0] == Device(
            "gpu:0",
            "gpu",
            46068 << 20,
            virtual=False,
            model="NVIDIA A40",
            compute_capability="8.6",
            driver_version="550.127.05",
            cuda_version="12.4",
        )

    def test_what_jax_cannot_use_is_said(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(recordings.tool(tmp_path / "bin", recordings.FOUR).parent))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert all(one.kind == "cpu" for one in dure.devices())
        missing = unusable()
        assert len(missing) == 4
        assert missing[0].reason == "JAX's plugin for CUDA is not installed"
        assert missing[0].hint == 'pip install "jax[cuda12]"'


class TestFind:
    def test_a_device_is_found_by_any_form_of_its_name(self) -> None:
        for name in ("gpu:1", "/gpu:1", "/device:GPU:1", GPUS[1]):
            assert find(name, CPUS + GPUS) == GPUS[1]

    def test_what_is_not_here_is_refused_with_what_is(self) -> None:
        with pytest.raises(
            SpecError,
            match=r"asked for the device gpu:7, which is not here\. Did you mean .*There are: cpu:0, cpu:1, "
            r"cpu:2, gpu:0, gpu:1\. Name one of them, or write `dure\.configure\(virtual_gpus=8\)`",
        ) as caught:
            find("/device:GPU:7", CPUS + VIRTUAL)
        assert caught.value.device == "gpu:7"

    def test_real_gpus_cannot_be_made(self) -> None:
        with pytest.raises(SpecError, match=r"gpu:2, which is not here") as caught:
            find("gpu:2", CPUS + GPUS)
        assert "virtual_gpus" not in str(caught.value)
        assert "rehearse on CPU devices: write `dure.configure(cpu_devices=3)`" in str(caught.value)

    @pytest.mark.parametrize("name", ["/gpu:*", "/job:ps", ""])
    def test_one_device_must_be_meant(self, name: str) -> None:
        with pytest.raises(SpecError, match="Say both kind and index"):
            find(name, CPUS)


class TestFastest:
    @pytest.mark.parametrize(
        ("there", "expected"),
        [
            (CPUS + GPUS + TPUS, TPUS),
            (CPUS + GPUS, GPUS),
            (CPUS + VIRTUAL, VIRTUAL),
            (CPUS, CPUS),
            ((), ()),
        ],
    )
    def test_the_fastest_kind_alone(self, there: tuple[Device, ...], expected: tuple[Device, ...]) -> None:
        assert fastest(there) == expected


class TestChoose:
    def test_by_default_all_of_the_fastest_kind(self) -> None:
        assert choose(strategy="Mirrored", available=CPUS) == (CPUS, None)

    def test_slower_ones_are_left_out_in_so_many_words(self) -> None:
        chosen, note = choose(strategy="Mirrored", available=CPUS + GPUS)
        assert chosen == GPUS
        assert note == (
            "Mirrored runs on the fastest kind of device, gpu:0, gpu:1, and leaves out cpu:0, cpu:1, cpu:2; "
            "name devices to choose others"
        )

    def test_a_number_takes_the_first(self) -> None:
        assert choose(2, strategy="Mirrored", available=CPUS).devices == CPUS[:2]
        assert choose(1, strategy="Mirrored", available=CPUS + GPUS).devices == GPUS[:1]

    def test_names_choose(self) -> None:
        chosen, note = choose(["/cpu:2", CPUS[0]], strategy="Mirrored", available=CPUS + GPUS)
        assert chosen == (CPUS[2], CPUS[0])
        assert note is None

    @pytest.mark.parametrize(
        ("there", "words"),
        [
            (
                CPUS,
                (
                    r"for 4 devices: need 4, have 3 of the fastest kind \(cpu:0, cpu:1, cpu:2\)"
                    r"\. Ask for 3, or write `dure\.configure\(cpu_devices=4\)` before the first use"
                ),
            ),
            (CPUS + VIRTUAL, r"need 4, have 2 .*write `dure\.configure\(virtual_gpus=4\)`"),
            (
                CPUS + GPUS,
                (
                    r"have 2 of the fastest kind \(gpu:0, gpu:1\)\. Ask for 2, or rehearse on CPU devices: "
                    r"write `dure\.configure\(cpu_devices=4\)` before the first use, and name .*: \[\"cpu:0\""
                ),
            ),
        ],
    )
    def test_more_than_there_are_is_refused_with_need_have_and_line(
        self, there: tuple[Device, ...], words: str
    ) -> None:
        with pytest.raises(SpecError, match=words):
            choose(4, strategy="Mirrored", available=there)

    def test_a_pool_of_two_kinds_is_refused_with_the_reason(self) -> None:
        with pytest.raises(
            SpecError,
            match="asked Mirrored for gpu:0, cpu:0, which mix the kinds cpu and gpu; each would get an equal "
            "share of every batch, so the slowest would set the pace of all. Name devices of one kind",
        ):
            choose(["gpu:0", "cpu:0"], strategy="Mirrored", available=CPUS + GPUS)

    def test_a_device_twice_is_refused(self) -> None:
        with pytest.raises(SpecError, match=r"asked Mirrored for cpu:1 more than once; .* Name each device once"):
            choose(["cpu:1", "/CPU:1"], strategy="Mirrored", available=CPUS)

    @pytest.mark.parametrize("wanted", [0, -1, True, False])
    def test_no_number_of_devices_is_refused(self, wanted: int) -> None:
        with pytest.raises(SpecError, match=rf"asked Mirrored for {wanted} devices; it takes a whole number from 1"):
            choose(wanted, strategy="Mirrored", available=CPUS)

    @pytest.mark.parametrize("wanted", ["cpu:0", 2.0, [], {"cpu:0"}, b"cpu:0"])
    def test_what_is_neither_number_nor_list_is_refused(self, wanted: object) -> None:
        with pytest.raises(SpecError, match=r"it takes a number or a list of names\. Write them as \['cpu:0', 'cpu:1'"):
            choose(wanted, strategy="Mirrored", available=CPUS)

    def test_wrong_names_in_a_list_are_refused(self) -> None:
        with pytest.raises(SpecError, match="cpu:9, which is not here"):
            choose(["cpu:0", "cpu:9"], strategy="Mirrored", available=CPUS)
        with pytest.raises(SpecError, match="which is no text"):
            choose([0, 1], strategy="Mirrored", available=CPUS)


class TestBacking:
    def test_a_device_is_one_of_jaxs(self) -> None:
        assert [backing(one) for one in dure.devices()] == jax.local_devices(backend="cpu")
        assert backing("cpu:3") == jax.devices("cpu")[3]

    def test_what_is_not_there_has_none(self) -> None:
        with pytest.raises(SpecError, match=r"asked for the device cpu:8, .*`dure\.configure\(cpu_devices=9\)`"):
            backing("cpu:8")
        with pytest.raises(SpecError, match="asked for the device gpu:0"):
            backing(device("gpu:0"))


def test_what_the_driver_says_of_an_open_gpu_goes_by_its_model() -> None:
    class Open:
        """What is read of a device of JAX's."""

        device_kind = "NVIDIA A40"
        compute_capability = "8.6"

        def memory_stats(self) -> dict[str, int]:
            return {"bytes_limit": 5}

    first = inventory.Gpu(0, "GPU-0", "NVIDIA T4", 16 << 30)
    second = replace(first, uuid="GPU-1", model="NVIDIA A40", memory_bytes=48 << 30)
    one: jax.Device = Open()  # type: ignore[assignment]
    assert inventory._facts(0, one, [first, second]) == second
    assert inventory._facts(1, one, [first, second]) == second
    alone = inventory._facts(0, one, [first])
    assert (alone.model, alone.memory_bytes, alone.compute_capability) == ("NVIDIA A40", 5, "8.6")
