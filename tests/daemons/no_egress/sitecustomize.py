"""Python runs this first when this folder is on its path: no program gets further than this machine.

Every attempt is a line in the file that $EGRESS_ATTEMPTS names, and fails.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from typing import Any

_HERE = {None, "", b"", "localhost", b"localhost"}


def _is_here(host: Any) -> bool:
    if host in _HERE:
        return True
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host).is_loopback
    except ValueError:
        return False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    match event:
        case "socket.connect" | "socket.sendto" | "socket.sendmsg":
            address = arguments[1]
            allowed = not isinstance(address, tuple) or _is_here(address[0])  # others are of this machine alone
        case "socket.getaddrinfo" | "socket.gethostbyname":
            address = arguments[0]
            allowed = _is_here(address)
        case _:
            return
    if not allowed:
        with open(os.environ["EGRESS_ATTEMPTS"], "a") as attempts:
            attempts.write(f"{os.getpid()} {event} {address}\n")
        raise OSError("This test allows no connection that leaves the machine.")


sys.addaudithook(_watch)
