"""Answers beside each other on one cloud: each is what it is alone, whatever becomes of the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.answer.request import AnswerFailed
from common.engine.jobs import AnswerJob
from common.estimates.profiler import LinkMeter
from common.methods.aggregate.cloud import AggregateCloud
from common.methods.aggregate.drafts import BRANCHES, MOST
from device.interface import Finished, TokenEvent
from proto.codes import RaceEntries, encode_race
from proto.messages import Cancel, Draft, Error, Open, Ready, Resolve
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.cloud.test_giving_up import OPEN
from tests.cloud.town import AT_ONCE, Resident, Stranger, Town, finished
from tests.daemons.streaming import wait_until

# Each reads other documents, and is answered by other words.
QUESTIONS = (
    "What is the best-selling horror game?",
    "Where is Yormcrus based?",
    "When does Delthcine House open?",
    "What do people take against cold feet?",
    "Which puzzle game sells best?",
    "Which racing game has the highest sales?",
)
STEP_MS = 40.0  # of the cloud: answers that begin together go side by side
SAMPLED: dict[str, Any] = {"temperature": 0.7, "max_tokens": 12}
FIRST_DIGEST = 16223136389552574


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), emulate_decode_ms=STEP_MS) as town:
        yield town


@pytest.fixture(scope="module")
def devices(town: Town) -> list[Resident]:
    return [town.device("laptop"), town.device("telephone")]


@pytest.fixture(scope="module")
def slow(town: Town) -> Iterator[Resident]:
    line = Line(delay=0.03, jitter=0.05)
    with FaultyProxy(int(town.link.address.rpartition(":")[2]), up=line, down=line, seed=9) as proxy:
        yield town.device("tablet", proxy.address, emulate_decode_ms=2 * STEP_MS)


class Asking:
    """Answers that are asked for at the same time; a context manager that waits for all of them."""

    def __init__(self) -> None:
        self.answers: dict[str, Finished] = {}
        self.failures: dict[str, Exception] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *error: object) -> None:
        for thread in self._threads:
            thread.join()

    def ask(self, device: Resident, question: str, **fields: Any) -> None:
        generation = device.begin(question, **(SAMPLED | fields))

        def read() -> None:
            try:
                self.answers[question] = finished(generation)
            except AnswerFailed as error:
                self.failures[question] = error

        self._threads.append(threading.Thread(target=read))
        self._threads[-1].start()


@contextmanager
def holding(town: Town) -> Iterator[None]:
    """The cloud finds no documents inside: answers that begin meanwhile are under way at the same time."""
    with town.cloud.library._lock:
        yield


def alone(device: Resident, **fields: Any) -> dict[str, str]:
    return {question: device.ask(question, **(SAMPLED | fields)).text for question in QUESTIONS}


@pytest.fixture(scope="module")
def expected(devices: list[Resident]) -> dict[str, str]:
    """Answers from both sides' documents, each asked for by itself."""
    texts = alone(devices[0])
    assert len(set(texts.values())) == len(QUESTIONS), "otherwise mixed up answers would not show"
    return texts


def check(asking: Asking, expected: dict[str, str]) -> None:
    assert not asking.failures
    assert {question: answer.text for question, answer in asking.answers.items()} == expected
    for answer in asking.answers.values():
        assert (answer.report.degraded, answer.report.notes, answer.report.disagreements) == ((), (), 0)


class TestTokens:
    @pytest.mark.parametrize("sources", ["cloud", "both"])
    def test_of_one_pass_stay_with_their_sessions(self, town: Town, devices: list[Resident], sources: str) -> None:
        """Sessions with other documents in one forward pass: logits that change places change every answer."""
        expected = alone(devices[0], sources=sources)
        assert len(set(expected.values())) == len(QUESTIONS)
        with Asking() as asking, holding(town):
            for number, question in enumerate(QUESTIONS):
                asking.ask(devices[number % len(devices)], question, sources=sources)
            wait_until(lambda: town.sessions.open == len(QUESTIONS), "all are under way", AT_ONCE)
        check(asking, expected)
        town.check_that_all_is_free()

    def test_of_fast_and_slow_devices(
        self, town: Town, devices: list[Resident], slow: Resident, expected: dict[str, str]
    ) -> None:
        asked = [*devices, slow]
        with Asking() as asking:
            for number, question in enumerate(QUESTIONS):
                asking.ask(asked[number % len(asked)], question)
        check(asking, expected)
        town.check_that_all_is_free()


def wrong_payloads(town: Town) -> Callable[[], None]:
    """Sends wrong payloads in sessions of their own: each is refused and freed."""
    stranger = town.stranger()
    hostile: list[Callable[[int], object]] = [
        lambda session: Draft(session, 0, 0, FIRST_DIGEST, 0.0, 0, b"\xff"),
        lambda session: Draft(session, 0, 0, FIRST_DIGEST, 0.0, 0, b""),
        lambda session: Resolve(session, 0, FIRST_DIGEST, (2**24 - 1,), 0),
    ]
    for session in range(1, len(hostile) + 1):
        stranger.send(replace(OPEN, session=session, placement="greedy"))
    wait_until(lambda: len(stranger.of(Ready)) == len(hostile), "the sessions are open", AT_ONCE)
    wait_until(lambda: len(stranger.of(Draft)) >= len(hostile), "the cloud has drafted", AT_ONCE)
    for session, make in enumerate(hostile, 1):
        message: Any = make(session)
        stranger.send(message)

    def check() -> None:
        wait_until(lambda: len(stranger.of(Error)) == len(hostile), "all are refused", AT_ONCE)
        assert {error.session for error in stranger.of(Error)} == set(range(1, len(hostile) + 1))

    return check


def branches_without_end(town: Town) -> Callable[[], None]:
    """Sends well-formed drafts behind prefixes that nobody has, in a session of its own: few of them are kept."""
    stranger = town.stranger()
    stranger.send(replace(OPEN, session=1, placement="cloud"))
    wait_until(lambda: bool(stranger.of(Ready)), "the session is open", AT_ONCE)
    half = next(half for key, half in town.sessions._sessions.items() if key[1] == 1)
    assert isinstance(half, AggregateCloud)
    kept = half.answer.session.remote
    payload = encode_race(RaceEntries(np.arange(5, 37, dtype=np.uint32), np.arange(1, 33, dtype=np.uint16)))
    for number in range(3000):
        stranger.send(Draft(1, 0, 1 + number % 30, FIRST_DIGEST ^ number, 0.0, 0, payload))
    wait_until(lambda: kept._count >= MOST, "most of what is allowed is there", AT_ONCE)

    def check() -> None:
        assert stranger.of(Error) == []
        assert kept._count <= MOST
        assert all(len(each) <= BRANCHES for each in kept._drafts.values())
        stranger.send(Cancel(1))

    return check


def cancelled_while_read(town: Town) -> Callable[[], None]:
    """Opens sessions with a long prompt and cancels them at once."""
    stranger = town.stranger()
    prompt = " ".join(QUESTIONS) * 8
    for session in range(1, 6):
        stranger.send(replace(OPEN, session=session, prompt=prompt, sources="cloud"))
        stranger.send(Cancel(session))
    return lambda: None


def vanishing(town: Town) -> Callable[[], None]:
    stranger: Stranger = town.stranger()
    for session in range(1, 4):
        stranger.send(replace(OPEN, session=session))
    wait_until(lambda: len(stranger.of(Ready)) == 3, "the sessions are open", AT_ONCE)
    stranger.close()
    return lambda: None


def unservable(town: Town) -> Callable[[], None]:
    stranger = town.stranger()
    request: Open = replace(OPEN, max_tokens=8192)
    stranger.send(request)

    def check() -> None:
        assert stranger.code() == "unservable"

    return check


@pytest.mark.parametrize("harm", [wrong_payloads, branches_without_end, cancelled_while_read, vanishing, unservable])
def test_a_bad_neighbour(
    town: Town, devices: list[Resident], expected: dict[str, str], harm: Callable[[Town], Callable[[], None]]
) -> None:
    with Asking() as asking:
        for number, question in enumerate(QUESTIONS[:4]):
            asking.ask(devices[number % len(devices)], question)
        what_became_of_it = harm(town)
    check(asking, {question: expected[question] for question in QUESTIONS[:4]})
    what_became_of_it()
    town.check_that_all_is_free()


def test_a_device_whose_own_library_fails(
    town: Town, devices: list[Resident], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(question: str, count: int) -> None:
        raise OSError

    monkeypatch.setattr(devices[1].side.library, "search", broken)
    with Asking() as asking:
        asking.ask(devices[1], "Which one fails?")
        for question in QUESTIONS[:3]:
            asking.ask(devices[0], question)
    assert list(asking.failures) == ["Which one fails?"]
    asking.failures.clear()
    check(asking, {question: expected[question] for question in QUESTIONS[:3]})
    town.check_that_all_is_free()


def test_a_device_that_vanishes_in_the_middle(town: Town, devices: list[Resident], expected: dict[str, str]) -> None:
    leaving = town.device("watch", patience=0.2)
    generation = leaving.begin(QUESTIONS[4], **SAMPLED)
    with Asking() as asking:
        for question in QUESTIONS[:3]:
            asking.ask(devices[0], question)
        assert isinstance(next(iter(generation)), TokenEvent)
        leaving.vanish()
        started = time.monotonic()
        report = finished(generation).report
        assert time.monotonic() - started < 2 * AT_ONCE
        assert report.degraded[-1] == report.tokens - 1
    check(asking, {question: expected[question] for question in QUESTIONS[:3]})
    town.check_that_all_is_free()


def test_the_engine_knows_whose_answers_they_are(
    town: Town, devices: list[Resident], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fair between devices: a device with many answers holds up its own."""
    jobs: list[AnswerJob[Any]] = []
    submit = town.cloud.decoding.submit

    def noting(job: AnswerJob[Any]) -> None:
        jobs.append(job)
        submit(job)

    monkeypatch.setattr(town.cloud.decoding, "submit", noting)
    for device in (devices[0], devices[0], devices[1]):
        device.ask(QUESTIONS[0], max_tokens=4)
    peers = [job.tenant for job in jobs]
    assert peers[0] == peers[1] != peers[2]


def test_a_search_holds_up_no_messages(town: Town) -> None:
    """Nor does an index that is being brought up to date: the retrieval thread alone waits for that."""
    opening = town.stranger()
    with town.cloud.library._lock:  # as a search has it
        opening.send(replace(OPEN, session=99))
        opening.send(replace(OPEN, session=100, max_tokens=8192))
        wait_until(lambda: bool(opening.of(Error)), "what comes behind it is answered", AT_ONCE)
        arriving = town.stranger()
    for stranger in (opening, arriving):
        stranger.close()
    town.check_that_all_is_free()


@pytest.mark.parametrize(
    "fields", [{}, {"method": "fetch-text"}, {"sources": "cloud"}], ids=["both decode", "fetched", "the cloud decodes"]
)
def test_an_answer_has_both_sides_look_at_its_link(
    town: Town, devices: list[Resident], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that nobody uses are probed seldom."""
    used = set[LinkMeter]()
    monkeypatch.setattr(LinkMeter, "use", lambda meter: used.add(meter))
    devices[0].ask(QUESTIONS[0], **SAMPLED, **fields)
    connection = devices[0].engine.cloud.connection
    assert connection is not None
    of_cloud = {peer.meter for peer in town.sessions._peers.values()}
    assert connection.peer.meter in used and len(used & of_cloud) == 1
