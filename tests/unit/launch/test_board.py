from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dure.errors import InternalError, SpecError
from dure.launch import board as boards
from dure.launch.board import Board, Phase, here


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "worker-0.board"


def test_a_new_board_says_that_nobody_has_come(path: Path) -> None:
    record = Board.create(path).read()
    assert (record.pid, record.phase, record.step) == (0, Phase.START, 0)
    assert record.since_s <= time.monotonic()


def test_what_is_entered_is_read(path: Path) -> None:
    board, own = Board.create(path), Board.open(path)
    first = board.read().changes
    for number, phase in enumerate(Phase):
        own.enter(phase, number * 10**12)
        record = board.read()
        assert record[:4] == (os.getpid(), phase, number * 10**12, first + number + 1)
    board.close()
    board.close()
    own.close()


def test_two_boards_of_one_process_continue_each_other(path: Path) -> None:
    Board.create(path)
    bootstrap, trainer = Board.open(path), Board.open(path)
    bootstrap.enter(Phase.USER, 0)
    trainer.enter(Phase.DATA, 1)
    trainer.enter(Phase.COLLECTIVE, 2)
    bootstrap.enter(Phase.DONE, 2)
    assert trainer.read().phase is Phase.DONE


def test_who_waits_for_others_says_so_and_then_what_it_said_before(path: Path) -> None:
    board = Board.create(path)
    board.enter(Phase.USER, 5)
    with board.waiting():
        assert board.read()[1:3] == (Phase.COLLECTIVE, 5)
    assert board.read()[1:3] == (Phase.USER, 5)


def test_what_is_said_already_keeps_its_time(path: Path) -> None:
    board = Board.create(path)
    board.enter(Phase.COLLECTIVE, 5)
    before = board.read()
    with board.waiting():
        assert board.read() == before
    assert board.read() == before


def test_a_thread_that_loads_waits_for_others_where_training_waits_for_data(path: Path) -> None:
    board = Board.create(path)
    board.enter(Phase.USER, 5)
    waits, over, seen = threading.Event(), threading.Event(), []

    def load() -> None:
        with board.waiting():
            waits.set()
            over.wait()

    thread = threading.Thread(target=load)
    thread.start()
    waits.wait()
    for phase in (Phase.USER, Phase.DATA, Phase.COMPILE):
        board.enter(phase, 6)
        seen.append(board.read().phase)
    board.enter(Phase.DATA, 6)
    over.set()
    thread.join()
    assert seen == [Phase.USER, Phase.COLLECTIVE, Phase.COMPILE]
    assert board.read().phase is Phase.DATA


def test_the_file_is_private_and_of_fixed_size(path: Path) -> None:
    Board.create(path)
    about = path.stat()
    assert (stat.S_IMODE(about.st_mode), about.st_size) == (0o600, boards.SIZE_BYTES)


def test_nothing_is_overwritten(path: Path, tmp_path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        Board.create(path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        Board.create(link)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("slot", [64, 128])
def test_who_was_killed_in_the_middle_leaves_the_record_before(path: Path, slot: int) -> None:
    board = Board.create(path)
    board.enter(Phase.DATA, 1)
    board.enter(Phase.COLLECTIVE, 2)
    with path.open("r+b") as file:
        file.seek(slot + 20)
        file.write(b"\xff\xff")
    record = board.read()
    assert (record.phase, record.step) in {(Phase.DATA, 1), (Phase.COLLECTIVE, 2)}


def test_a_board_that_others_wrote_into_is_an_error(path: Path) -> None:
    board = Board.create(path)
    with path.open("r+b") as file:
        file.seek(64)
        file.write(b"\xff" * 128)
    with pytest.raises(InternalError, match="none of its two is whole"):
        board.read()


def test_what_is_read_while_it_is_written_is_whole(path: Path) -> None:
    board, own = Board.create(path), Board.open(path)
    end = threading.Event()

    def write() -> None:
        step = 0
        while not end.is_set():
            step += 1
            own.enter(Phase.DATA if step % 2 else Phase.COLLECTIVE, step)

    thread = threading.Thread(target=write)
    thread.start()
    seen = [board.read() for _ in range(5000)]
    end.set()
    thread.join()
    for record in seen[seen.index(next(record for record in seen if record.step)) :]:
        assert record.phase is (Phase.DATA if record.step % 2 else Phase.COLLECTIVE)
    assert [record.changes for record in seen] == sorted(record.changes for record in seen)


def test_what_is_no_board_is_refused(path: Path) -> None:
    path.write_bytes(b"x")
    with pytest.raises(SpecError, match="'worker-0.board', a file of 1 bytes"):
        Board.open(path)
    path.write_bytes(b"x" * boards.SIZE_BYTES)
    with pytest.raises(SpecError, match="starts with DUREBRD1"):
        Board.open(path)


def test_here_is_the_board_of_the_environment(path: Path) -> None:
    board = Board.create(path)
    mine = here({"DURE_BOARD": str(path)})
    assert mine is not None
    mine.enter(Phase.USER, 3)
    assert board.read().step == 3
    assert here({"DURE_BOARD": str(path)}) is not None
    assert here({}) is here({"DURE_BOARD": ""}) is None


def test_a_child_of_a_worker_is_no_worker(path: Path) -> None:
    Board.create(path)
    Board.open(path).enter(Phase.USER, 0)
    program = "from dure.launch.board import here; print(here())"
    environment = {**os.environ, "DURE_BOARD": str(path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_a_board_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"DURE_BOARD, for the board '.*none', which cannot be opened: No such file"):
        here({"DURE_BOARD": str(tmp_path / "none")})
