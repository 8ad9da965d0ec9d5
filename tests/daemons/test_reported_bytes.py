"""The bytes that a report tells of an answer are those of its messages as a router on the way sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from common.answer.report import NOTHING_SENT
from common.methods.interface import LIFECYCLE
from proto.messages import (
    Cancel,
    Close,
    Draft,
    Error,
    Fetch,
    Fetched,
    Hello,
    Message,
    Open,
    Probe,
    ProbeReply,
    Propose,
    Resolved,
    Target,
)
from scripts.daemons import Pair, free_port
from tests.daemons.streaming import wait_until
from tests.daemons.wire_tap import WireTap

QUESTION = "What is the best-selling horror game?"
LAW: dict[str, Any] = {"temperature": 1.2, "seed": 5, "max_tokens": 40, "documents": 2}
METHODS: dict[str, dict[str, Any]] = {
    "speculative": {"sources": "cloud"},
    "both": {"method": "speculative", "privacy": "strict"},
    "both to the cloud": {"method": "speculative", "placement": "cloud"},
    "both mirrored": {"method": "speculative", "placement": "mirrored"},
    "ended early": {"method": "speculative", "stop": [" "]},
    "dsd": {"draft_length": 8, "top_k": 0},  # distributions that take more than 255 bytes
    "dssd": {},
    "qsv": {"resolution": 32},
    # Ahead: a proposal may be under way when the answer ends.
    "coupled": {"eager": False, "draft_policy": "fixed"},
    "left to the cloud": {"method": "coupled", "eager": False},  # some of it, or all
    "eager": {"method": "coupled"},
    "rapid": {"long_document": "horror", "retrieval_threshold": -1.0, "draft_length": 2},  # several rounds
    "sequence-wise": {},
    "fetch-text": {},
}
DRAFT_AND_VERIFY = {"dsd", "dssd", "qsv", "coupled", "left to the cloud", "eager", "rapid"}
WITH_PROBABILITIES = {"both to the cloud", "both mirrored", "dsd", "dssd", "qsv", "rapid"}
CUT_AFTER = 3  # messages with tokens
HISTORY = [
    {"role": "user", "content": "Where is the Überlingen dance class? " * 4},
    {"role": "assistant", "content": "In the old town hall, every other Thursday. " * 4},
    {"role": "user", "content": "Who leads it?"},
    {"role": "assistant", "content": "Nobody says so."},
]


@dataclass(frozen=True, slots=True)
class Tapped:
    """Two daemons whose connection can be read."""

    pair: Pair
    tap: WireTap

    def asked(self, question: str = QUESTION, **fields: Any) -> tuple[dict[str, Any], list[tuple[Message, int]]]:
        """The report of an answer, and the device's messages of it; waits for those still on the way."""
        before = len(self.tap.up)
        report = self.pair.complete(question, **LAW | fields)["dragon"]
        wait_until(lambda: size_of(self.up(before)) >= report["sent_bytes"], "all that the report counts is seen")
        return report, self.up(before)

    def up(self, before: int) -> list[tuple[Message, int]]:
        return of_answers(self.tap.up[before:])


@pytest.fixture(scope="module")
def tapped(fresh_data: Callable[[], Path]) -> Iterator[Tapped]:
    port = free_port()
    with WireTap(port) as tap:
        device = {"curve": "off", "patience": 60.0, "privacy": "balanced"}
        with Pair(fresh_data(), device, {"curve": "off"}, between=tap.port, cloud_port=port) as pair:
            yield Tapped(pair, tap)


def of_answers(seen: list[tuple[Message, int]]) -> list[tuple[Message, int]]:
    """All messages but those of the link."""
    return [(message, size) for message, size in seen if not isinstance(message, Hello | Probe | ProbeReply)]


def size_of(messages: list[tuple[Message, int]], *kinds: type[Message]) -> int:
    """Bytes of the messages, or of those of some kinds."""
    return sum(size for message, size in messages if not kinds or isinstance(message, kinds))


@pytest.mark.parametrize("method", METHODS)
def test_reported_bytes_are_those_on_the_line(tapped: Tapped, method: str) -> None:
    before = len(tapped.tap.down)
    report, up = tapped.asked(**{"method": method} | METHODS[method])
    down = of_answers(tapped.tap.down[before:])
    (session,) = [message.session for message, _ in up if isinstance(message, Open | Fetch)]
    assert {getattr(message, "session", None) for message, _ in (*up, *down)} == {session}
    # A text without a title is one that the answer may quote: it is part of the report.
    fetched = sum(size for message, size in down if isinstance(message, Fetched) and message.title)
    received = [each for each in down if not isinstance(each[0], (*LIFECYCLE, Fetched))]
    assert (report["sent_bytes"], sum(report["sent"].values())) == (size_of(up), size_of(up))
    assert report["received_bytes"] == size_of(received)
    assert report["fetched_bytes"] == fetched
    assert report["degraded"] == []
    sent = report["sent"]
    assert sent["question"] == size_of(up, Open, Fetch)
    assert sent["earlier_turns"] == 0
    assert sent["control"] == size_of(up, Close, Cancel, Error)
    assert (sent["control"] > 0) == (method != "fetch-text")
    proposed = sum(len(message.payload) for message, _ in up if isinstance(message, Propose))
    raced = method in ("coupled", "left to the cloud", "eager")
    assert sent["probabilities"] == size_of(up, Draft, Resolved) + (0 if raced else proposed)
    assert (sent["probabilities"] > 0) == (method in WITH_PROBABILITIES)
    assert (fetched > 0) == (method in DRAFT_AND_VERIFY | {"fetch-text"})
    # Else nothing is shown. An eager verifier may have decided all before anything is proposed.
    assert len(received) > 2 or method in ("ended early", "sequence-wise", "fetch-text")
    exchanged = [each for each in up if not isinstance(each[0], LIFECYCLE)]
    alone = {"speculative", "ended early", "eager", "left to the cloud", "sequence-wise", "fetch-text"}
    assert len(exchanged) > 2 or method in alone
    assert method != "dsd" or max(size for _, size in exchanged) > 255 + 2


@pytest.mark.parametrize("method", ["speculative", "fetch-text"])
def test_earlier_turns_are_counted(tapped: Tapped, method: str) -> None:
    """The cloud reads all of a conversation, and two questions of it where it is asked for documents alone."""
    alone, _ = tapped.asked(method=method)
    messages = [*HISTORY, {"role": "user", "content": QUESTION}]
    report, up = tapped.asked(method=method, messages=messages)
    questions = "\n".join(turn["content"].strip() for turn in HISTORY if turn["role"] == "user").encode()
    spoken = sum(len(turn["content"].strip().encode()) for turn in HISTORY)
    if method == "speculative":  # with the words that the model's format puts around a turn
        assert spoken + len(questions) < report["sent"]["earlier_turns"] < spoken + len(questions) + 40 * len(HISTORY)
    else:
        assert report["sent"]["earlier_turns"] == len(questions)
    assert report["sent_bytes"] == size_of(up) > report["sent"]["earlier_turns"]
    assert abs(report["sent"]["question"] - alone["sent"]["question"]) < 16  # lengths take more bytes, seeds are equal


def test_strict_says_what_stayed_here(tapped: Tapped) -> None:
    strict, _ = tapped.asked(privacy="strict")
    assert strict["sent_in_words"].startswith(f"{strict['sent_bytes']:,} B left this device: the question (")
    assert strict["sent_in_words"].endswith(
        "No text of your documents except what answers quote, and no probabilities."
    )
    balanced, _ = tapped.asked(placement="cloud")
    assert f"probabilities ({balanced['sent']['probabilities']:,} B)" in balanced["sent_in_words"]
    assert "no probabilities" not in balanced["sent_in_words"]


@pytest.mark.parametrize("fields", [{"privacy": "offline"}, {"sources": "device"}])
def test_nothing_leaves_where_the_cloud_takes_no_part(tapped: Tapped, fields: dict[str, Any]) -> None:
    report, up = tapped.asked(**fields)
    assert (up, report["sent_bytes"], set(report["sent"].values())) == ([], 0, {0})
    assert report["sent_in_words"] == NOTHING_SENT


def test_a_question_that_is_asked_again_counts_again(tapped: Tapped) -> None:
    before = len(tapped.tap.up)
    tapped.tap.cut(lambda: sum(isinstance(message, Target) for message, _ in tapped.up(before)) >= CUT_AFTER)
    report = tapped.pair.complete(QUESTION, **LAW)["dragon"]
    up = tapped.up(before)
    opened = [size for message, size in up if isinstance(message, Open)]
    assert len(opened) == 2
    assert report["sent"]["question"] == sum(opened)
    # The device may have sent more into the connection that was lost.
    assert report["sent_bytes"] >= size_of(up)
