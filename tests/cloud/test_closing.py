"""The end of an answer: however long it was, the cloud's part of the report arrives and its place is free."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from common.answer.report import ContributionRows
from common.answer.request import AnswerFailed, RequestError, failure_message
from common.daemon.model_runtime import LONGEST_TITLE
from common.methods.aggregate.cloud import CloudAnswer
from common.methods.halves import short_titles
from proto.framing import decode, encode
from proto.messages import Close, Closed, Contributions, Error, Open, Ready
from tests.cloud.town import AT_ONCE, Stranger, Town
from tests.daemons.streaming import wait_until
from tests.support.metrics import Metrics

QUESTION = "What is the best-selling horror game?"
TOKENS, DOCUMENTS = 2048, 64
SESSION = 7


@pytest.fixture(scope="module")
def town(fresh_data: Callable[[], Path]) -> Iterator[Town]:
    with Town(fresh_data(), max_tokens=TOKENS) as town:
        yield town


@pytest.fixture
def stranger(town: Town) -> Stranger:
    return town.stranger()


def opening(session: int = SESSION) -> Open:
    prompt = f"\nQuestion: {QUESTION}\nAnswer:"
    return Open(
        session, "speculative", QUESTION, prompt, 4, 1, 0.0, "race", "race", 32, True, 1.0, "cloud", "cloud", 1, 40
    )


def opened(town: Town, stranger: Stranger) -> CloudAnswer:
    stranger.send(opening())
    wait_until(lambda: bool(stranger.of(Ready)), "the session is open", AT_ONCE)
    (session,) = town.sessions._sessions.values()
    assert isinstance(session, CloudAnswer)
    return session


def test_a_long_answer_from_many_documents(town: Town, stranger: Stranger) -> None:
    session = opened(town, stranger)
    session.answer.end()  # no token is decided any more
    session._titles = tuple(f"document {number}" for number in range(DOCUMENTS))
    outcome = session.answer.record
    outcome.shares = [(0.5, 0.25, 0.25)] * TOKENS
    outcome.cloud_shares = [None] * TOKENS
    stranger.send(Close(SESSION, TOKENS))
    wait_until(lambda: bool(stranger.of(Closed)), "the session is closed", AT_ONCE)
    town.check_that_all_is_free()
    rows = ContributionRows()
    for part in stranger.of(Contributions):
        rows.add(part, TOKENS)
    assert rows.shares(DOCUMENTS) == [(128 / 255, 64 / 255, 64 / 255, *[0.0] * (DOCUMENTS - 2))] * TOKENS


def test_tokens_are_counted_once_however_often_the_end_is_told(
    town: Town, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted() -> float:
        return Metrics(town.sessions.metrics.text().decode())["dragon_generation_tokens_total"]

    before, told = counted(), list[Callable[[], object]]()
    monkeypatch.setattr(opened(town, stranger), "finish", told.append)
    for position in (5, 5, 6):
        stranger.send(Close(SESSION, position))
    wait_until(lambda: len(told) == 3, "all have come", AT_ONCE)
    for report in told:
        report()
    wait_until(lambda: bool(stranger.of(Closed)), "the session is closed", AT_ONCE)
    town.check_that_all_is_free()
    assert counted() == before + 5


@pytest.mark.parametrize("letter", ["t", "ü", "\U0001f409"])
@pytest.mark.parametrize("kind", [AnswerFailed, lambda text: RequestError(text, "long_document")])
def test_a_failure_of_any_length_can_be_told(letter: str, kind: Callable[[str], Exception]) -> None:
    text = f"It failed, for {letter * 2**13}."
    told = failure_message(SESSION, kind(text))
    assert decode(encode(told)) == told
    assert isinstance(told, Error) and text.startswith(told.text) and len(told.text.encode()) > 2040
    assert decode(encode(failure_message(SESSION, kind("\ud800 is no text")))) == replace(told, text="? is no text")


def test_a_report_that_can_not_be_made(town: Town, stranger: Stranger, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(town, stranger)

    def broken(*arguments: object) -> None:
        raise RuntimeError

    monkeypatch.setattr("common.methods.aggregate.cloud.Closed", broken)
    stranger.send(Close(SESSION, TOKENS))
    assert stranger.code() == "failed"
    town.check_that_all_is_free()


@pytest.mark.parametrize("documents", [0, 1, 64, 255])
@pytest.mark.parametrize("letter", ["t", "ü", "\U0001f409"])
def test_titles_of_any_number_of_documents_fit(documents: int, letter: str) -> None:
    titles = short_titles([letter * LONGEST_TITLE] * documents)
    message = Ready(2**32 - 1, titles, 2**24 - 1, 0.5)
    assert decode(encode(message)) == message
    assert documents > 64 or titles == (letter * LONGEST_TITLE,) * documents
