"""Attribution of an answer whose cloud has told all, a part, or nothing of its documents."""

from __future__ import annotations

import pytest

from common.answer.report import AnswerRecord, Record, attribute_to_both, attribute_to_cloud
from proto.messages import Closed, Contributions

CLOSED = Closed(1, 0, 0, 0, 0, 0, 0)
TOKENS = 4
WHOLE = bytes([255, 0])  # a row of one document: its share, and that of none


def told(first: int | None) -> Record:
    """An answer of one document of each side, of which the cloud has told rows from `first` on."""
    record = Record(started=0.0, seed=0, session=1)
    record.token_times = [0.1 * token for token in range(TOKENS)]
    record.device_titles, record.cloud_titles = ("note",), ("entry",)
    if first is not None:
        record.contributions.add(Contributions(1, first, 1, WHOLE * (TOKENS - first)), TOKENS)
    return record


def decided(cloud_share: float | None) -> AnswerRecord:
    outcome = AnswerRecord()
    outcome.shares = [(1.0, 0.0)] * TOKENS
    outcome.cloud_shares = [cloud_share] * TOKENS
    return outcome


@pytest.mark.parametrize(("first", "unknown"), [(0, 0), (2, 2), (None, 4)])
def test_tokens_of_which_nothing_came_are_counted(first: int | None, unknown: int) -> None:
    found = attribute_to_both(told(first), decided(0.25), (), CLOSED)
    assert found.unknown == unknown
    assert found.shares == ((0.75, 0.0),) * unknown + ((0.75, 0.25),) * (TOKENS - unknown)


def test_where_the_cloud_decided_the_device_does_not_get_the_whole_token() -> None:
    found = attribute_to_both(told(3), decided(None), (), CLOSED)
    assert (found.unknown, found.shares) == (3, ((0.0, 0.0),) * 3 + ((0.0, 1.0),))


def test_tokens_of_the_device_alone_are_known() -> None:
    assert attribute_to_both(told(None), decided(0.25), range(TOKENS), None).unknown == 0
    assert attribute_to_both(told(None), decided(0.0), (), None).unknown == 0
    without = told(None)
    without.cloud_titles = ()
    assert attribute_to_both(without, decided(0.25), (), CLOSED).unknown == 0


def test_without_the_clouds_part_nothing_of_it_is_known() -> None:
    found = attribute_to_both(told(0), decided(0.25), (0,), None)
    assert (found.unknown, found.shares) == (3, ((1.0, 0.0), *((0.75, 0.0),) * 3))


@pytest.mark.parametrize(
    ("first", "degraded", "unknown", "shares"),
    [
        (0, (), 0, ((1.0,),) * 4),
        (1, (), 1, ((0.0,), *((1.0,),) * 3)),
        (1, (0, 2), 0, ((0.0,), (1.0,), (0.0,), (1.0,))),
        (None, (), 4, ()),
    ],
)
def test_of_the_cloud_alone(
    first: int | None, degraded: tuple[int, ...], unknown: int, shares: tuple[tuple[float, ...], ...]
) -> None:
    record = told(first)
    record.device_titles = ()
    found = attribute_to_cloud(record, degraded, CLOSED)
    assert (found.unknown, found.shares) == (unknown, shares)
