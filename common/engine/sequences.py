"""An answer's rows in KV memory, and what has to be fed to them next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.answer.values import ROOT, TreeWork
from common.engine.kv.layout import DocumentStates
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder


@dataclass(frozen=True, slots=True)
class Blocks:
    """Documents that stand in one row, each as it is read by itself; so keys and values that are kept serve in any row.

    All begin with the same `begin` tokens, which the row has once.
    """

    documents: tuple[tuple[int, ...], ...]  # in the row's order
    begin: int

    @property
    def tokens(self) -> tuple[int, ...]:
        """The row's document part."""
        first, *others = self.documents
        return first + tuple(token for document in others for token in document[self.begin :])


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids that one side reads before it answers: documents and query."""

    documents: tuple[tuple[int, ...], ...]  # token ids of the rows' document parts; one empty row when there is none
    query: tuple[int, ...]  # token ids of the query part
    similarity: tuple[float, ...]  # retrieval cosine of each document
    absent: bool = False  # no document took part: the evidence is "none"
    fetched: int = 0  # how many of the rows, the last ones, are the other side's and weigh as its mixture would
    states: Mapping[tuple[int, ...], DocumentStates] = field(default_factory=dict)  # that came along, by document
    blank: tuple[int, ...] | None = None  # the document part of one more row, the last one, which has no document
    passing: frozenset[tuple[int, ...]] = frozenset()  # documents for this answer: nothing of them is kept
    blocks: Mapping[int, Blocks] = field(default_factory=dict)  # of what rows are put together, by row

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
    behind: Sequence[Feed] = ()  # all of them have to be fed whole in the same pass, or these must not be


class DocumentParts:
    """Reads the documents of one answer into the beginnings of its `rows`.

    Those that were read before are copied in; the others are read first, each by itself at the start of a row, and
    remembered.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows) -> None:
        """`rows` are empty ones, as `Decoder.need` has it for the prompt."""
        self._decoder = decoder
        self.rows = rows
        rows.query = len(prompt.query)
        self._passing = prompt.passing
        parts = [prompt.blocks.get(row, Blocks((part,), 0)) for row, part in enumerate(prompt.parts)]
        self._unread = {row: blocks for row, blocks in enumerate(parts) if blocks.tokens}  # rows that are not complete
        self._states: dict[tuple[int, ...], DocumentStates] = dict(prompt.states)  # of their documents, as far as known
        for document in {document for blocks in self._unread.values() for document in blocks.documents}:
            if document not in self._states and (states := decoder.known_document(document)) is not None:
                self._states[document] = states
        self._reading: dict[int, tuple[tuple[int, ...], Rows]] = {}  # documents, by the row that they are read in
        self._go_on()

    @property
    def unread(self) -> bool:
        """Whether documents are still to be read."""
        return bool(self._unread)

    def feeds(self) -> list[Feed]:
        """The rest to be read of each document."""
        return [Feed(rows, document[rows.fed :]) for document, rows in self._reading.values()]

    def expect(self) -> bool:
        """Make room in the rows for the documents that are being read, if these are all that is missing, each the whole
        of its row's part: then what follows them may be fed in the same pass.
        """
        now = {row: (document,) for row, (document, _) in self._reading.items()}
        if now != {row: blocks.documents for row, blocks in self._unread.items()}:
            return False
        for row, (document,) in now.items():
            self.rows.starts[row] = len(document)
        return True

    def fed(self, feed: Feed) -> None:
        """Note that some of a feed's tokens were part of a pass."""
        for row, (document, rows) in self._reading.items():
            if rows is feed.rows and rows.fed == len(document):
                states = rows.states(0)
                if document not in self._passing:
                    self._decoder.keep_document(document, states)
                self._states[document] = states
                del self._reading[row]
                self._go_on()
                return

    def _go_on(self) -> None:
        """Complete the rows whose documents are all read; have each of the others read one that nobody reads."""
        for row, blocks in list(self._unread.items()):
            missing = [document for document in blocks.documents if document not in self._states]
            if not missing:
                self._complete(row, blocks)
            elif row not in self._reading:
                read = {document for document, _ in self._reading.values()}
                next_one = next((document for document in missing if document not in read), None)
                if next_one is not None:
                    self._reading[row] = next_one, self.rows.alone(row)
        if not self._unread:
            self._states.clear()

    def _complete(self, row: int, blocks: Blocks) -> None:
        del self._unread[row]
        end = 0
        for document in blocks.documents:
            states = self._states[document]
            if end:
                begin = blocks.begin
                moved = self._decoder.moved(states, end - begin)
                states = tuple((keys[:, begin:], values[:, begin:]) for keys, values in moved)
            self.rows.fill(row, states, end)
            end = self.rows.starts[row]


class AnswerRows:
    """The rows `[document][query][path][tree]` of one answer. For the thread that owns the decoder.

    `feed` compares what the rows hold with what they should. Of the tree that they hold it keeps the path that the
    answer took, and what follows it in the tree that is wanted now.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows) -> None:
        """`rows` are empty ones, with room for what will be wanted."""
        self._documents = DocumentParts(decoder, prompt, rows)
        self._at_once = decoder.streamed is not None  # a pass reads all weights from disk, whatever it feeds
        self.rows = rows
        self._query = list(prompt.query)
        self._chain: list[int] = []  # what the rows hold after the documents: a chain,
        self._tokens: list[int] = []  # and a tree
        self._parents: list[int] = []
        self._missing: list[int] = []  # of the chain, in the feed that was made last
        self._wanted = TreeWork(0, ())

    @property
    def reading(self) -> bool:
        """Whether documents are still to be read."""
        return self._documents.unread

    def feeds(self, wanted: TreeWork) -> list[Feed]:
        """Tokens to feed next, so that in the end the last `count` of `[query][path][tree]`, give logits.

        Documents are fed before what follows them; of a model whose weights are streamed, together with it.
        """
        if not self.reading:
            return [self._feed(wanted)]
        documents = self._documents.feeds()
        if self._at_once and self._documents.expect():
            return [*documents, replace(self._feed(wanted), behind=documents)]
        return documents

    def _feed(self, wanted: TreeWork) -> Feed:
        chain = [*self._query, *wanted.path]
        self._keep(chain, wanted)
        self._truncate(len(chain) + len(wanted.tokens) - wanted.count)
        missing = self._missing = chain[len(self._chain) :]
        self._wanted = wanted
        parents = None
        if wanted.tokens:
            # A chain that is read with the tree behind it is the tree's beginning.
            before = len(missing)
            parents = [*range(ROOT, before - 1), *(before + parent for parent in wanted.parents)]
        return Feed(self.rows, [*missing, *wanted.tokens[len(self._tokens) :]], wanted.count, parents)

    def fed(self, feed: Feed, tokens: int) -> None:
        """Note that the first `tokens` tokens of `feed` were part of a pass."""
        if feed.rows is not self.rows:
            self._documents.fed(feed)
            return
        self._chain += self._missing[:tokens]
        nodes = len(self._tokens) + max(0, tokens - len(self._missing))
        self._tokens, self._parents = list(self._wanted.tokens[:nodes]), list(self._wanted.parents[:nodes])

    def _keep(self, chain: Sequence[int], wanted: TreeWork) -> None:
        """Drop what the rows hold beside what is wanted, and move the rest together."""
        if not self._tokens and len(self._chain) > len(chain) and self._chain[: len(chain)] == chain:
            # What was read as a chain goes on as a tree.
            self._tokens = self._chain[len(chain) :]
            self._parents = list(range(ROOT, len(self._tokens) - 1))
            del self._chain[len(chain) :]
        held = len(self._chain)
        if self._chain != chain[:held]:
            pairs = enumerate(zip(self._chain, chain, strict=False))
            self._truncate(next((place for place, (one, other) in pairs if one != other), min(held, len(chain))))
            return
        kept: list[int] = []
        for token in chain[held:]:
            if (child := self._child(kept[-1] if kept else ROOT, token)) is None:
                break
            kept.append(child)
        path = len(kept)
        if held + path == len(chain):
            places = {ROOT: kept[-1] if kept else ROOT}
            for place, (token, parent) in enumerate(zip(wanted.tokens, wanted.parents, strict=True)):
                child = self._child(places[parent], token)
                if child is None or (kept and child <= kept[-1]):
                    break
                places[place] = child
                kept.append(child)
        self.rows.keep(held, kept)
        self._chain = list(chain[: held + path])
        nodes = len(kept) - path
        self._tokens, self._parents = list(wanted.tokens[:nodes]), list(wanted.parents[:nodes])

    def _child(self, node: int, token: int) -> int | None:
        pairs = enumerate(zip(self._tokens, self._parents, strict=True))
        return next((place for place, pair in pairs if pair == (token, node)), None)

    def _truncate(self, length: int) -> None:
        """Drop the last tokens, so that the rows hold `length` at most behind their documents."""
        nodes = max(0, length - len(self._chain))
        del self._tokens[nodes:], self._parents[nodes:], self._chain[length:]
        self.rows.fed = len(self._chain) + len(self._tokens)
