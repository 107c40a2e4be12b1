"""The texts of a cluster: names of jobs, addresses, JSON that somebody else wrote. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from typing import Any

from dure.errors import SpecError

__all__ = ["MAX_TEXT_BYTES", "check_address", "check_job", "read_json", "shown"]

MAX_TEXT_BYTES = 1 << 20
"""The longest text of a cluster that is read, in bytes."""

_JOB = re.compile(r"[a-z][a-z0-9_]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_PORT = re.compile(r"[0-9]{1,5}")
_JOB_FORM = "a job is named by lower-case letters, digits and _, from a letter on, at most 63 characters"


def check_job(job: object) -> None:
    """Refuses what is no name of a job.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise SpecError(f"asked for the job {shown(job)}; {_JOB_FORM}. Name it so, as worker")


def check_address(address: object, where: str) -> str:
    """Returns an address in its one form: the host in lower case, IPv6 in brackets and short.

    Args:
        address: `host:port`, `10.0.0.1:2222` or `[::1]:2222`.
        where: what has that address, for the message.

    Raises:
        SpecError: it is no address.

    Example:
        >>> check_address("Node1.example:2222", "worker:0"), check_address("[0:0::1]:22", "worker:0")
        ('node1.example:2222', '[::1]:22')
    """
    host, mark, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
    wrong = ""
    if not mark or not host:
        wrong = "it has no port"
    elif "://" in host or "@" in host or "/" in host:
        wrong = "it is a URL"
    elif not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        wrong = "its port is no number from 1 to 65535"
    elif host.startswith("[") and host.endswith("]"):
        host, wrong = _ipv6(host)
    elif ":" in host:
        wrong = "an IPv6 address stands in brackets, as [::1]:2222"
    elif not _HOST.fullmatch(host) or (host.replace(".", "").isdecimal() and not _is_ipv4(host)):
        wrong = "its host is no name and no IP address"
    if wrong:
        raise SpecError(f"asked for the address {shown(address)} for {where}; {wrong}. Write it as host:2222")
    return f"{host.lower()}:{int(port)}"


def read_json(text: str, what: str) -> Any:
    """Reads a JSON text that somebody else wrote.

    Args:
        text: the text.
        what: where it comes from, for the message.

    Raises:
        SpecError: it is too long, or none.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise SpecError(f"asked for {what}, of {len(text)} characters; there are at most {MAX_TEXT_BYTES}. Mend it")
    try:
        # A name twice would otherwise hide the first in silence.
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        said = "its nesting has no end" if isinstance(error, RecursionError) else str(error)
        raise SpecError(f"asked for {what}, which starts {shown(text)} and is no JSON: {said}. Mend it") from error


def shown(value: object) -> str:
    """Returns a value as a message shows it: ASCII, at most 80 characters."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:60]}..."


def _ipv6(bracketed: str) -> tuple[str, str]:
    """The host in its short form, and what is wrong with it."""
    try:
        return f"[{ipaddress.IPv6Address(bracketed[1:-1])}]", ""
    except ValueError:
        return bracketed, "what stands in its brackets is no IPv6 address"


def _is_ipv4(host: str) -> bool:
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each name of which stands there once."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{shown(name)} stands there twice")
        found[name] = value
    return found
