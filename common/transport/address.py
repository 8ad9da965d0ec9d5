"""Addresses of a link: what they may look like, and which may be used without encryption."""

from __future__ import annotations

import ipaddress
import re

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


def is_loopback(address: str) -> bool:
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
    if not curve and not insecure and not is_loopback(address):
        raise TransportError(
            f"Without keys, {address} would be readable and usable by anyone on the network; "
            "make keys with `dragon keys new`, or pass --curve off --insecure if this network is trusted."
        )


def numeric(address: str) -> str:
    """`address` with localhost replaced by its number."""
    host, port = split_address(address)
    return f"tcp://127.0.0.1:{port}" if host == "localhost" else address
