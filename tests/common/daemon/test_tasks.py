"""Retrieval for many: whoever asks for much waits for himself, and what goes wrong is told to whom it belongs."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import pytest

from common.answer.request import AnswerFailed
from common.daemon.threads import TaskThread


@pytest.fixture
def thread() -> Iterator[TaskThread]:
    thread = TaskThread("tasks")
    yield thread
    thread.close()


def never(error: Exception) -> None:
    raise AssertionError(str(error))


def test_owners_have_turns_and_each_its_order(thread: TaskThread) -> None:
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        begun.set()
        go_on.wait(60)

    thread.submit("greedy", hold, never)
    assert begun.wait(60)
    for owner, count in (("greedy", 16), ("modest", 2), (None, 1)):
        for number in range(count):
            thread.submit(owner, lambda name=f"{owner} {number}": done.append(name), never)  # type: ignore[misc]
    thread.submit("greedy", over.set, never)
    go_on.set()
    assert over.wait(60)
    assert done[:5] == ["greedy 0", "modest 0", "None 0", "greedy 1", "modest 1"]
    assert done[5:] == [f"greedy {number}" for number in range(2, 16)]


def test_a_task_that_fails_is_told_of_and_costs_no_other_one(thread: TaskThread) -> None:
    failures: list[Exception] = []
    over = threading.Event()

    def fail() -> None:
        raise AnswerFailed("It went wrong.")

    thread.submit(1, fail, failures.append)
    thread.submit(2, over.set, never)
    assert over.wait(60)
    assert [str(failure) for failure in failures] == ["It went wrong."]


def test_a_closed_thread_finishes_its_task_and_takes_no_other() -> None:
    thread = TaskThread("tasks")
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []
    failures: list[Exception] = []

    def slow() -> None:
        begun.set()
        go_on.wait(60)
        done.append("first")

    thread.submit(1, slow, never)
    thread.submit(1, lambda: done.append("second"), never)
    assert begun.wait(60)
    closing = threading.Thread(target=thread.close)
    closing.start()
    while not thread._closing:
        pass
    thread.submit(1, lambda: done.append("third"), failures.append)
    go_on.set()
    closing.join(60)
    assert done == ["first"]
    assert [type(failure) for failure in failures] == [AnswerFailed]


def test_what_a_task_held_is_not_kept(thread: TaskThread) -> None:
    """Requests hold whole documents."""

    class Held:
        def __call__(self) -> None: ...

    held, over = Held(), threading.Event()
    gone = weakref.ref(held)
    thread.submit(1, held, never)
    del held
    thread.submit(1, over.set, never)
    assert over.wait(60)
    assert gone() is None
