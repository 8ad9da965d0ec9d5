"""A model with its thread, and how it reads the documents and the prompt of an answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from common.answer.errors import AnswerFailed, RequestError
from common.answer.values import TreeWork
from common.daemon.failures import as_failure
from common.daemon.prompt_rows import Document, PromptRows, one_row, rows
from common.daemon.rereading import Repeating, Rereading, RereadingJob
from common.engine.jobs import AnswerJob, Assignment, Client, Measured
from common.engine.kv.claims import Claim
from common.engine.kv.errors import KvAllocationError, KvTooLargeError
from common.engine.kv.memory import Need
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ContextError, ModelError
from common.engine.model.prompt import PromptFormat, document_part, query_tokens
from common.engine.sampling import Drafter
from common.engine.scorer import DocumentScorer
from common.engine.worker import Worker
from common.library.chunks import MOST_CHARACTERS_PER_TOKEN
from common.processors.grammar import Grammars
from common.processors.options import ProcessorError
from common.processors.processor import Processor, make_processor
from common.processors.trial import always
from common.sampling.joint import Joint
from common.sampling.warping import Warp
from proto.messages import Open

LONGEST_TITLE = 120  # characters that are sent of a document's title


def _nobody(told: object) -> None:
    """Tell nobody."""


class Answering(Client[Any], Protocol):
    """A part in an answer that ends with it."""

    def end(self, failure: Exception) -> None:
        """End the answer, which can't go on because of `failure`."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Everything with which one side begins its part of an answer."""

    answer: Answering
    request: Open
    drafter: Drafter
    measured: Measured  # told of every step
    retrieved: Callable[[PromptRows], object] = _nobody  # told of the documents that were found
    peer: Hashable = None  # whose answer it is; peers share the model fairly. None: this daemon's own user's
    waited: Callable[[float], object] = _nobody  # told the seconds until there was memory
    spare: int = 0  # tokens that the rows shall hold beside the answer's, for branches


@dataclass
class ModelRuntime:
    """One language model of a daemon. Several share the scorer, the format and the grammars."""

    decoder: Decoder
    decoding: Worker
    scorer: DocumentScorer
    format: PromptFormat
    grammars: Grammars
    _queries: WeakKeyDictionary[Open, tuple[int, ...]] = field(default_factory=WeakKeyDictionary, init=False)

    def document(self, title: str, text: str, similarity: float, room: int | None = None) -> Document:
        """A passage in the document format, as at most `room` tokens where that is given. Of a text with far more
        characters the end is not encoded: the other side may send a megabyte.

        Raises `RequestError` where that holds no document: the question has left too little.
        """
        begun = text if room is None else text[: max(room, 0) * MOST_CHARACTERS_PER_TOKEN]
        tokens, short = self.format.document_tokens(begun), len(begun) < len(text)
        if room is not None and len(tokens) > room:
            tokens, short = self._cut(tokens, room), True
        return Document(title[:LONGEST_TITLE], tuple(tokens), similarity, begun, cut=short)

    def _cut(self, tokens: Sequence[int], room: int) -> list[int]:
        """A document part with fewer tokens of its document, `room` in all. Raises `RequestError`."""
        begin, end = self.format.begin, self.format.end
        try:
            return document_part(begin, tokens[len(begin) : len(tokens) - len(end)], end, room)
        except ValueError:
            raise RequestError(
                f"The question is too long: the model's context holds {self.decoder.max_context} tokens, and beside "
                "question and answer too few are left for a document; shorten it, start a new conversation, or lower "
                "max_tokens.",
                "prompt",
            ) from None

    def room(self, request: Open, reserve: int | None = None) -> int:
        """Tokens that the context leaves for documents; `reserve` are for what follows the query, None: an answer."""
        reserve = request.max_tokens + 1 if reserve is None else reserve
        return self.decoder.max_context - len(self.query(request)) - reserve

    def query(self, request: Open) -> tuple[int, ...]:
        """Token ids of the prompt, which are made once, and kept for as long as the request is."""
        tokens = self._queries.get(request)
        if tokens is None:
            made = query_tokens(self.decoder.tokenizer, request.prompt, request.controls)
            tokens = self._queries[request] = tuple(made)
        return tokens

    def arrange(
        self, request: Open, own: Sequence[Document], fetched: Sequence[Document], room: int | None = None
    ) -> PromptRows:
        """The rows of an answer from this side's documents and those fetched from the other side, which have `room`
        tokens together where they share a row; None: what the context leaves.
        """
        query = self.query(request)
        if request.aggregation != "output":
            room = self.room(request) if room is None else room
            blocks = request.aggregation == "blocks" and self.decoder.rotation is not None
            blank = self.blank(request) and not fetched  # with the other side's documents, no side is to be weighed
            return one_row(query, own, fetched, self.format.begin, room, blank, blocks)
        return rows(query, own, fetched, self.format.begin, self.blank(request))

    def kv_bytes(self, request: Open, found: PromptRows, spare: int = 0) -> int:
        """Bytes of KV memory that an answer from the rows in `found` takes, with `spare` tokens beside its own where
        the context has room for them. Raises `RequestError` as `need` does.
        """
        return self.need(found, request.max_tokens + 1 + self.spare(request, found, spare)).bytes

    def spare(self, request: Open, found: PromptRows, wanted: int) -> int:
        """Of `wanted` tokens beside an answer's own, those that the context has room for in all rows."""
        longest = max(map(len, found.prompt.parts))
        used = longest + len(found.prompt.query) + request.max_tokens + 1
        return max(0, min(wanted, self.decoder.max_context - used))

    def need(self, found: PromptRows, reserve: int) -> Need:
        """KV memory of the rows in `found`, with room for `reserve` tokens behind the query.

        Raises `RequestError` for rows that the model's context does not hold.
        """
        try:
            return self.decoder.need(found.prompt.parts, found.prompt.query, reserve)
        except ContextError as error:
            raise _told(error) from None

    def blank(self, request: Open) -> bool:
        """Whether an answer reads a row without a document beside those with one: where rows are weighed."""
        return self.scorer.gain > 0 and (request.aggregation == "output" or request.sources == "both")

    def decode(self, start: Start, found: PromptRows, processor: Processor | None, joint: Joint | None = None) -> None:
        """Decode from the rows in `found` until the answer is over; see `Assignment`."""
        spare, answer = self.spare(start.request, found, start.spare), start.answer
        reserve = start.request.max_tokens + 1 + spare
        assignment = Assignment(
            found.prompt, self.scorer, start.drafter, reserve, joint, processor, start.measured, start.waited
        )
        self.decoding.submit(AnswerJob(answer, assignment, start.peer, partial(_end, answer), found.part))

    def reread(self, rereading: Rereading, peer: Hashable = None) -> None:
        """Read an answer again, behind other answers' steps."""
        prompt, drafter = rereading.prompt, Repeating(rereading.tokens)
        assignment = Assignment(prompt, self.scorer, drafter, len(rereading.tokens))
        self.decoding.submit(RereadingJob(rereading, assignment, peer, lambda error: rereading.end(_told(error))))

    def read_trees(
        self,
        part: Client[TreeWork],
        request: Open,
        drafting: Drafter,
        found: PromptRows,
        reserve: int,
        end: Callable[[Exception], object],
        cut: Warp | None = None,
        waited: Callable[[float], object] = _nobody,
    ) -> None:
        """Take a part in an answer by trees, from the rows in `found`, with room for `reserve` tokens behind each;
        `end` ends it with what its user is told, `cut` is as for `make_processor`. Raises as `processor` does.
        """
        processor = self.processor(request, cut=cut)
        assignment = Assignment(found.prompt, self.scorer, drafting, reserve, None, processor, waited=waited)
        self.decoding.submit(AnswerJob(part, assignment, None, lambda error: end(_told(error)), found.part))

    def processor(
        self, request: Open, wanted: Callable[[], bool] = always, cut: Warp | None = None
    ) -> Processor | None:
        """The processor of the answer's distribution, if any; see `make_processor`. Raises `RequestError` for what
        can't be served, and `Unwanted` when the answer is not `wanted` any more while its format is compiled.
        """
        try:
            return make_processor(request, self.decoder.vocabulary, self.grammars, wanted, cut)
        except ProcessorError as error:
            raise RequestError(str(error), error.field) from None

    def understands(self, other: Decoder) -> bool:
        """Whether token ids of `other` mean the same here."""
        own, theirs = self.decoder.tokenizer, other.tokenizer
        return (own.content_hash, own.size) == (theirs.content_hash, theirs.size)

    def close(self) -> None:
        self.decoding.close()
        self.decoder.close()


def claimed(needs: Sequence[Need]) -> Claim:
    """A claim of all that an answer needs of KV memory. Raises `RequestError` for what will never be there."""
    try:
        return Claim(needs)
    except KvTooLargeError as error:
        raise _told(error) from None


def _end(answer: Answering, error: Exception) -> None:
    """End an answer whose decoding failed, with a sentence for its user."""
    answer.end(_told(error))


def _told(error: Exception) -> AnswerFailed | RequestError:
    match error:
        case ContextError():
            return RequestError(f"The prompt does not fit: {error}.", "prompt")
        case ProcessorError():
            return RequestError(str(error), error.field)
        case KvTooLargeError():
            return RequestError(f"The answer does not fit into memory: {error}.", "documents")
        case KvAllocationError():
            return AnswerFailed(f"The answer does not fit into memory: {error}.")
        case ModelError():
            return AnswerFailed(f"The model can't be used any more: {error}.")
        case _:
            return as_failure(error, "The model failed while decoding; the daemon's log says why.")
