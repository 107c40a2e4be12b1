"""The room sees what a test leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

import leaks
from leaks import Room


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setattr(leaks, "GRACE_S", 0.05)
    monkeypatch.chdir(tmp_path)
    return Room(tmp_path)


def test_a_tidy_test_leaves_nothing(room: Room) -> None:
    thread = threading.Thread(target=threading.Event().wait, args=(0.001,))
    thread.start()
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert room.left() == []


def test_a_thread_is_found(room: Room) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="forgotten")
    thread.start()
    assert room.left() == ["thread `forgotten` (daemon: False)"]
    end.set()
    thread.join()


def test_a_process_is_found_and_ended(room: Room) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        left = room.left()
        assert process.wait() == -signal.SIGKILL
    assert len(left) == 1
    assert left[0].startswith(f"process {process.pid} `")


def test_a_variable_is_found_and_put_back(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURE_KEPT", "1")
    room = Room(Path.cwd())
    os.environ["DURE_NEW"] = "2"
    os.environ["DURE_KEPT"] = "3"
    assert room.left() == ["variable DURE_KEPT: '1' became '3'", "variable DURE_NEW: None became '2'"]
    assert (os.environ["DURE_KEPT"], os.environ.get("DURE_NEW")) == ("1", None)


def test_a_signal_handler_is_found_and_put_back(room: Room) -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert room.left() == [f"handler of SIGINT: {signal.SIG_IGN!r}"]
    assert signal.getsignal(signal.SIGINT) is before


def test_files_are_found_and_taken_away(room: Room, tmp_path: Path) -> None:
    Path("report.html").write_text("x")
    Path("folder").mkdir()
    assert room.left() == [
        "file `folder` in the working directory",
        "file `report.html` in the working directory",
    ]
    assert list(tmp_path.iterdir()) == []


def test_another_working_directory_is_found(
    room: Room, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    assert room.left() == [f"the working directory {elsewhere}"]


def test_a_block_of_shared_memory_is_found(room: Room, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocks = tmp_path / "shm"
    blocks.mkdir()
    monkeypatch.setattr(leaks, "SHARED_MEMORY", blocks)
    room = Room(blocks)
    monkeypatch.chdir(blocks)
    block = blocks / uuid.uuid4().hex
    block.write_bytes(b"x")
    assert f"shared memory {block}" in room.left()
