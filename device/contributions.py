"""What the cloud's documents gave to the tokens of an answer, put together from the messages that tell it."""

from __future__ import annotations

from proto.messages import Contributions


class ContributionRows:
    """Rows of one byte per document. Whatever comes, it stays within the answer."""

    def __init__(self) -> None:
        self._documents = 0
        self._data = bytearray()

    def add(self, message: Contributions, positions: int) -> None:
        """Take a part in, of an answer of `positions` tokens; one that does not fit to it is ignored."""
        documents, payload = message.documents, message.payload
        if not documents or len(payload) % documents or self._documents not in (0, documents):
            return
        start = message.position * documents
        if start + len(payload) > positions * documents:
            return
        self._documents = documents
        self._data.extend(bytes(max(0, start - len(self._data))))
        self._data[start : start + len(payload)] = payload

    def rows(self, documents: int) -> bytes:
        """All rows so far, [positions, documents] as bytes; nothing if they are of another number of documents."""
        return bytes(self._data) if documents == self._documents else b""
