"""Silence of a connection, by the clock of its guard: time for which nobody looked is no silence."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from common.transport.inflow import MEASURED, InflowGuard, InflowLimits

PATIENCE = 3.0
pytestmark = pytest.mark.skipif(not MEASURED, reason="this kernel does not tell what a connection received")


class Watched:
    """A guard of one connection, whose clock a test moves."""

    def __init__(self, here: socket.socket, peer: socket.socket) -> None:
        self.now = 100.0
        self._peer = peer
        self._here = here
        self._guard = InflowGuard(InflowLimits(2**20, 2**20, 2**24, 1e4), "test", None)
        self._guard.watch(here.fileno(), PATIENCE, self.now)

    def look(self, seconds: float, step: float = 0.05) -> bool:
        """Let so many seconds pass, with a look after each `step`; whether the connection is still there."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now = min(until, self.now + step)
            self._guard.sweep(self.now)
        return self._guard.reason(self._here.fileno()) is None

    def hear(self) -> None:
        self._peer.sendall(b"x")


@pytest.fixture
def watched() -> Iterator[Watched]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        here, _ = server.accept()
        with here:
            yield Watched(here, peer)


def test_a_silent_connection_is_cut_in_time(watched: Watched) -> None:
    assert watched.look(PATIENCE - 0.1)
    assert not watched.look(0.2)


def test_whoever_is_heard_is_not_cut(watched: Watched) -> None:
    for _ in range(9):
        assert watched.look(PATIENCE - 0.1)
        watched.hear()
    assert not watched.look(PATIENCE + 0.1)


@pytest.mark.parametrize("asleep", [PATIENCE, 3600.0])
def test_a_guard_that_has_slept_begins_no_verdict_with_it(watched: Watched, asleep: float) -> None:
    """As on a machine that was paused, whose peers have not had their turn yet."""
    assert watched.look(1.0)
    assert watched.look(asleep, step=asleep)
    assert watched.look(PATIENCE - 1.5)
    watched.hear()
    assert watched.look(PATIENCE - 0.1)
    assert not watched.look(0.2)


def test_a_guard_that_is_late_at_each_look_notices_silence_all_the_same(watched: Watched) -> None:
    """Whatever a look counts, it is more than nothing."""
    assert not watched.look(12 * PATIENCE, step=0.5)


def test_a_look_that_is_held_up_is_followed_by_the_next_one_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stood still during one must not make the guard look away for twenty times as long."""
    guard, looks, enough = (
        InflowGuard(InflowLimits(2**20, 2**20, 2**24, 1e4), "test", None),
        list[float](),
        threading.Event(),
    )

    def held_up(now: float) -> None:
        looks.append(now)
        time.sleep(0.3)
        if len(looks) == 4:
            enough.set()

    monkeypatch.setattr(guard, "sweep", held_up)
    guard.start()
    assert enough.wait(60)
    guard.close()
    pauses = [later - earlier - 0.3 for earlier, later in pairwise(looks)]
    assert min(pauses) < 3.0
