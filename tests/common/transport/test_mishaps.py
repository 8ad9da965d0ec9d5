"""Faults of the link's own: one costs one message, and what stays ends the process instead of half of it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import zmq

from common.process.threads import THREAD_DIED
from common.transport import loop as turns
from common.transport.cloud_link import CloudLink
from common.transport.device_link import DeviceLink
from common.transport.loop import Mishaps, Turns
from common.transport.sending import ConnectionState, Peer
from proto.messages import Cancel, Message, Probe, ProbeReply
from tests.common.transport.support import SECONDS, Echo, Recorder, draft

LOCAL = "tcp://127.0.0.1:0"
ROOT = Path(__file__).resolve().parents[3]


class Clumsy(CloudLink):
    """Fails at every fourth message, whosever it is."""

    taken = 0

    def _sender(self, first: zmq.Frame, now: float) -> ConnectionState | None:
        self.taken += 1
        if self.taken % 4 == 0:
            raise zmq.ZMQError(zmq.EINVAL)
        return super()._sender(first, now)


def test_an_exception_costs_the_message_that_it_came_with(caplog: pytest.LogCaptureFixture) -> None:
    echo, device = Echo(), Recorder()
    with (
        caplog.at_level(logging.ERROR),
        Clumsy(LOCAL, None, echo) as cloud,
        DeviceLink(cloud.address, None, device) as link,
    ):
        echo.link = cloud
        device.wait(lambda: device.connected)
        for position in range(400):
            link.send(draft(position))
        device.wait(lambda: len(device.messages) == 300)
        assert [each.position for each in device.received()] == [  # type: ignore[union-attr]
            position for position in range(400) if position % 4 != 3
        ]
        assert cloud.counters().mishaps == 100
        assert not device.gone
    assert 1 <= len(caplog.records) <= 6  # the first few of the hundred
    assert "ZMQError" in caplog.text and "taking in a message" in caplog.text


class Deaf(CloudLink):
    """Can't read what the monitor tells, half of the time."""

    times = 0

    def _on_event(self, event: int, value: int, now: float) -> None:
        super()._on_event(event, value, now)
        self.times += 1
        if self.times % 2:
            raise ValueError("half an event")


def test_an_exception_in_one_step_leaves_the_others_their_turn() -> None:
    echo, device = Echo(), Recorder()
    with Deaf(LOCAL, None, echo) as cloud, DeviceLink(cloud.address, None, device) as link:
        echo.link = cloud
        device.wait(lambda: device.connected)
        link.send(draft(1))
        device.wait(lambda: device.messages)
        assert cloud.counters().mishaps > 0


def test_a_handler_that_fails_at_every_message_is_counted_and_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor does what it said get there."""

    def fail(peer: Peer, message: Message) -> None:
        raise RuntimeError("a secret")

    cloud_side, device = Recorder(fail), Recorder()
    with (
        caplog.at_level(logging.INFO),
        CloudLink(LOCAL, None, cloud_side) as cloud,
        DeviceLink(cloud.address, None, device) as link,
    ):
        device.wait(lambda: device.connected)
        for session in range(1, 501):
            link.send(Cancel(session))
        link.send(Probe(1, 1))
        device.wait(lambda: device.received(ProbeReply))
        assert cloud.counters().faults == 500
    assert 1 <= caplog.text.count("RuntimeError") <= 6 and "secret" not in caplog.text


@dataclass
class Steps:
    """A part without sockets, whose steps are due all the time."""

    receiving: list[Callable[[], None]]
    end: Callable[[], None] = lambda: None
    sockets: tuple[()] = ()
    sending: tuple[()] = ()

    def deadline(self) -> float | None:
        return 0.0


def test_a_thread_that_goes_on_failing_pauses_and_ends_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST", 12)
    told: list[tuple[str, str]] = []
    ended, died, calls = threading.Event(), threading.Event(), []

    def fail() -> None:
        calls.append(1)
        raise OSError(9, "bad descriptor")

    def tell(name: str, error: BaseException) -> None:
        told.append((name, type(error).__name__))
        died.set()

    loop = Turns("a-link", tell)
    loop.add(Steps([fail], ended.set))
    loop.start()
    assert died.wait(SECONDS)
    loop.close()
    assert ended.is_set() and told == [("a-link", "OSError")]
    assert len(calls) == loop.mishaps.count == 13


def test_a_turn_that_succeeds_forgives_the_failed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST", 2)
    enough = threading.Event()
    count = 0

    def fail_twice_of_three() -> None:
        nonlocal count
        count += 1
        if count >= 30:
            enough.set()
            enough.wait(0.001)
        if count % 3:
            raise OSError

    loop = Turns("a-link", None)
    loop.add(Steps([fail_twice_of_three]))
    loop.start()
    assert enough.wait(SECONDS)
    loop.close()


def test_lines_left_out_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    mishaps = Mishaps(lambda: now[0])
    for _ in range(50):
        mishaps.note("a step", ValueError("told to nobody"))
    now[0] += 60
    mishaps.note("a step", ValueError())
    assert mishaps.count == 51
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["a step failed with ValueError"] * 5 + ["a step failed with ValueError; 45 more were not logged"]


DYING = """
import threading
from common.transport import loop as turns
from common.transport.cloud_link import CloudLink
from common.process.threads import end_process
from tests.common.transport.support import Recorder

class Broken(CloudLink):
    def deadline(self):
        raise {error}

turns._MOST = 3
with Broken("tcp://127.0.0.1:0", None, Recorder(), died=end_process):
    threading.Event().wait(30)
"""


@pytest.mark.parametrize("error", ["OSError('tokens')", "SystemExit(0)"])
def test_a_dead_link_ends_the_process_with_a_line_and_a_code(error: str) -> None:
    command = [sys.executable, "-c", DYING.format(error=error)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == THREAD_DIED
    lines = done.stderr.splitlines()
    assert lines[-1] == f"dragon: the thread 'cloud-link' failed with {error.split('(')[0]}; the daemon stops."
    assert "tokens" not in done.stderr and "Traceback" not in done.stderr
