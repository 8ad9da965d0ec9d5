"""A model with its thread, and its reading of documents and prompts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.report import AnswerRecord, Origin, Record
from common.answer.request import AnswerFailed, RequestError, TooLong
from common.answer.values import Asker, SideDraft, Work
from common.daemon.handshake import as_failure
from common.engine.jobs import AnswerJob, Blocks, DecodeRequest, DocumentScorer, Prompt
from common.engine.kv.documents import shortened
from common.engine.kv.memory import DocumentStates, Need, Reservation
from common.engine.loop import Worker
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ContextError, ModelError
from common.engine.model.prompt import PromptFormat, Query, document_part, row_tokens
from common.library.chunks import MOST_CHARACTERS_PER_TOKEN
from common.processors.calls import ProcessorError
from common.processors.grammar import Grammars
from common.processors.processor import Processor, make_processor
from common.processors.trial import always
from common.sampling.rejection import Warp
from proto.messages import Open

# --- prompt_rows
# Rows that a side reads: one per document, or one with all.

CUT: Final = (
    "The question, the earlier turns and the answer fill most of the model's context: {} of {} documents were cut or "
    "left out. Start a new conversation, or lower max_tokens or documents."
)


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    tokens: tuple[int, ...]
    similarity: float  # retrieval cosine
    text: str  # without the document format
    states: DocumentStates | None = None  # keys and values, if sent
    origin: Origin | None = None  # in this side's library
    passing: bool = False  # for one answer, without kept keys and values
    cut: bool = False  # its end did not fit
    named: bool = False  # has a specific name from the question, e.g. an order number

    @property
    def closeness(self) -> float:
        """The cosine, or 1 for a name from the question."""
        return 1.0 if self.named else self.similarity


@dataclass(frozen=True, slots=True)
class PromptRows:
    prompt: Prompt
    titles: tuple[str, ...]
    tokens: int  # of all documents, and the query once
    fetched_titles: tuple[str, ...] = ()  # of the other side's documents
    origins: tuple[Origin | None, ...] = ()  # of this side's documents
    closest: float = -1.0  # of any document of both sides
    apart: Prompt | None = None  # a shared row's documents in rows of their own, and a row without any
    part: Reservation | None = None  # of KV memory, if claimed with other rows
    found: int = 0  # number of documents
    cut: int = 0  # documents not fitting, or not fully
    texts: tuple[str, ...] = ()  # of the documents, this side's first

    def after(self, earlier: tuple[int, ...], begin: int) -> PromptRows:
        """The rows after `earlier` tokens, without the first `begin` tokens of their documents."""
        if not earlier:
            return self

        moved, apart = (each and replace(each, earlier=earlier, begin=begin) for each in (self.prompt, self.apart))
        assert moved is not None
        return replace(self, prompt=moved, apart=apart, tokens=self.tokens + len(earlier))

    def note(self, record: Record) -> None:
        """Records the device's reading in the report."""
        record.device_titles, record.origins = self.titles, self.origins
        record.own_closest = self.closest
        record.device_prompt_tokens = self.tokens
        record.texts = self.texts
        if self.fetched_titles:
            record.cloud_titles = self.fetched_titles
        if self.cut:
            record.notes.append(CUT.format(self.cut, self.found))


def rows(
    query: tuple[int, ...],
    own: Sequence[Document],
    fetched: Sequence[Document],
    begin: tuple[int, ...],
    blank: bool = False,
) -> PromptRows:
    """Output aggregation: a row per document, or one without documents.

    `blank` adds a row without a document.
    """
    documents = [*own, *fetched]
    if not documents:
        return _without(query, begin)
    prompt = Prompt(
        tuple(document.tokens for document in documents),
        query,
        tuple(document.similarity for document in documents),
        fetched=len(fetched) if own else 0,  # without own documents none counts as fetched
        states={document.tokens: document.states for document in documents if document.states is not None},
        empty_row=begin if blank else None,
        ephemeral=frozenset(document.tokens for document in documents if document.passing),
    )
    tokens = len(query) + sum(map(len, prompt.documents))
    closest, shorter = max(each.closeness for each in documents), sum(document.cut for document in documents)
    found = PromptRows(prompt, _titles(own), tokens, _titles(fetched), _origins(own), closest)
    texts = tuple(document.text for document in documents)
    return replace(found, found=len(documents), cut=shorter, texts=texts)


def one_row(
    query: tuple[int, ...],
    own: Sequence[Document],
    fetched: Sequence[Document],
    begin: tuple[int, ...],
    room: int,
    blank: bool = False,
    blocks: bool = False,
) -> PromptRows:
    """Context aggregation: both sides' documents in one row, the most similar last.

    The most similar documents that fit into `room` tokens are kept, the last one cut. `blank` is as for `rows`. With
    `blocks`, each document is read by itself.
    """
    found = len(own) + len(fetched)
    kept = _fitting([*own, *fetched], begin, room)
    if not kept:
        return replace(_without(query, begin), found=found, cut=found)
    most_last = [kept[index] for index in reversed(kept)]
    read = Blocks(tuple(document.tokens for document in most_last), len(begin))
    order = sorted(kept)
    apart = rows(
        query,
        [kept[index] for index in order if index < len(own)],
        [kept[index] for index in order if index >= len(own)],
        begin,
        blank=True,
    )
    row, passing = read.tokens, apart.prompt.ephemeral
    prompt = Prompt(
        (row,),
        query,
        (most_last[-1].similarity,),
        states=apart.prompt.states if blocks else {},
        empty_row=begin if blank else None,
        ephemeral=passing | {row} if passing else passing,
        blocks={0: read} if blocks else {},
    )
    tokens, without = len(query) + len(row), apart.cut + found - len(kept)
    return replace(apart, prompt=prompt, tokens=tokens, apart=apart.prompt, found=found, cut=without)


def _fitting(documents: Sequence[Document], begin: tuple[int, ...], room: int) -> dict[int, Document]:
    """Returns the documents that fit into one row, by index, most similar first.

    All begin with `begin`, which the row has once.
    """
    kept: dict[int, Document] = {}
    left = room - len(begin)
    for index in sorted(range(len(documents)), key=lambda index: -documents[index].similarity):
        document = documents[index]
        if document.tokens[: len(begin)] != begin:
            document = replace(document, tokens=begin + document.tokens, states=None)
        if left <= 0:
            break
        kept[index] = cut_document(document, len(begin) + left)
        left -= len(kept[index].tokens) - len(begin)
    return kept


def cut_document(document: Document, room: int) -> Document:
    if len(document.tokens) <= room:
        return document
    states = None if document.states is None else shortened(document.states, room)
    return replace(document, tokens=document.tokens[:room], states=states, cut=True)


def _without(query: tuple[int, ...], begin: tuple[int, ...]) -> PromptRows:
    return PromptRows(Prompt((begin,), query, (0.0,), absent=True), (), len(query) + len(begin))


def _origins(documents: Sequence[Document]) -> tuple[Origin | None, ...]:
    return tuple(document.origin for document in documents)


def _titles(documents: Sequence[Document]) -> tuple[str, ...]:
    return tuple(document.title for document in documents)


# --- rereading
# Attribution of documents that shared a row: the answer is read again after each one alone.

Shares = list[tuple[float, ...]]  # [tokens][docs + 1]: of each document, then without any

TOGETHER: Final = 8  # tokens per pass; more would delay other answers
LEAST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Said:
    """An already decided token."""

    token: int

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.array([self.token])


@dataclass(frozen=True, slots=True)
class RepeatingDrafter:
    """Draws the answer's own tokens. Implements `Drafter`."""

    tokens: Sequence[int]

    def race(self, position: int) -> None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: object) -> _Said:
        return _Said(self.tokens[position])


class Rereading:
    """An answer being read again. Implements `Client`; `stop` is thread-safe."""

    resting = False
    recorder = None

    def __init__(self, prompt: Prompt, tokens: Sequence[int], done: Callable[[Shares | None], object]) -> None:
        """`prompt` has a row per document and one without. `done` is called once, with None after a failure."""
        self.prompt = prompt
        self.tokens = tuple(tokens)
        self._shares: Shares = []
        self._done = done
        self._over = False
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        return self._over

    def work(self) -> Work | None:
        position = len(self._shares)
        count = min(TOGETHER, len(self.tokens) - position)
        return Work(0, self.tokens[: position + count - 1], count=count)

    def outdated(self, work: Work) -> bool:
        return self._over

    def drawn(self, work: Work, drawn: Sequence[SideDraft], seconds: float) -> None:
        for token, draft in zip(self.tokens[work.position :], drawn, strict=False):
            self._shares.append(tuple(float(share) for share in draft.mixing.contributions(token)))
        if len(self._shares) == len(self.tokens):
            self._finish(self._shares)

    def gave_up(self, work: Work, started: int) -> None:
        """Does nothing: the pass is repeated."""

    def end(self, failure: Exception) -> None:
        self._finish(None)

    def stop(self) -> None:
        self._finish(None)

    def _finish(self, shares: Shares | None) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        self._done(shares)


class RereadingJob(AnswerJob[Work]):
    """Its passes rank as a prompt's, as nobody waits for its tokens."""

    @property
    def running(self) -> bool:
        return False


class SecondReading:
    """The second reading of an answer whose documents share a row."""

    def __init__(self, submit: Callable[[Rereading], object]) -> None:
        self.going = False
        self.failed = False  # too late, or after an error
        self._submit = submit
        self._behind: tuple[Prompt, AnswerRecord] | None = None
        self._reading: Rereading | None = None
        self._until = 0.0

    def behind(self, apart: Prompt | None, record: AnswerRecord) -> None:
        """Sets a shared row's documents, in rows of their own, or None."""
        record.apart = apart is None
        self._behind = None if apart is None else (apart, record)

    def begin(self, tokens: Sequence[int], answered: float, done: Callable[[], object]) -> None:
        """Reads `tokens` again, then calls `done`. The answer took `answered` seconds."""
        if self._behind is None or not tokens:
            done()
            return
        if self._reading is not None:
            return
        apart, record = self._behind

        def take(shares: Shares | None) -> None:
            if shares is not None:
                record.take(shares)
            self.failed = shares is None
            self.going = False
            done()

        self.going = True
        self._until = time.monotonic() + longest(answered)
        self._reading = Rereading(apart, tokens, take)
        self._submit(self._reading)

    def tick(self, now: float) -> None:
        """Stops a late reading (`now`: monotonic seconds)."""
        if self.going and now > self._until:
            self.stop()

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.stop()


def longest(answered: float) -> float:
    """Returns the second reading's seconds: as long as the answer."""
    return max(LEAST_SECONDS, answered)


# --- model_runtime

LONGEST_TITLE = 120  # characters sent


@dataclass
class ModelRuntime:
    """One language model. Several share the scorer, format and grammars."""

    decoder: Decoder
    decoding: Worker
    scorer: DocumentScorer
    format: PromptFormat
    grammars: Grammars
    _read: WeakKeyDictionary[Open, tuple[tuple[int, ...], tuple[int, ...]]] = field(
        default_factory=WeakKeyDictionary, init=False
    )

    def document(self, title: str, text: str, similarity: float, room: int | None = None) -> Document:
        """Returns a passage in the document format, cut to `room` tokens if given.

        Far longer texts are cut before encoding: the other side may send a megabyte. Raises `RequestError` if the
        question leaves no room.
        """
        begun = text if room is None else text[: max(room, 0) * MOST_CHARACTERS_PER_TOKEN]
        tokens, short = self.format.document_tokens(begun), len(begun) < len(text)
        if room is not None and len(tokens) > room:
            tokens, short = self._cut(tokens, room), True
        return Document(title[:LONGEST_TITLE], tuple(tokens), similarity, begun, cut=short)

    def _cut(self, tokens: Sequence[int], room: int) -> list[int]:
        """Raises `RequestError`."""
        begin, end = self.format.begin, self.format.end
        try:
            return document_part(begin, tokens[len(begin) : len(tokens) - len(end)], end, room)
        except ValueError:
            raise TooLong(
                f"The question is too long: the model's context has {self.decoder.max_context} tokens, and question "
                "and answer leave too few for a document. Shorten the question, start a new conversation, or lower "
                "max_tokens."
            ) from None

    def room(self, request: Open, reserve: int | None = None) -> int:
        """Returns the room for documents in tokens. `reserve` follow the query; None: an answer."""
        reserve = request.max_tokens + 1 if reserve is None else reserve
        earlier, query = self.tokens(request)
        around = len(query) + max(0, len(earlier) - len(self.format.begin))
        return self.decoder.max_context - around - reserve

    def tokens(self, request: Open) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The prompt's token ids before and after the documents, cached for the request's lifetime."""
        made = self._read.get(request)
        if made is None:
            query = Query(request.prompt, request.controls, request.documents_at)
            earlier, after = row_tokens(self.decoder.tokenizer, query)
            made = self._read[request] = tuple(earlier), tuple(after)
        return made

    def arrange(
        self, request: Open, own: Sequence[Document], fetched: Sequence[Document], room: int | None = None
    ) -> PromptRows:
        """Returns an answer's rows from own and `fetched` documents.

        A shared row has `room` tokens; None: what the context leaves.
        """
        earlier, query = self.tokens(request)
        if request.aggregation != "output":
            room = self.room(request) if room is None else room
            blocks = request.aggregation == "blocks" and self.decoder.rotation is not None
            blank = self.blank(request) and not fetched  # with both sides' documents, no side is weighed
            found = one_row(query, own, fetched, self.format.begin, room, blank, blocks)
        else:
            found = rows(query, own, fetched, self.format.begin, self.blank(request))
        return found.after(earlier, len(self.format.begin))

    def kv_bytes(self, request: Open, found: PromptRows, spare: int = 0) -> int:
        """Returns an answer's bytes of KV memory, with up to `spare` extra tokens.

        Raises `RequestError`.
        """
        return self.need(found, request.max_tokens + 1 + self.spare(request, found, spare)).bytes

    def spare(self, request: Open, found: PromptRows, wanted: int) -> int:
        """Returns the `wanted` extra tokens that fit into all rows."""
        longest = max(map(len, found.prompt.parts))
        used = longest + len(found.prompt.query) + request.max_tokens + 1
        return max(0, min(wanted, self.decoder.max_context - used))

    def need(self, found: PromptRows, reserve: int) -> Need:
        """Returns the KV memory for `reserve` tokens after the query.

        Raises `RequestError` for rows beyond the context.
        """
        try:
            return self.decoder.need(found.prompt.parts, found.prompt.query, reserve)
        except ContextError as error:
            raise _told(error) from None

    def blank(self, request: Open) -> bool:
        """Whether an answer also reads a row without documents, to weigh rows."""
        return self.scorer.gain > 0 and (request.aggregation == "output" or request.sources == "both")

    def decode(
        self,
        request: DecodeRequest[Any],
        opening: Open,
        found: PromptRows,
        processor: Processor | None,
        spare: int = 0,
    ) -> None:
        """Decodes from `found` until the answer is over; see `spare` for `spare`."""
        reserve = opening.max_tokens + 1 + self.spare(opening, found, spare)
        self.read(request, found, reserve, processor)

    def read(
        self, request: DecodeRequest[Any], found: PromptRows, reserve: int, processor: Processor | None = None
    ) -> None:
        """Joins an answer, with `reserve` tokens after each row."""
        job = AnswerJob(request, found.prompt, self.scorer, reserve, processor, found.part, _told)
        self.decoding.submit(job)

    def reread(self, rereading: Rereading, tenant: Hashable = None, keeper: Hashable = None) -> None:
        """Reads an answer again, after other answers' steps."""
        tokens = rereading.tokens
        request = DecodeRequest(rereading, RepeatingDrafter(tokens), tenant=tenant, asker=Asker(keeper))
        self.decoding.submit(RereadingJob(request, rereading.prompt, self.scorer, len(tokens), told=_told))

    def processor(
        self, request: Open, wanted: Callable[[], bool] = always, cut: Warp | None = None
    ) -> Processor | None:
        """Returns the answer's processor, None if none; see `make_processor`.

        Raises `RequestError` for an unservable request, and `Unwanted` once the answer is not `wanted`.
        """
        try:
            return make_processor(request, self.decoder.vocabulary, self.grammars, wanted, cut)
        except ProcessorError as error:
            raise RequestError(str(error), error.field) from None

    def understands(self, other: Decoder) -> bool:
        """Whether token ids mean the same in both models."""
        own, theirs = self.decoder.tokenizer, other.tokenizer
        return (own.content_hash, own.size) == (theirs.content_hash, theirs.size)

    def close(self) -> None:
        self.decoding.close()
        self.decoder.close()


def _told(error: Exception) -> AnswerFailed | RequestError:
    match error:
        case ContextError():
            return TooLong(f"The prompt does not fit: {error}.")
        case ProcessorError():
            return RequestError(str(error), error.field)
        case ModelError():
            return AnswerFailed(f"The model can't be used any more: {error}.")
        case _:
            return as_failure(error, "The model failed while decoding; the daemon's log says why.")
