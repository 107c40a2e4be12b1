"""Ports that are kept free for a group: chosen by the system, and nobody else gets them meanwhile.

JAX's coordinator cannot be told to listen at port 0, so its port is known before it listens. A port that was merely
tried is anybody's again until then. Here a socket stays bound to it, in the way (`SO_REUSEPORT`) that lets another
socket of this user that asks for this very port share it, as gRPC's do; it never listens, so it takes no connection,
and the system gives the port to no one who asks for any.
"""

from __future__ import annotations

import socket
from typing import final

from dure.errors import SpecError

__all__ = ["Ports"]


@final
class Ports:
    """Some free ports of an address of this machine, kept until `close`.

    Args:
        host: name or number of the address.
        number: how many.

    Raises:
        SpecError: the host is no address of this machine.

    Example:
        >>> ports = Ports("127.0.0.1", 2)
        >>> len(set(ports.numbers))
        2
        >>> ports.close()
    """

    def __init__(self, host: str, number: int) -> None:
        self._sockets: list[socket.socket] = []
        try:
            family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
            for _ in range(number):
                link = socket.socket(family, socket.SOCK_STREAM)
                self._sockets.append(link)
                if hasattr(socket, "SO_REUSEPORT"):
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                link.bind(address)
        except OSError as error:
            self.close()
            raise SpecError(
                f"asked for {number} ports of {host}, which is no address of this machine: {error}. Give `--master` an "
                "address of the machine of node 0, and start node 0 there"
            ) from error
        self.numbers = [link.getsockname()[1] for link in self._sockets]

    def close(self) -> None:
        """Gives the ports back; twice is fine."""
        for link in self._sockets:
            link.close()
