"""Jobs of the engine: answers and documents. For the engine's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.answer.recorder import Recorder
from common.answer.values import NOBODY, ROOT, Asker, SideDraft, TreeWork
from common.engine.draw import Drafter, Joint, Sample
from common.engine.kv.memory import Claim, DocumentStates, Need, Reservation, Rows
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from common.processors.processor import Processor

# --- scorer
# The interface between the engine and the document weights (DRAGON §4.1, Eq. 2).


class ScoringRun(Protocol):
    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        """R(d, x_<t) of every document, [docs].

        Depends on the query, the documents and the answer prefix alone.
        """
        ...

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        """Whether `scores` would return at once. If not, computes them and then calls `wake`."""
        ...


class DocumentScorer(Protocol):
    """Starts scoring runs. Both sides need the same scorer: their evidences are compared."""

    @property
    def identity(self) -> str:
        """Names the scorer and every setting of its numbers. The handshake compares it."""
        ...

    @property
    def gain(self) -> float:
        """Score per nat of information in a document. If not 0, a row without documents is needed."""
        ...

    def begin(
        self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]
    ) -> ScoringRun:
        """`documents` are token ids, [docs] sequences; `similarity` is the retrieval cosine [docs]."""
        ...

    def close(self) -> None:
        """Frees the scorer. Its runs must not be used afterwards."""
        ...


# --- sequences
# An answer's rows in KV memory, and their next tokens.


@dataclass(frozen=True, slots=True)
class Blocks:
    """Several documents in one row, each computed by itself and so reusable anywhere.

    All begin with the same `begin` tokens, once in the row.
    """

    documents: tuple[tuple[int, ...], ...]  # in the row's order
    begin: int

    @property
    def tokens(self) -> tuple[int, ...]:
        first, *others = self.documents
        return first + tuple(token for document in others for token in document[self.begin :])


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids of documents and query for one side."""

    documents: tuple[tuple[int, ...], ...]  # the rows' document parts; one empty row without documents
    query: tuple[int, ...]
    similarity: tuple[float, ...]  # retrieval cosine of each document
    absent: bool = False  # no document took part: the evidence is "none"
    fetched: int = 0  # number of last rows, from the other side and weighted as in its mixture
    states: Mapping[tuple[int, ...], DocumentStates] = field(default_factory=dict)  # received with the prompt
    empty_row: tuple[int, ...] | None = None  # the document part of the last row, which has no document
    ephemeral: frozenset[tuple[int, ...]] = frozenset()  # documents of this answer only, never cached
    blocks: Mapping[int, Blocks] = field(default_factory=dict)  # documents of composed rows, by row
    earlier: tuple[int, ...] = ()  # what the conversation has before the documents, in every row
    begin: int = 0  # first tokens of every document, left out after `earlier`

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """Tokens before the query, of every row."""
        parts = self.documents if self.empty_row is None else (*self.documents, self.empty_row)
        return tuple(self.earlier + part[self.begin :] for part in parts) if self.earlier else parts


class DocumentParts:
    """Reads what stands before the query of one answer into the beginnings of its `rows`.

    Known pieces are copied: documents, and what is known of the earlier turns. Each other piece is read once, alone at
    the start of a row, and kept. Documents after earlier turns are moved there, or read there by models that can't
    move them.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows, tenant: Hashable = None) -> None:
        """`rows` are empty and match `Decoder.need` for the prompt. `tenant` owns the earlier turns."""
        self._decoder = decoder
        self.rows = rows
        rows.query = len(prompt.query)
        self._prompt, self._tenant = prompt, tenant
        self._there = bool(prompt.earlier) and decoder.rotation is None  # documents are read after the earlier turns
        self._states: dict[tuple[int, ...], DocumentStates] = dict(prompt.states)  # of known pieces
        self._begun: DocumentStates | None = None  # of the beginning of the earlier turns
        known = 0
        if prompt.earlier and (begun := decoder.document_cache.earlier(tenant, prompt.earlier)) is not None:
            self._begun, known = begun, begun[0][0].shape[1]
            if known == len(prompt.earlier):
                self._states[prompt.earlier] = begun
        self._unread = {row: blocks for row, blocks in enumerate(self._pieces(prompt)) if blocks.tokens}
        pieces = {piece for blocks in self._unread.values() for piece in blocks.documents} | {prompt.earlier}
        for piece in pieces - self._states.keys():
            if self._is_document(piece) and (states := decoder.known_document(piece)) is not None:
                self._states[piece] = states
        again = len(prompt.earlier) if self._there else 0  # tokens at the start of pieces, which are not read again
        missing = sum(len(piece) - again for piece in pieces - self._states.keys() - {prompt.earlier})
        self.progress = 0, missing + len(prompt.earlier) - known  # tokens read, and in all
        self._reading: dict[int, tuple[tuple[int, ...], Rows]] = {}  # piece that each row reads now
        self._go_on()

    def _pieces(self, prompt: Prompt) -> list[Blocks]:
        """The pieces that each row reads before the query."""
        parts = prompt.parts
        if not prompt.earlier:
            return [prompt.blocks.get(row, Blocks((part,), 0)) for row, part in enumerate(parts)]
        if self._there:
            return [Blocks((part,), 0) for part in parts]
        after: list[tuple[tuple[int, ...], ...]] = [(document,) for document in prompt.documents]
        for row, blocks in prompt.blocks.items():
            after[row] = blocks.documents
        after += [()] * (len(parts) - len(after))
        told = [tuple(each for each in documents if len(each) > prompt.begin) for documents in after]
        return [Blocks((prompt.earlier, *documents), prompt.begin) for documents in told]

    def _is_document(self, piece: tuple[int, ...]) -> bool:
        """Whether the piece's states depend on the piece alone, and belong to nobody."""
        return piece != self._prompt.earlier and not self._there

    @property
    def unread(self) -> bool:
        return bool(self._unread)

    def feeds(self) -> list[Feed]:
        return [Feed(rows, piece[rows.context :], logits=0) for piece, rows in self._reading.values()]

    def expect(self) -> bool:
        """Makes room for the documents being read, to feed the query in their pass.

        Returns False unless only these are missing, each as its row's whole document part.
        """
        now = {row: (document,) for row, (document, _) in self._reading.items()}
        if now != {row: blocks.documents for row, blocks in self._unread.items()}:
            return False
        for row, (document,) in now.items():
            self.rows.starts[row] = len(document)
        return True

    def fed(self, feed: Feed) -> None:
        read, total = self.progress
        self.progress = read + len(feed.tokens), total
        for row, (piece, rows) in self._reading.items():
            if rows is feed.rows and rows.context == len(piece):
                states = rows.states(0)
                if piece == self._prompt.earlier:
                    self._decoder.document_cache.put_earlier(self._tenant, piece, states)
                elif piece not in self._prompt.ephemeral and self._is_document(piece):
                    self._decoder.keep_document(piece, states)
                self._states[piece] = states
                del self._reading[row]
                self._go_on()
                return

    def _go_on(self) -> None:
        """Completes rows whose pieces are known. Each other row reads a piece that no row reads yet."""
        earlier = self._prompt.earlier
        for row, blocks in list(self._unread.items()):
            missing = [piece for piece in blocks.documents if piece not in self._states]
            if missing and self._there and earlier not in self._states:
                missing = [earlier]  # the row's own piece begins with it
            if not missing:
                self._complete(row, blocks)
            elif row not in self._reading:
                read = {piece for piece, _ in self._reading.values()}
                piece = next((piece for piece in missing if piece not in read), None)
                if piece is not None:
                    self._reading[row] = piece, self._begin(row, piece)
        if not self._unread:
            self._states.clear()

    def _begin(self, row: int, piece: tuple[int, ...]) -> Rows:
        """The row by itself, with the known beginning of the piece."""
        rows, earlier = self.rows.alone(row), self._prompt.earlier
        known = self._begun if piece == earlier else self._states[earlier] if self._there else None
        if known is not None:
            rows.fill(0, known)
        return rows

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
    """The rows `[document][query][path][tree]` of one answer, for the decoder's thread.

    `feed` keeps the tree path that the answer took, and the nodes after it that the wanted tree shares.
    """

    def __init__(self, decoder: Decoder, prompt: Prompt, rows: Rows, tenant: Hashable = None) -> None:
        """`rows` are empty, with room for the whole answer. `tenant` owns the conversation."""
        self._documents = DocumentParts(decoder, prompt, rows, tenant)
        self._at_once = decoder.streamed is not None  # a pass reads all weights from disk, whatever it feeds
        self.rows = rows
        self._query = list(prompt.query)
        self._chain: list[int] = []  # tokens after the documents: a chain,
        self._tokens: list[int] = []  # and a tree
        self._parents: list[int] = []
        self._missing: list[int] = []  # tokens of the chain in the last feed
        self._wanted = TreeWork(0, ())

    @property
    def reading(self) -> bool:
        return self._documents.unread

    @property
    def progress(self) -> tuple[int, int]:
        """Tokens of the prompt read so far, and in all: each once, without those known before."""
        query = len(self._query)
        read, missing = self._documents.progress
        return read + min(len(self._chain), query), missing + query

    def feeds(self, wanted: TreeWork) -> list[Feed]:
        """Tokens to feed next, until the last `count` of `[query][path][tree]` give logits.

        Documents come before the query; a streamed model feeds both in one pass.
        """
        if not self.reading:
            return [self._feed(wanted)]
        documents = self._documents.feeds()
        if self._at_once and self._documents.expect():
            feed = self._feed(wanted)
            feed.behind = documents
            return [*documents, feed]
        return documents

    def _feed(self, wanted: TreeWork) -> Feed:
        chain = [*self._query, *wanted.path]
        self._keep(chain, wanted)
        self._truncate(len(chain) + len(wanted.tokens) - wanted.count)
        missing = self._missing = chain[len(self._chain) :]
        self._wanted = wanted
        parents = None
        if wanted.tokens:
            # A chain that is read together with the tree becomes the tree's beginning.
            before = len(missing)
            parents = [*range(ROOT, before - 1), *(before + parent for parent in wanted.parents)]
        return Feed(self.rows, [*missing, *wanted.tokens[len(self._tokens) :]], wanted.count, parents)

    def fed(self, feed: Feed) -> None:
        if feed.rows is not self.rows:
            self._documents.fed(feed)
            return
        self._chain += self._missing[: len(feed.tokens)]
        nodes = len(self._tokens) + max(0, len(feed.tokens) - len(self._missing))
        self._tokens, self._parents = list(self._wanted.tokens[:nodes]), list(self._wanted.parents[:nodes])

    def _keep(self, chain: Sequence[int], wanted: TreeWork) -> None:
        if not self._tokens and len(self._chain) > len(chain) and self._chain[: len(chain)] == chain:
            # Tokens that were read as a chain continue as a tree.
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
        """Leaves at most `length` tokens after the documents."""
        nodes = max(0, length - len(self._chain))
        del self._tokens[nodes:], self._parents[nodes:], self._chain[length:]
        self.rows.fed = len(self._chain) + len(self._tokens)


# --- jobs

Measured = Callable[[int, float], None]  # called after every step with context length and seconds
Asked = TypeVar("Asked", bound=TreeWork)
Wanted = TypeVar("Wanted", bound=TreeWork)


class Client(Protocol[Asked]):
    """A model's part in an answer. The engine's thread may call any method at any time."""

    @property
    def over(self) -> bool: ...

    @property
    def resting(self) -> bool:
        """Whether no work will come soon, so that the rows' memory can be released."""
        ...

    @property
    def recorder(self) -> Recorder | None: ...

    def work(self) -> Asked | None:
        """Returns the next reading, or None. Called just before a pass.

        The engine rolls the rows back to it and feeds missing tokens.
        """
        ...

    def outdated(self, work: Asked) -> bool:
        """Whether the current work is useless. Must be fast: polled between layers."""
        ...

    def drawn(self, work: Asked, drawn: Sequence[SideDraft], seconds: float) -> None:
        """Receives the drafts of `work.count` distributions, `seconds` after their pass began."""
        ...

    def gave_up(self, work: Asked, started: int) -> None:
        """Reports an abandoned pass, begun at `started` (monotonic nanoseconds)."""
        ...

    def end(self, failure: Exception) -> None: ...


@dataclass(frozen=True, slots=True)
class DecodeRequest(Generic[Asked]):
    client: Client[Asked]
    drafter: Drafter
    measured: Measured = lambda context, seconds: None
    tenant: Hashable = None  # the answer's owner; tenants share the model fairly. None: this daemon's user
    asker: Asker = NOBODY
    joint: Joint | None = None  # decides if there are fetched documents


class Job(Protocol):
    tenant: Hashable  # unit of fair sharing

    @property
    def over(self) -> bool: ...

    @property
    def running(self) -> bool:
        """Whether the answer has begun."""
        ...

    @property
    def useless(self) -> bool:
        """Whether the last feeds are useless. Must be fast: polled between layers."""
        ...

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        """The feeds possible now. `wake` is called when more may be. An error ends this job."""
        ...

    def fed(self, feed: Feed) -> None:
        """Notes that `feed`, possibly cut, was part of a pass."""
        ...

    @property
    def context(self) -> int: ...

    def samples(self) -> Sequence[Sample]:
        """The drafts to draw from the logits of the last feed, one per distribution.

        Raises `ScoringError`, or `ValueError` for invalid scores.
        """
        ...

    def drawn(self, drawn: Sequence[SideDraft], seconds: float, step: bool) -> None:
        """Receives the drafts, `seconds` after their pass began. `step`: a decode step of one token."""
        ...

    def gave_up(self, started: int) -> None: ...

    def fail(self, error: Exception) -> None: ...

    def close(self) -> None: ...


class AnswerJob(Generic[Wanted]):
    """An answer: reads its prompt, then its client's work until it is over."""

    def __init__(
        self,
        request: DecodeRequest[Wanted],
        prompt: Prompt,
        scorer: DocumentScorer,
        reserve: int,
        processor: Processor | None = None,
        part: Reservation | None = None,
        told: Callable[[Exception], Exception] = lambda error: error,
    ) -> None:
        """`reserve`: most tokens of the answer. `told` turns an error into the user's message.

        `part` is this job's share of a common claim of KV memory. None: the job makes its own claim.
        """
        self.tenant = request.tenant
        self.request = request
        self.prompt = prompt
        self.client = request.client
        self._scorer = scorer
        self._reserve = reserve
        self._processor = processor
        self._work: Wanted | None = None  # the work of the last feeds
        self._paths: Sequence[list[int]] = ()  # the answer's tokens before each distribution
        self._part = part
        self._rows: AnswerRows | None = None
        self._scoring: ScoringRun | None = None
        self._begun = time.monotonic_ns()
        self._running = False
        self._told = told

    @property
    def over(self) -> bool:
        return self.client.over

    @property
    def running(self) -> bool:
        return self._running

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        """The unread documents, or else the tokens for the wanted distributions.

        Empty without memory. A slow scorer delays only the last tokens of a path.
        """
        self._work = None
        wanted = self.client.work()
        if wanted is None:
            if self.client.resting:
                self.close()
            return ()
        scoring = self._scored()
        if self._rows is None:
            room = self._room(decoder, wake)
            if room is None:
                return ()
            own = self.request.asker.keeper
            keeper = self.tenant if own is None else own
            self._rows = AnswerRows(decoder, self.prompt, room, keeper)
        *documents, feed = self._rows.feeds(wanted)
        if feed.rows is not self._rows.rows:
            return [*documents, feed]
        # Scores within the tree are awaited later: branches request many at once.
        if not scoring.ready(list(wanted.path), wake):
            before = () if wanted.tokens or documents else feed.tokens[: -wanted.count]
            return [*documents, Feed(feed.rows, before, logits=0)] if before else documents
        self._work, self._paths = wanted, wanted.paths
        return [*documents, feed]

    @property
    def useless(self) -> bool:
        return self.client.over or (self._work is not None and self.client.outdated(self._work))

    @property
    def context(self) -> int:
        return 0 if self._rows is None else self._rows.rows.context

    def fed(self, feed: Feed) -> None:
        if self._rows is not None:
            self._rows.fed(feed)
            if not self._running:
                self.request.asker.read(*self._rows.progress)

    def samples(self) -> list[Sample]:
        if self._work is None or self._scoring is None:
            raise RuntimeError("nothing was asked for")
        if not self._running:
            self._running = True
            if self.client.recorder is not None:
                self.client.recorder.since("prefill", self._begun)
        return [self._sample(self._scoring, path) for path in self._paths]

    def drawn(self, drawn: Sequence[SideDraft], seconds: float, step: bool) -> None:
        if self._work is None:
            return
        if step:
            self.request.measured(self.context, seconds)
        self.client.drawn(self._work, drawn, seconds)

    def gave_up(self, started: int) -> None:
        if self._work is not None:
            self.client.gave_up(self._work, started)

    def fail(self, error: Exception) -> None:
        self.client.end(self._told(error))

    def close(self) -> None:
        self._rows = None
        if self._part is not None:
            self._part.leave()
            self._part = None

    def _room(self, decoder: Decoder, wake: Callable[[], None]) -> Rows | None:
        """Returns None while other answers have the memory. Raises as `Decoder.need`, `Claim` and `Reservation.rows`
        do.
        """
        if self._part is None:
            self._part = Claim([decoder.need(self.prompt.parts, self.prompt.query, self._reserve)]).parts[0]
        rows = self._part.rows(wake)
        if rows is not None:
            self.request.asker.waited(self._part.waited)
        return rows

    def _scored(self) -> ScoringRun:
        """Begins before the prompt is read, so that a slow scorer works meanwhile."""
        if self._scoring is None:
            prompt = self.prompt
            self._scoring = self._scorer.begin(prompt.query, prompt.documents, prompt.similarity)
        return self._scoring

    def _sample(self, scoring: ScoringRun, path: list[int]) -> Sample:
        scores, prompt, request = scoring.scores(path), self.prompt, self.request
        if scores.shape != (len(prompt.documents),) or not np.isfinite(scores).all():
            raise ValueError(f"{len(prompt.documents)} documents need as many finite scores")
        gain = None if prompt.empty_row is None else self._scorer.gain
        adjustment = None if self._processor is None else self._processor.at(path)
        drafter, joint = request.drafter, request.joint
        return Sample(len(path), scores, drafter, prompt.absent, prompt.fetched, joint, gain, adjustment)


# --- document_job


class DocumentJob:
    """Computes one document's keys and values ahead of its use."""

    def __init__(
        self,
        document: Sequence[int],
        tenant: Hashable,
        done: Callable[[DocumentStates], None],
        failed: Callable[[Exception], None],
        over: Callable[[], bool],
    ) -> None:
        """Calls `done` or `failed` on the engine's thread, unless `over`."""
        self.tenant = tenant
        self._document = tuple(document)
        self._part: Reservation | None = None  # of KV memory
        self._rows: Rows | None = None
        self._decoder: Decoder | None = None
        self._finished = False
        self._done = done
        self._failed = failed
        self._over = over

    @property
    def over(self) -> bool:
        return self._finished or self._over()

    @property
    def running(self) -> bool:
        return False

    @property
    def useless(self) -> bool:
        return self._over()

    def feeds(self, decoder: Decoder, wake: Callable[[], None]) -> Sequence[Feed]:
        self._decoder = decoder
        if self._rows is None:
            if self._part is None:
                states = decoder.known_document(self._document)
                if states is not None:
                    self._finish(states)
                    return ()
                decoder.check_ids(self._document)
                self._part = Claim([Need(decoder.memory, 1, len(self._document))]).parts[0]
            self._rows = self._part.rows(wake)
            if self._rows is None:
                return ()
        return [Feed(self._rows, self._document[self._rows.fed :], logits=0)]

    def fed(self, feed: Feed) -> None:
        if self._decoder is None or feed.rows.fed < len(self._document):
            return
        states = feed.rows.states(0)
        self._decoder.keep_document(self._document, states)
        self._finish(states)

    @property
    def context(self) -> int:
        return 0 if self._rows is None else self._rows.context

    def samples(self) -> Sequence[Sample]:
        return ()

    def drawn(self, drawn: Sequence[SideDraft], seconds: float, step: bool) -> None:
        """Never called: nothing is drawn."""

    def gave_up(self, started: int) -> None:
        pass

    def fail(self, error: Exception) -> None:
        self._finished = True
        self._failed(error)

    def close(self) -> None:
        self._rows = None
        if self._part is not None:
            self._part.leave()
            self._part = None

    def _finish(self, states: DocumentStates) -> None:
        self._finished = True
        self._done(states)
