"""A side that gives a session up tells the other one, and both are free."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from common.answer.report import MethodReport
from common.answer.request import AnswerFailed, stopping_message
from common.daemon.model_runtime import Rereading
from common.methods.aggregate.device import AggregateDevice
from common.sampling.race import RaceSampler
from common.transport.sending import Peer
from device.cloud_connection import NEVER, CloudView
from device.interface import Finished
from proto.errors import malformed
from proto.messages import Busy, Cancel, Close, Closed, Draft, Error, Fetch, Fetched, Message, Open, Ready, Sync
from tests.cloud.town import AT_ONCE, Resident, Stranger, Town, finished
from tests.daemons.streaming import wait_until

QUESTION = "What is the best-selling game of the kind I like?"
SESSION = 7
STEP_MS = 20.0  # so that there is time in the middle of an answer
CLOUD = Peer(1, None)
LATER = 1000.0  # seconds, longer than a session may be silent
OPEN = Open(
    SESSION,
    "speculative",
    QUESTION,
    f"\nQuestion: {QUESTION}\nAnswer:",
    4,
    1,
    0.0,
    "race",
    "race",
    32,
    True,
    1.0,
    "cloud",
    "both",
    1,
    40,
)


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), emulate_decode_ms=STEP_MS) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("laptop")


@pytest.fixture
def stranger(town: Town) -> Stranger:
    stranger = town.stranger()
    stranger.send(OPEN)
    wait_until(lambda: bool(stranger.of(Ready)), "the session is open", AT_ONCE)
    return stranger


def unanswered(town: Town, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sessions whose part of the report the cloud is asked for. It tells none, and devices never lose patience."""
    closing = list[int]()
    monkeypatch.setattr("device.cloud_connection.CLOSING_PATIENCE", NEVER)
    monkeypatch.setattr(town.sessions, "_close", lambda peer, told: closing.append(told.session))
    return closing


class TestCloud:
    def test_a_malformed_payload(self, town: Town, stranger: Stranger) -> None:
        stranger.send(Draft(SESSION, 0, 0, 16223136389552574, 0.0, 0, b"\xff\xff"))
        assert stranger.code() == "malformed"
        town.check_that_all_is_free()

    @pytest.mark.parametrize("code", ["failed", "malformed", "something-new"])
    def test_an_error_of_the_device(self, town: Town, stranger: Stranger, code: str) -> None:
        stranger.send(Error(SESSION, code, "This device can't go on."))
        town.check_that_all_is_free()
        assert stranger.of(Error) == []  # an Error is never answered

    def test_silence(self, town: Town, stranger: Stranger) -> None:
        town.sessions.tick(time.monotonic() + LATER)
        assert stranger.code() == "unknown-session"
        town.check_that_all_is_free()

    def test_documents_that_nobody_takes(self, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        fetching = town.stranger()
        monkeypatch.setattr(town.link, "queued", lambda peer: 2**30)
        fetching.send(Fetch(SESSION, QUESTION, 4, "text"))
        wait_until(lambda: town.sessions.open == 1, "the session is open", AT_ONCE)
        town.sessions.tick(time.monotonic() + LATER)
        assert fetching.code() == "failed"
        town.check_that_all_is_free()

    def test_documents_that_are_wanted_no_more(self, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        fetching = town.stranger()
        monkeypatch.setattr(town.link, "queued", lambda peer: 2**30)
        fetching.send(Fetch(SESSION, QUESTION, 4, "text"))
        wait_until(lambda: town.sessions.open == 1, "the session is open", AT_ONCE)
        fetching.send(Close(SESSION, 0))
        wait_until(lambda: fetching.of(Closed) == [Closed(SESSION, 0, 0, 0, 0, 0, 0)], "its end is told", AT_ONCE)
        town.check_that_all_is_free()

    def test_answers_that_end_for_others_over_and_over(self, town: Town, caplog: pytest.LogCaptureFixture) -> None:
        """As where two devices take turns on a full cloud: it costs a line a second, and some at once."""
        with caplog.at_level(logging.INFO, "cloud.sessions"):
            for number in range(1, 301):
                town.sessions._end_for_others([((Peer(1, None), number), MagicMock())])
        assert 1 <= sum("has more than its share" in line for line in caplog.messages) <= 110

    def test_a_session_that_is_opened_over_and_over(
        self, town: Town, stranger: Stranger, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It costs a few lines in the log, however often."""
        with caplog.at_level(logging.INFO, "cloud.sessions"):
            for _ in range(300):
                stranger.send(OPEN)
            stranger.send(Error(SESSION, "failed", "That is enough."))
            town.check_that_all_is_free()
        assert 1 <= sum("answer 00000007 is open already" in line for line in caplog.messages) <= 10


class TestDevice:
    def test_a_malformed_payload(self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
        def read(*arguments: object) -> None:
            raise malformed("a race list must have an entry")

        monkeypatch.setattr(RaceSampler, "read", read)
        started = time.monotonic()
        report = device.ask(QUESTION).report
        assert time.monotonic() - started < AT_ONCE
        assert report.degraded == tuple(range(report.tokens))
        assert report.notes == ("The cloud did not take part: the messages that it sent can't be used.",)
        town.check_that_all_is_free()

    def test_that_gave_up_is_not_told_otherwise_by_late_messages(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Messages that the cloud sends before it knows that the device gave up change nothing."""
        sent: list[Message] = []

        def send(message: Message) -> int:
            sent.append(message)
            return 0

        generation = device.begin(QUESTION, method="token-wise")
        next(iter(generation))
        (active,) = device.engine._active.values()
        assert isinstance(active.half, AggregateDevice)
        going_on = active.half.answer.session
        monkeypatch.setattr(device.link, "send", send)
        session = active.opening.session
        device.engine._on_message(Error(session, "failed", "It failed."), 0)
        position = going_on.position
        digest = going_on.digest(position)
        device.engine._on_message(Sync(session, 0, going_on.committed, "device", True), 0)
        device.engine._on_message(Draft(session, 0, position, digest, 0.0, 0, b"\xff"), 0)
        device.engine._on_message(Error(session, "unknown-session", "Open it again."), 0)
        report = finished(generation).report
        assert not [message for message in sent if isinstance(message, Open | Sync | Draft)]
        assert report.degraded == tuple(range(report.degraded[0], report.tokens))
        monkeypatch.undo()
        town.sessions.tick(time.monotonic() + LATER)  # the real one was never told by this test

    @pytest.mark.parametrize("happens", ["it does not know the answer", "it was away"])
    def test_a_cloud_that_has_nothing_to_report_is_not_waited_for(
        self, town: Town, device: Resident, happens: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer has ended, and its worker was lost, or its session with the connection."""
        closing, ended = unanswered(town, monkeypatch), list[Finished]()
        generation = device.begin(QUESTION)
        town.run(lambda: ended.append(finished(generation)))
        wait_until(lambda: bool(closing), "the cloud is asked for its part of the report", AT_ONCE)
        if happens == "it was away":
            device.engine._on_welcome()
            wait_until(lambda: bool(ended), "the answer has its report", AT_ONCE)
        for later in (LATER, 2 * LATER):  # the last tokens may be news at first
            town.sessions.tick(time.monotonic() + later)
        wait_until(lambda: bool(ended), "the answer has its report", AT_ONCE)
        town.check_that_all_is_free()

    @pytest.mark.parametrize("happens", ["it stops", "it is lost", "it has others to serve"])
    def test_a_cloud_that_is_gone_is_not_waited_for_at_the_end(
        self, town: Town, device: Resident, happens: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer has ended, and nothing of its part of the report has come."""
        closing, ended = unanswered(town, monkeypatch), list[Finished]()
        connection = device.engine.cloud.connection
        assert connection is not None
        welcome = connection.welcome
        generation = device.begin(QUESTION, wait=True)
        town.run(lambda: ended.append(finished(generation)))
        wait_until(lambda: bool(closing), "the cloud is asked for its part of the report", AT_ONCE)
        match happens:
            case "it stops":
                connection.on_message(CLOUD, stopping_message(), 0)
            case "it is lost":
                connection.on_gone(CLOUD)
            case _:
                connection.on_message(CLOUD, Busy(closing[0], 1), 0)
        try:
            wait_until(lambda: bool(ended), "the answer has its report", AT_ONCE)
        finally:
            connection.welcome, connection.left = welcome, False
        for later in (LATER, 2 * LATER):
            town.sessions.tick(time.monotonic() + later)
        town.check_that_all_is_free()

    def test_what_the_cloud_has_reported_holds_when_it_comes_back(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The device reads the answer again still."""
        readings, reports = list[Rereading](), list[Closed | None]()
        monkeypatch.setattr(device.side.target, "reread", lambda reading, **owner: readings.append(reading))
        monkeypatch.setattr("common.daemon.model_runtime.LEAST_SECONDS", NEVER)
        ended = list[Finished]()
        generation = device.begin(QUESTION, aggregation="context")
        (active,) = device.engine._active.values()
        report = active.half.report

        def noting(closed: Closed | None) -> MethodReport:
            reports.append(closed)
            return report(closed)

        monkeypatch.setattr(active.half, "report", noting)
        town.run(lambda: ended.append(finished(generation)))
        wait_until(lambda: active._ending._closed is not None, "the cloud's part of the report has come", AT_ONCE)
        device.engine._on_welcome()
        (reading,) = readings
        reading.stop()
        wait_until(lambda: bool(ended), "the answer has its report", AT_ONCE)
        assert [type(closed) for closed in reports] == [Closed]
        town.check_that_all_is_free()

    def test_an_end_is_told_behind_what_is_being_told(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An `Open` that another thread has in its hands comes before it, or not at all."""
        generation = device.begin(QUESTION)
        (active,) = device.engine._active.values()
        connection, told = device.engine.cloud.connection, list[bool]()
        assert connection is not None
        send = connection.send

        def noting(message: Message) -> int:
            if isinstance(message, Close):
                told.append(active._order.locked())
            return send(message)

        monkeypatch.setattr(connection, "send", noting)
        finished(generation)
        assert told == [True]
        town.check_that_all_is_free()

    def test_only_the_clouds_documents(self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
        """The cloud must not go on when the device no longer waits for it, which is as long as the settings say."""
        monkeypatch.setattr("common.methods.aggregate.device.CLOUD_PATIENCE", 0.01)
        assert device.ask(QUESTION, sources="cloud").text
        limits = CloudView.limits
        monkeypatch.setattr(CloudView, "limits", lambda *of: replace(limits(*of), patience=0.01))
        with pytest.raises(AnswerFailed, match="The cloud stopped answering"):
            generation = device.begin(QUESTION, sources="cloud")
            next(iter(generation))
            for later in range(1, 6):  # seconds; a token that comes between two of them is waited for again
                device.engine._tick(time.monotonic() + later)
            finished(generation)
        town.check_that_all_is_free()

    def test_an_answer_that_was_forgotten_is_taken_up_again(self, town: Town, device: Resident) -> None:
        expected = device.ask(QUESTION)
        generation = device.begin(QUESTION)
        wait_until(lambda: town.sessions.open == 1, "the session is open", AT_ONCE)
        town.sessions.tick(time.monotonic() + LATER)
        report = finished(generation)
        assert report.text == expected.text
        assert (report.report.degraded, report.report.notes) == ((), ())
        town.check_that_all_is_free()


def test_the_same_session_can_be_opened_again(town: Town, stranger: Stranger) -> None:
    """The late end of the first session must not end the second."""
    stranger.send(Error(SESSION, "failed", ""))
    stranger.heard.clear()
    stranger.send(replace(OPEN, seed=2))
    wait_until(lambda: bool(stranger.of(Ready)), "the session is open", AT_ONCE)
    assert town.sessions.open == 1
    stranger.send(Error(SESSION, "failed", ""))
    town.check_that_all_is_free()


def test_a_message_that_fails_late_ends_no_later_session(town: Town, stranger: Stranger) -> None:
    """It was being taken in when its session ended, and its number is another one's by now."""
    sessions, key = town.sessions, next(iter(town.sessions._sessions))
    session, failed = sessions._sessions[key], threading.Event()

    def failing() -> None:
        stranger.send(Cancel(SESSION))
        wait_until(lambda: sessions.open == 0, "its session is over", AT_ONCE)
        stranger.heard.clear()
        stranger.send(OPEN)
        wait_until(lambda: bool(stranger.of(Ready)), "the number is used again", AT_ONCE)
        failed.set()
        raise malformed("this took long")

    sessions._inbox.later(key, session, 0, failing)
    assert failed.wait(2 * AT_ONCE)
    behind = threading.Event()
    town.cloud.messages.submit("behind it", 0, behind.set, lambda error: None)
    assert behind.wait(AT_ONCE)
    assert (sessions.open, stranger.of(Error)) == (1, [])
    stranger.send(Cancel(SESSION))
    town.check_that_all_is_free()


def test_the_end_of_a_fetch_lets_others_decode_on(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do while few sessions are open; the engine rests until somebody wakes it."""
    wait_until(lambda: town.sessions.open == 0, "all others have ended", AT_ONCE)
    woken, wake = list[int](), town.cloud.decoding.wake

    def note() -> None:
        woken.append(town.sessions.open)
        wake()

    monkeypatch.setattr(town.cloud.decoding, "wake", note)
    stranger = town.stranger()
    stranger.send(Fetch(SESSION, QUESTION, 1, "text"))
    wait_until(lambda: bool(stranger.of(Fetched)) and town.sessions.open == 0, "it was fetched", AT_ONCE)
    wait_until(lambda: 0 in woken, "the engine is woken", AT_ONCE)
