"""Addresses of a link, and the ones allowed without encryption."""

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
    """The link can't be set up as configured. The text is one sentence with the remedy."""


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of `tcp://host:port` (IPv6 in brackets). Raises `TransportError`."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match["port"]) > 65535:
        raise TransportError(
            f"The address {address!r} is not understood; write tcp://host:port, for example tcp://127.0.0.1:7500."
        )
    return match["six"] or match["host"], int(match["port"])


def is_local_address(address: str) -> bool:
    """Whether only this machine can reach `address`. Looks up no name."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_four(address: str) -> bool:
    return re.fullmatch(r"[\d.]+|localhost", split_address(address)[0]) is not None


def is_number(address: str) -> bool:
    try:
        ipaddress.ip_address(split_address(address)[0])
    except ValueError:
        return False
    return True


def require_safe(address: str, curve: bool, insecure: bool) -> None:
    """Refuses a plaintext link that leaves this machine, unless `insecure`. Raises `TransportError`."""
    if not curve and not insecure and not is_local_address(address):
        raise TransportError(
            f"Without keys, {address} would be readable and usable by anyone on the network; "
            "make keys with `dragon keys new`, or pass --curve off --insecure if this network is trusted."
        )


def numeric(address: str) -> str:
    host, port = split_address(address)
    return f"tcp://127.0.0.1:{port}" if host == "localhost" else address


# --- names
# A cloud's name: looked up outside the link's thread, its addresses tried in turn.


class AddressOrder:
    """Order of a name's addresses: each once, the last working one first.

    Pure. After all were tried or one worked, the name needs a new lookup.
    """

    def __init__(self) -> None:
        self._left: list[str] = []
        self._tried: str | None = None
        self._good: str | None = None

    def found(self, places: Sequence[str]) -> None:
        self._left = sorted(places, key=lambda place: place != self._good)  # stable sort keeps the other order

    def next(self) -> str | None:
        """Returns the next address, None if none is left."""
        self._tried = self._left.pop(0) if self._left else None
        return self._tried

    def worked(self) -> None:
        self._good, self._left = self._tried, []


class Lookup:
    """Looks up an address's name on its own thread, once at a time; may take a minute.

    Calls `done` on that thread. All methods are for one thread.
    """

    def __init__(self, address: str, done: Callable[[], None]) -> None:
        self._address = numeric(address)
        self._done = done
        self._found: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._under_way = False

    def begin(self) -> None:
        """Starts a lookup unless one is running."""
        if self._under_way:
            return
        if is_number(self._address):
            self._found.put([self._address])
        else:
            threading.Thread(target=self._run, name="name lookup", daemon=True).start()
        self._under_way = True

    def take(self) -> list[str] | None:
        """Returns the addresses, empty for an unknown name, None during the lookup."""
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
    """Returns `address` with each usable number of its name, in the system's order."""
    host, port = split_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return []
    usable = {family: _is_usable(family) for family, *_ in found}
    return list(dict.fromkeys(_spelled(family, place) for family, *_, place in found if usable[family]))


def _is_usable(family: int) -> bool:
    """Whether this machine has sockets of the family. ZeroMQ reports no such error."""
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
    zone = f"%{place[3]}" if place[3] else ""  # by number, as interface names may contain anything
    return f"tcp://[{host.partition('%')[0]}{zone}]:{port}"
