"""Answers by trees share what they learn, and no lock that one of them could hold the others up with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from common.answer.driver import NullObserver
from common.methods.edgellm.device import TreeDriver, TreeHistory
from common.methods.edgellm.growth import BestFirst, TreeTimes
from common.methods.edgellm.rounds import TreeConfig, TreeRounds

SOON = 30.0  # seconds, on a busy machine
MANY = 20_000


class Idle:
    """An engine with nothing to do."""

    def wake(self) -> None: ...

    def on_model_thread(self, run: Callable[[], None], tenant: Hashable = None) -> None: ...


def driver(history: TreeHistory) -> TreeDriver:
    rounds = TreeRounds(TreeConfig(frozenset(), 16), BestFirst(8, history.times, history.agreement))
    return TreeDriver(rounds, history, Idle(), Idle(), NullObserver())


def test_one_answer_does_not_hold_up_another() -> None:
    history = TreeHistory(TreeTimes(0.01, 0.1))
    one, other = driver(history), driver(history)
    got_on = threading.Event()

    def go_on() -> None:
        assert other.drafter.work() is not None
        got_on.set()

    with one.lock:
        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        assert got_on.wait(SOON), "it waits for the other answer"
    thread.join(SOON)


def test_what_they_learn_is_read_while_others_learn() -> None:
    times, failures = TreeTimes(0.01, 0.1, 0.001), []

    def learn() -> None:
        try:
            for step in range(MANY // 10):
                times.drafted(0.01 * (1 + step % 3))
                times.verified(step % 40, 0.1 + 0.001 * (step % 40))
        except RuntimeError as error:
            failures.append(error)

    def read() -> None:
        try:
            for _ in range(MANY):
                assert 0.01 <= times.draft <= 0.03
                assert times.verify > 0.0 <= times.node
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for run in (learn, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
