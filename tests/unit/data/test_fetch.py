from __future__ import annotations

import hashlib
import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from dure.data import fetch as fetch_module
from dure.data.fetch import fetch, shown_url
from dure.errors import DataError, SpecError

BODY = bytes(range(256)) * 1024


def check(path: Path, shown: str) -> None:
    content = path.read_bytes()
    if content != BODY:
        raise DataError(f"asked for {shown}: found {hashlib.sha256(content).hexdigest()}, {len(content)} bytes")


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")


def test_a_file_arrives_private_and_whole(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY
    target = tmp_path / "new" / "folder" / "f"
    old = os.umask(0)
    try:
        assert fetch(f"{mirror.url}/f", target, limit_bytes=len(BODY), check=check) is None
    finally:
        os.umask(old)
    assert target.read_bytes() == BODY
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(target.parent.parent.stat().st_mode) == 0o700
    assert [path.name for path in target.parent.iterdir()] == ["f"]


def test_an_altered_body_is_an_error_and_leaves_nothing(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY[:-1] + b"x"
    with pytest.raises(DataError, match=hashlib.sha256(BODY[:-1] + b"x").hexdigest()):
        fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=len(BODY), check=check)
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_body_is_an_error_and_leaves_nothing(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY
    mirror.stop_after = 1000
    with pytest.raises(DataError, match="1000 bytes"):
        fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=len(BODY), check=check)
    assert list(tmp_path.iterdir()) == []


def test_a_longer_body_is_read_one_byte_past_the_limit(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY * 40
    with pytest.raises(DataError, match=f" {len(BODY) + 1} bytes"):
        fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=len(BODY), check=check)
    assert list(tmp_path.iterdir()) == []


def test_not_found_is_told(tmp_path: Path, mirror):
    assert fetch(f"{mirror.url}/g", tmp_path / "g", limit_bytes=1, check=check) == (
        f"{mirror.url}/g answered 404 Not Found"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_not_there_is_told(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: refused
        reason = fetch(f"http://127.0.0.1:{free.getsockname()[1]}/f", tmp_path / "f", limit_bytes=1, check=check)
    assert reason is not None
    assert "could not be reached" in reason
    assert "refused" in reason


def test_a_server_that_never_answers_is_left(tmp_path: Path):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/f"
        reason = fetch(url, tmp_path / "f", limit_bytes=1, check=check, answer_s=0.1)
    assert reason is not None
    assert reason.startswith(f"{url} could not be reached (")
    assert list(tmp_path.iterdir()) == []


def test_a_name_server_that_never_answers_is_left(tmp_path: Path, mirror, monkeypatch: pytest.MonkeyPatch):
    mirror.bodies["/f"] = BODY
    released, real = threading.Event(), socket.getaddrinfo

    def stuck(*args, **kwargs):
        released.wait(30)
        return real(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    reason = fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=1, check=check, answer_s=0.1)
    assert reason == f"{mirror.url}/f could not be reached (no answer within 0.1 s)"
    (late,) = [thread for thread in threading.enumerate() if thread.name == "dure-data-open"]
    released.set()
    late.join(30)  # it closes what it got too late; an open socket would be a warning, which is an error here
    assert not late.is_alive()
    assert mirror.asked == ["/f"]
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_stops_in_the_middle_is_left(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY
    mirror.stall_after = 1000
    reason = fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=len(BODY), check=check, answer_s=2.0)
    assert reason == f"{mirror.url}/f could not be fetched into {tmp_path} (timed out)"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_takes_too_long_is_left(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY
    reason = fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=len(BODY), check=check, file_s=-1)
    assert reason == f"{mirror.url}/f sent too slowly (not done after -1 s)"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, mirror):
    mirror.bodies["/f"] = BODY
    (tmp_path / "file").write_text("in the way")
    reason = fetch(f"{mirror.url}/f", tmp_path / "file" / "f", limit_bytes=len(BODY), check=check)
    assert reason is not None
    assert f"could not be fetched into {tmp_path / 'file'}" in reason


def test_a_name_made_before_us_is_not_followed(tmp_path: Path, mirror, monkeypatch: pytest.MonkeyPatch):
    mirror.bodies["/f"] = BODY
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / ".f.guessed").symlink_to(victim)
    monkeypatch.setattr(fetch_module.secrets, "token_hex", lambda _: "guessed")
    reason = fetch(f"{mirror.url}/f", folder / "f", limit_bytes=len(BODY), check=check)
    assert reason is not None
    assert "File exists" in reason
    assert victim.read_text() == "untouched"
    assert [path.name for path in folder.iterdir()] == [".f.guessed"]


def test_a_redirect_is_followed_over_http_only(tmp_path: Path, mirror):
    secret = tmp_path / "secret"
    secret.write_bytes(BODY)
    mirror.redirect = secret.as_uri()
    reason = fetch(f"{mirror.url}/f", tmp_path / "f", limit_bytes=len(BODY), check=check)
    assert reason is not None
    assert "302" in reason
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/f", "no address"])
def test_only_http_is_fetched(tmp_path: Path, url: str):
    with pytest.raises(SpecError, match="only http and https are fetched"):
        fetch(url, tmp_path / "f", limit_bytes=1, check=check)


def test_a_password_is_never_shown(tmp_path: Path):
    url = "http://me:secret@127.0.0.1:9/f?key=hidden"
    assert shown_url(url) == "http://127.0.0.1:9/f"
    reason = fetch(url, tmp_path / "f", limit_bytes=1, check=check)
    assert reason is not None
    assert "secret" not in reason
    assert "hidden" not in reason
