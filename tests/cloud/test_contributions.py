"""Shares and texts of documents for the report: as many as there are, in messages that every link carries."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.answer.report import MOST_TEXT, ContributionRows, Record, contribution_messages, row_bytes, text_messages
from proto.framing import PAYLOAD_LIMIT, decode, encode
from proto.messages import WHOLE_SHARE, Contributions, Fetched

LONGEST, MOST = 2**20 - 1, 64  # tokens, as `Open.max_tokens` bounds them; documents, as a device asks for at most


@given(st.integers(0, 5000), st.integers(0, MOST))
@example(2048, 64)
@example(8192, 64)
@example(8192, 255)
@example(LONGEST, 1)
@example(2**15, MOST)
@settings(max_examples=30)
def test_everything_fits_into_messages(tokens: int, documents: int) -> None:
    expected = 0
    shares = [(*[1.0] * documents, 0.0)] * tokens
    for message in contribution_messages(1, documents, shares, [None] * tokens):
        assert message.position == expected
        expected += len(message.payload) // row_bytes(documents)
        assert decode(encode(message, PAYLOAD_LIMIT), PAYLOAD_LIMIT) == message
    assert expected == (tokens if documents else 0)


def test_rows_arrive_as_they_were() -> None:
    shares = [(0.5, 0.5, 0.0), (), (0.5, 0.0, 0.5), (0.25, 0.75, 0.0)] * 20_000
    cloud_shares = [1.0, None, 0.2, None] * 20_000
    rows = ContributionRows()
    parts = list(contribution_messages(1, 2, shares, cloud_shares))
    assert len(parts) == 4
    for part in [parts[2], parts[0], parts[3], parts[1], parts[0]]:
        rows.add(part, len(shares))
    told = [(128, 128, 0), (0, 0, 0), (26, 0, 26), (64, 191, 0)] * 20_000
    assert rows.shares(2) == [tuple(share / WHOLE_SHARE for share in row) for row in told]
    assert rows.shares(3) == []


def test_what_is_no_share_costs_only_itself() -> None:
    (message,) = contribution_messages(1, 2, [(math.nan, math.inf, 1.0000001)], [None])
    assert message.payload == bytes([0, 0, WHOLE_SHARE])


@pytest.mark.parametrize(
    "hostile",
    [
        Contributions(1, 0, 0, b"xx"),
        Contributions(1, 0, 2, b"xx"),
        Contributions(1, 4, 2, b"xxxxxx"),
        Contributions(1, 2**20 - 1, 2, b"xxx"),
        Contributions(1, 2, 256, bytes(2 * 257)),
        Contributions(1, 0, 1, b"xx"),
    ],
)
def test_what_does_not_fit_to_the_answer_is_ignored(hostile: Contributions) -> None:
    rows = ContributionRows()
    rows.add(Contributions(1, 1, 2, bytes([255, 0, 51])), 4)
    rows.add(hostile, 4)
    assert rows.shares(2) == [(0.0, 0.0, 0.0), (1.0, 0.0, 0.2)]


def test_rows_behind_an_answer_that_ended_sooner_are_left_out() -> None:
    """The cloud has decided more than the device has shown before a stop string."""
    rows = ContributionRows()
    (message,) = contribution_messages(1, 1, [(1.0, 0.0)] * 5, [None] * 5)
    rows.add(message, 3)
    assert (rows.known(1), rows.shares(1)) == (range(3), [(1.0, 0.0)] * 3)
    rows.add(Contributions(1, 2, 1, bytes(4)), 3)
    rows.add(Contributions(1, 3, 1, bytes(4)), 3)
    assert (rows.size, rows.shares(1)) == (3 * row_bytes(1), [(1.0, 0.0)] * 2 + [(0.0, 0.0)])


def test_of_a_beginning_that_was_decided_before_nothing_is_told() -> None:
    rows = ContributionRows()
    assert not rows.known(1)
    (message,) = contribution_messages(1, 1, [(), (), (0.0, 1.0), (), (1.0, 0.0)], [None] * 5)
    rows.add(message, 5)
    assert (message.position, rows.known(1), rows.known(2)) == (2, range(2, 5), range(0))
    assert not list(contribution_messages(1, 1, [(), ()], [None] * 2))


TEXTS = ("The cat is called Pixel.", "The choir sings on Thursday.")
PIECES = ["It", " is", " Pixel"]
SHARES = [(0.0, 0.0, 1.0), (0.0, 0.2, 0.8), (0.9, 0.0, 0.1)]


def read(*messages: Fetched, documents: int = len(TEXTS)) -> dict[int, str]:
    """The texts that a device keeps of these messages."""
    rows = ContributionRows()
    for message in messages:
        assert decode(encode(message)) == message
        rows.add_text(message, documents)
    return rows.texts


class TestTexts:
    def test_only_those_that_may_be_cited_are_sent(self) -> None:
        assert read(*text_messages(1, TEXTS, PIECES, SHARES, [None] * 3)) == {0: TEXTS[0]}
        assert read(*text_messages(1, TEXTS, PIECES, SHARES, [1.0, 1.0, 0.5])) == {}, "the device made it as likely"
        assert read(*text_messages(1, TEXTS, PIECES, [(), (), ()], [None] * 3)) == {}
        assert read(*text_messages(1, (), PIECES, [(1.0,)] * 3, [None] * 3), documents=0) == {}

    def test_a_long_one_is_cut_between_characters(self) -> None:
        (message,) = text_messages(1, ["猫" * PAYLOAD_LIMIT], ["猫"], [(1.0, 0.0)], [None])
        assert read(message, documents=1) == {0: "猫" * (PAYLOAD_LIMIT // 3)}

    @pytest.mark.parametrize(
        "hostile",
        [
            Fetched(1, 2, 2, 0, 1, 0.0, "", b"x"),
            Fetched(1, 0, 3, 0, 1, 0.0, "", b"x"),
            Fetched(1, 0, 2, 0, 2, 0.0, "", b"x"),
            Fetched(1, 0, 2, 0, 1, 0.0, "", b"\xff"),
        ],
    )
    def test_what_does_not_fit_to_the_answer_is_ignored(self, hostile: Fetched) -> None:
        assert read(hostile) == {}

    def test_no_more_than_there_is_room_for_is_kept(self) -> None:
        big = [Fetched(1, n % 2, 2, 0, 1, 0.0, "", b"x" * PAYLOAD_LIMIT) for n in range(MOST_TEXT // PAYLOAD_LIMIT)]
        assert set(read(*big)) == {0, 1}
        assert read(*big, Fetched(1, 0, 2, 0, 1, 0.0, "", b"later"))[0] == "x" * PAYLOAD_LIMIT


class TestPassages:
    @staticmethod
    def record(*texts: str, of_cloud: Mapping[int, str] | None = None) -> Record:
        """Of two documents of the device, which has read `texts`, and two of the cloud."""
        record = Record(started=0.0, seed=0, session=0)
        record.device_titles, record.texts, record.cloud_titles = ("a", "b"), texts, ("c", "d")
        record.contributions.texts.update(of_cloud or {})
        return record

    def test_the_clouds_come_after_the_devices(self) -> None:
        assert self.record("A", "B", of_cloud={1: "D"}).passages == ("A", "B", None, "D")

    def test_a_device_that_has_read_all_needs_none_of_the_cloud(self) -> None:
        assert self.record("A", "B", "C", "D", of_cloud={0: "lie"}).passages == ("A", "B", "C", "D")

    def test_a_device_that_has_read_none(self) -> None:
        assert self.record(of_cloud={0: "C"}).passages == (None, None, "C", None)
