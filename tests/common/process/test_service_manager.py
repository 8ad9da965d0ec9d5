"""Words to a service manager, read from a socket as it has one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.process.lifetime import ServiceManager

LONGEST = 4096


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    """A manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + address[1:] if address.startswith("@") else address)
        listener.settimeout(60.0)
        yield listener


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
def test_each_message_is_a_datagram_of_lines(tmp_path: Path, abstract: bool) -> None:
    address = f"@dragon-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with listening(address) as listener:
        manager = ServiceManager.of({"NOTIFY_SOCKET": address})
        manager.status("loading\nREADY=1 " + "x" * LONGEST)
        manager.ready("serving")
        manager.alive()
        manager.stopping()
        told = [listener.recv(LONGEST).decode() for _ in range(4)]
    first, *others = told
    assert first.startswith("STATUS=loading READY=1 xxx") and "\n" not in first and len(first) < 1000
    assert others == ["READY=1\nSTATUS=serving", "WATCHDOG=1", "STOPPING=1\nSTATUS=stopping"]


@pytest.mark.parametrize(
    ("of_watchdog", "seconds"),
    [
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
    ids=["of-all", "of-us", "of-another", "zero", "no-number", "none"],
)
def test_children_do_not_inherit_what_is_for_the_daemon(of_watchdog: dict[str, str], seconds: float | None) -> None:
    environment = {"NOTIFY_SOCKET": "/nowhere", "HOME": "/"} | of_watchdog
    assert ServiceManager.of(environment).watchdog == seconds
    assert environment == {"HOME": "/"}


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_without_a_known_manager_there_is_no_watchdog(address: str) -> None:
    manager = ServiceManager.of({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"})
    assert manager.watchdog is None
    manager.ready("nobody is told")


def test_a_manager_that_is_gone_or_does_not_read_holds_nobody(tmp_path: Path) -> None:
    ServiceManager(str(tmp_path / "gone")).ready("nobody listens")
    address = str(tmp_path / "deaf")
    with listening(address), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"x" * LONGEST, address)  # until its queue is full
        ServiceManager(address).alive()


def test_a_manager_that_was_busy_hears_later_that_the_daemon_serves(tmp_path: Path) -> None:
    """Otherwise it would end a daemon whose start took too long, by all that it knows."""
    address = str(tmp_path / "busy")
    manager = ServiceManager(address)
    manager.ready("serving")
    with listening(address) as listener:
        for _ in range(2):
            manager.alive()
        told = [listener.recv(LONGEST).decode() for _ in range(2)]
    assert told == ["WATCHDOG=1\nREADY=1\nSTATUS=serving", "WATCHDOG=1"]
