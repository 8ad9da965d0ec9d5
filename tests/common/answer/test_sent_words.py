"""The sentence on what left the device."""

from __future__ import annotations

from common.answer.report import NOTHING_SENT, SentBytes, sent_in_words


def test_a_question_alone_quotes_no_document() -> None:
    assert sent_in_words(SentBytes(question=1200)) == (
        "1,200 B left this device: the question (1,200 B). No text of your documents, and no probabilities."
    )


def test_answers_may_quote_documents() -> None:
    assert sent_in_words(SentBytes(question=400, earlier_turns=1500, tokens=414)) == (
        "2,314 B left this device: the question (400 B), earlier turns (1,500 B), the answer's tokens (414 B). "
        "No text of your documents except what answers quote, and no probabilities."
    )


def test_probabilities_tell_about_documents() -> None:
    assert sent_in_words(SentBytes(question=400, tokens=20, probabilities=900, control=6)) == (
        "1,326 B left this device: the question (400 B), the answer's tokens (20 B), probabilities (900 B), "
        "control messages (6 B). No text of your documents except what answers quote. "
        "The probabilities depend on the documents that this device read."
    )


def test_nothing_is_said_to_be_nothing() -> None:
    assert sent_in_words(SentBytes()) == NOTHING_SENT
