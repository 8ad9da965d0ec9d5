"""A model with its thread, and how it reads the documents and the prompt of an answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from common.aggregation.joint import Joint
from common.engine.jobs import AnswerJob, Assignment, Client, Measured
from common.engine.sampling import Drafter
from common.engine.trees import TreeClient, TreeJob
from common.engine.worker import Worker
from common.kv.memory import KvMemoryFullError
from common.model.decoder import Decoder
from common.model.errors import ContextError, ModelError
from common.model.prompt import PromptFormat, query_tokens
from common.processors.grammar import Grammars
from common.processors.options import ProcessorError
from common.processors.processor import Processor, make_processor
from common.runtime.errors import AnswerFailed, RequestError
from common.runtime.failures import as_failure
from common.runtime.reading import Document, PromptRows, one_row, rows
from common.scoring.interface import DocumentScorer
from proto.messages import Open

LONGEST_TITLE = 120  # characters that are sent of a document's title


@dataclass
class ModelRuntime:
    """One language model of a daemon. Several share the scorer, the format and the grammars."""

    decoder: Decoder
    decoding: Worker
    scorer: DocumentScorer
    format: PromptFormat
    grammars: Grammars

    def document(self, title: str, text: str, similarity: float, room: int | None = None) -> Document:
        """A passage in the document format, as at most `room` tokens where that is given."""
        tokens = self.format.document_tokens(text, room)
        return Document(title[:LONGEST_TITLE], tuple(tokens), similarity)

    def room(self, request: Open, reserve: int | None = None) -> int:
        """Tokens that the context leaves for documents; `reserve` are for what follows the query, None: an answer."""
        reserve = request.max_tokens + 1 if reserve is None else reserve
        return self.decoder.max_context - len(self._query(request)) - reserve

    def arrange(
        self, request: Open, own: Sequence[Document], fetched: Sequence[Document], room: int | None = None
    ) -> PromptRows:
        """The rows of an answer from this side's documents and those fetched from the other side, which have `room`
        tokens together where they share a row; None: what the context leaves.
        """
        query = tuple(self._query(request))
        if request.aggregation == "context":
            return one_row(query, own, fetched, self.format.begin, self.room(request) if room is None else room)
        return rows(query, own, fetched, self.format.begin, self.blank(request))

    def kv_bytes(self, request: Open, found: PromptRows) -> int:
        """Bytes of KV memory that an answer from the rows in `found` takes."""
        prompt = found.prompt
        tokens = max(map(len, prompt.parts)) + len(prompt.query) + request.max_tokens + 1
        return self.decoder.memory.needed_bytes(len(prompt.parts), tokens)

    def blank(self, request: Open) -> bool:
        """Whether an answer reads a row without a document beside those with one. One row with all needs no weight."""
        return self.scorer.gain > 0 and request.aggregation == "output"

    def decode(
        self,
        answer: Client,
        request: Open,
        drafting: Drafter,
        found: PromptRows,
        measured: Measured,
        joint: Joint | None = None,
        peer: Hashable = None,
    ) -> None:
        """Decode from the rows in `found` until the answer is over; see `Assignment`. Peers share the model fairly.

        Raises `RequestError` for processors that can't be used.
        """
        reserve, processor = request.max_tokens + 1, self.processor(request)
        assignment = Assignment(found.prompt, self.scorer, drafting, reserve, joint, processor, measured)
        self.decoding.submit(AnswerJob(answer, assignment, peer, partial(_end, answer)))

    def read_trees(
        self,
        part: TreeClient,
        request: Open,
        drafting: Drafter,
        found: PromptRows,
        reserve: int,
        end: Callable[[Exception], object],
    ) -> None:
        """Take a part in an answer by trees, from the rows in `found`, with room for `reserve` tokens behind each;
        `end` ends it with what its user is told. Raises as `decode` does.
        """
        assignment = Assignment(found.prompt, self.scorer, drafting, reserve, None, self.processor(request))
        self.decoding.submit(TreeJob(part, assignment, None, lambda error: end(_told(error))))

    def processor(self, request: Open) -> Processor | None:
        """What changes the answer's distribution, if anything. Raises `RequestError` for what can't be served."""
        try:
            return make_processor(request, self.decoder.vocabulary, self.grammars)
        except ProcessorError as error:
            raise RequestError(str(error), error.field) from None

    def understands(self, other: Decoder) -> bool:
        """Whether token ids of `other` mean the same here."""
        own, theirs = self.decoder.tokenizer, other.tokenizer
        return (own.content_hash, own.size) == (theirs.content_hash, theirs.size)

    def close(self) -> None:
        self.decoding.close()
        self.decoder.close()

    def _query(self, request: Open) -> list[int]:
        return query_tokens(self.decoder.tokenizer, request.prompt, request.controls)


def _end(answer: Client, error: Exception) -> None:
    """End an answer whose decoding failed, with a sentence for its user."""
    answer.end(_told(error))


def _told(error: Exception) -> AnswerFailed | RequestError:
    match error:
        case ContextError():
            return RequestError(f"The prompt does not fit: {error}.", "prompt")
        case ProcessorError():
            return RequestError(str(error), error.field)
        case KvMemoryFullError():
            return AnswerFailed(f"The answer does not fit into memory: {error}.")
        case ModelError():
            return AnswerFailed(f"The model can't be used any more: {error}.")
        case _:
            return as_failure(error, "The model failed while decoding; the daemon's log says why.")
