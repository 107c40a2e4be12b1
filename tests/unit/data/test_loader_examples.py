from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_data_set_and_a_generator_train(tmp_path: Path):
    done = run("loaders_dataset.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["dataset", "generator"]


@pytest.mark.parametrize(
    ("name", "library"),
    [("loaders_torch.py", "torch"), ("loaders_grain.py", "grain"), ("loaders_tf.py", "tensorflow")],
)
def test_a_loader_of_another_library_trains_or_shows_the_line_to_install_it(tmp_path: Path, name, library):
    done = run(name, tmp_path)
    if importlib.util.find_spec(library) is None:
        assert done.returncode == 1
        assert done.stderr == f"this example needs {library}: pip install {library}\n"
    else:
        assert done.returncode == 0, done.stderr
        assert "accuracy" in done.stdout
