"""Messages between the launchers of several machines: JSON, each with a proof that it comes from who has the token.

`multiprocessing.connection` has such a proof only at its start (with MD5 in Python 3.11), none on its messages and no
deadline, and its `send` is pickle; so the few lines are here. Nothing is hidden from who listens on the way: the token
is never sent, and no message holds a secret.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import stat
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from dure.errors import LostError, SecurityError

__all__ = ["MAX_MESSAGE_BYTES", "TOKEN_BYTES", "TOKEN_VARIABLE", "Channel", "answer", "ask", "read_token"]

TOKEN_VARIABLE = "DURE_TOKEN"  # noqa: S105 - the name of the variable
"""The environment variable that holds the token of a cluster."""

TOKEN_BYTES = 32
"""The shortest token, in bytes."""

MAX_MESSAGE_BYTES = 1 << 20
"""The longest message, in bytes."""

GREET_S = 10.0
"""How long the first exchange may take, in seconds."""

_MAGIC = b"DURE-LAUNCH-1\n"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HEAD = struct.Struct(">I")
_COUNT = struct.Struct(">Q")
_MAKE = "(umask 077; python3 -c 'import secrets; print(secrets.token_hex(32))' > dure.token)"


def read_token(environ: Mapping[str, str], path: Path | None) -> bytes:
    """Returns the token that the launchers of a group share.

    Args:
        environ: the environment; `DURE_TOKEN` is read where no file is named.
        path: a file of this user that nobody else can read.

    Raises:
        SecurityError: there is none, it is too short, or others can read it.
    """
    if path is None:
        token, where = environ.get(TOKEN_VARIABLE, "").strip().encode(), f"the environment variable {TOKEN_VARIABLE}"
        if not token:
            raise SecurityError(
                "asked for several nodes, whose launchers prove by a token that they belong together, and "
                f"neither `--token-file` nor {TOKEN_VARIABLE} gives one. Make one, the same for all nodes: `{_MAKE}`, "
                "and pass `--token-file dure.token`"
            )
    else:
        token, where = _read_private(path), f"the token file {path}"
    if len(token) < TOKEN_BYTES:
        raise SecurityError(
            f"asked for a token, and {where} has {len(token)} bytes; it has at least {TOKEN_BYTES}. Make one: `{_MAKE}`"
        )
    return token


def _read_private(path: Path) -> bytes:
    try:
        # Without O_NONBLOCK a pipe at that path would be waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecurityError(f"asked for the token file {path}: {error.strerror}. Make one: `{_MAKE}`") from error
    try:
        about = os.fstat(descriptor)
        mode = stat.S_IMODE(about.st_mode)
        if about.st_uid != os.getuid() or mode & 0o077 or not stat.S_ISREG(about.st_mode):
            raise SecurityError(
                f"asked for the token file {path}, which has mode {mode:04o} and user {about.st_uid}; it is a file of "
                f"this user ({os.getuid()}) that nobody else can read. Run `chmod 600 {path}`"
            )
        return os.read(descriptor, 4096).strip()
    finally:
        os.close(descriptor)


@final
class Channel:
    """One connection whose ends have proved that they hold the token. Made by `ask` and `answer`.

    Args:
        link: the connected socket; the channel closes it.
        out_key: proves the messages that go out.
        in_key: proves those that come in.
    """

    def __init__(self, link: socket.socket, out_key: bytes, in_key: bytes) -> None:
        self._link = link
        self._out_key, self._in_key = out_key, in_key
        self._sent, self._taken = 0, 0
        self._lock = threading.Lock()
        # A peer that reads no more must not hold up who writes.
        link.settimeout(GREET_S)

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message.

        Args:
            message: plain values, as JSON takes them.

        Raises:
            LostError: the other end is gone.
        """
        body = json.dumps(message).encode()
        with self._lock:
            proof = hmac.digest(self._out_key, _COUNT.pack(self._sent) + body, "sha256")
            self._sent += 1
            try:
                self._link.sendall(_HEAD.pack(len(body)) + proof + body)
            except OSError as error:
                raise LostError(f"the other launcher does not take a message: {error}. Look at its machine") from error

    def take(self, timeout_s: float) -> dict[str, Any]:
        """Waits for the next message.

        Args:
            timeout_s: the longest wait for each of its parts, in seconds.

        Raises:
            LostError: the other end is gone, or says nothing for so long.
            SecurityError: the message is not from who holds the token, or is none.
        """
        try:
            self._link.settimeout(timeout_s)
        except OSError as error:
            raise LostError(f"this end of the connection is closed: {error}. Open a new one") from error
        (size_bytes,) = _HEAD.unpack(_read(self._link, _HEAD.size))
        if size_bytes > MAX_MESSAGE_BYTES:
            raise SecurityError(
                f"a launcher announced a message of {size_bytes} bytes; there are at most {MAX_MESSAGE_BYTES}. Look "
                "for what else connects to that port"
            )
        proof, body = _read(self._link, _PROOF_BYTES), _read(self._link, size_bytes)
        wanted = hmac.digest(self._in_key, _COUNT.pack(self._taken) + body, "sha256")
        self._taken += 1
        if not hmac.compare_digest(proof, wanted):
            raise SecurityError(
                f"message {self._taken} of a launcher does not bear the proof of the token; somebody has changed it. "
                "Look for what is between the machines"
            )
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise SecurityError(
                f"message {self._taken} of a launcher is no JSON object. Use one version of Dure on all"
            )
        return message

    def close(self) -> None:
        """Closes the connection; twice is fine. Who waits in `take` gets a `LostError`."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._link.close()


def ask(link: socket.socket, token: bytes) -> Channel:
    """Proves the token to the launcher that was called, and has it prove it too.

    Args:
        link: the connected socket.
        token: the token.

    Raises:
        LostError: nobody answers.
        SecurityError: the other one has another token, or is no launcher of this version.
    """
    link.settimeout(GREET_S)
    mine = secrets.token_bytes(_NONCE_BYTES)
    _write(link, _MAGIC + mine)
    theirs = _read_nonce(link)
    both = mine + theirs
    _write(link, _prove(token, b"caller", both))
    try:
        proof = _read(link, _PROOF_BYTES)
    except LostError as error:
        raise SecurityError(
            f"the launcher of node 0 does not accept this one's token ({len(token)} bytes). Give all nodes the same"
        ) from error
    if not hmac.compare_digest(proof, _prove(token, b"called", both)):
        raise SecurityError(
            f"who answers for node 0 does not hold this launcher's token ({len(token)} bytes). Look at `--master`"
        )
    return Channel(link, _prove(token, b"from caller", both), _prove(token, b"from called", both))


def answer(link: socket.socket, token: bytes) -> Channel:
    """Has who called prove the token, and then proves it too.

    Args:
        link: the connected socket.
        token: the token.

    Raises:
        LostError: nobody answers.
        SecurityError: the other one has another token, or is no launcher of this version.
    """
    link.settimeout(GREET_S)
    theirs = _read_nonce(link)
    mine = secrets.token_bytes(_NONCE_BYTES)
    both = theirs + mine
    _write(link, _MAGIC + mine)
    if not hmac.compare_digest(_read(link, _PROOF_BYTES), _prove(token, b"caller", both)):
        raise SecurityError(f"who called does not hold this launcher's token ({len(token)} bytes). Give all the same")
    _write(link, _prove(token, b"called", both))
    return Channel(link, _prove(token, b"from called", both), _prove(token, b"from caller", both))


def _prove(token: bytes, role: bytes, nonces: bytes) -> bytes:
    # The role stands in it, so that no proof can be sent back to who made it.
    return hmac.digest(token, role + b"\0" + nonces, "sha256")


def _read_nonce(link: socket.socket) -> bytes:
    magic = _read(link, len(_MAGIC))
    if magic != _MAGIC:
        raise SecurityError(f"a launcher of this version says {_MAGIC!r} first, not {magic!r}. Use one version on all")
    return _read(link, _NONCE_BYTES)


def _read(link: socket.socket, size_bytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < size_bytes:
        try:
            part = link.recv(size_bytes - len(parts))
        except OSError as error:
            raise LostError(f"the other launcher says nothing: {error}. Look at its machine") from error
        if not part:
            raise LostError(
                f"the other launcher is gone, after {len(parts)} of {size_bytes} bytes. Look at its machine"
            )
        parts += part
    return bytes(parts)


def _write(link: socket.socket, data: bytes) -> None:
    try:
        link.sendall(data)
    except OSError as error:
        raise LostError(f"the other launcher does not listen: {error}. Look at its machine") from error
