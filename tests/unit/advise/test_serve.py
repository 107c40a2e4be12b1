"""A child process answers one request, and ends with its parent."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PROGRAM = """
import threading
from dure.advise.serve import serve

def answer(request, send, enter):
    print("a word of the caller's own")
    enter("model")
    send({"event": "facts", "of": request["what"]})
    if request["what"] == "fail":
        raise ValueError("no such thing")
    if request["what"] == "hang":
        threading.Event().wait()
    threading.Thread(target=threading.Event().wait).start()  # must not keep the process
    send({"event": "result", "twice": 2 * request["number"]})

serve(answer)
"""


def served(line: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, events and standard error of a process that is given one line."""
    command = [sys.executable, "-c", PROGRAM]
    # Standard input stays open till it ends: its end would be the end of the parent.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(line.encode())
        process.stdin.flush()
        if not line:
            process.stdin.close()
        events = [json.loads(text) for text in process.stdout]
        return process.wait(20), events, process.stderr.read().decode()


def test_the_result_is_the_last_event_and_printing_goes_elsewhere() -> None:
    code, events, errors = served('{"what": "work", "number": 21}\n')
    assert (code, events) == (0, [{"event": "facts", "of": "work"}, {"event": "result", "twice": 42}])
    assert errors == "a word of the caller's own\n"


def test_what_is_raised_is_an_answer_with_its_stage() -> None:
    code, events, errors = served('{"what": "fail"}\n')
    assert code == 1
    assert events[-1]["event"] == "error"
    assert (events[-1]["stage"], events[-1]["error"]) == ("model", "StepError")
    assert events[-1]["message"] == (
        "model was under way and raised ValueError: no such thing; its last lines say where"
    )
    assert "ValueError: no such thing" in errors


def test_without_a_request_nothing_is_done() -> None:
    assert served("") == (0, [], "")


def test_the_end_of_the_parent_is_the_end_of_the_child() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b'{"what": "hang"}\n')
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"event": "facts", "of": "hang"}
        process.stdin.close()
        assert process.wait(20) == 1
