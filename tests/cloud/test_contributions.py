"""Shares of documents on their way to the report: as many as there are, in messages that every link carries."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.answer.contributions import ContributionRows, contribution_messages, row_bytes
from common.answer.report import Record
from common.answer.wording import Standing
from proto.framing import PAYLOAD_LIMIT, decode, encode
from proto.limits import WHOLE_SHARE
from proto.messages import Contributions

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
    shares, standing = [(*[1.0] * documents, 0.0)] * tokens, [tuple(range(documents))] * tokens
    for message in contribution_messages(1, documents, shares, [None] * tokens, standing):
        assert message.position == expected
        expected += len(message.payload) // row_bytes(documents)
        assert decode(encode(message, PAYLOAD_LIMIT), PAYLOAD_LIMIT) == message
    assert expected == (tokens if documents else 0)


def test_rows_arrive_as_they_were() -> None:
    shares = [(0.5, 0.5, 0.0), (), (0.5, 0.0, 0.5), (0.25, 0.75, 0.0)] * 20_000
    cloud_shares = [1.0, None, 0.2, None] * 20_000
    standing: list[Standing] = [(0, 1), (), (1,), (0,)] * 20_000
    rows = ContributionRows()
    parts = list(contribution_messages(1, 2, shares, cloud_shares, standing))
    assert len(parts) == 5
    for part in [parts[2], parts[4], parts[0], parts[3], parts[1], parts[0]]:
        rows.add(part, len(shares))
    told = [(128, 128, 0), (0, 0, 0), (26, 0, 26), (64, 191, 0)] * 20_000
    assert rows.shares(2) == [tuple(share / WHOLE_SHARE for share in row) for row in told]
    assert rows.standing(2) == standing
    assert (rows.shares(3), rows.standing(3)) == ([], [])


@given(
    st.integers(1, MOST).flatmap(
        lambda documents: st.tuples(st.just(documents), st.sets(st.integers(0, documents - 1)))
    )
)
def test_every_document_has_its_bit(given: tuple[int, set[int]]) -> None:
    documents, have = given
    (message,) = contribution_messages(1, documents, [(1.0,)], [None], [tuple(sorted(have))])
    rows = ContributionRows()
    rows.add(message, 1)
    assert rows.standing(documents) == [tuple(sorted(have))]


def test_what_is_no_share_costs_only_itself() -> None:
    (message,) = contribution_messages(1, 2, [(math.nan, math.inf, 1.0000001)], [None], [()])
    assert message.payload == bytes([0, 0, WHOLE_SHARE, 0])


@pytest.mark.parametrize(
    "hostile",
    [
        Contributions(1, 0, 0, b"xx"),
        Contributions(1, 0, 2, b"xx"),
        Contributions(1, 4, 2, b"xxxxxxxx"),
        Contributions(1, 2**20 - 1, 2, b"xxxx"),
        Contributions(1, 2, 256, bytes(2 * 289)),
        Contributions(1, 0, 1, b"xxx"),
    ],
)
def test_what_does_not_fit_to_the_answer_is_ignored(hostile: Contributions) -> None:
    rows = ContributionRows()
    rows.add(Contributions(1, 1, 2, bytes([255, 0, 51, 2])), 4)
    rows.add(hostile, 4)
    assert rows.shares(2) == [(0.0, 0.0, 0.0), (1.0, 0.0, 0.2)]
    assert rows.standing(2) == [(), (1,)]


def test_rows_behind_an_answer_that_ended_sooner_are_left_out() -> None:
    """The cloud has decided more than the device has shown before a stop string."""
    rows = ContributionRows()
    (message,) = contribution_messages(1, 1, [(1.0, 0.0)] * 5, [None] * 5, [(0,)] * 5)
    rows.add(message, 3)
    assert (rows.known(1), rows.shares(1), rows.standing(1)) == (range(3), [(1.0, 0.0)] * 3, [(0,)] * 3)
    rows.add(Contributions(1, 2, 1, bytes(6)), 3)
    rows.add(Contributions(1, 3, 1, bytes(6)), 3)
    assert (rows.size, rows.shares(1)) == (3 * row_bytes(1), [(1.0, 0.0)] * 2 + [(0.0, 0.0)])


def test_of_a_beginning_that_was_decided_before_nothing_is_told() -> None:
    rows = ContributionRows()
    assert not rows.known(1)
    (message,) = contribution_messages(1, 1, [(), (), (0.0, 1.0), (), (1.0, 0.0)], [None] * 5, [(0,)] * 5)
    rows.add(message, 5)
    assert (message.position, rows.known(1), rows.known(2)) == (2, range(2, 5), range(0))
    assert not list(contribution_messages(1, 1, [(), ()], [None] * 2, [(0,), (0,)]))


def test_what_is_not_known_to_stand_does_not() -> None:
    (message,) = contribution_messages(1, 2, [(0.5, 0.5, 0.0)] * 2, [None] * 2, [(1,)])
    rows = ContributionRows()
    rows.add(message, 2)
    assert rows.standing(2) == [(1,), ()]


def test_bits_of_no_document_say_nothing() -> None:
    rows = ContributionRows()
    rows.add(Contributions(1, 0, 2, bytes([255, 0, 0, 0b11111110])), 1)
    assert rows.standing(2) == [(1,)]


class TestStandingInSources:
    @staticmethod
    def record(*told: int) -> Record:
        """Of two documents of the device and two of the cloud, which tells the bits of as many tokens."""
        record = Record(started=0.0, seed=0, session=0)
        record.device_titles, record.documents = ("a", "b"), ((1,), (2,))
        record.cloud_titles = ("c", "d")
        record.contributions.add(Contributions(1, 0, 2, b"".join(bytes([0, 0, 255, bits]) for bits in told)), 3)
        return record

    def test_the_clouds_come_behind_the_devices(self) -> None:
        assert self.record(0b10, 0, 0b01).standing([(0,), (1,), ()]) == ((0, 3), (1,), (2,))

    def test_what_did_not_come_stands_nowhere(self) -> None:
        assert self.record(0b11).standing([(0,), (1,), ()]) == ((0, 2, 3), (1,), ())
        assert self.record().standing([(0,)]) == ((0,),)

    def test_no_more_tokens_than_the_answer_has(self) -> None:
        assert self.record(1, 1, 1).standing([(0,)]) == ((0, 2),)

    def test_a_device_that_has_read_all_is_not_told(self) -> None:
        record = self.record(0b11)
        record.documents = ((1,), (2,), (3,), (4,))
        assert record.standing([(0, 3)]) == ((0, 3),)
