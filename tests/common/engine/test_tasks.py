"""Tasks between passes: in turns, and no more of the thread's time than a share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from common.engine import loop as module
from common.engine.loop import BURST, BURST_OF_ALL, SHARE, SHARE_OF_ALL, SLICE, Tasks, Worker
from tests.common.engine.greedy_client import GreedyClient, RaceDrafter, job
from tests.common.engine.test_worker import LENGTH, QUERY, documents, load


class Clock:
    """Time that passes where a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Log:
    """Tasks that take so many seconds, and who had them run."""

    def __init__(self, clock: Clock) -> None:
        self.ran: list[str] = []
        self._clock = clock

    def task(self, owner: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.ran.append(owner)
            self._clock.now += seconds

        return run


def test_a_round_ends_however_many_wait(clock: Clock) -> None:
    """And whoever has many is not before who has one."""
    tasks, log = Tasks(), Log(clock)
    for _ in range(9):
        tasks.add("many", log.task("many", 2 * SLICE))
    tasks.add("one", log.task("one", 2 * SLICE))
    tasks.add(None, log.task("own", 2 * SLICE))
    assert tasks.run()
    assert log.ran == ["own", "many"]
    assert tasks.run()
    assert log.ran == ["own", "many", "one"]


def test_a_task_that_asks_for_the_next_one_does_not_keep_the_thread(clock: Clock) -> None:
    tasks, log = Tasks(), Log(clock)

    def again() -> None:
        log.task("a", SLICE / 3.5)()
        tasks.add("a", again)

    tasks.add("a", again)
    assert tasks.run()
    assert len(log.ran) == 4


def test_short_ones_are_run_together(clock: Clock) -> None:
    tasks, log = Tasks(), Log(clock)
    for _ in range(100):
        tasks.add("a", log.task("a", 0.0))
    assert tasks.run()
    assert len(log.ran) == 100
    assert not tasks.run()
    assert tasks.wait() is None


def test_who_has_overdrawn_waits_and_nobody_else(clock: Clock) -> None:
    tasks, log = Tasks(), Log(clock)
    for _ in range(3):
        tasks.add("a", log.task("a", BURST + SHARE))
    assert tasks.run()
    assert not tasks.run()
    assert tasks.wait() == pytest.approx(1.0)
    tasks.add("b", log.task("b", 0.0))
    assert tasks.wait() == 0.0
    assert tasks.run()
    assert log.ran == ["a", "b"]
    clock.now += 1.0
    assert tasks.wait() == 0.0
    assert tasks.run()
    assert log.ran == ["a", "b", "a"]


def test_a_daemons_own_are_not_counted(clock: Clock) -> None:
    tasks, log = Tasks(), Log(clock)
    for _ in range(3):
        tasks.add(None, log.task("own", 2 * BURST))
    assert [tasks.run() for _ in range(4)] == [True, True, True, False]


def test_no_more_than_a_share_in_the_long_run(clock: Clock) -> None:
    tasks, log = Tasks(), Log(clock)
    for _ in range(10_000):
        tasks.add("a", log.task("a", 0.02))
    begun = clock.now
    while clock.now < begun + 100:
        if not tasks.run():
            clock.now += 0.01  # a pass
    assert 0.02 * len(log.ran) == pytest.approx(SHARE * 100 + BURST, rel=0.02)


@pytest.mark.parametrize("owners", [2, 4, 16, 100])
def test_no_more_than_a_share_of_all_owners_together(clock: Clock, owners: int) -> None:
    """However many ask, a pass never waits for more than one task, and each of them has turns."""
    tasks, log = Tasks(), Log(clock)
    for owner in range(owners):
        for _ in range(1000):
            tasks.add(owner, log.task(str(owner), 0.1))
    begun, longest = clock.now, 0.0
    while clock.now < begun + 100:
        before = clock.now
        tasks.run()
        longest = max(longest, clock.now - before)
        clock.now += 0.03  # a pass
    assert 0.1 * len(log.ran) == pytest.approx(SHARE_OF_ALL * 100 + BURST_OF_ALL, rel=0.02)
    assert longest < 0.15
    turns = [log.ran.count(str(owner)) for owner in range(owners)]
    assert max(turns) - min(turns) <= 1


def test_they_are_added_from_any_thread() -> None:
    tasks, ran = Tasks(), list[int]()

    def add() -> None:
        for owner in range(500):
            tasks.add(owner, lambda: ran.append(1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 30
    while len(ran) < 2000 and time.monotonic() < until:
        tasks.run()
    assert len(ran) == 2000


def test_tasks_that_cause_the_next_one_stop_no_answer() -> None:
    """As a peer's questions do, of which the next one is taken in when one is answered."""
    decoder, client = load(), GreedyClient(LENGTH)
    worker, ended = Worker(decoder, 0.003), threading.Event()

    def again() -> None:
        if not ended.is_set():
            worker.on_model_thread(again, "peer")

    worker.on_model_thread(again, "peer")
    drafter = RaceDrafter(decoder.vocabulary, 1)
    worker.submit(job(decoder, client, documents(1), QUERY, drafter=drafter))
    try:
        assert len(client.wait()) == LENGTH
    finally:
        ended.set()
        worker.close()
