from __future__ import annotations

import gzip
import hashlib
import io
import socket
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dure.data import catalog, load
from dure.data.idx import write_idx
from dure.data.pins import FASHION_MNIST, NpzFile
from dure.errors import DataError, SpecError
from unit.data.sets import arrays, named_set, put


def same(split, content) -> bool:
    (x, y), (x_test, y_test) = split
    return all(np.array_equal(a, b) for a, b in zip((x, y, x_test, y_test), content.values(), strict=True))


def as_npz(content: dict[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **dict(zip(("x_train", "y_train", "x_test", "y_test"), content.values(), strict=True)))
    return file.getvalue()


def object_npz() -> bytes:
    """An archive whose first array says that it holds objects: to read it would run what is in it."""
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": "|O", "fortran_order": False, "shape": (30,)})
    member.write(b"\x80\x04N.")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x_train.npy", member.getvalue())
    return file.getvalue()


# --- names --------------------------------------------------------------------------------------------------


def test_a_wrong_name_shows_what_exists_and_what_was_meant():
    with pytest.raises(SpecError, match="asked to load the data set 'fashion-mnst'") as caught:
        load("fashion-mnst")
    assert "Did you mean `fashion_mnist`" in caught.value.message
    assert "There are: digits, fashion_mnist, mnist." in caught.value.message


@pytest.mark.parametrize("name", [None, 3, [], "../mnist", "", "MNIST\0"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(SpecError, match="There are: digits, fashion_mnist, mnist"):
        load(name)


# --- the folder that the user names -------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["", "fashion_mnist", "fashion-mnist"])
def test_the_named_folder_comes_first(places, small, monkeypatch, folder):
    put(places["given"] / folder, small)
    put(places["keras"] / "datasets" / "fashion-mnist", arrays(seed=1))
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    assert same(load("fashion_mnist"), small)


def test_plain_files_serve_as_well(places, small, monkeypatch):
    for name, array in small.items():
        (places["given"] / name).write_bytes(write_idx(array))
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    assert same(load("fashion_mnist"), small)


@pytest.mark.parametrize("name", list(arrays()))
def test_a_missing_file_of_the_named_folder_is_named(places, small, monkeypatch, name):
    put(places["given"], small)
    put(places["system"] / "fashion-mnist", small)
    (places["given"] / f"{name}.gz").unlink()
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    with pytest.raises(DataError, match=f"{name}.gz: it is missing"):
        load("fashion_mnist")


def test_a_named_folder_without_the_set_leaves_it_to_the_next(places, small, monkeypatch):
    put(places["system"] / "fashion-mnist", small)
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    assert same(load("fashion_mnist"), small)


@pytest.mark.parametrize("given", ["no/such/folder", "~nobody-of-this-name/x"])
def test_a_named_folder_that_is_not_there_is_an_error(places, small, monkeypatch, given):
    monkeypatch.setenv("DURE_DATA_DIR", given)
    with pytest.raises(DataError, match=f"DURE_DATA_DIR={given}: there is no such folder"):
        load("fashion_mnist")


# --- the cache, the system, the download --------------------------------------------------------------------


def test_the_keras_cache_comes_before_the_system(places, small):
    put(places["keras"] / "datasets" / "fashion-mnist", small)
    put(places["system"] / "fashion-mnist", arrays(seed=1))
    assert same(load("fashion_mnist"), small)


def test_the_home_folder_holds_the_cache_unless_keras_is_told_otherwise(places, small, monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    put(tmp_path / ".keras" / "datasets" / "fashion-mnist", small)
    assert same(load("fashion_mnist"), small)


def test_an_unfinished_cache_leaves_it_to_the_system(places, small):
    cache = put(places["keras"] / "datasets" / "fashion-mnist", small)
    (cache / "t10k-labels-idx1-ubyte.gz").unlink()
    put(places["system"] / "fashion-mnist", small)
    assert same(load("fashion_mnist"), small)


@pytest.mark.parametrize("place", ["given", "keras/datasets/fashion-mnist", "system/fashion-mnist"])
@pytest.mark.parametrize("name", list(arrays()))
def test_an_altered_file_is_never_used_and_never_passed_over(
    places, small, mirror, monkeypatch, tmp_path: Path, place: str, name: str
):
    altered = small[name].copy()
    altered.flat[-1] ^= 1
    put(tmp_path / place, {**small, name: altered})
    if place == "given":
        monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    # A whole one waits in the place that comes last.
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    for each, array in small.items():
        mirror.bodies[f"/{each}.gz"] = gzip.compress(write_idx(array))
    with pytest.raises(DataError, match="truncated or altered") as caught:
        load("fashion_mnist")
    for word in (
        str(tmp_path / place / f"{name}.gz"),
        hashlib.sha256(write_idx(altered)).hexdigest(),
        hashlib.sha256(write_idx(small[name])).hexdigest(),
    ):
        assert word in caught.value.message
    assert mirror.asked == []


def test_a_download_fills_the_cache_and_is_not_repeated(places, small, mirror, monkeypatch, capfd):
    monkeypatch.setenv("DURE_DATA_URL", mirror.url + "/mirror/")
    for name, array in small.items():
        mirror.bodies[f"/mirror/{name}.gz"] = gzip.compress(write_idx(array))
    assert same(load("fashion_mnist"), small)
    assert same(load("fashion_mnist"), small)
    assert len(mirror.asked) == 4
    cache = places["keras"] / "datasets" / "fashion-mnist"
    assert sorted(path.name for path in cache.iterdir()) == sorted(f"{name}.gz" for name in small)
    assert capfd.readouterr().err == ""


def test_a_download_completes_an_unfinished_cache(places, small, mirror, monkeypatch):
    cache = put(places["keras"] / "datasets" / "fashion-mnist", small)
    (cache / "t10k-labels-idx1-ubyte.gz").unlink()
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    name = "t10k-labels-idx1-ubyte"
    mirror.bodies[f"/{name}.gz"] = gzip.compress(write_idx(small[name]))
    assert same(load("fashion_mnist"), small)
    assert mirror.asked == [f"/{name}.gz"]


def test_a_wrong_download_is_an_error_and_is_not_kept(places, small, mirror, monkeypatch):
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    for name, array in arrays(seed=1).items():
        mirror.bodies[f"/{name}.gz"] = gzip.compress(write_idx(array))
    with pytest.raises(DataError, match="Nothing of it was kept") as caught:
        load("fashion_mnist")
    assert f"{mirror.url}/train-images-idx3-ubyte.gz" in caught.value.message
    assert list((places["keras"] / "datasets" / "fashion-mnist").iterdir()) == []


def test_a_truncated_download_is_an_error_and_is_not_kept(places, small, mirror, monkeypatch):
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    for name, array in small.items():
        mirror.bodies[f"/{name}.gz"] = gzip.compress(write_idx(array))
    mirror.stop_after = 200
    with pytest.raises(DataError, match="a gzip file that stops after"):
        load("fashion_mnist")
    assert list((places["keras"] / "datasets" / "fashion-mnist").iterdir()) == []


def test_a_download_from_no_web_address_is_refused(places, small, monkeypatch):
    monkeypatch.setenv("DURE_DATA_URL", "/srv/data")
    with pytest.raises(SpecError, match="only http and https"):
        load("fashion_mnist")


# --- the sample ---------------------------------------------------------------------------------------------


def test_the_sample_is_the_last_resort_and_says_so(places, mirror, monkeypatch, capfd):
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    (x, y), (x_test, y_test) = load("fashion_mnist")
    assert (x.shape, y.shape, x_test.shape, y_test.shape) == (
        (10_000, 28, 28),
        (10_000,),
        (2_000, 28, 28),
        (2_000,),
    )
    assert {array.dtype for array in (x, y, x_test, y_test)} == {np.dtype(np.uint8)}
    assert np.bincount(y).tolist() == [1_000] * 10
    assert np.bincount(y_test).tolist() == [200] * 10
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in (
        "dure: `fashion_mnist` is the sample of 12,000 images",
        "DURE_DATA_DIR is not set",
        f"{places['keras']}/datasets/fashion-mnist has none of its 4 files",
        f"{mirror.url}/train-images-idx3-ubyte.gz answered 404",
        "install the system package `dataset-fashion-mnist`",
        "set DURE_DATA_DIR",
    ):
        assert word in err


def test_without_a_network_the_sample_comes_at_once(places, monkeypatch, capfd):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DURE_DATA_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        (x, _), _ = load("fashion_mnist")
    assert len(x) == 10_000
    assert "could not be reached" in capfd.readouterr().err


def test_a_set_without_a_sample_tells_every_place_that_was_tried(places):
    with pytest.raises(DataError, match="asked to load `mnist`, and no place has it: ") as caught:
        load("mnist")
    for word in (
        "DURE_DATA_DIR is not set",
        "no system package has it",
        "DURE_DATA_URL is set to nothing",
        "put mnist.npz into a folder",
    ):
        assert word in caught.value.message


def test_the_sample_is_small_and_carries_its_licence():
    folder = catalog.SAMPLE_FOLDER / "fashion-mnist"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 6_000_000
    licence = (folder / "LICENSE.txt").read_text(encoding="utf-8")
    assert "The MIT License" in licence
    assert "2017 Zalando SE" in licence


# --- the archive of Keras -----------------------------------------------------------------------------------


@pytest.fixture
def small_mnist(monkeypatch: pytest.MonkeyPatch):
    """A small data set that `mnist` names, whose archive is pinned."""
    content = arrays(seed=2)
    packed = as_npz(content)
    pin = NpzFile("mnist.npz", len(packed), hashlib.sha256(packed).hexdigest())
    known = replace(named_set(content, "mnist"), folder="mnist", archive=pin, package=None, sample=None)
    monkeypatch.setitem(catalog.SETS, "mnist", known)
    return content, packed


@pytest.mark.parametrize("place", ["given/mnist.npz", "given/mnist/mnist.npz", "keras/datasets/mnist.npz"])
def test_the_archive_is_read(places, small_mnist, monkeypatch, tmp_path: Path, place):
    content, packed = small_mnist
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(packed)
    assert same(load("mnist"), content)


def test_the_archive_is_downloaded(places, small_mnist, mirror, monkeypatch):
    content, packed = small_mnist
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    mirror.bodies["/mnist.npz"] = packed
    assert same(load("mnist"), content)
    assert same(load("mnist"), content)
    assert mirror.asked == ["/mnist.npz"]


@pytest.mark.parametrize("length", [0, 100, -1, None])
def test_a_damaged_archive_names_both_digests(places, small_mnist, monkeypatch, length):
    _, packed = small_mnist
    damaged = packed[:length] if length is not None else packed + b"more"
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    (places["given"] / "mnist.npz").write_bytes(damaged)
    with pytest.raises(DataError, match="truncated or altered") as caught:
        load("mnist")
    assert hashlib.sha256(packed).hexdigest() in caught.value.message
    found = "more than" if length is None else hashlib.sha256(damaged).hexdigest()
    assert found in caught.value.message


def test_a_damaged_download_of_the_archive_is_not_kept(places, small_mnist, mirror, monkeypatch):
    monkeypatch.setenv("DURE_DATA_URL", mirror.url)
    mirror.bodies["/mnist.npz"] = small_mnist[1][:-1]
    with pytest.raises(DataError, match="Nothing of it was kept"):
        load("mnist")
    assert list((places["keras"] / "datasets").iterdir()) == []


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (b"no archive", "Fetch the file again"),
        (object_npz(), "allow_pickle=False"),
        (as_npz(arrays(train=3)), r"`x_train` in .* with uint8 \[30, 28, 28\]: it is uint8 \[3, 28, 28\]"),
        (as_npz({**arrays(), "train-labels-idx1-ubyte": np.zeros(30)}), "`y_train` .* it is float64"),
    ],
)
def test_an_archive_of_another_form_is_refused_even_when_pinned(places, small_mnist, monkeypatch, packed, words):
    pin = NpzFile("mnist.npz", len(packed), hashlib.sha256(packed).hexdigest())
    monkeypatch.setitem(catalog.SETS, "mnist", replace(catalog.SETS["mnist"], archive=pin))
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    (places["given"] / "mnist.npz").write_bytes(packed)
    with pytest.raises(DataError, match=words):
        load("mnist")


def test_files_of_the_other_mnist_are_recognised(places, monkeypatch):
    """Both name their files alike: a set in the wrong folder is told as what it is."""
    assert FASHION_MNIST.sample is not None
    for path in (catalog.SAMPLE_FOLDER / "fashion-mnist").glob("*.gz"):
        (places["given"] / path.name).write_bytes(path.read_bytes())
    monkeypatch.setenv("DURE_DATA_DIR", str(places["given"]))
    with pytest.raises(DataError, match="of the sample of `fashion_mnist`"):
        load("mnist")


# --- digits -------------------------------------------------------------------------------------------------


def test_digits_are_split_by_class_the_same_each_time():
    (x, y), (x_test, y_test) = load("digits")
    assert (x.shape, x_test.shape) == ((1_433, 8, 8), (364, 8, 8))
    assert {array.dtype for array in (x, y, x_test, y_test)} == {np.dtype(np.uint8)}
    assert (x.min(), x.max()) == (0, 16)
    shares = np.bincount(y_test) / (np.bincount(y) + np.bincount(y_test))
    np.testing.assert_allclose(shares, 0.2, atol=0.005)
    (again, _), _ = load("digits")
    np.testing.assert_array_equal(x, again)


def test_digits_without_scikit_learn_show_the_line_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SpecError, match=r'pip install "dure\[data\]"'):
        load("digits")
