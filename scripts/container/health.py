"""`health.py [HTTP_PORT [LINK_PORT]]`: whether a daemon serves in this container; exit code 1 if none does.

The device says so over HTTP or HTTPS, without a key; a cloud greets whoever connects, while it starts, too. For
HEALTHCHECK, by the standard library.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import sys

PATIENCE = 5.0  # seconds
HOST = "127.0.0.1"
GREETING = (b"\xff", b"\x7f")  # first and tenth byte that every ZeroMQ socket sends


def main() -> int:
    """0 if the device's interface is healthy or, where nothing listens there, a cloud greets."""
    ports = [int(word) for word in sys.argv[1:]]
    http_port, link_port = [*ports, *(8600, 8601)[len(ports) :]]
    try:
        return 0 if _is_healthy(http.client.HTTPConnection(HOST, http_port, timeout=PATIENCE)) else 1
    except ConnectionRefusedError:
        pass
    except (OSError, http.client.HTTPException):  # no answer in the clear
        # Its certificate is for the names that others know it by.
        trusting = ssl._create_unverified_context()
        try:
            secret = http.client.HTTPSConnection(HOST, http_port, timeout=PATIENCE, context=trusting)
            return 0 if _is_healthy(secret) else 1
        except (OSError, http.client.HTTPException):
            return 1
    try:
        return 0 if _greets(link_port) else 1
    except OSError:
        return 1


def _is_healthy(connection: http.client.HTTPConnection) -> bool:
    connection.request("GET", "/health")
    return connection.getresponse().status == 200


def _greets(port: int) -> bool:
    with socket.create_connection((HOST, port), PATIENCE) as link, link.makefile("rb") as reader:
        said = reader.read(10)
    return (said[:1], said[9:]) == GREETING


if __name__ == "__main__":
    sys.exit(main())
