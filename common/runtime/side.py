"""What a daemon of either role runs: one model, one library, and the threads that serve answers with them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from common.configuration import Settings
from common.model.configured import load_decoder
from common.model.prompt import PromptFormat
from common.retrieval.embedder import SentenceTransformerEmbedder
from common.retrieval.library import Library
from common.runtime.answer import Answer
from common.runtime.decoder_thread import DecodeFloor, DecoderThread
from common.runtime.decoding import Decoding, Drafting, Prompt
from common.runtime.profiler import TYPICAL_CONTEXT, Profiler, profiled_line
from common.runtime.request import AnswerFailed
from common.scheduling.estimators import DecodeLine
from common.scoring.choice import load_scorer
from common.transport.limits import Limits
from proto.framing import LARGEST_PAYLOAD, PAYLOAD_LIMIT
from proto.messages import Hello, Open, Side

log = logging.getLogger(__name__)

CODECS = ("race", "top-p", "raw")
LONGEST_TITLE = 120  # characters that are sent of a document's title
RAW_BYTES_PER_TOKEN = 4
RAW_HEADER = 64  # bytes, generously


@dataclass(frozen=True, slots=True)
class Retrieved:
    """What one side reads for one answer."""

    prompt: Prompt
    titles: tuple[str, ...]
    tokens: int  # of all rows' documents and the query, once


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
        self.decoding = DecoderThread(self.decoder, self.profiler.decoded, floor)

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
    ) -> None:
        """Retrieve on the retrieval thread, tell `retrieved`, then decode until the answer is over."""
        self._retrieval.submit(self._begin, answer, request, drafting, retrieved)

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
    ) -> None:
        if answer.over:
            return
        try:
            found = self.retrieve(request)
        except Exception:
            log.exception("retrieval failed")
            answer.end(AnswerFailed("The library could not be searched; the daemon's log says why."))
            return
        retrieved(found)
        reserve = request.max_tokens + 1
        prepare = partial(
            Decoding,
            prompt=found.prompt,
            scorer=self.scorer,
            drafting=drafting,
            temperature=request.temperature,
            reserve=reserve,
        )
        self.decoding.submit(answer, prepare)

    def retrieve(self, request: Open) -> Retrieved:
        """Search this side's library and make the rows of an answer. On the retrieval thread."""
        query = tuple(self.tokenizer.encode(request.prompt))
        room = self.decoder.max_context - len(query) - request.max_tokens - 1
        hits = self.library.search(request.question, request.documents)
        documents = tuple(tuple(self._format.document_tokens(self.tokenizer, hit.text, room)) for hit in hits)
        similarity = tuple(hit.similarity for hit in hits)
        tokens = len(query) + sum(map(len, documents))
        titles = tuple(hit.title[:LONGEST_TITLE] for hit in hits)
        if not documents:
            begin = self.tokenizer.begin
            documents, similarity = ((() if begin is None else (begin,)),), (0.0,)
            return Retrieved(Prompt(documents, query, similarity, absent=True), (), tokens)
        return Retrieved(Prompt(documents, query, similarity), titles, tokens)


def decode_floor(milliseconds: float | None) -> DecodeFloor | None:
    """Emulation of slower hardware: every decode step takes at least this long."""
    if milliseconds is None:
        return None
    return lambda context: milliseconds / 1000
