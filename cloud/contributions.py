"""What the cloud's documents gave to the tokens of an answer, in messages of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from proto.framing import PAYLOAD_LIMIT
from proto.messages import WHOLE_SHARE, Contributions


def contribution_messages(
    session: int,
    documents: int,
    shares: Sequence[Sequence[float]],
    cloud_shares: Sequence[float | None],
) -> Iterator[Contributions]:
    """The messages that tell `shares` [positions][documents], each of whole rows and small enough for any link.

    A row is scaled to the cloud's share of its token, None where the cloud knows only its own documents. It may be
    shorter than `documents`, as one without a draft is.
    """
    if documents == 0:
        return
    rows = PAYLOAD_LIMIT // documents
    for start in range(0, len(shares), rows):
        part = zip(shares[start : start + rows], cloud_shares[start : start + rows], strict=True)
        payload = b"".join(_row(row, documents, cloud_share) for row, cloud_share in part)
        yield Contributions(session, start, documents, payload)


def _row(shares: Sequence[float], documents: int, cloud_share: float | None) -> bytes:
    scale = WHOLE_SHARE if cloud_share is None else WHOLE_SHARE * cloud_share
    return bytes([_byte(scale * share) for share in shares[:documents]]).ljust(documents, b"\0")


def _byte(value: float) -> int:
    return min(max(round(value), 0), WHOLE_SHARE) if math.isfinite(value) else 0
