"""What listens where: the ports of both daemons, and the way to the cloud."""

from __future__ import annotations

import errno
import socket
from typing import Any, Final

import httpx

from device.cli.daemon import Daemon
from device.cli.doctor.facts import Port, Reach
from device.cli.failures import CommandFailed
from device.cli.settings import local_url, reachable

PATIENCE: Final = 3.0  # seconds
_ZMTP: Final = (b"\xff", b"\x7f")  # first and tenth byte that every ZeroMQ socket sends


def of_device(host: str, port: int, api_key: str | None) -> tuple[Port, dict[str, Any] | None]:
    """What is at the device's HTTP port, and the status of the daemon if one answers there."""
    url = local_url(host, port)
    problem = _bind(host, port)
    if problem is None:
        return Port(url if port else "some port", "free"), None
    if problem.errno != errno.EADDRINUSE:
        return Port(url, "unusable", _reason(problem)), None
    if not _healthy(url):
        return Port(url, "taken"), None
    try:
        with Daemon(url, api_key) as daemon:
            return Port(url, "daemon"), daemon.status()
    except CommandFailed:
        return Port(url, "locked"), None


def of_cloud(address: str) -> Port:
    """What is at the address that the cloud listens on."""
    from common.transport.address import split_address

    host, port = split_address(address)
    problem = _bind(host, port)
    if problem is None:
        return Port(address, "free")
    if problem.errno != errno.EADDRINUSE:
        return Port(address, "unusable", _reason(problem))
    return Port(address, "daemon" if _speaks_zmtp(reachable(host).strip("[]"), port) else "taken")


def reach(address: str) -> Reach:
    """Whether the cloud's address leads to something that takes TCP connections."""
    from common.transport.address import is_loopback, split_address

    host, port = split_address(address)
    here = is_loopback(address)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return Reach(address, here, False, False, _reason(error))
    try:
        with socket.create_connection((host, port), timeout=PATIENCE):
            return Reach(address, here, True, True)
    except OSError as error:
        return Reach(address, here, True, False, _reason(error))


def _bind(host: str, port: int) -> OSError | None:
    """Why nothing can listen there, if so."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            listener.bind(place)
    except OSError as error:
        return error
    return None


def _healthy(url: str) -> bool:
    """Whether a device daemon says there that it is well."""
    try:
        told = httpx.get(f"{url}/health", timeout=PATIENCE, trust_env=False, verify=False)
        return told.headers.get("server", "").startswith("dragon") and told.is_success
    except httpx.HTTPError:
        return False


def _speaks_zmtp(host: str, port: int) -> bool:
    greeting = b""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            while len(greeting) < 10 and (more := connection.recv(10 - len(greeting))):
                greeting += more
    except OSError:
        return False
    return (greeting[:1], greeting[9:10]) == _ZMTP


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
