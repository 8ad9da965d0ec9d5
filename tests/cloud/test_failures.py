"""Failures of one side are told to the other at once, and to the user, with the true reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from common.answer.report import UNREAD, untold
from common.answer.request import AnswerFailed
from common.daemon.model_runtime import Rereading
from common.daemon.side import SideRuntime
from common.engine.jobs import DecodeRequest
from common.engine.model.decoder import Decoder
from common.library.errors import LibraryError
from common.library.library import Library
from common.methods.aggregate.driver import SessionDriver
from common.scoring.worker import ScoringError
from device.active_request import ShownAnswer
from device.interface import Finished
from proto.messages import Cancel, Close, Message, Ready, Side, Welcome
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import AT_ONCE, Resident, Town, finished
from tests.daemons.streaming import wait_until

QUESTION = "What is the best-selling game of the kind I like?"
UNSCORED = "The documents could not be scored; the daemon's log says why."
STEP_MS = 5.0
LATER = 4  # tokens of an answer after which something breaks in its middle


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), emulate_decode_ms=STEP_MS) as town:
        yield town


@pytest.fixture(scope="module")
def device(town: Town) -> Resident:
    return town.device("laptop")


def broken(*arguments: object, **fields: object) -> Any:
    raise RuntimeError(f"broken, and this must not be said: {QUESTION}")


def unreadable(library: Library) -> str:
    raise LibraryError(f"the library {library.folder} can't be used: disk I/O error")


@dataclass(frozen=True, slots=True)
class BrokenScorer:
    """Can't score beyond some length of the answer."""

    gain: ClassVar[float] = 0.0

    identity: str
    after: int
    documents: int = 0

    def begin(
        self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]
    ) -> BrokenScorer:
        return replace(self, documents=len(documents))

    def close(self) -> None:
        pass

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        return True

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        if len(answer) >= self.after:
            raise ScoringError(UNSCORED)
        return np.zeros(self.documents)


def break_search(side: SideRuntime, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(side.library, "search", broken)
    return "The library could not be searched; the daemon's log says why."


def break_library(side: SideRuntime, patch: pytest.MonkeyPatch) -> str:
    """As of a disk that is unplugged."""
    patch.setattr(type(side.library), "identity", property(unreadable))
    return "The library could not be searched; the daemon's log says why."


def break_prefill(side: SideRuntime, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(side.decoder, "known_document", broken)
    return "The model failed while decoding; the daemon's log says why."


def break_scoring(side: SideRuntime, patch: pytest.MonkeyPatch, after: int = 0) -> str:
    patch.setattr(side.target, "scorer", BrokenScorer(side.scorer.identity, after))
    return UNSCORED


def break_what_follows_the_search(side: SideRuntime, patch: pytest.MonkeyPatch) -> str:
    patch.setattr(side.target, "arrange", broken)
    return "The answer failed; the daemon's log says why."


BREAKS = [break_search, break_prefill, break_scoring]
OF_A_CLOUD = [*BREAKS, break_library]  # a device does not tell what its library is
Break = Callable[[SideRuntime, pytest.MonkeyPatch], str]


def break_receiving(role: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one side fail at every message of an answer; the other one is in the same process."""
    whole = SessionDriver.receive

    def receive(answer: SessionDriver, message: Message) -> None:
        (broken if answer.session.role == role else whole)(answer, message)

    monkeypatch.setattr(SessionDriver, "receive", receive)


class TestCloud:
    @pytest.mark.parametrize("break_", OF_A_CLOUD)
    def test_the_device_goes_on_alone_at_once(
        self, town: Town, device: Resident, break_: Break, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reason = break_(town.cloud, monkeypatch)
        started = time.monotonic()
        report = device.ask(QUESTION).report
        assert time.monotonic() - started < AT_ONCE
        assert report.degraded == tuple(range(report.tokens))
        assert report.notes == (f"The cloud did not take part: {reason}",)
        town.check_that_all_is_free()

    def test_the_devices_documents_tell_what_is_far(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        break_search(town.cloud, monkeypatch)
        report = device.ask("How many planets orbit the star Vega?", unmatched="refuse").report
        assert (report.refused, report.tokens) == (True, 1), report.closest
        town.check_that_all_is_free()

    @pytest.mark.parametrize("delivery", ["tokens", "sequence"])
    @pytest.mark.parametrize("break_", OF_A_CLOUD)
    def test_an_answer_from_the_clouds_documents_alone(
        self, town: Town, device: Resident, break_: Break, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reason = break_(town.cloud, monkeypatch)
        started = time.monotonic()
        if delivery == "sequence":
            assert device.ask(QUESTION, method="sequence-wise").report.notes == (
                f"The cloud did not take part: {reason}",
            )
        else:
            with pytest.raises(AnswerFailed, match=reason):
                device.ask(QUESTION, sources="cloud")
        assert time.monotonic() - started < AT_ONCE
        town.check_that_all_is_free()

    def test_a_device_that_comes_while_the_library_can_not_be_read(
        self, town: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It says hello once: it is welcome, and told of the library when that is there again."""
        with monkeypatch.context() as patch:
            break_library(town.cloud, patch)
            stranger = town.stranger()
            stranger.send(OPEN)
            assert stranger.code() == "failed"
        stranger.send(OPEN)
        wait_until(lambda: bool(stranger.of(Ready)), "the session is open", AT_ONCE)
        assert [welcome.hello.library for welcome in stranger.of(Welcome)] == ["", town.cloud.library.identity]
        stranger.close()
        town.check_that_all_is_free()

    def test_in_the_middle_of_an_answer(self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
        reason = break_scoring(town.cloud, monkeypatch, after=LATER)
        report = device.ask(QUESTION, method="token-wise").report
        took_none = f"The cloud took no part after {report.degraded[0]} tokens: {reason}"
        assert report.notes == (took_none, untold(LATER, report.tokens))
        assert report.degraded == tuple(range(LATER, report.tokens))
        town.check_that_all_is_free()

    def test_a_message_that_it_can_not_digest(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An exception in taking a message in ends the session that it belongs to."""
        break_receiving("cloud", monkeypatch)
        started = time.monotonic()
        report = device.ask(QUESTION, placement="cloud").report
        assert time.monotonic() - started < AT_ONCE
        assert len(report.notes) == 1
        town.check_that_all_is_free()

    def test_nothing_of_the_question_is_logged_or_sent(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        break_search(town.cloud, monkeypatch)
        assert QUESTION not in str(device.ask(QUESTION).report.notes)
        assert QUESTION not in caplog.text
        assert "RuntimeError" in caplog.text


class TestDevice:
    @pytest.mark.parametrize("method", ["speculative", "sequence-wise", "fetch-text"])
    @pytest.mark.parametrize("break_", [*BREAKS, break_what_follows_the_search])
    def test_its_own_failures_reach_the_request(
        self, town: Town, device: Resident, break_: Break, method: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reason = break_(device.side, monkeypatch)
        generation = device.begin(QUESTION, method=method)
        failures: list[Exception] = []

        def read() -> None:
            try:
                finished(generation)
            except Exception as error:
                failures.append(error)

        town.run(read)
        wait_until(lambda: bool(failures), "the request is told", AT_ONCE)
        assert isinstance(failures[0], AnswerFailed)
        assert str(failures[0]) == reason
        wait_until(lambda: device.engine.status().active == 0, "its place is free", AT_ONCE)
        town.check_that_all_is_free()

    def test_an_answer_that_ends_before_it_is_opened_there_is_not_opened(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An opening behind its cancellation would stay open until the cloud gives it up."""
        break_search(device.side, monkeypatch)
        begin = device.side.begin

        def until_it_is_over(request: DecodeRequest[Any], *rest: Any) -> None:
            begin(request, *rest)
            wait_until(lambda: request.client.over, "the search has failed", AT_ONCE)

        monkeypatch.setattr(device.side, "begin", until_it_is_over)
        with pytest.raises(AnswerFailed):
            device.ask(QUESTION, method="sequence-wise")
        town.check_that_all_is_free()

    def test_a_message_that_it_can_not_digest(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        break_receiving("device", monkeypatch)
        with pytest.raises(AnswerFailed, match="failed; the daemon's log says why"):
            device.ask(QUESTION)
        wait_until(lambda: device.engine.status().active == 0, "the answer is forgotten", AT_ONCE)
        town.check_that_all_is_free()

    def test_nothing_is_made_of_an_answer_that_failed_in_its_middle(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The cloud hears of its end once, and it is not read again behind its documents."""
        reason = break_scoring(device.side, monkeypatch, after=LATER)
        connection = device.engine.cloud.connection
        assert connection is not None
        sent, read_again = list[Message](), list[Rereading]()
        send = connection.send

        def noted(message: Message) -> int:
            sent.append(message)
            return send(message)

        monkeypatch.setattr(connection, "send", noted)
        monkeypatch.setattr(device.side.target, "reread", lambda reading, **owner: read_again.append(reading))
        with pytest.raises(AnswerFailed, match=reason):
            device.ask(QUESTION, aggregation="context")
        town.check_that_all_is_free()
        assert [type(message) for message in sent if isinstance(message, Cancel | Close)] == [Cancel]
        assert not read_again

    def test_an_answer_that_failed_is_over_though_the_cloud_comes_back(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its reader has one last event, the failure, and no report of what there was."""
        reason = break_scoring(device.side, monkeypatch, after=LATER)
        connection = device.engine.cloud.connection
        assert connection is not None
        send, end, events = connection.send, ShownAnswer.end, list[object]()

        def coming_back(message: Message) -> int:
            if isinstance(message, Cancel):
                device.engine._on_welcome()
            return send(message)

        def noting(shown: ShownAnswer, event: Finished | Exception) -> None:
            events.append(event)
            end(shown, event)

        monkeypatch.setattr(connection, "send", coming_back)
        monkeypatch.setattr(ShownAnswer, "end", noting)
        with pytest.raises(AnswerFailed, match=reason):
            device.ask(QUESTION)
        assert len(events) == 1 and isinstance(events[0], AnswerFailed)
        town.check_that_all_is_free()

    def test_a_report_that_nobody_waits_for_is_not_made(
        self, town: Town, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither side reads an answer again whose reader has gone away behind its last token."""
        read_again = dict[Side, Rereading]()
        for side in (device.side, town.cloud):
            role, target = side.role, side.target

            def for_ever(rereading: Rereading, role: Side = role, **owner: object) -> None:
                read_again[role] = rereading

            monkeypatch.setattr(target, "reread", for_ever)
        monkeypatch.setattr("common.daemon.model_runtime.LEAST_SECONDS", 60.0)
        running = device.begin(QUESTION, aggregation="context", max_tokens=8)
        wait_until(lambda: len(read_again) == 2, "both sides read the answer again", AT_ONCE)
        running.cancel()
        wait_until(lambda: device.engine.status().active == 0, "its place is free", AT_ONCE)
        town.check_that_all_is_free()
        assert all(reading.over for reading in read_again.values())

    def test_an_answer_that_nobody_has_time_to_read_again(
        self, device: Resident, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A note says that it has no citations; beside a cloud that has told of its documents, too."""
        monkeypatch.setattr(device.side.target, "reread", lambda rereading, **owner: None)
        monkeypatch.setattr("common.daemon.model_runtime.LEAST_SECONDS", 0.1)
        report = device.ask(QUESTION, aggregation="context", max_tokens=8).report
        assert (report.attribution, report.tokens) == ((), 8)
        assert UNREAD in report.notes

    def test_a_second_reading_that_fails(
        self, device: Resident, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The log names the error, without its text, which may quote a document."""
        monkeypatch.setattr(Rereading, "work", broken)
        report = device.ask(QUESTION, aggregation="context", max_tokens=8).report
        assert (report.attribution, report.tokens) == ((), 8)
        assert UNREAD in report.notes
        told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert len(told) == 2, "one of each side"
        assert all(line.startswith("an answer failed with RuntimeError") and QUESTION not in line for line in told)

    def test_a_report_that_can_not_be_made(self, device: Resident, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("device.active_request.build_report", broken)
        with pytest.raises(AnswerFailed):
            device.ask(QUESTION)
        wait_until(lambda: device.engine.status().active == 0, "the answer is forgotten", AT_ONCE)


def test_what_is_broken_can_be_repaired(town: Town, device: Resident) -> None:
    """Control: without the faults above, the same town answers without notes."""
    report = device.ask(QUESTION).report
    assert (report.degraded, report.notes) == ((), ())
    assert isinstance(town.cloud.decoder, Decoder)
