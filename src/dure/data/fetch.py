"""Downloads one file into a folder: bounded in time and size, checked before it gets its name.

What cannot be reached is told in words, because another source may do; what arrives and is not the pinned
file is an error.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import queue
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from dure.errors import SpecError

__all__ = ["Check", "fetch", "shown_url"]

# Until the answer's first line: offline, another source is wanted soon.
ANSWER_S = 5.0
# For one file, however slowly it drips.
FILE_S = 300.0
CHUNK_BYTES = 1 << 16

# Called with the file and the name that errors shall give it; raises DataError unless it is the pinned one.
Check = Callable[[Path, str], object]


def fetch(
    url: str,
    target: Path,
    *,
    limit_bytes: int,
    check: Check,
    answer_s: float = ANSWER_S,
    file_s: float = FILE_S,
) -> str | None:
    """Downloads a file, checks it, and only then gives it its name.

    It is written to a file of mode 0600 with a random name in the target's folder (made with mode 0700),
    flushed to the disk, and renamed. Nothing of it stays when anything fails.

    Args:
        url: an http or https address.
        target: where the file goes.
        limit_bytes: the most bytes to take.
        check: called with the complete file before it is renamed.
        answer_s: how long the server may take to answer, the look-up of its name included, and how long it
            may then send nothing.
        file_s: how long the whole file may take.

    Returns:
        None when the file is in place; else why it could not be fetched, in words.

    Raises:
        DataError: what arrived is not what `check` wants.
        SpecError: the address is not http or https.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise SpecError(
            f"asked to download {shown_url(url)}: its scheme is `{urlsplit(url).scheme}`, and only http and "
            "https are fetched. For files of this machine set DURE_DATA_DIR to their folder."
        )
    shown = shown_url(url)
    try:
        answer = _open(url, answer_s)
    except urllib.error.HTTPError as error:
        error.close()
        return f"{shown} answered {error.code} {error.reason}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"{shown} could not be reached ({_told(error)})"
    if answer is None:
        return f"{shown} could not be reached (no answer within {answer_s:g} s)"
    with answer:
        try:
            return _store(answer, shown, target, limit_bytes=limit_bytes, check=check, file_s=file_s)
        except (OSError, http.client.HTTPException) as error:
            return f"{shown} could not be fetched into {target.parent} ({_told(error)})"


def shown_url(url: str) -> str:
    """Returns an address without the user name and password that it may hold.

    Example:
        >>> shown_url("https://me:secret@mirror.example/mnist.npz?token=1")
        'https://mirror.example/mnist.npz'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _store(
    answer: http.client.HTTPResponse,
    shown: str,
    target: Path,
    *,
    limit_bytes: int,
    check: Check,
    file_s: float,
) -> str | None:
    """Writes the answer's body beside the target, checks it and renames it."""
    _make_private(target.parent)
    part = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    # Not followed and not shared: a name that somebody made before us is an error, whatever it points to.
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            slow = _copy(answer, file.write, limit_bytes, time.monotonic() + file_s)
            file.flush()
            os.fsync(file.fileno())
        if slow:
            return f"{shown} sent too slowly (not done after {file_s:g} s)"
        check(part, shown)
        part.replace(target)
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)
    return None


def _copy(
    answer: http.client.HTTPResponse, write: Callable[[bytes], object], limit_bytes: int, deadline: float
) -> bool:
    """Copies at most a byte more than the limit, for `check` to find; True when the deadline passed."""
    left = limit_bytes + 1
    while left > 0:
        if time.monotonic() > deadline:
            return True
        # read1 returns what is there: read would wait for a full chunk and so never see the deadline.
        chunk = answer.read1(min(CHUNK_BYTES, left))
        if not chunk:
            return False
        write(chunk)
        left -= len(chunk)
    return False


def _open(url: str, answer_s: float) -> http.client.HTTPResponse | None:
    """Opens an address within `answer_s`; None when that was not enough.

    The look-up of a host's name takes no limit of its own and can last half a minute behind a dead resolver,
    so it happens in a thread, which then closes whatever it got too late.
    """
    outcome: queue.SimpleQueue[http.client.HTTPResponse | BaseException] = queue.SimpleQueue()
    lock, given_up = threading.Lock(), threading.Event()

    def work() -> None:
        try:
            got: http.client.HTTPResponse | BaseException = _opener().open(url, timeout=answer_s)
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            got = error
        with lock:
            if not given_up.is_set():
                outcome.put(got)
                return
        if isinstance(got, http.client.HTTPResponse | urllib.error.HTTPError):
            got.close()

    threading.Thread(target=work, name="dure-data-open", daemon=True).start()
    with contextlib.suppress(queue.Empty):
        return _result(outcome.get(timeout=answer_s))
    with lock:
        given_up.set()
    with contextlib.suppress(queue.Empty):  # it answered in the last moment
        return _result(outcome.get_nowait())
    return None


def _result(got: http.client.HTTPResponse | BaseException) -> http.client.HTTPResponse:
    if isinstance(got, BaseException):
        raise got
    return got


def _opener() -> urllib.request.OpenerDirector:
    """Speaks http and https, through the environment's proxies; a redirect to ftp or a file is refused."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener


def _told(error: Exception) -> str:
    """What went wrong, in few words; some errors of the network have none."""
    return str(getattr(error, "reason", None) or str(error) or type(error).__name__)


def _make_private(folder: Path) -> None:
    """Makes a folder and those above it that are missing, each with mode 0700."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    """Makes the new name last through a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
