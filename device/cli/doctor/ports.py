"""The ports of both daemons and their listeners."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import httpx

from device.cli.connection import own_daemon, own_trust
from device.cli.daemon import tls_problem, usual_trust
from device.cli.failures import CommandFailed, DaemonSilent, DaemonStarting
from device.cli.settings import local_url, reachable
from device.doctor.checks import PATIENCE, Finding, reason
from proto.messages import Side

if TYPE_CHECKING:
    import ssl

    from device.settings import DeviceSettings

Listener = Literal["daemon", "silent", "taken"]  # states of a used port

_ZMTP: Final = (b"\xff", b"\x7f")  # first and tenth byte of every ZeroMQ socket
_GREETED: Final = _ZMTP[0] + bytes(8) + _ZMTP[1]


@dataclass(frozen=True, slots=True)
class Port:
    """A daemon's address, and the state of its port."""

    address: str
    # locked: a device daemon with another key; unproven: another daemon over https; silent: takes connections without
    # answering, e.g. a hanging or suspended daemon
    state: Literal["free", "daemon", "starting", "locked", "unproven", "silent", "taken", "unusable"]
    problem: str = ""


def check_port(port: Port, role: Side) -> Finding:
    """Checks that the daemon listens or can listen."""
    setting = "port" if role == "device" else "bind"
    match port.state:
        case "daemon":
            return Finding("ok", "port", f"the daemon answers at {port.address}")
        case "free":
            return Finding("ok", "port", f"{port.address} is free; `dragon {role}` starts the daemon")
        case "starting":
            return Finding("ok", "port", f"{port.address}: {port.problem}")
        case "locked":
            text = f"a daemon at {port.address} refuses this user's key: {port.problem}"
            return Finding("wrong", "port", text, "stop it if it belongs to another user or another data folder")
        case "unproven":
            text = f"the program at {port.address} is not this machine's daemon: {port.problem}"
            return Finding(
                "wrong", "port", text, "restart the daemon if its certificate is new, else stop that program"
            )
        case "silent":
            text = f"the program at {port.address} accepts connections and does not answer"
            remedy = f"if it is a daemon, it hangs or is suspended: stop it and restart it; else set another {setting}"
            return Finding("wrong", "port", text, remedy)
        case "taken":
            text = f"{port.address} is in use by another program"
            return Finding("wrong", "port", text, f"stop it, or set another {setting}")
        case "unusable":
            text = f"the daemon can't listen at {port.address}: {port.problem}"
            return Finding("wrong", "port", text, f"set another {'host or port' if role == 'device' else 'bind'}")


def probe_device_port(settings: DeviceSettings) -> tuple[Port, dict[str, Any] | None]:
    """Returns the device's port, and the status of an answering daemon, else None."""
    url = local_url(settings)
    problem = _bind(settings.host, settings.port)
    if problem is None:
        return Port(url if settings.port else "some port", "free"), None
    if problem.errno != errno.EADDRINUSE:
        return Port(url, "unusable", reason(problem)), None
    try:
        if (listener := _listener(url, own_trust(settings))) != "daemon":
            return Port(url, listener), None
        with own_daemon(settings) as daemon:
            return Port(url, "daemon"), daemon.status()
    except DaemonStarting as starting:
        return Port(url, "starting", str(starting)), None
    except _Unproven as error:
        return Port(url, "unproven", str(error)), None
    except DaemonSilent:
        return Port(url, "silent"), None
    except CommandFailed as failure:
        return Port(url, "locked", failure.text), None


def probe_cloud_port(address: str) -> Port:
    from common.transport.address import split_address

    host, port = split_address(address)
    problem = _bind(host, port)
    if problem is None:
        return Port(address, "free")
    if problem.errno != errno.EADDRINUSE:
        return Port(address, "unusable", reason(problem))
    return Port(address, _zmtp_listener(reachable(host).strip("[]"), port))


def _bind(host: str, port: int) -> OSError | None:
    """Returns the error of listening there, None if it works."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
            listener.bind(place)
    except OSError as error:
        return error
    return None


class _Unproven(Exception):
    """The reason for a failed TLS connection."""


def _listener(url: str, trusted: ssl.SSLContext | None) -> Listener:
    """Raises `_Unproven`."""
    try:
        told = httpx.get(f"{url}/health", timeout=PATIENCE, trust_env=False, verify=trusted or usual_trust(url))
    except httpx.HTTPError as error:
        if (problem := tls_problem(error)) is not None:
            raise _Unproven(problem) from None
        return "silent" if isinstance(error, httpx.TimeoutException) else "taken"
    return "daemon" if told.headers.get("server", "").startswith("dragon") else "taken"


def speaks_zmtp(host: str, port: int) -> bool:
    """Whether a ZeroMQ socket, as a cloud's, listens there."""
    return _zmtp_listener(host, port) == "daemon"


def _zmtp_listener(host: str, port: int) -> Listener:
    greeting = b""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            connection.sendall(_GREETED)  # makes other servers answer or close now
            while len(greeting) < 10 and (more := connection.recv(10 - len(greeting))):
                greeting += more
    except TimeoutError:
        return "silent"
    except OSError:
        return "taken"
    return "daemon" if (greeting[:1], greeting[9:10]) == _ZMTP else "taken"
