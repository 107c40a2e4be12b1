"""A small data set, places for it, and a server that hands out files well or badly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from dure.data import catalog
from unit.data.sets import arrays, named_set


@dataclass
class Mirror:
    """A server on loopback: path to body, and how it misbehaves."""

    url: str = ""
    bodies: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    stop_after: int | None = None  # bytes of the body, then the connection ends
    stall_after: int | None = None  # bytes of the body, then nothing until the test ends
    redirect: str | None = None
    over: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    """A running server; stopped, with its threads, when the test ends."""
    state = Mirror()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            if state.redirect is not None:
                self.send_response(302)
                self.send_header("Location", state.redirect)
                self.end_headers()
                return
            body = state.bodies.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the other side may have heard enough
                self.wfile.write(body[: state.stop_after or state.stall_after])
            if state.stall_after is not None:
                self.wfile.flush()
                state.over.wait(30)

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    state.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Empty folders in the place of this machine's, and no download."""
    folders = {name: tmp_path / name for name in ("given", "keras", "system")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.delenv("DURE_DATA_DIR", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(folders["keras"]))
    monkeypatch.setenv("DURE_DATA_URL", "")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(catalog, "SYSTEM_FOLDER", folders["system"])
    return folders


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """The content of a small data set that `fashion_mnist` names for the length of the test."""
    content = arrays()
    monkeypatch.setitem(catalog.SETS, "fashion_mnist", named_set(content))
    return content
