from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dure.devices import accelerators
from dure.devices.accelerators import Survey, judge
from dure.devices.nvidia import Gpu, Probe
from dure.devices.tpu import Tpu
from unit.devices import recordings

GPU = Gpu(0, "GPU-0aa", "NVIDIA H200", 140 << 30, "580.65.06", "13.0", "9.0")
OLD = replace(GPU, uuid="GPU-1aa", model="NVIDIA A40", driver_version="550.127.05", cuda_version="12.4")
TPUS = (Tpu("TPU v5e", 16 << 30),) * 4
CUDA13 = frozenset({"cuda13"})


def look(
    *gpus: Gpu,
    installed: frozenset[str] = CUDA13,
    platforms: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
    tpus: tuple[Tpu, ...] = (),
    has_nodes: bool = True,
) -> Survey:
    return judge(Probe(gpus), tpus, installed, platforms, environ or {}, has_nodes=has_nodes)


def test_what_can_be_used_is_used() -> None:
    assert look(GPU) == Survey((GPU,), (), ())
    assert look(OLD, installed=frozenset({"cuda12"})).gpus == (OLD,)
    assert look(GPU, platforms=("cuda", "cpu")).gpus == (GPU,)
    assert look(tpus=TPUS, installed=frozenset({"tpu"})) == Survey((), TPUS, ())
    assert look() == Survey((), (), ())


@pytest.mark.parametrize(("gpu", "line"), [(GPU, 'pip install "dure[cuda]"'), (OLD, 'pip install "jax[cuda12]"')])
def test_without_the_plugin_the_line_to_install_fits_the_driver(gpu: Gpu, line: str) -> None:
    found = look(gpu, installed=frozenset())
    assert found.gpus == ()
    (missing,) = found.unusable
    assert missing.kind == "gpu"
    assert missing.model == gpu.model
    assert missing.reason == "JAX's plugin for CUDA is not installed"
    assert missing.hint == line


def test_a_driver_too_old_for_the_plugin_is_said() -> None:
    (missing,) = look(OLD).unusable
    assert missing.reason == "the plugin is for CUDA 13, and the driver serves CUDA 12.4"
    assert missing.hint == 'update the driver to 580 or later, or pip install "jax[cuda12]"'


def test_platforms_that_leave_it_out_are_said() -> None:
    found = look(GPU, platforms=("cpu",), tpus=TPUS, installed=frozenset({"cuda13", "tpu"}))
    assert (found.gpus, found.tpus) == ((), ())
    assert found.unusable[0].reason == "JAX_PLATFORMS is 'cpu' and leaves it out"
    assert found.unusable[0].hint == "unset JAX_PLATFORMS, or write JAX_PLATFORMS=cuda,cpu"
    assert found.unusable[1].hint == "unset JAX_PLATFORMS, or write JAX_PLATFORMS=tpu,cpu"


def test_what_the_environment_hides_is_said() -> None:
    second = replace(GPU, index=1, uuid="GPU-2aa")
    found = look(GPU, second, environ={"CUDA_VISIBLE_DEVICES": "1"})
    assert found.gpus == (second,)
    (missing,) = found.unusable
    assert missing.reason == "the environment variable CUDA_VISIBLE_DEVICES is '1' and leaves it out"


def test_other_instances_are_said_and_their_gpu_is_not() -> None:
    whole = replace(GPU, divided=True)
    parts = [replace(GPU, uuid=f"MIG-{part}", model="NVIDIA H200 MIG 1g.18gb") for part in range(2)]
    found = look(whole, *parts)
    assert found.gpus == (parts[0],)
    (missing,) = found.unusable
    assert missing.hint == "choose it: CUDA_VISIBLE_DEVICES=MIG-1"


def test_a_divided_gpu_without_instances_is_said() -> None:
    (missing,) = look(replace(GPU, divided=True)).unusable
    assert missing.reason == "it is in MIG mode and has no instance"


def test_a_broken_driver_is_said() -> None:
    found = judge(Probe((), "nvidia-smi says: no", "mend it"), (), CUDA13, (), {}, has_nodes=False)
    assert found.unusable == (accelerators.Unusable("gpu", "NVIDIA GPU", "nvidia-smi says: no", "mend it"),)


def test_tpus_need_their_files_and_their_library() -> None:
    found = look(tpus=TPUS, has_nodes=False)
    assert found.tpus == ()
    assert len(found.unusable) == 4
    assert "no device file here" in found.unusable[0].reason
    (first, *_) = look(tpus=TPUS).unusable
    assert (first.reason, first.hint) == ("the package libtpu is not installed", 'pip install "dure[tpu]"')


def test_the_installed_plugins_are_those_of_this_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = accelerators.plugins()
    for name in ("jax_cuda13_plugin", "jax_cuda13_pjrt", "libtpu", "jax_cuda12_plugin"):
        folder = tmp_path / f"{name}-0.10.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.10.2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    # The plugin for CUDA 12 has only one of its two parts.
    assert accelerators.plugins() - before == {"cuda13", "tpu"} - before


def test_the_smallest_gpu_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(recordings.tool(tmp_path / "bin", recordings.FOUR).parent))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # No plugin is installed for tests, and JAX is limited to the CPU: nothing is usable.
    assert accelerators.smallest_gpu_bytes() is None
    assert [missing.model for missing in accelerators.survey().unusable] == ["NVIDIA A40"] * 4
