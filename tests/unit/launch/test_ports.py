from __future__ import annotations

import socket

import pytest

from dure.errors import SpecError
from dure.launch.ports import Ports


def test_kept_ports_are_given_to_nobody_else() -> None:
    first, second = Ports("127.0.0.1", 5), Ports("127.0.0.1", 5)
    try:
        assert len({*first.numbers, *second.numbers}) == 10
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", first.numbers[0]))
    finally:
        first.close()
        second.close()


def test_who_asks_for_that_port_in_the_way_of_grpc_can_listen() -> None:
    ports = Ports("127.0.0.1", 1)
    try:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            server.bind(("127.0.0.1", ports.numbers[0]))
            server.listen()
            with socket.create_connection(("127.0.0.1", ports.numbers[0])) as caller:
                taken, _ = server.accept()
                with taken:
                    assert taken.getpeername() == caller.getsockname()
    finally:
        ports.close()


def test_a_host_of_another_machine_is_refused() -> None:
    with pytest.raises(SpecError, match=r"2 ports of 192\.0\.2\.1, which is no address of this machine"):
        Ports("192.0.2.1", 2)
