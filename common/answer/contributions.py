"""Shares of the cloud's documents in an answer, and its words that stand in them, in messages of bounded size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from common.answer.wording import Standing
from proto.framing import PAYLOAD_LIMIT
from proto.limits import WHOLE_SHARE
from proto.messages import Contributions


def contribution_messages(
    session: int,
    documents: int,
    shares: Sequence[Sequence[float]],
    cloud_shares: Sequence[float | None],
    standing: Sequence[Standing],
) -> Iterator[Contributions]:
    """Messages of whole rows, each small enough for any link: `shares` [positions][documents + 1], and `standing`, the
    documents in which each token's word stands, as far as that is known.

    A row is multiplied by the cloud's share in its token, unless that is None: the cloud knows its own documents only.
    Without a draft at its position a row is empty; of a beginning that was decided before this session none is told.
    """
    if documents == 0:
        return
    rows = PAYLOAD_LIMIT // row_bytes(documents)
    first = next((position for position, row in enumerate(shares) if row), len(shares))
    standing = [*standing, *[()] * (len(shares) - len(standing))]
    for start in range(first, len(shares), rows):
        part = slice(start, start + rows)
        payload = b"".join(
            _row(row, documents, cloud_share, have)
            for row, cloud_share, have in zip(shares[part], cloud_shares[part], standing[part], strict=True)
        )
        yield Contributions(session, start, documents, payload)


def row_bytes(documents: int) -> int:
    """Bytes of a token's row: the share of each document and that of none, and a bit for each document."""
    return documents + 1 + _bits(documents)


def _bits(documents: int) -> int:
    return (documents + 7) // 8


def _row(shares: Sequence[float], documents: int, cloud_share: float | None, standing: Standing) -> bytes:
    scale = WHOLE_SHARE if cloud_share is None else WHOLE_SHARE * cloud_share
    told = bytes([_byte(scale * share) for share in shares]).ljust(documents + 1, b"\0")
    return told + sum(1 << document for document in standing).to_bytes(_bits(documents), "little")


def _byte(value: float) -> int:
    return min(max(round(value), 0), WHOLE_SHARE) if math.isfinite(value) else 0


class ContributionRows:
    """Rows put together from messages. No message makes them more than the answer has tokens."""

    def __init__(self) -> None:
        self._documents = 0
        self._data = bytearray()
        self._first: int | None = None  # position of which a row has come

    @property
    def size(self) -> int:
        """Bytes up to the last row that has come."""
        return len(self._data)

    def add(self, message: Contributions, positions: int) -> None:
        """Take in a part for an answer of `positions` tokens, but for rows behind those: where the device ends the
        answer, the cloud has decided more. A part that does not fit the answer is ignored.
        """
        documents, payload = message.documents, message.payload
        width = row_bytes(documents)
        if not documents or len(payload) % width or self._documents not in (0, documents):
            return
        start = message.position * width
        payload = payload[: max(0, positions * width - start)]
        if not payload:
            return
        self._documents = documents
        self._first = message.position if self._first is None else min(self._first, message.position)
        self._data.extend(bytes(max(0, start - len(self._data))))
        self._data[start : start + len(payload)] = payload

    def shares(self, documents: int) -> list[tuple[float, ...]]:
        """Shares of the documents and of none, [positions][documents + 1]; empty if they came for another number of
        documents.
        """
        return [tuple(value / WHOLE_SHARE for value in row[: documents + 1]) for row in self._rows(documents)]

    def known(self, documents: int) -> range:
        """Positions of which rows have come; none if they came for another number of documents."""
        if self._first is None or documents != self._documents:
            return range(0)
        return range(self._first, len(self._data) // row_bytes(documents))

    def standing(self, documents: int) -> list[Standing]:
        """For each position the documents in which its token's word stands."""
        masks = (int.from_bytes(row[documents + 1 :], "little") for row in self._rows(documents))
        return [tuple(number for number in range(documents) if mask >> number & 1) if mask else () for mask in masks]

    def _rows(self, documents: int) -> Iterator[bytes]:
        width = row_bytes(documents)
        data = self._data if documents == self._documents else b""
        return (bytes(data[start : start + width]) for start in range(0, len(data), width))
