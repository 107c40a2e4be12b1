from __future__ import annotations

import faulthandler
import sysconfig
import tempfile
import threading
from pathlib import Path

import dure.launch
from dure.launch import stack
from dure.launch.stack import Frame

LIBRARY = sysconfig.get_paths()["stdlib"]
PACKAGE = Path(dure.launch.__file__).parent.parent
TEXT = f"""Thread 0x00007f00 [loader] (most recent call first):
  File "/data/load.py", line 17 in __next__
  File "{PACKAGE}/train/ahead.py", line 60 in _run
  File "{LIBRARY}/threading.py", line 982 in run

Thread 0x00007f01 (most recent call first):
  File "/data/other.py", line 3 in spin
  File "{LIBRARY}/threading.py", line 982 in run

Current thread 0x00007f02 (most recent call first):
  File "{LIBRARY}/queue.py", line 171 in get
  File "{PACKAGE}/train/trainer.py", line 9 in fit
  File "/data/train.py", line 41 in main
  File "/data/train.py", line ??? in <module>
  File "<frozen runpy>", line 88 in _run_code
  File "{PACKAGE}/launch/worker.py", line 70 in main
  File "<frozen runpy>", line 198 in _run_module_as_main
"""


def test_threads_are_read() -> None:
    threads = stack.parse(TEXT)
    assert [thread.is_main for thread in threads] == [False, False, True]
    assert threads[1].frames[0] == Frame("/data/other.py", 3, "spin")
    assert threads[2].user == (Frame("/data/train.py", 41, "main"), Frame("/data/train.py", 0, "<module>"))


def test_a_worker_stands_where_its_user_called() -> None:
    threads = stack.parse(TEXT)
    assert stack.place(stack.stand(threads, is_loading=False)) == "train.py:41 in main"


def test_who_loads_data_stands_in_the_thread_that_loads() -> None:
    threads = stack.parse(TEXT)
    assert stack.place(stack.stand(threads, is_loading=True)) == "load.py:17 in __next__"
    assert stack.place(stack.stand(threads[1:], is_loading=True)) == "train.py:41 in main"


def test_without_a_frame_of_the_user_the_innermost_counts() -> None:
    threads = stack.parse(
        f'Thread 0x1 (most recent call first):\n  File "{LIBRARY}/site-packages/x/y.py", line 2 in f\n'
        '  File "<frozen runpy>", line 198 in _run_module_as_main\n'
    )
    assert stack.place(stack.stand(threads, is_loading=False)) == "y.py:2 in f"
    assert stack.stand(stack.parse("nothing of that kind"), is_loading=False) == ()
    assert stack.place(()) == ""


def test_what_this_python_writes_is_read() -> None:
    end, there = threading.Event(), threading.Event()

    def wait_here() -> None:
        there.set()
        end.wait()

    thread = threading.Thread(target=wait_here)
    thread.start()
    there.wait()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        threads = stack.parse(file.read())
    end.set()
    thread.join()
    names = [{frame.name for frame in one.frames} for one in threads]
    assert any("wait_here" in some for some in names)
    assert any("test_what_this_python_writes_is_read" in some for some in names)
