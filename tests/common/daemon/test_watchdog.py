"""Signs of life: they come while all threads answer, and end when one of them hangs."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.daemon.start import Watchdog
from common.daemon.threads import FairThread
from common.process.lifetime import ServiceManager
from tests.daemons.streaming import wait_until

ALLOWED = 2.0  # seconds
ALIVE = b"WATCHDOG=1"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(60.0)
        yield listener


@pytest.fixture
def thread() -> Iterator[FairThread]:
    thread = FairThread("messages")
    yield thread
    thread.close()


def watchdog(listener: socket.socket, *threads: FairThread) -> Watchdog:
    manager = ServiceManager(listener.getsockname(), ALLOWED)
    asked = {
        f"messages {number}": lambda answer, thread=thread: thread.submit(os.getpid(), 0, answer, lambda error: None)
        for number, thread in enumerate(threads)
    }
    return Watchdog(manager, asked)


def test_signs_come_while_all_answer(listener: socket.socket, thread: FairThread) -> None:
    with watchdog(listener, thread, thread):
        assert [listener.recv(100) for _ in range(3)] == [ALIVE] * 3


def test_one_thread_that_hangs_ends_them_and_is_named(
    listener: socket.socket, thread: FairThread, caplog: pytest.LogCaptureFixture
) -> None:
    hung, released = FairThread("messages"), threading.Event()
    try:
        hung.submit("someone", 0, lambda: released.wait(), lambda error: None)
        with caplog.at_level(logging.WARNING), watchdog(listener, thread, hung):
            wait_until(lambda: "'messages 1' does not answer" in caplog.text, "the log names the thread", 60.0)
            assert "messages 0" not in caplog.text
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(100)
            listener.settimeout(60.0)
            released.set()
            assert listener.recv(100) == ALIVE, "it works again"
    finally:
        released.set()
        hung.close()


def test_without_a_manager_no_thread_is_begun() -> None:
    before = threading.active_count()
    with Watchdog(ServiceManager(), {}):
        assert threading.active_count() == before
