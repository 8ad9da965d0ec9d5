"""What a daemon of either role runs: one model, one library, and the threads that serve answers with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from common.aggregation.joint import Joint
from common.configuration import Settings
from common.model.configured import load_decoder
from common.model.prompt import PromptFormat
from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.library import Library
from common.runtime.answer import Answer
from common.runtime.decoder_thread import DecodeFloor, DecoderThread, Measured
from common.runtime.decoding import Decoding, Drafting
from common.runtime.offline import profiled_line
from common.runtime.profiler import Profiler
from common.runtime.reading import Document, Retrieved, one_row, rows
from common.runtime.request import AnswerFailed
from common.scheduling.estimators import DecodeLine
from common.scheduling.knowledge import TYPICAL_CONTEXT
from common.scoring.choice import load_scorer
from common.transport.limits import Limits
from proto.framing import LARGEST_PAYLOAD, PAYLOAD_LIMIT
from proto.messages import Hello, Open, Side

log = logging.getLogger(__name__)

CODECS = ("race", "top-p", "raw")
SEARCH_FAILED = "The library could not be searched; the daemon's log says why."
LONGEST_TITLE = 120  # characters that are sent of a document's title
RAW_BYTES_PER_TOKEN = 4
RAW_HEADER = 64  # bytes, generously


class SideRuntime:
    """Model, library, decoder thread, retrieval thread and profiler of one daemon."""

    def __init__(self, role: Side, settings: Settings, floor: DecodeFloor | None = None) -> None:
        """Loads everything. Raises `ModelError`, `LibraryError` or `ConfigurationError`, one sentence each."""
        self.role: Side = role
        self.settings = settings
        self.decoder = load_decoder(settings)
        self.tokenizer = self.decoder.tokenizer
        self._embedder = SentenceTransformerEmbedder(settings.embedder, settings.torch_device)
        self.scorer = load_scorer(settings, self.tokenizer, self._embedder)
        self.library = Library.open(settings.library, self._embedder)
        self.library.warm()
        self._format = PromptFormat(settings.document_format, settings.query_format)
        self._retrieval = ThreadPoolExecutor(max_workers=1, thread_name_prefix="retrieval")
        line = profiled_line(self.decoder, settings.documents, settings.data / "profile")
        if floor is not None:
            line = DecodeLine.of(0.0, max(floor(0), line.intercept), TYPICAL_CONTEXT)
        self.profiler = Profiler(role, line)
        self.decoding = DecoderThread(self.decoder, floor)

    @property
    def hello(self) -> Hello:
        """What this side tells the other one about itself."""
        line = self.profiler.line
        return Hello(
            role=self.role,
            model=self.decoder.identity,
            tokenizer=self.tokenizer.content_hash,
            vocabulary=self.decoder.vocabulary,
            scorer=self.scorer.identity,
            embedder=self._embedder.identity,
            codecs=CODECS,
            decode_intercept=line.intercept,
            decode_slope=line.slope,
            library=self.library.identity if self.role == "cloud" else "",
        )

    @property
    def link_limits(self) -> Limits:
        """The link must carry a whole distribution (codec `raw`)."""
        largest = min(RAW_BYTES_PER_TOKEN * self.decoder.vocabulary + RAW_HEADER, LARGEST_PAYLOAD)
        return Limits(payload_bytes=max(PAYLOAD_LIMIT, largest))

    def begin(
        self,
        answer: Answer,
        request: Open,
        drafting: Drafting,
        retrieved: Callable[[Retrieved], None],
        measured: Measured,
    ) -> None:
        """Retrieve on the retrieval thread, tell `retrieved`, then decode until the answer is over; `measured` is told
        of every step.
        """
        self._retrieval.submit(self._begin, answer, request, drafting, retrieved, measured)

    def later(self, run: Callable[[], None]) -> None:
        """Call `run` on the retrieval thread. It must not raise."""
        self._retrieval.submit(run)

    def close(self) -> None:
        self._retrieval.shutdown(wait=True, cancel_futures=True)
        self.decoding.close()
        self.decoder.close()
        self.scorer.close()
        self.profiler.close()
        self.library.close()

    def _begin(
        self,
        answer: Answer,
        request: Open,
        drafting: Drafting,
        retrieved: Callable[[Retrieved], None],
        measured: Measured,
    ) -> None:
        if answer.over:
            return
        started = time.monotonic_ns()
        try:
            found = self.retrieve(request)
        except Exception:
            log.exception("retrieval failed")
            answer.end(AnswerFailed(SEARCH_FAILED))
            return
        if answer.recorder is not None:
            answer.recorder.since("retrieve", started)
        retrieved(found)
        self.decode(answer, request, drafting, found, measured)

    def decode(
        self,
        answer: Answer,
        request: Open,
        drafting: Drafting,
        found: Retrieved,
        measured: Measured,
        joint: Joint | None = None,
    ) -> None:
        """Decode on what was found until the answer is over; see `Decoding` for `joint`."""
        reserve = request.max_tokens + 1
        prepare = partial(
            Decoding,
            prompt=found.prompt,
            scorer=self.scorer,
            drafting=drafting,
            temperature=request.temperature,
            reserve=reserve,
            joint=joint,
        )
        self.decoding.submit(answer, prepare, measured)

    def retrieve(self, request: Open) -> Retrieved:
        """Search this side's library and make the rows of an answer. On the retrieval thread."""
        return self.arrange(request, self.find(request), ())

    def find(self, request: Open) -> list[Document]:
        """The documents of this side's library that an answer is given. On the retrieval thread."""
        room = self.room(request)
        hits = self.library.search(request.question, request.documents)
        return [self.document(hit.title, hit.text, hit.similarity, room) for hit in hits]

    def document(self, title: str, text: str, similarity: float, room: int) -> Document:
        """A passage as rows have it, cut to `room` tokens."""
        tokens = self._format.document_tokens(self.tokenizer, text, room)
        return Document(title[:LONGEST_TITLE], tuple(tokens), similarity)

    def room(self, request: Open) -> int:
        """Tokens that the context leaves for documents."""
        query = len(self.tokenizer.encode(request.prompt))
        return self.decoder.max_context - query - request.max_tokens - 1

    def arrange(self, request: Open, own: Sequence[Document], fetched: Sequence[Document]) -> Retrieved:
        """The rows of an answer from this side's documents and those fetched from the other one."""
        query = tuple(self.tokenizer.encode(request.prompt))
        if request.aggregation == "context":
            return one_row(query, own, fetched, self.tokenizer.begin, self.room(request))
        return rows(query, own, fetched, self.tokenizer.begin)


def decode_floor(milliseconds: float | None) -> DecodeFloor | None:
    """Emulation of slower hardware: every decode step takes at least this long."""
    if milliseconds is None:
        return None
    return lambda context: milliseconds / 1000
