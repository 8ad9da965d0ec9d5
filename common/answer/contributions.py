"""The cloud's part of a report: shares of its documents in an answer, and the texts of those that it may cite."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from common.answer.citations import cited_sources
from proto.framing import PAYLOAD_LIMIT
from proto.limits import WHOLE_SHARE
from proto.messages import Contributions, Fetched

MOST_TEXT: Final = 2**20  # bytes of all texts of an answer that the device keeps


def contribution_messages(
    session: int, documents: int, shares: Sequence[Sequence[float]], cloud_shares: Sequence[float | None]
) -> Iterator[Contributions]:
    """Messages of whole rows, each small enough for any link: `shares` [positions][documents + 1].

    A row is multiplied by the cloud's share in its token, unless that is None: the cloud knows its own documents only.
    Without a draft at its position a row is empty; of a beginning that was decided before this session none is told.
    """
    if documents == 0:
        return
    rows = PAYLOAD_LIMIT // row_bytes(documents)
    first = next((position for position, row in enumerate(shares) if row), len(shares))
    for start in range(first, len(shares), rows):
        part = slice(start, start + rows)
        payload = b"".join(
            _row(row, documents, share) for row, share in zip(shares[part], cloud_shares[part], strict=True)
        )
        yield Contributions(session, start, documents, payload)


def text_messages(
    session: int,
    texts: Sequence[str],
    pieces: Sequence[str],
    shares: Sequence[Sequence[float]],
    cloud_shares: Sequence[float | None],
) -> Iterator[Fetched]:
    """Yields the texts of the documents that the answer with these `pieces` [tokens] may cite.

    A text of more than a payload's length is cut there. `shares` and `cloud_shares` are as above.
    """
    count = len(texts)
    scaled = [
        [share * (1.0 if scale is None else scale) for share in (*row[:count], *[0.0] * (count - len(row)))]
        for row, scale in zip(shares, cloud_shares, strict=True)
    ]
    for index in sorted(cited_sources(scaled, pieces)):
        text = texts[index].encode()[:PAYLOAD_LIMIT].decode(errors="ignore")
        yield Fetched(session, index, count, 0, 1, 0.0, "", text.encode())


def row_bytes(documents: int) -> int:
    """Bytes of a token's row: the share of each document and that of none."""
    return documents + 1


def _row(shares: Sequence[float], documents: int, cloud_share: float | None) -> bytes:
    scale = WHOLE_SHARE if cloud_share is None else WHOLE_SHARE * cloud_share
    return bytes([_byte(scale * share) for share in shares]).ljust(documents + 1, b"\0")


def _byte(value: float) -> int:
    return min(max(round(value), 0), WHOLE_SHARE) if math.isfinite(value) else 0


class ContributionRows:
    """Rows and texts put together from messages. No message makes them more than the answer has tokens and room."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}  # of the cloud's documents that the answer may cite, by their number
        self._text_bytes = 0
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

    def add_text(self, message: Fetched, documents: int) -> None:
        """Take in the text of one of `documents`. A text that does not fit the answer, or is no text, is ignored."""
        self._text_bytes += len(message.payload)
        whole = message.count == documents and message.index < documents and message.parts == 1
        if whole and self._text_bytes <= MOST_TEXT:
            with suppress(UnicodeDecodeError):
                self.texts[message.index] = message.payload.decode()

    def shares(self, documents: int) -> list[tuple[float, ...]]:
        """Shares of the documents and of none, [positions][documents + 1]; empty if they came for another number of
        documents.
        """
        return [tuple(value / WHOLE_SHARE for value in row) for row in self._rows(documents)]

    def known(self, documents: int) -> range:
        """Positions of which rows have come; none if they came for another number of documents."""
        if self._first is None or documents != self._documents:
            return range(0)
        return range(self._first, len(self._data) // row_bytes(documents))

    def _rows(self, documents: int) -> Iterator[bytes]:
        width = row_bytes(documents)
        data = self._data if documents == self._documents else b""
        return (bytes(data[start : start + width]) for start in range(0, len(data), width))
