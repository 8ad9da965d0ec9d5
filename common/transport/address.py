"""Addresses of a link: what they may look like, and which may be used without encryption."""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

_ADDRESS = re.compile(r"tcp://(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:/\s]+)):(?P<port>\d{1,5})")


class TransportError(Exception):
    """The link can't be set up as configured; the text is one sentence that says what to do."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `tcp://host:port` (an IPv6 host in brackets). Raises `TransportError`."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise TransportError(
            f"The address {address!r} is not understood; write tcp://host:port, for example tcp://127.0.0.1:7500."
        )
    return match["six"] or match["host"], int(match["port"])


def is_local_address(address: str) -> bool:
    """Whether `address` can only be reached from this machine. Names but localhost are not looked up."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_four(address: str) -> bool:
    """Whether `address` is spelled as an IPv4 number, or is localhost."""
    return re.fullmatch(r"[\d.]+|localhost", split_address(address)[0]) is not None


def is_number(address: str) -> bool:
    """Whether the host of `address` is spelled as a number, with which nothing has to be looked up."""
    try:
        ipaddress.ip_address(split_address(address)[0])
    except ValueError:
        return False
    return True


def require_safe(address: str, curve: bool, insecure: bool) -> None:
    """Refuse a plaintext link that leaves this machine, unless `insecure` says that it is wanted.

    Raises `TransportError`.
    """
    if not curve and not insecure and not is_local_address(address):
        raise TransportError(
            f"Without keys, {address} would be readable and usable by anyone on the network; "
            "make keys with `dragon keys new`, or pass --curve off --insecure if this network is trusted."
        )


def numeric(address: str) -> str:
    """`address` with localhost replaced by its number."""
    host, port = split_address(address)
    return f"tcp://127.0.0.1:{port}" if host == "localhost" else address


# --- names
# The addresses of a cloud's name: looked up beside the link's thread, and tried one after the other.


class AddressOrder:
    """Order in which the addresses of a name are tried: each once, the one that worked last before the others.

    Pure. When all were tried, or one has worked, the name is to be looked up anew: its addresses may have changed.
    """

    def __init__(self) -> None:
        self._left: list[str] = []
        self._tried: str | None = None
        self._good: str | None = None

    def found(self, places: Sequence[str]) -> None:
        """Note the addresses that the name has now."""
        self._left = sorted(places, key=lambda place: place != self._good)  # which keeps the order otherwise

    def next(self) -> str | None:
        """The address to try; None where none is left."""
        self._tried = self._left.pop(0) if self._left else None
        return self._tried

    def worked(self) -> None:
        """Note that there was a connection to the one tried last."""
        self._good, self._left = self._tried, []


class Lookup:
    """Looks up the name in an address, once at a time, on a thread that nobody waits for: the system may take a minute.

    `done` is called on that thread behind each. But for that, for one thread.
    """

    def __init__(self, address: str, done: Callable[[], None]) -> None:
        self._address = numeric(address)
        self._done = done
        self._found: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._under_way = False

    def begin(self) -> None:
        """Look it up, unless that is under way still. A number needs no thread."""
        if self._under_way:
            return
        if is_number(self._address):
            self._found.put([self._address])
        else:
            threading.Thread(target=self._run, name="name lookup", daemon=True).start()
        self._under_way = True

    def take(self) -> list[str] | None:
        """The addresses that were found, empty for a name that is not known; None as long as that is under way."""
        try:
            found = self._found.get_nowait()
        except queue.Empty:
            return None
        self._under_way = False
        return found

    def _run(self) -> None:
        found: list[str] = []
        try:
            found = look_up(self._address)
        finally:
            self._found.put(found)
            self._done()


def look_up(address: str) -> list[str]:
    """`address` with each number that its name has and this machine can use, in the system's order."""
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # it is not known, or can't be a name
        return []
    usable = {family: _is_usable(family) for family, *_ in found}
    return list(dict.fromkeys(_spelled(family, place) for family, *_, place in found if usable[family]))


def _is_usable(family: int) -> bool:
    """Whether this machine has sockets of a family. ZeroMQ doesn't tell that an attempt failed for want of one."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return False
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _spelled(family: int, place: tuple[Any, ...]) -> str:
    host, port = place[:2]
    if family == socket.AF_INET:
        return f"tcp://{host}:{port}"
    zone = f"%{place[3]}" if place[3] else ""  # by its number: names of interfaces may hold anything
    return f"tcp://[{host.partition('%')[0]}{zone}]:{port}"
