"""Attribution of tokens to sources: a side's share in the token times the document's share within the side.

What is missing to 1 is no document's: the model would have said it without any.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from common.answer.record import AnswerRecord
from common.answer.report import Record
from proto.messages import Closed

DIGITS = 4
UNREAD = "What each document says of this answer was not found out: it has no citations."


@dataclass(frozen=True, slots=True)
class Attribution:
    """Shares of an answer's sources, [tokens][sources], and in how many tokens those of the cloud's documents are not
    known, as rows of its session before a lost connection: they are 0 there.
    """

    shares: tuple[tuple[float, ...], ...] = ()
    unknown: int = 0


def untold(unknown: int, tokens: int) -> str:
    """The note on an answer of `tokens` tokens of which so many are `unknown`."""
    of = f"{unknown} of {tokens}"
    return f"The cloud has not told what its documents say of {of} tokens: citations of these are missing."


def of_both_sides(
    record: Record, outcome: AnswerRecord, degraded: Collection[int], closed: Closed | None
) -> Attribution:
    """Shares with the device's documents first; `closed` is None when the cloud's part is missing."""
    cloud_rows, known = _cloud_rows(record, closed), _known(record, closed)
    devices, clouds = len(record.device_titles), len(record.cloud_titles)
    rows, unknown = [], 0
    for position, cloud_share in enumerate(outcome.cloud_shares[: len(record.token_times)]):
        from_cloud = cloud_rows[position] if position < len(cloud_rows) else ()
        total = sum(from_cloud)
        missing = clouds > 0 and position not in degraded and position not in known and cloud_share != 0.0
        unknown += missing
        if position in degraded:
            share = 0.0
        elif missing and cloud_share is None:
            share = 1.0  # nothing is known of the device's either
        elif cloud_share is None:
            share = total  # the cloud decided and has scaled its row, or it answered alone
        else:
            share = cloud_share
        device = outcome.shares[position] or (0.0,) * devices
        row = [(1.0 - share) * part for part in device[:devices]]
        row += [share * part / total if total else 0.0 for part in from_cloud[:clouds]]
        row += [0.0] * (devices + clouds - len(row))
        rows.append(tuple(round(part, DIGITS) for part in row))
    return Attribution(tuple(rows), unknown)


def of_one_process(record: Record, shares: Sequence[Sequence[float]]) -> Attribution:
    """Shares of an answer for which this device read all documents; `shares` are [tokens][documents + 1]."""
    sources = len(record.device_titles) + len(record.cloud_titles)  # the rest is no document's
    told = shares[: len(record.token_times)]
    return Attribution(tuple(tuple(round(share, DIGITS) for share in row[:sources]) for row in told))


def of_cloud(record: Record, degraded: Collection[int], closed: Closed | None) -> Attribution:
    """Shares of an answer from the cloud's documents alone; those of `degraded` tokens are 0."""
    rows, known, nothing = _cloud_rows(record, closed), _known(record, closed), (0.0,) * len(record.cloud_titles)
    tokens = range(len(record.token_times))
    told = (rows[place][:-1] if place in known and place not in degraded else nothing for place in tokens)
    shares = tuple(tuple(round(share, DIGITS) for share in row) for row in told) if rows else ()
    return Attribution(shares, sum(place not in known and place not in degraded for place in tokens) if nothing else 0)


def _cloud_rows(record: Record, closed: Closed | None) -> list[tuple[float, ...]]:
    """Shares of the cloud's documents and of none, [positions][documents + 1]."""
    return [] if closed is None else record.contributions.shares(len(record.cloud_titles))


def _known(record: Record, closed: Closed | None) -> range:
    """Positions of which the cloud has told its documents' shares."""
    return range(0) if closed is None else record.contributions.known(len(record.cloud_titles))
