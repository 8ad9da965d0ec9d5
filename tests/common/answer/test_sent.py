"""The parts that an answer's messages are counted in."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest

from common.answer.report import SentBytes
from proto.framing import encode, wire_size
from proto.messages import (
    Cancel,
    Close,
    Defer,
    Draft,
    Error,
    Fetch,
    Message,
    Propose,
    Resolve,
    Resolved,
    Sampler,
    Sync,
    Target,
)

PROPOSAL = Propose(1, 1, 0, (), (), (5, 6), b"x" * 40)
MESSAGES: dict[str, list[Message]] = {
    "tokens": [
        Target(1, 0, 0, (5,), "device"),
        Sync(1, 0, (5, 6), "device", False),
        Resolve(1, 0, 3, (), 64),
        Defer(1, 1, 0, (), (5,), 4),
    ],
    "probabilities": [Draft(1, 0, 0, 3, 0.5, 9, b"x" * 40), Resolved(1, 0, 3, 64, b"x" * 40)],
    "control": [Close(1, 4), Cancel(1), Error(1, "malformed", "No such place.")],
}


def size_of(message: Message) -> int:
    return wire_size(encode(message))


def sent_bytes(message: Message, size: int, history: int, sampler: Sampler) -> SentBytes:
    """The parts of one message alone."""
    sent = SentBytes()
    sent.count(message, size, history, sampler)
    return sent


@pytest.mark.parametrize(
    ("part", "message"), [(part, message) for part, listed in MESSAGES.items() for message in listed]
)
def test_a_message_counts_whole_in_its_part(part: str, message: Message) -> None:
    size = size_of(message)
    assert sent_bytes(message, size, 0, "race") == replace(SentBytes(), **{part: size})


def test_a_proposal_of_the_race_has_tokens_alone() -> None:
    size = size_of(PROPOSAL)
    assert sent_bytes(PROPOSAL, size, 0, "race") == SentBytes(tokens=size)
    assert sent_bytes(PROPOSAL, size, 0, "rejection") == SentBytes(tokens=size - 40, probabilities=40)


def test_a_search_has_earlier_questions_only() -> None:
    fetch = Fetch(1, "And who?", 4, "text", earlier="Wo ist Überlingen?")
    size = size_of(fetch)
    assert sent_bytes(fetch, size, 700, "race") == SentBytes(question=size - 19, earlier_turns=19)


def test_several_messages_add_up() -> None:
    sent = SentBytes(1, 2, 3, 4, 5)
    fetch = Fetch(1, "And who?", 4, "text", earlier="Who?")
    for message, size in ((fetch, 30), (MESSAGES["tokens"][0], 300), (PROPOSAL, 400), (MESSAGES["control"][0], 50)):
        sent.count(message, size, 0, "rejection")
    assert astuple(sent) == (1 + 26, 2 + 4, 3 + 300 + 360, 4 + 40, 5 + 50)
    assert (sent.total, sent.exchange) == (795, 707)
