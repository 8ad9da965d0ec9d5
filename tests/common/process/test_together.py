"""Children that are started together: what they print, and how all of them end."""

from __future__ import annotations

import os
import queue
import signal
import sys
import time

import psutil
import pytest

from common.process import lifetime as together
from common.process.lifetime import ChildProcesses
from tests.common.process.test_child import gone

WAIT = 60.0  # seconds, on a busy machine
SLEEP = "import time; print('up', flush=True); time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
ORDERLY = f"""
import signal, sys
def end(*_):
    print('last words', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
{SLEEP}
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are waited for as long as a busy machine may need until they have ended in order, and been heard."""
    monkeypatch.setattr(together, "PATIENCE", WAIT)
    monkeypatch.setattr(together, "_READ_ON", WAIT)


class Lines:
    """Lines that children print, in the order in which they come."""

    def __init__(self) -> None:
        self._lines: queue.Queue[tuple[str, str]] = queue.Queue()

    def tell(self, name: str, line: str) -> None:
        self._lines.put((name, line))

    def next(self) -> tuple[str, str]:
        return self._lines.get(timeout=WAIT)

    def rest(self) -> list[tuple[str, str]]:
        return [self._lines.get_nowait() for _ in range(self._lines.qsize())]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def children() -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process().children()
    return found


def test_lines_have_their_names_and_last_words_are_heard() -> None:
    lines = Lines()
    before = set(children())
    with ChildProcesses({"a": python(ORDERLY), "b": python(ORDERLY)}, lines.tell) as both:
        assert {lines.next(), lines.next()} == {("a", "up"), ("b", "up")}
        assert both.ended() == {}
    assert both.ended() == {"a": 0, "b": 0}
    assert sorted(lines.rest()) == [("a", "last words"), ("b", "last words")]
    assert set(children()) <= before


def test_stderr_and_what_is_no_text_are_lines_too() -> None:
    lines = Lines()
    code = "import sys; sys.stderr.buffer.write(b'\\xff ok\\r\\nno end')"
    with ChildProcesses({"a": python(code)}, lines.tell):
        assert (lines.next(), lines.next()) == (("a", "\ufffd ok"), ("a", "no end"))


def test_one_that_ends_is_told_with_its_code() -> None:
    lines = Lines()
    with ChildProcesses({"a": python("raise SystemExit(7)"), "b": python(SLEEP)}, lines.tell) as both:
        end = time.monotonic() + WAIT
        while not both.ended() and time.monotonic() < end:
            time.sleep(0.01)
        assert both.ended() == {"a": 7}
        assert lines.next() == ("b", "up")
    assert both.ended() == {"a": 7, "b": -signal.SIGTERM}


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "PATIENCE", 0.2)
    lines = Lines()
    with ChildProcesses({"a": python(DEAF)}, lines.tell) as both:
        assert lines.next() == ("a", "up")
    assert both.ended() == {"a": -signal.SIGKILL}


def test_a_signal_for_this_process_group_does_not_reach_them() -> None:
    lines = Lines()
    with ChildProcesses({"a": python(f"import os; print(os.getpgid(0)); {SLEEP}")}, lines.tell):
        assert int(lines.next()[1]) != os.getpgid(0)


def test_if_one_can_not_be_started_none_is_left() -> None:
    before = set(children())
    with pytest.raises(OSError):
        ChildProcesses({"a": python(SLEEP), "b": ["/nowhere/python"]}, Lines().tell)
    assert all(gone(child) for child in set(children()) - before)
