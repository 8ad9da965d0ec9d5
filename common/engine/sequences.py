"""An answer's rows in KV memory, and what has to be fed to them next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.engine.kv.layout import DocumentStates
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids that one side reads before it answers: documents and query."""

    documents: tuple[tuple[int, ...], ...]  # token ids of the rows' document parts; one empty row when there is none
    query: tuple[int, ...]  # token ids of the query part
    similarity: tuple[float, ...]  # retrieval cosine of each document
    absent: bool = False  # no document took part: the evidence is "none"
    fetched: int = 0  # how many of the rows, the last ones, are the other side's and weigh as its mixture would
    states: Mapping[int, DocumentStates] = field(default_factory=dict)  # keys and values that came along, by row
    blank: tuple[int, ...] | None = None  # the document part of one more row, the last one, which has no document
    passing: frozenset[int] = frozenset()  # rows whose documents are for this answer: nothing of them is kept

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The document part of every row."""
        return self.documents if self.blank is None else (*self.documents, self.blank)


@dataclass(slots=True)
class Feed:
    """Tokens that rows lack. `logits` are wanted at the last ones, once all have been fed."""

    rows: Rows
    tokens: Sequence[int]
    logits: int = 0
    parents: Sequence[int] | None = None  # of a tree that they are the last tokens of, see `Item`


class DocumentParts:
    """Reads the documents of one answer into the beginnings of its `rows`.

    Those that were read before are copied in; the others are read first, each in its own row, and remembered.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows) -> None:
        """`rows` are empty ones, as `Decoder.need` has it for the prompt."""
        self._decoder = decoder
        self.rows = rows
        rows.query = len(prompt.query)
        self._unread: dict[tuple[int, ...], list[int]] = {}  # document: the rows that wait for it
        self._reading: dict[tuple[int, ...], Rows] = {}
        self._passing = {prompt.parts[row] for row in prompt.passing}
        for row, document in enumerate(prompt.parts):
            if not document:
                continue
            states = prompt.states.get(row)
            if states is None and document not in self._unread:
                states = decoder.known_document(document)
            if states is not None:
                self.rows.fill(row, states)
            else:
                self._unread.setdefault(document, []).append(row)
        for document, waiting in self._unread.items():
            self._reading[document] = self.rows.alone(waiting[0])

    @property
    def unread(self) -> bool:
        """Whether documents are still to be read."""
        return bool(self._unread)

    def feeds(self) -> list[Feed]:
        """The rest to be read of each document."""
        return [Feed(rows, document[rows.fed :]) for document, rows in self._reading.items()]

    def fed(self, feed: Feed) -> None:
        """Note that some of a feed's tokens were part of a pass."""
        for document, rows in self._reading.items():
            if rows is feed.rows and rows.fed == len(document):
                self._read(document, rows)
                return

    def _read(self, document: tuple[int, ...], rows: Rows) -> None:
        states = rows.states(0)
        if document not in self._passing:
            self._decoder.keep_document(document, states)
        first, *others = self._unread.pop(document)
        del self._reading[document]
        self.rows.starts[first] = len(document)
        for row in others:
            self.rows.fill(row, states)


class AnswerRows:
    """The rows `[document][query][answer so far]` of one answer. For the thread that owns the decoder.

    Once the documents are read, query and answer are fed to all rows together: `feeds` compares what the rows hold with
    what they should.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows) -> None:
        """`rows` are empty ones, as `Decoder.need` has it for the prompt."""
        self._documents = DocumentParts(decoder, prompt, rows)
        self._query = list(prompt.query)
        self._held: list[int] = []  # tokens after the documents that are in the rows
        self.rows = rows

    @property
    def reading(self) -> bool:
        """Whether documents are still to be read."""
        return self._documents.unread

    def feeds(self, path: Sequence[int], distributions: int = 1) -> list[Feed]:
        """Tokens to feed next, so that in the end the last `distributions` tokens of `[query][path]` give logits.

        Rolls back what the rows hold beyond it.
        """
        if self._documents.unread:
            return self._documents.feeds()
        wanted = [*self._query, *path]
        keep = min(len(self._held), len(wanted) - distributions)
        if self._held[:keep] != wanted[:keep]:
            keep = next(index for index in range(keep) if self._held[index] != wanted[index])
        if keep < len(self._held):
            del self._held[keep:]
            self.rows.fed = keep
        return [Feed(self.rows, wanted[keep:], distributions)]

    def fed(self, feed: Feed, tokens: int) -> None:
        """Note that the first `tokens` tokens of `feed` were part of a pass."""
        if feed.rows is self.rows:
            self._held.extend(feed.tokens[:tokens])
        else:
            self._documents.fed(feed)
