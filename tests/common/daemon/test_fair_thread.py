"""Work that others cause: in order for each, by turns among all, and none beyond its share."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from common.answer.request import AnswerFailed
from common.daemon.threads import MOST_WAITING, WORK_BURST, WORK_PER_SECOND, FairThread
from tests.daemons.streaming import wait_until

GREEDY, MODEST = "greedy", "modest"


@pytest.fixture
def thread() -> Iterator[FairThread]:
    thread = FairThread("fair")
    yield thread
    thread.close()


class Blocked:
    """Holds the thread up, on nobody's account, until it is left."""

    def __init__(self, thread: FairThread) -> None:
        self._thread = thread
        self._begun, self._end = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        assert self._thread.submit(self, 0, self._hold, fail)
        assert self._begun.wait(60.0)

    def __exit__(self, *error: object) -> None:
        self._end.set()

    def _hold(self) -> None:
        self._begun.set()
        assert self._end.wait(60.0)


def fail(error: Exception) -> None:
    raise AssertionError(str(error))


def spend(seconds: float) -> None:
    """Compute for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(1000))


def test_owners_have_turns_and_each_its_order(thread: FairThread) -> None:
    done: list[str] = []
    with Blocked(thread):
        for owner, count in ((GREEDY, 6), (MODEST, 2), ("late", 1)):
            for number in range(count):
                assert thread.submit(owner, 10, lambda name=f"{owner} {number}": done.append(name), fail)  # type: ignore[misc]
    wait_until(lambda: len(done) == 9, "all is done")
    turns = [
        f"{GREEDY} 0",
        f"{MODEST} 0",
        "late 0",
        f"{GREEDY} 1",
        f"{MODEST} 1",
        *(f"{GREEDY} {n}" for n in range(2, 6)),
    ]
    assert done == turns


def test_who_has_overdrawn_waits_and_nobody_else(thread: FairThread) -> None:
    """The work that is over its burst is made up for at its rate; what others want is done meanwhile."""
    owed, done, began = 0.25, list[str](), time.monotonic()
    assert thread.submit(GREEDY, 0, lambda: spend(WORK_BURST + owed), fail)
    assert thread.submit(GREEDY, 0, lambda: done.append(GREEDY), fail)
    for _ in range(5):
        assert thread.submit(MODEST, 0, lambda: done.append(MODEST), fail)
    wait_until(lambda: len(done) == 6, "all is done", 60.0)
    assert done == [MODEST] * 5 + [GREEDY]
    assert time.monotonic() - began > 0.9 * owed / WORK_PER_SECOND


def test_what_waits_for_one_is_bounded(thread: FairThread) -> None:
    size, done = MOST_WAITING // 8, list[str]()
    with Blocked(thread):
        taken = [thread.submit(GREEDY, size, lambda: done.append(GREEDY), fail) for _ in range(20)]
        assert taken == [True] * 7 + [False] * 13  # each counts for a little more than it holds
        assert thread.submit(MODEST, size, lambda: done.append(MODEST), fail)
    wait_until(lambda: len(done) == 8, "all is done")
    assert thread.submit(GREEDY, size, lambda: done.append(GREEDY), fail)


def test_an_exception_goes_to_its_answer_and_the_thread_goes_on(thread: FairThread) -> None:
    failures: list[Exception] = []

    def broken() -> None:
        raise RuntimeError("this must not be said")

    assert thread.submit(GREEDY, 0, broken, failures.append)
    wait_until(lambda: bool(failures), "the failure is told")
    assert isinstance(failures[0], AnswerFailed) and "must not be said" not in str(failures[0])
    done: list[int] = []
    assert thread.submit(GREEDY, 0, lambda: done.append(1), fail)
    wait_until(lambda: bool(done), "the next one is done")


def test_what_waits_is_dropped_at_the_end() -> None:
    thread, done = FairThread("fair"), list[int]()
    closing = threading.Thread(target=thread.close)
    with Blocked(thread):
        assert thread.submit(MODEST, 0, lambda: done.append(1), fail)
        closing.start()
        wait_until(lambda: thread._closing, "it is closing")
    closing.join(60.0)
    assert not closing.is_alive() and done == []
