"""Shares of the cloud's documents in an answer's tokens, packed into messages of bounded size and unpacked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from proto.framing import PAYLOAD_LIMIT
from proto.limits import WHOLE_SHARE
from proto.messages import Contributions


def contribution_messages(
    session: int,
    documents: int,
    shares: Sequence[Sequence[float]],
    cloud_shares: Sequence[float | None],
) -> Iterator[Contributions]:
    """Messages with `shares` [positions][documents + 1], each of whole rows and small enough for any link.

    A row is multiplied by the cloud's share in its token, unless that is None: the cloud knows its own documents only.
    Without a draft at its position a row is empty.
    """
    if documents == 0:
        return
    columns = documents + 1
    rows = PAYLOAD_LIMIT // columns
    for start in range(0, len(shares), rows):
        part = zip(shares[start : start + rows], cloud_shares[start : start + rows], strict=True)
        payload = b"".join(_row(row, columns, cloud_share) for row, cloud_share in part)
        yield Contributions(session, start, documents, payload)


def _row(shares: Sequence[float], columns: int, cloud_share: float | None) -> bytes:
    scale = WHOLE_SHARE if cloud_share is None else WHOLE_SHARE * cloud_share
    return bytes([_byte(scale * share) for share in shares]).ljust(columns, b"\0")


def _byte(value: float) -> int:
    return min(max(round(value), 0), WHOLE_SHARE) if math.isfinite(value) else 0


class ContributionRows:
    """Rows of one byte per document and one for none, put together from messages. No message makes it larger than the
    answer.
    """

    def __init__(self) -> None:
        self._documents = 0
        self._data = bytearray()

    @property
    def size(self) -> int:
        """Bytes up to the last row that has come."""
        return len(self._data)

    def add(self, message: Contributions, positions: int) -> None:
        """Take in a part for an answer of `positions` tokens; a part that does not fit the answer is ignored."""
        documents, payload = message.documents, message.payload
        columns = documents + 1
        if not documents or len(payload) % columns or self._documents not in (0, documents):
            return
        start = message.position * columns
        if start + len(payload) > positions * columns:
            return
        self._documents = documents
        self._data.extend(bytes(max(0, start - len(self._data))))
        self._data[start : start + len(payload)] = payload

    def rows(self, documents: int) -> bytes:
        """All rows so far, [positions, documents + 1] as bytes; empty if they came for another number of documents."""
        return bytes(self._data) if documents == self._documents else b""
