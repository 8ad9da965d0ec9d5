"""Formats are compiled by turns, for those who still want them, and nobody takes more time than its share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator

import pytest

from common.answer.request import AnswerFailed, NoPlace
from common.daemon.threads import FORMAT_LINE_MOST_WAITING, FormatLine
from common.process.threads import Accounts
from common.processors.trial import Unwanted
from tests.daemons.streaming import wait_until

WAIT = 60.0  # seconds, on a busy machine, too
GENEROUS = Accounts(1.0, 1e6)


class Tasks:
    """Tasks of a line that note what became of them. The first one holds the line up until `go`."""

    def __init__(self, line: FormatLine) -> None:
        self.line = line
        self.done: list[str] = []
        self.failed: dict[str, Exception] = {}
        self.unwanted: set[str] = set()
        self.go = threading.Event()
        held = threading.Event()

        def hold(wanted: Callable[[], bool]) -> None:
            held.set()
            assert self.go.wait(WAIT)

        self._submit("holder", "holding", hold)
        assert held.wait(WAIT)

    def add(self, owner: Hashable, *names: str) -> None:
        for name in names:

            def note(wanted: Callable[[], bool], name: str = name) -> None:
                self.done.append(name)

            self._submit(owner, name, note)

    def finish(self, count: int) -> None:
        """Let the line go on until so many tasks have ended."""
        self.go.set()
        wait_until(lambda: len(self.done) + len(self.failed) == count, "the tasks have ended", WAIT)

    def _submit(self, owner: Hashable, name: str, run: Callable[[Callable[[], bool]], object]) -> None:
        self.line.submit(
            owner, lambda: name not in self.unwanted, run, lambda error: self.failed.setdefault(name, error)
        )


@pytest.fixture
def line() -> Iterator[FormatLine]:
    line = FormatLine(accounts=GENEROUS)
    yield line
    line.close()


def test_owners_have_turns(line: FormatLine) -> None:
    tasks = Tasks(line)
    tasks.add("a", *(f"a{number}" for number in range(4)))
    tasks.add("b", "b0", "b1")
    tasks.add("c", "c0")
    tasks.finish(7)
    assert tasks.done == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]


def test_what_nobody_wants_any_more_is_neither_done_nor_counted(line: FormatLine) -> None:
    tasks = Tasks(line)
    names = [f"a{number}" for number in range(10 * FORMAT_LINE_MOST_WAITING)]
    for name in names:
        tasks.add("a", name)
        tasks.unwanted.add(name)
    tasks.add("a", "wanted")
    tasks.finish(1)
    assert (tasks.done, tasks.failed) == (["wanted"], {})


def test_more_than_may_wait_get_no_place_and_others_do(line: FormatLine) -> None:
    tasks = Tasks(line)
    names = [f"a{number}" for number in range(FORMAT_LINE_MOST_WAITING + 3)]
    tasks.add("a", *names)
    tasks.add("b", "b0")
    assert list(tasks.failed) == names[FORMAT_LINE_MOST_WAITING:]
    assert all(isinstance(error, NoPlace) for error in tasks.failed.values())
    tasks.finish(len(names) + 1)
    assert sorted(tasks.done) == sorted([*names[:FORMAT_LINE_MOST_WAITING], "b0"])


def test_the_time_that_it_took_is_charged_to_whoever_had_it() -> None:
    line = FormatLine(accounts=Accounts(1e-6, 0.0))  # a task uses all that there is up
    try:
        tasks = Tasks(line)
        tasks.add("a", "a0", "a1", "a2")
        tasks.add("b", "b0")
        tasks.add(None, "own", "own too", "own as well")
        tasks.finish(7)
        assert sorted(tasks.done) == ["a0", "b0", "own", "own as well", "own too"]
        assert list(tasks.failed) == ["a1", "a2"]
        for error in tasks.failed.values():
            assert isinstance(error, NoPlace) and error.wait > 0
            assert "share" in str(error)
    finally:
        line.close()


def test_one_that_is_under_way_learns_that_it_is_not_wanted(line: FormatLine) -> None:
    tasks = Tasks(line)
    begun = threading.Event()

    def compile_long(wanted: Callable[[], bool]) -> None:
        begun.set()
        wait_until(lambda: not wanted(), "it is cancelled", WAIT)
        raise Unwanted

    failed: list[Exception] = []
    line.submit("a", lambda: "long" not in tasks.unwanted, compile_long, failed.append)
    tasks.add("b", "b0")
    tasks.go.set()
    assert begun.wait(WAIT)
    tasks.unwanted.add("long")
    tasks.finish(1)
    assert (tasks.done, failed) == (["b0"], [])


def test_a_line_that_closes_gives_up_what_is_under_way() -> None:
    line = FormatLine(accounts=GENEROUS)
    begun, tasks = threading.Event(), list[str]()

    def compile_long(wanted: Callable[[], bool]) -> None:
        begun.set()
        wait_until(lambda: not wanted(), "the line closes", WAIT)
        raise Unwanted

    line.submit("a", lambda: True, compile_long, lambda error: tasks.append("failed"))
    line.submit("a", lambda: True, lambda wanted: tasks.append("done"), lambda error: tasks.append("failed"))
    assert begun.wait(WAIT)
    line.close()
    late: list[Exception] = []
    line.submit("a", lambda: True, lambda wanted: tasks.append("done"), late.append)
    assert not tasks
    assert isinstance(late[0], AnswerFailed)


def test_a_failure_ends_its_answer_and_no_other(line: FormatLine) -> None:
    tasks = Tasks(line)

    def fail(wanted: Callable[[], bool]) -> None:
        raise ZeroDivisionError

    failed: list[Exception] = []
    line.submit("a", lambda: True, fail, failed.append)
    tasks.add("a", "next")
    tasks.finish(1)
    assert tasks.done == ["next"]
    assert isinstance(failed[0], AnswerFailed)
