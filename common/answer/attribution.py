"""Attribution of tokens to sources: a side's share in the token times the document's share within the side.

What is missing to 1 is no document's: the model would have said it without any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from common.answer.record import AnswerRecord
from common.answer.report import Record
from proto.messages import Closed

DIGITS = 4


def of_both_sides(
    record: Record, outcome: AnswerRecord, degraded: Collection[int], closed: Closed | None
) -> tuple[tuple[float, ...], ...]:
    """Shares [tokens][sources], the device's documents first; `closed` is None when the cloud's part is missing."""
    cloud_rows = _cloud_rows(record, closed)
    devices, clouds = len(record.device_titles), len(record.cloud_titles)
    rows = []
    for position, cloud_share in enumerate(outcome.cloud_shares[: len(record.token_times)]):
        from_cloud = cloud_rows[position] if position < len(cloud_rows) else ()
        total = sum(from_cloud)
        if position in degraded:
            share = 0.0
        elif cloud_share is None:
            share = total  # the cloud decided and has scaled its row, or it answered alone
        else:
            share = cloud_share
        device = outcome.shares[position] or (0.0,) * devices
        row = [(1.0 - share) * part for part in device[:devices]]
        row += [share * part / total if total else 0.0 for part in from_cloud[:clouds]]
        row += [0.0] * (devices + clouds - len(row))
        rows.append(tuple(round(part, DIGITS) for part in row))
    return tuple(rows)


def of_one_process(record: Record, shares: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Shares [tokens][sources] of an answer for which this device read all documents; `shares` are [tokens][documents +
    1].
    """
    sources = len(record.device_titles) + len(record.cloud_titles)  # the rest is no document's
    told = shares[: len(record.token_times)]
    return tuple(tuple(round(share, DIGITS) for share in row[:sources]) for row in told)


def of_cloud(record: Record, degraded: Collection[int], closed: Closed | None) -> tuple[tuple[float, ...], ...]:
    """Shares [tokens][sources] of an answer from the cloud's documents alone; those of `degraded` tokens are 0."""
    rows, nothing = _cloud_rows(record, closed), (0.0,) * len(record.cloud_titles)
    tokens = range(len(record.token_times) if rows else 0)
    known = (rows[place][:-1] if place < len(rows) and place not in degraded else nothing for place in tokens)
    return tuple(tuple(round(share, DIGITS) for share in row) for row in known)


def _cloud_rows(record: Record, closed: Closed | None) -> list[tuple[float, ...]]:
    """Shares of the cloud's documents and of none, [positions][documents + 1]."""
    return [] if closed is None else record.contributions.shares(len(record.cloud_titles))
