"""Shares of documents on their way to the report: as many as there are, in messages that every link carries."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.answer.contributions import ContributionRows, contribution_messages
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
    for message in contribution_messages(1, documents, [(*[1.0] * documents, 0.0)] * tokens, [None] * tokens):
        assert message.position == expected
        expected += len(message.payload) // (documents + 1)
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
    assert rows.rows(2) == bytes([128, 128, 0, 0, 0, 0, 26, 0, 26, 64, 191, 0]) * 20_000
    assert rows.rows(3) == b""


def test_what_is_no_share_costs_only_itself() -> None:
    (message,) = contribution_messages(1, 2, [(math.nan, math.inf, 1.0000001)], [None])
    assert message.payload == bytes([0, 0, WHOLE_SHARE])


@pytest.mark.parametrize(
    "hostile",
    [
        Contributions(1, 0, 0, b"xx"),
        Contributions(1, 0, 2, b"xx"),
        Contributions(1, 3, 2, b"xxxxxx"),
        Contributions(1, 2**20 - 1, 2, b"xxx"),
        Contributions(1, 2, 256, bytes(514)),
        Contributions(1, 0, 1, b"xxxx"),
    ],
)
def test_what_does_not_fit_to_the_answer_is_ignored(hostile: Contributions) -> None:
    rows = ContributionRows()
    rows.add(Contributions(1, 1, 2, b"abc"), 4)
    rows.add(hostile, 4)
    assert rows.rows(2) == b"\0\0\0abc"
