from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from dure.data.idx import parse_idx
from unit.data.sets import arrays, named_set, put

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_sample.py"


@pytest.fixture
def make_sample(monkeypatch: pytest.MonkeyPatch):
    """The script as a module, which takes 2 images a class to train with and 1 to test with."""
    spec = importlib.util.spec_from_file_location("make_sample", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TRAIN_PER_CLASS", 2)
    monkeypatch.setattr(module, "TEST_PER_CLASS", 1)
    return module


def test_the_first_of_each_class_are_taken_in_their_order(make_sample):
    labels = np.array([3, 3, 0, 3, 0, 0, 9], np.uint8)
    assert make_sample.pick(labels, 2).tolist() == [0, 1, 2, 4, 6]


def test_the_same_whole_gives_the_same_sample(make_sample, monkeypatch, tmp_path: Path, capsys):
    content = arrays(train=200, test=100)
    monkeypatch.setattr(make_sample, "FASHION_MNIST", named_set(content))
    folder = put(tmp_path / "whole", content)
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        monkeypatch.setattr(sys, "argv", ["make_sample.py", str(folder), "--out", str(out)])
        make_sample.main()
    files = [{path.name: path.read_bytes() for path in out.iterdir()} for out in outs]
    assert files[0] == files[1]
    assert len(files[0]) == 4
    labels = parse_idx(make_sample.gzip.decompress(files[0]["train-labels-idx1-ubyte.gz"]))
    images = parse_idx(make_sample.gzip.decompress(files[0]["train-images-idx3-ubyte.gz"]))
    assert np.bincount(labels).tolist() == [2] * 10
    whole_labels, whole_images = content["train-labels-idx1-ubyte"], content["train-images-idx3-ubyte"]
    for label in range(10):
        np.testing.assert_array_equal(images[labels == label], whole_images[whole_labels == label][:2])
    assert "train-labels-idx1-ubyte [20]" in capsys.readouterr().out
