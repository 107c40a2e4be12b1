from __future__ import annotations

import hmac
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dure.errors import LostError, SecurityError
from dure.launch import wire
from dure.launch.wire import Channel

TOKEN = b"t" * 32


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def met(pair: tuple[socket.socket, socket.socket], ask: bytes = TOKEN, answer: bytes = TOKEN) -> list[Any]:
    """What both ends got: a channel, or an error."""
    got: list[Any] = [None, None]

    def run(index: int, meet: Any, token: bytes) -> None:
        try:
            got[index] = meet(pair[index], token)
        except (LostError, SecurityError) as error:
            got[index] = error
            pair[index].close()

    threads = [
        threading.Thread(target=run, args=(0, wire.ask, ask)),
        threading.Thread(target=run, args=(1, wire.answer, answer)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_messages_go_both_ways_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    caller, called = met(pair)
    for number in range(3):
        caller.send({"number": number})
        called.send({"number": -number})
    assert [called.take(1.0)["number"] for _ in range(3)] == [0, 1, 2]
    assert [caller.take(1.0)["number"] for _ in range(3)] == [0, -1, -2]


def test_another_token_is_refused_on_both_ends(pair: tuple[socket.socket, socket.socket]) -> None:
    caller, called = met(pair, ask=b"s" * 32)
    assert isinstance(caller, SecurityError)
    assert "does not accept this one's token (32 bytes)" in caller.message
    assert isinstance(called, SecurityError)
    assert "does not hold this launcher's token" in called.message
    for error in (caller, called):
        assert "sss" not in error.message
        assert "ttt" not in error.message


def test_who_only_pretends_to_be_node_0_is_found_out(pair: tuple[socket.socket, socket.socket]) -> None:
    link, fake = pair

    def pretend() -> None:
        fake.recv(1000)
        fake.sendall(wire._MAGIC + b"n" * 32)
        fake.sendall(fake.recv(1000))  # the caller's own proof, sent back

    thread = threading.Thread(target=pretend)
    thread.start()
    with pytest.raises(SecurityError, match="who answers for node 0 does not hold"):
        wire.ask(link, TOKEN)
    thread.join()


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n\r\n" * 9, os.urandom(200), b"DURE-LAUNCH-2\n" + b"n" * 64])
def test_anything_else_on_the_port_is_refused(pair: tuple[socket.socket, socket.socket], first: bytes) -> None:
    pair[0].sendall(first)
    with pytest.raises(SecurityError, match="of this version says"):
        wire.answer(pair[1], TOKEN)


def channels(pair: tuple[socket.socket, socket.socket]) -> tuple[Channel, Channel]:
    return Channel(pair[0], b"a", b"b"), Channel(pair[1], b"b", b"a")


def test_a_changed_a_repeated_and_a_foreign_message_are_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = channels(pair)
    one.send({"say": "beat"})
    frame = pair[1].recv(1000)
    pair[0].sendall(frame)
    assert other.take(1.0) == {"say": "beat"}
    pair[0].sendall(frame)
    with pytest.raises(SecurityError, match="message 2 of a launcher does not bear the proof"):
        other.take(1.0)
    pair[0].sendall(frame[:-3] + b"xxx")
    with pytest.raises(SecurityError, match="does not bear the proof"):
        other.take(1.0)


def test_a_message_without_bounds_is_refused_before_it_is_read(pair: tuple[socket.socket, socket.socket]) -> None:
    _, other = channels(pair)
    pair[0].sendall(struct.pack(">I", 2**32 - 1))
    with pytest.raises(SecurityError, match="4294967295 bytes; there are at most 1048576"):
        other.take(1.0)


@pytest.mark.parametrize("body", [b"[1]", b"{", b"[" * 100_000])
def test_what_is_no_object_is_refused(pair: tuple[socket.socket, socket.socket], body: bytes) -> None:
    one, other = channels(pair)
    proof = hmac.digest(b"a", struct.pack(">Q", 0) + body, "sha256")
    thread = threading.Thread(target=pair[0].sendall, args=(struct.pack(">I", len(body)) + proof + body,))
    thread.start()
    with pytest.raises(SecurityError, match="is no JSON object"):
        other.take(1.0)
    thread.join()
    one.close()


def test_an_end_that_is_gone_is_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    one, other = channels(pair)
    one.close()
    one.close()
    with pytest.raises(LostError, match="is gone"):
        other.take(1.0)
    with pytest.raises(LostError, match="does not take a message"):
        one.send({})


def test_an_end_that_says_nothing_is_lost(pair: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(LostError, match="says nothing"):
        channels(pair)[0].take(0.01)


# --- tokens -------------------------------------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "dure.token"
    path.write_bytes(TOKEN + b"\n")
    path.chmod(0o600)
    return path


def test_a_token_comes_from_a_private_file_or_the_environment(token_file: Path) -> None:
    assert wire.read_token({}, token_file) == TOKEN
    assert wire.read_token({"DURE_TOKEN": "t" * 32}, None) == TOKEN


def test_without_a_token_the_message_says_how_to_make_one() -> None:
    with pytest.raises(SecurityError, match=r"neither `--token-file` nor DURE_TOKEN gives one\..*secrets\.token_hex"):
        wire.read_token({}, None)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_can_read_is_refused(token_file: Path, mode: int) -> None:
    token_file.chmod(mode)
    with pytest.raises(SecurityError, match=f"has mode {mode:04o} and user .* Run `chmod 600 "):
        wire.read_token({}, token_file)


def test_a_short_token_is_refused_and_not_shown(token_file: Path) -> None:
    token_file.write_bytes(b"secret")
    with pytest.raises(SecurityError, match="has 6 bytes; it has at least 32") as caught:
        wire.read_token({}, token_file)
    assert "secret" not in caught.value.message.replace("import secrets", "").replace("secrets.token_hex", "")
    with pytest.raises(SecurityError, match="variable DURE_TOKEN has 3 bytes"):
        wire.read_token({"DURE_TOKEN": "abc"}, None)


def test_a_link_a_folder_and_nothing_are_refused(token_file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(token_file)
    with pytest.raises(SecurityError, match="Too many levels of symbolic links"):
        wire.read_token({}, link)
    with pytest.raises(SecurityError, match="No such file"):
        wire.read_token({}, tmp_path / "none")
    tmp_path.chmod(0o700)
    with pytest.raises(SecurityError, match="nobody else can read"):
        wire.read_token({}, tmp_path)
