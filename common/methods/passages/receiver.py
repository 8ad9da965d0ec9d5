"""Documents put together again from the parts that the cloud sends, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field

from proto.errors import malformed, too_large
from proto.framing import PAYLOAD_LIMIT
from proto.messages import Fetched

LARGEST_TEXT = 2**20  # bytes of one document's text
LEAST_BYTES = 2**13  # of documents that count as progress, within one patience: a trickle does not
LARGEST_TOTAL = 2**28  # bytes of all documents of an answer


@dataclass(slots=True)
class Body:
    """One document, as far as its parts have arrived."""

    title: str
    similarity: float
    parts: int
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def whole(self) -> bytes:
        return b"".join(self.pieces[part] for part in range(self.parts))


class WantedBytes:
    """Progress of what was asked for, perhaps several times. It only grows."""

    def __init__(self) -> None:
        self._most = 0

    def arrived(self, size: int) -> None:
        """Note that `size` bytes of what was asked for are there."""
        self._most = max(self._most, size)

    @property
    def progress(self) -> int:
        return self._most // LEAST_BYTES


class DocumentReceiver:
    """Collects at most `documents` documents of at most `largest` bytes each. Parts may come twice, in any order."""

    def __init__(self, documents: int, largest: int) -> None:
        self._documents = documents
        self._largest = min(largest, LARGEST_TOTAL)
        self._count: int | None = None  # of documents, as the cloud says
        self._bodies: dict[int, Body] = {}
        self._size = 0
        self._missing = 0  # parts of the documents that were begun

    @property
    def size(self) -> int:
        """Bytes that have arrived, of parts that were not there yet."""
        return self._size

    @property
    def complete(self) -> bool:
        return self._count is not None and len(self._bodies) == self._count and not self._missing

    def bodies(self) -> list[Body]:
        """The documents in the cloud's order, once complete."""
        return [self._bodies[index] for index in sorted(self._bodies)]

    def add(self, message: Fetched) -> None:
        """Take in a part. Raises `ProtocolError`; none of the documents should be used then."""
        if message.count > self._documents:
            raise too_large(f"at most {self._documents} documents were asked for")
        if self._count not in (None, message.count):
            raise malformed("the parts of fetched documents must agree on their number")
        self._count = message.count
        if not message.count:
            return
        body = self._body(message)
        if not message.part < body.parts or message.parts != body.parts:
            raise malformed("the parts of a fetched document must agree on their number and be below it")
        size = len(message.payload)
        if (size != PAYLOAD_LIMIT) if message.part < body.parts - 1 else not 0 < size <= PAYLOAD_LIMIT:
            raise malformed(f"parts of a fetched document but the last must have {PAYLOAD_LIMIT} bytes")
        if message.part in body.pieces:
            return
        self._size += size
        if self._size > LARGEST_TOTAL:
            raise too_large(f"the documents of an answer must have at most {LARGEST_TOTAL} bytes")
        body.pieces[message.part] = message.payload
        self._missing -= 1

    def _body(self, message: Fetched) -> Body:
        known = self._bodies.get(message.index)
        if known is not None:
            return known
        if message.index >= message.count:
            raise malformed("the index of a fetched document must be below their number")
        if not 0 < message.parts <= -(-self._largest // PAYLOAD_LIMIT):
            raise too_large(f"a fetched document must have at most {self._largest} bytes")
        body = self._bodies[message.index] = Body(message.title, message.similarity, message.parts)
        self._missing += message.parts
        return body
