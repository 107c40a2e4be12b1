"""Checkpoints: exact arrays, one-step replacement, and an error for everything that is not as it was saved."""

import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dure import checkpoint
from dure.checkpoint import Leaf
from dure.errors import CheckpointError

ARRAYS = {
    "params['kernel']": np.arange(12, dtype=np.float32).reshape(3, 4),
    "params['bias']": np.array([1.5, np.nan, -0.0, np.inf], ml_dtypes.bfloat16),
    "key": np.array([1, 2], np.uint32),
    "step": np.array(7, np.int32),
    "flags": np.array([True, False]),
    "nothing": np.zeros((0, 3), np.int16),
    "complex": np.array([[1 + 2j]], np.complex64),
}
ABOUT = {"epoch": 3, "seed": 11, "strategy": "SingleDevice()", "order": None, "list": [1, "a", True]}


def expected(arrays):
    return {name: Leaf(array.dtype.name, array.shape) for name, array in arrays.items()}


def files_of(path: Path) -> list[Path]:
    return sorted(entry for entry in path.rglob("*") if entry.is_file())


def blob_of(path: Path) -> Path:
    """The file of the arrays that is the largest."""
    return max((f for f in files_of(path) if f.name != "manifest.json"), key=lambda f: f.stat().st_size)


def rewrite(path: Path, change, *, checksum=True) -> None:
    """Changes the manifest's body, and gives it a right checksum, as somebody who means harm would."""
    file = path / "manifest.json"
    whole = json.loads(file.read_text())
    change(whole["body"])
    if checksum:
        text = json.dumps(whole["body"], sort_keys=True, separators=(",", ":"))
        whole["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(whole))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "first"
    checkpoint.save(path, ARRAYS, ABOUT)
    return path


def same(found: dict, wanted: dict) -> None:
    assert list(found) == sorted(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert found[name].tobytes() == array.tobytes(), name


def test_arrays_come_back_bit_for_bit_with_what_was_said_about_them(saved):
    read = checkpoint.load(saved, lambda _: expected(ARRAYS))
    same(read.arrays, ARRAYS)
    assert read.about == ABOUT
    assert read.path == saved


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=20),
        hnp.arrays(
            st.sampled_from(["f4", "f2", "f8", "i4", "i8", "u1", "?", "c8"]),
            hnp.array_shapes(min_dims=0, max_dims=4, min_side=0),
        ),
        max_size=5,
    )
)
def test_any_names_and_shapes_come_back(tmp_path, arrays):
    path = tmp_path / "any"
    checkpoint.save(path, arrays, {})
    same(checkpoint.load(path).arrays, arrays)


def test_strided_and_foreign_byte_order_come_back_as_values(tmp_path):
    checkpoint.save(tmp_path / "c", {"t": np.arange(6.0).reshape(2, 3).T, "b": np.arange(3, dtype=">i4")}, {})
    read = checkpoint.load(tmp_path / "c").arrays
    assert read["t"].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert read["b"].tolist() == [0, 1, 2]
    assert read["b"].dtype == np.int32


def test_nobody_else_may_read_it_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        checkpoint.save(tmp_path / "deep" / "c", ARRAYS, ABOUT)
    finally:
        os.umask(before)
    for entry in [tmp_path / "deep", *(tmp_path / "deep").rglob("*")]:
        wanted = 0o700 if entry.is_dir() else 0o600
        assert stat.S_IMODE(entry.stat().st_mode) == wanted, entry


def test_a_second_save_takes_the_place_of_the_first_and_leaves_nothing_of_it(saved):
    newer = {"w": np.ones(5, np.float32)}
    checkpoint.save(saved, newer, {"step": 2})
    read = checkpoint.load(saved)
    same(read.arrays, newer)
    assert read.about == {"step": 2}
    assert len([entry for entry in saved.iterdir() if entry.name.startswith("arrays-")]) == 1
    assert os.listdir(saved.parent) == ["first"]


def test_it_lands_on_an_empty_directory_and_through_a_link_to_one(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    checkpoint.save(tmp_path / "link", ARRAYS, ABOUT)
    same(checkpoint.load(tmp_path / "empty").arrays, ARRAYS)


def test_what_is_no_checkpoint_is_not_written_over(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match=r"file is a file, and a checkpoint is a directory. Give another"):
        checkpoint.save(tmp_path / "file", ARRAYS, ABOUT)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds no checkpoint but thesis.tex. Give another path"):
        checkpoint.save(tmp_path / "folder", ARRAYS, ABOUT)
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_objects_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="array `o` is object, which no checkpoint holds. Keep numbers"):
        checkpoint.save(tmp_path / "c", {"o": np.array([{}])}, {})
    with pytest.raises(CheckpointError, match="array `t` is <U3"):
        checkpoint.save(tmp_path / "c", {"t": np.array(["abc"])}, {})
    assert os.listdir(tmp_path) == []


# --- what is missing, cut or altered ----------------------------------------------------------------------


def test_nothing_there_is_said_with_what_is(tmp_path):
    with pytest.raises(CheckpointError, match="no such directory. Give the path that was saved to"):
        checkpoint.load(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="it is a file"):
        checkpoint.load(tmp_path / "file")
    (tmp_path / "d").mkdir()
    with pytest.raises(CheckpointError, match="no complete checkpoint at .*: it holds nothing"):
        checkpoint.load(tmp_path / "d")
    (tmp_path / "d" / "arrays-0123456789abcdef").mkdir()
    with pytest.raises(CheckpointError, match="it holds `arrays-0123456789abcdef`"):
        checkpoint.load(tmp_path / "d")


def test_every_cut_of_every_file_is_found(saved):
    for file in files_of(saved):
        whole = file.read_bytes()
        for sixteenth in range(16):
            file.write_bytes(whole[: len(whole) * sixteenth // 16])
            with pytest.raises(CheckpointError, match=file.name):
                checkpoint.load(saved)
        file.write_bytes(whole)
    checkpoint.load(saved)


def test_a_flipped_bit_is_found_with_both_digests(saved):
    for file in files_of(saved):
        whole = file.read_bytes()
        altered = bytearray(whole)
        altered[len(whole) // 2] ^= 1
        file.write_bytes(altered)
        with pytest.raises(CheckpointError) as caught:
            checkpoint.load(saved)
        assert str(file) in str(caught.value)
        if file.name != "manifest.json":
            assert hashlib.sha256(whole).hexdigest() in str(caught.value)
            assert hashlib.sha256(altered).hexdigest() in str(caught.value)
        file.write_bytes(whole)


def test_a_missing_file_is_named(saved):
    file = blob_of(saved)
    file.unlink()
    with pytest.raises(CheckpointError, match=rf"{file.name} is missing .*SHA-256 [0-9a-f]{{64}}\)"):
        checkpoint.load(saved)


def test_an_added_file_is_refused(saved):
    file = blob_of(saved).parent / "extra"
    file.write_text("x")
    with pytest.raises(CheckpointError, match="not listed in its manifest. Remove what was added"):
        checkpoint.load(saved)


def test_a_link_in_place_of_a_file_is_not_followed(saved, tmp_path):
    file = blob_of(saved)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="is a link, and a checkpoint has none"):
        checkpoint.load(saved)
    file.unlink()
    elsewhere.rename(file)
    manifest = saved / "manifest.json"
    manifest.rename(elsewhere)
    manifest.symlink_to(elsewhere)
    with pytest.raises(CheckpointError, match="manifest.json is no regular file"):
        checkpoint.load(saved)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "arrays-{}/../../x", "a\0b", "arrays-{}//x", "x/../y"])
def test_a_manifest_that_points_outside_is_refused(saved, name):
    folder = json.loads((saved / "manifest.json").read_text())["body"]["folder"][7:]
    rewrite(saved, lambda body: body["files"].update({name.format(folder): [1, "0" * 64]}))
    with pytest.raises(CheckpointError, match="lies outside of arrays-"):
        checkpoint.load(saved)


@pytest.mark.parametrize("folder", ["..", "/tmp", "arrays-0123456789abcdef/..", "arrays-x", 7])
def test_a_manifest_with_another_folder_is_refused(saved, folder):
    rewrite(saved, lambda body: body.update(folder=folder))
    with pytest.raises(CheckpointError, match="is no manifest of a checkpoint"):
        checkpoint.load(saved)


def test_a_changed_manifest_is_found_by_its_own_checksum(saved):
    rewrite(saved, lambda body: body["about"].update(epoch=4), checksum=False)
    with pytest.raises(CheckpointError, match=r"manifest.json is altered: .*[0-9a-f]{64}, expected [0-9a-f]{64}"):
        checkpoint.load(saved)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": 1', "damaged"),
        ("", "damaged"),
        ('{"format": 1, "format": 1}', "a key is there twice"),
        ('{"format": NaN}', "it has the value NaN"),
        ("[" * 100_000 + "]" * 100_000, "damaged"),
        ("[]", "no manifest of a checkpoint"),
        ("{}", "no manifest of a checkpoint"),
        ('{"format": 1, "sha256": "", "body": 3}', "is altered"),
        ('{"format": 2}', "has format 2, and this version of Dure reads format 1"),
        ('"\\ud800"', "no manifest of a checkpoint"),
        ("\x00\xff", "damaged"),
    ],
)
def test_no_text_in_place_of_a_manifest_does_more_than_raise(saved, text, words):
    (saved / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=words):
        checkpoint.load(saved)


def test_a_huge_manifest_is_not_read(saved):
    with (saved / "manifest.json").open("r+b") as file:
        file.truncate(2 * 2**30)
    with pytest.raises(CheckpointError, match="has 2147483648 bytes, and no manifest has more than 16777216"):
        checkpoint.load(saved)


def test_a_manifest_that_lies_about_a_shape_is_caught(saved):
    rewrite(saved, lambda body: body["leaves"]["key"].__setitem__(2, [2_000_000_000, 3]))
    with pytest.raises(CheckpointError, match=r"array `key` in .* is uint32 \[2\], and its manifest says uint32"):
        checkpoint.load(saved)


def test_a_newest_that_does_not_count_is_passed_over(tmp_path):
    for step, run in ((1, "a"), (2, "b")):
        checkpoint.save(checkpoint.step_path(tmp_path, step), ARRAYS, {"run": run})
    assert checkpoint.load_latest(tmp_path, counts=lambda about: about["run"] == "a").about == {"run": "a"}
    assert [about["run"] for about in checkpoint.each(tmp_path)] == ["b", "a"]


def test_arrays_of_another_model_are_listed_on_both_sides(saved):
    wanted = expected(ARRAYS)
    del wanted["flags"]
    wanted["momentum"] = Leaf("float32", (3, 4))
    wanted["key"] = Leaf("uint32", (4,))
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(saved, lambda _: wanted)
    message = str(caught.value)
    assert "it lacks `momentum`" in message
    assert "it has `flags`, which the model lacks" in message
    assert "`key` is uint32 [2] there and uint32 [4] here" in message
    assert "7 arrays, the model 7" in message


# --- disks that refuse ------------------------------------------------------------------------------------


def saved_or_refused(path: Path) -> bool:
    """Saves step 2; False when it was refused, as it must be, for want of space."""
    words = []
    try:
        checkpoint.save(path, {"w": np.ones(3)}, {"step": 2})
    except CheckpointError as error:
        words = [str(error)]
    assert all("No space left on device" in word for word in words)
    return not words


@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("over", [False, True])
def test_whichever_call_to_the_disk_fails_the_old_stays_and_no_part_is_left(tmp_path, monkeypatch, call, over):
    path = tmp_path / "c"
    if over:
        checkpoint.save(path, {"w": np.zeros(3)}, {"step": 1})
    true = getattr(os, call)
    for k in range(100):
        count = 0

        def failing(*args, _k=k):
            nonlocal count
            count += 1
            if count == _k + 1:
                raise OSError(28, "No space left on device")
            return true(*args)

        monkeypatch.setattr(os, call, failing)
        saved = saved_or_refused(path)
        monkeypatch.undo()
        if saved:
            break
        if path.exists():
            assert checkpoint.load(path).about["step"] in ((1, 2) if over else (2,))
            # The arrays of both stay where only the last fsync failed: either may be what the disk has kept.
            assert len(list(path.iterdir())) == (2 if checkpoint.load(path).about["step"] == 1 or not over else 3)
        assert os.listdir(tmp_path) in ([], ["c"])
    assert k >= 1
    assert checkpoint.load(path).about == {"step": 2}


def test_a_file_as_parent_is_said(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="failed: (Not a directory|File exists)"):
        checkpoint.save(tmp_path / "file" / "c", ARRAYS, ABOUT)


FULL = """
import resource, sys, os
import numpy as np
from dure import checkpoint
from dure.errors import CheckpointError
path = sys.argv[1]
checkpoint.save(path, {"w": np.zeros(3)}, {"step": 1})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    checkpoint.save(path, {"w": np.random.default_rng(0).normal(size=1_000_000)}, {"step": 2})
except CheckpointError as error:
    print("refused", "No older checkpoint is lost" in str(error))
print(checkpoint.load(path).about, sorted(os.listdir(os.path.dirname(path))), len(os.listdir(path)))
"""


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.stdout.splitlines() == ["refused True", "{'step': 1} ['c'] 2"], done.stderr


# --- a process that is killed -----------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import numpy as np
from dure import checkpoint
path, call, k = sys.argv[1], sys.argv[2], int(sys.argv[3])
true, count = getattr(os, call), 0
def deadly(*args):
    global count
    count += 1
    if count == k:
        os.kill(os.getpid(), signal.SIGKILL)
    return true(*args)
checkpoint.save(path, {"w": np.zeros(3)}, {"step": 1})
print("saved 1", flush=True)
setattr(os, call, deadly)
checkpoint.save(path, {"w": np.ones(3)}, {"step": 2})
print("saved 2", flush=True)
"""


@pytest.mark.parametrize(("call", "k"), [("fsync", 1), ("fsync", 9), ("rename", 1), ("rename", 2), ("rename", 9)])
def test_a_kill_at_any_moment_leaves_the_last_acknowledged_save(tmp_path, call, k):
    path = tmp_path / "c"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), call, str(k)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    acknowledged = len(done.stdout.split("saved")) - 1
    assert acknowledged >= 1, done.stderr
    assert (done.returncode == -signal.SIGKILL) == (acknowledged == 1)
    assert checkpoint.load(path).about["step"] >= acknowledged
    checkpoint.save(path, {"w": np.ones(3)}, {"step": 3})
    assert os.listdir(tmp_path) == ["c"]
    assert len(list(path.iterdir())) == 2


def test_remains_of_a_first_save_that_was_killed_go_with_the_next(tmp_path):
    (tmp_path / ".c.saving-0123456789abcdef" / "arrays-0123456789abcdef").mkdir(parents=True)
    (tmp_path / ".other.saving-0123456789abcdef").mkdir()
    checkpoint.save(tmp_path / "c", ARRAYS, ABOUT)
    assert sorted(os.listdir(tmp_path)) == [".other.saving-0123456789abcdef", "c"]
    checkpoint.sweep(tmp_path)
    assert os.listdir(tmp_path) == ["c"]


def test_a_planted_link_with_such_a_name_is_not_followed(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "file").write_text("mine")
    (tmp_path / ".c.saving-0123456789abcdef").symlink_to(tmp_path / "victim")
    checkpoint.save(tmp_path / "c", ARRAYS, ABOUT)
    assert (tmp_path / "victim" / "file").read_text() == "mine"


def test_two_that_save_to_one_path_do_not_mix(saved):
    with checkpoint._locked(saved), pytest.raises(CheckpointError, match="another process saves to"):
        checkpoint.save(saved, ARRAYS, ABOUT)
    same(checkpoint.load(saved).arrays, ARRAYS)


# --- a directory of steps ---------------------------------------------------------------------------------


def fill(root: Path, *numbers: int) -> None:
    for number in numbers:
        checkpoint.save(checkpoint.step_path(root, number), {"w": np.full(3, number)}, {"step": number})


def test_steps_are_listed_in_order_and_other_names_are_not(tmp_path):
    fill(tmp_path, 20, 3, 100_000_000)
    for name in [
        "step-5 ",
        "step--0000001",
        "step-1e300000",
        "step-٥٥٥٥٥٥٥٥",
        "step-" + "9" * 30,
        "step-00000007",
    ]:
        (tmp_path / name).mkdir()
    assert checkpoint.steps(tmp_path) == [3, 20, 100_000_000]
    assert checkpoint.steps(tmp_path / "missing") == []


def test_the_newest_is_read(tmp_path):
    fill(tmp_path, 1, 2)
    assert checkpoint.load_latest(tmp_path, lambda about: {"w": Leaf("int64", (about["step"] + 1,))}).about == {
        "step": 2
    }


def test_a_damaged_newest_is_passed_over_with_a_warning(tmp_path):
    fill(tmp_path, 1, 2)
    blob_of(checkpoint.step_path(tmp_path, 2)).unlink()
    with pytest.warns(UserWarning, match="checkpoint of step 2 is damaged, the one before it is used: .* missing"):
        assert checkpoint.load_latest(tmp_path).about == {"step": 1}


def test_none_that_is_whole_is_an_error(tmp_path):
    fill(tmp_path, 1)
    blob_of(checkpoint.step_path(tmp_path, 1)).unlink()
    with (
        pytest.warns(UserWarning, match="step 1 is damaged"),
        pytest.raises(CheckpointError, match="all 1 checkpoints in .* are damaged"),
    ):
        checkpoint.load_latest(tmp_path)
    with pytest.raises(CheckpointError, match="no such directory. Give the path of a checkpoint, or of a directory"):
        checkpoint.load_latest(tmp_path / "missing")


def test_a_newest_of_another_model_is_no_reason_to_take_an_older_one(tmp_path):
    fill(tmp_path, 1, 2)
    with pytest.raises(CheckpointError, match="`w` is int64"):
        checkpoint.load_latest(tmp_path, lambda _: {"w": Leaf("int32", (3,))})


def test_pruning_keeps_the_newest(tmp_path):
    fill(tmp_path, 1, 2, 3)
    checkpoint.prune(tmp_path, keep=2)
    assert checkpoint.steps(tmp_path) == [2, 3]
    checkpoint.prune(tmp_path, keep=0)
    assert checkpoint.steps(tmp_path) == [3]
    assert os.listdir(tmp_path) == ["step-00000003"]
