"""Documents in parts, handed to the link as fast as the device takes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from common.daemon.model_runtime import LONGEST_TITLE
from proto.framing import PAYLOAD_LIMIT
from proto.messages import Fetched

AHEAD: Final = 2**20  # bytes that wait in the link for one device; its other answers' drafts wait behind no more


class DocumentOutbox:
    """Parts of the documents of one session that wait for the link. For one thread at a time."""

    def __init__(self, session: int, send: Callable[[Fetched], int], queued: Callable[[], int]) -> None:
        """`send` returns the bytes, 0 for what was dropped; `queued` the bytes that wait for the device."""
        self._session = session
        self._send = send
        self._queued = queued
        self._parts: deque[Fetched] = deque()

    @property
    def empty(self) -> bool:
        return not self._parts

    @property
    def waiting_bytes(self) -> int:
        return sum(len(part.payload) for part in self._parts)

    def add(self, index: int, count: int, title: str, similarity: float, body: bytes) -> None:
        """Add the document `index` of `count`."""
        pieces = [body[start : start + PAYLOAD_LIMIT] for start in range(0, len(body), PAYLOAD_LIMIT)] or [b""]
        for part, piece in enumerate(pieces):
            short = title[:LONGEST_TITLE]
            self._parts.append(Fetched(self._session, index, count, part, len(pieces), similarity, short, piece))

    def add_none(self) -> None:
        """Add the message that there is no document."""
        self._parts.append(Fetched(self._session, 0, 0, 0, 0, 0.0, "", b""))

    def pump(self) -> bool:
        """Send what the link has room for. Returns whether anything was sent."""
        moved = False
        while self._parts and self._queued() < AHEAD and self._send(self._parts[0]):
            self._parts.popleft()
            moved = True
        return moved
