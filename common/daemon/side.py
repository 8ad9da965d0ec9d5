"""Runtime of a daemon of either role: a model, a library, and their threads."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from common.answer.report import Origin
from common.answer.request import RequestError
from common.answer.values import tell_nobody
from common.answer.wording import mark_named_texts
from common.configuration.configuration import ConfigurationError
from common.configuration.settings import (
    EMBEDDED_DRAFT,
    EMBEDDED_MODEL,
    EMBEDDED_TOKENIZER,
    DraftModel,
    LocalTarget,
    Settings,
)
from common.daemon.handshake import as_failure
from common.daemon.idle_profile import IdleProfile
from common.daemon.model_runtime import Document, ModelRuntime, PromptRows
from common.daemon.profile import pass_seconds, profiled_line
from common.daemon.start import Ask
from common.daemon.threads import Failed, FairThread, FormatLine, TaskThread
from common.engine.gate import Gate
from common.engine.jobs import DecodeRequest, DocumentScorer
from common.engine.kv.documents import StoreOptions
from common.engine.loop import MinimumTimes, Worker
from common.engine.model.decoder import Decoder, kv_limit, load_decoder, load_format, model_place
from common.engine.streaming import Streaming
from common.estimates.estimators import TYPICAL_CONTEXT
from common.estimates.profiler import Histories, Profiler
from common.library.embedder import SentenceTransformerEmbedder
from common.library.errors import LibraryError, NoDocumentFits, UnknownDocument
from common.library.hit import Hit
from common.library.library import Library
from common.library.publishing import Follower
from common.library.snapshots import find_newest_snapshot
from common.library.watching import FolderWatcher
from common.process.lifetime import Startup
from common.process.threads import Died
from common.processors.grammar import Grammars
from common.processors.processor import Processor
from common.scoring.choice import load_scorer, scorer_without_model
from common.transport.sending import Limits, largest_payload
from proto.messages import Fetch, Hello, Open, Side

# --- drafter

KV_IN_BUDGET = 2**24  # bytes within a shared memory budget


def load_drafter(
    wanted: DraftModel,
    settings: Settings,
    target: ModelRuntime,
    died: Died | None,
    startup: Startup,
    gate: Gate | None = None,
    budget: int | None = None,
) -> ModelRuntime:
    """Returns the drafter of a daemon with the model `target`; `target` itself if none is named.

    Shares `gate` with other models, and `budget` bytes of memory. Raises `ModelError`, or `ConfigurationError` for
    another tokenizer.
    """
    name, tokenizer = wanted.name, settings.tokenizer
    if name == "auto":
        if settings.model != str(EMBEDDED_MODEL):
            return target
        name, tokenizer = str(EMBEDDED_DRAFT), str(EMBEDDED_TOKENIZER)
    startup.at("loading the draft model")
    decoder = Decoder.load(
        model_place(name, settings.models, startup),
        tokenizer=tokenizer,
        torch_device=settings.torch_device,
        dtype=settings.dtype,
        document_store=StoreOptions(settings.document_store, settings.document_store_bytes),
        kv_bytes=kv_limit(settings.kv_bytes) if budget is None else KV_IN_BUDGET,
        proofs=settings.profiles,
    )
    if not target.understands(decoder):
        decoder.close()
        raise ConfigurationError(
            f"draft_model = {wanted.name!r} and the model {settings.model!r} have different tokenizers: choose a "
            "draft model of the same family, or draft_model = 'none'"
        )
    if budget is None:
        step = profiled_line(decoder, settings.documents, settings.profiles).predict(TYPICAL_CONTEXT)
    else:
        step = pass_seconds(decoder)
    minimum = None if wanted.step is None else MinimumTimes(wanted.step)
    worker = Worker(decoder, step, minimum, died, gate)
    return ModelRuntime(decoder, worker, target.scorer, target.format, target.grammars)


# --- local_target
# The model that verifies on the device (EdgeLLM).

# Bytes within a memory budget: constants, so that errors can name the smallest budget.
CACHE_IN_BUDGET = 2**24  # documents' keys and values
LOCAL_TARGET_KV_IN_BUDGET = 2**26  # of running answers, unless a setting limits them


def load_local_target(
    wanted: LocalTarget,
    settings: Settings,
    own: ModelRuntime,
    drafter: ModelRuntime | None,
    gate: Gate,
    died: Died | None,
    startup: Startup,
) -> ModelRuntime:
    """Returns the model that `wanted` names, next to the daemon's `own`.

    Raises `ModelError`, also for a too small budget, naming the smallest, or `ConfigurationError` for another
    tokenizer.
    """
    startup.at("loading the model that verifies here")
    place = model_place(wanted.name, settings.models, startup, converted=wanted.budget is not None)
    if wanted.budget is None:
        decoder = Decoder.load(
            place,
            tokenizer=settings.tokenizer,
            torch_device=settings.torch_device,
            dtype=settings.dtype,
            kv_bytes=kv_limit(settings.kv_bytes),
        )
    else:
        decoder = Decoder.load(
            place,
            tokenizer=settings.tokenizer,
            torch_device="cpu",
            dtype=settings.dtype,
            document_cache_bytes=CACHE_IN_BUDGET,
            kv_bytes=settings.kv_bytes or LOCAL_TARGET_KV_IN_BUDGET,
            streaming=Streaming(wanted.budget, _beside(drafter, own), wanted.bytes_per_second, wanted.read_ahead),
        )
    if not own.understands(decoder):
        decoder.close()
        raise ConfigurationError(
            f"local_target = {wanted.name!r} and the model {settings.model!r} have different tokenizers: choose a "
            "model of the same family, or local_target = 'none'"
        )
    worker = Worker(decoder, pass_seconds(decoder), None, died, gate)
    return ModelRuntime(decoder, worker, own.scorer, own.format, own.grammars)


def _beside(drafter: ModelRuntime | None, own: ModelRuntime) -> int:
    """Bytes of the drafter, with its keys and values if it only drafts."""
    if drafter is None:
        return 0
    decoder = drafter.decoder
    weights = decoder.parameters * decoder.dtype.itemsize
    return weights if drafter is own else weights + (decoder.memory.limit_bytes or 0)


# --- scope
# The documents that one answer may retrieve.


@dataclass(frozen=True, slots=True)
class Scope:
    """Documents that match a pattern of `only` (none: all).

    `library` replaces this side's, for one answer; nothing from it is kept.
    """

    only: tuple[str, ...] = ()
    library: Library | None = None


# --- side

CODECS = ("race", "top-p", "raw")
SEARCH_FAILED = "The library could not be searched; the daemon's log says why."
OTHER_MODEL = "pip install the wheel dragon_smollm2 (docs/quick-start.md), or --model FOLDER_OR_HUB_ID"

LEAST_NEAR = 0.2  # minimum cosine for a shared word to count as close

log = logging.getLogger(__name__)


class SideRuntime:
    """Model, library, threads and profiler of one daemon."""

    def __init__(
        self,
        role: Side,
        settings: Settings,
        died: Died | None = None,
        draft: DraftModel | None = None,
        verifying: LocalTarget | None = None,
        startup: Startup | None = None,
        watches: bool = True,
        snapshots: bool = False,
    ) -> None:
        """Loads everything, with the models of `draft` and `verifying`; `startup` shows progress.

        `watches` follows watched folders. `snapshots` searches the library's newest snapshot. Raises `ModelError`,
        `LibraryError` or `ConfigurationError`, one sentence each.
        """
        startup = Startup() if startup is None else startup
        self.role: Side = role
        self.settings = settings
        self.died = died  # called when a thread dies
        scorer_without_model(settings)  # fails before the slow loading
        if settings.model == str(EMBEDDED_MODEL):
            log.warning("the embedded model knows only its invented world; for real documents: %s", OTHER_MODEL)
        startup.at("loading the language model")
        self.decoder = load_decoder(settings, startup)
        self.tokenizer = self.decoder.tokenizer
        self.embedder = SentenceTransformerEmbedder(settings.embedder, settings.torch_device, settings.embedder_dtype)
        scorer = load_scorer(settings, self.tokenizer, self.embedder)
        startup.at("opening the library")
        place = find_newest_snapshot(settings.library) if snapshots else settings.library
        if place is None:
            raise ConfigurationError(
                f"data = {settings.data}: there is no snapshot of the library; a worker's machine has to share this"
                " folder with the gateway's"
            )
        self.library = self._opened(place)  # replaced by each new snapshot
        startup.at("loading the embedding model")
        self.library.warm()
        self.format = load_format(settings, self.tokenizer)
        self._retrieval = TaskThread("retrieval", died)
        self._formats = FormatLine(died)
        self.messages = FairThread("messages", died)  # for slow messages of other sides
        startup.at("estimating decode steps")
        line = profiled_line(self.decoder, settings.documents, settings.profiles)
        minimum = _minimum(settings)
        if minimum is not None:
            line = minimum.line(line)
        self.profiler = Profiler(role, line, died)
        # A large model must not compute at the same time as others.
        gate = None if verifying is None else Gate()
        self.decoding = Worker(self.decoder, line.predict(TYPICAL_CONTEXT), minimum, died, gate)
        grammars = Grammars(self.tokenizer, self.decoder.vocabulary)
        self.target = ModelRuntime(self.decoder, self.decoding, scorer, self.format, grammars)
        # Drafts for methods that verify; may be the model itself.
        budget = None if verifying is None else verifying.budget
        self.drafter = (
            None if draft is None else load_drafter(draft, settings, self.target, died, startup, gate, budget)
        )
        # Another model that verifies on this side.
        self.local_target: ModelRuntime | None = None
        if verifying is not None and gate is not None:
            self.local_target = load_local_target(verifying, settings, self.target, self.drafter, gate, died, startup)
        self.histories = Histories()
        self._watcher = FolderWatcher(settings, self.library) if watches else None
        self._follower = Follower(settings.library, place, self._opened, self._replace) if snapshots else None
        self._measuring: list[IdleProfile] = []

    def forget_conversations(self, tenant: Hashable) -> None:
        """Frees what the models keep of the conversations of `tenant`."""
        for model in self._models():
            model.decoding.on_model_thread(partial(model.decoder.document_cache.forget_earlier, tenant))

    def _models(self) -> list[ModelRuntime]:
        models = (self.target, self.drafter, self.local_target)
        return list({id(model): model for model in models if model is not None}.values())

    def measure_when_idle(self) -> None:
        """Starts improving this side's profiles while idle."""
        # One daemon at a time, as they would compete for cores.
        turns = self.settings.caches / "measuring.lock"
        models = {id(model.decoding): model.decoding for model in (self.target, self.drafter) if model is not None}
        for decoding in models.values():
            if decoding.decoder.streamed is None:
                self._measuring.append(
                    IdleProfile(decoding, self.settings.documents, self.settings.profiles, turns, self.died)
                )

    def _opened(self, folder: Path) -> Library:
        settings = self.settings
        return Library(folder, self.embedder, approximate_from=settings.approximate_from, kind=settings.search)

    def _replace(self, library: Library) -> None:
        """Searches are serial, so none still uses the former library."""

        def replace_it() -> None:
            former, self.library = self.library, library
            former.close()

        self.on_retrieval_thread(replace_it, lambda error: library.close())

    @property
    def scorer(self) -> DocumentScorer:
        return self.target.scorer

    @property
    def hello(self) -> Hello:
        """This side's `Hello`. An unreadable library has an empty name."""
        line, library = self.profiler.line, ""
        if self.role == "cloud":
            with suppress(LibraryError):
                library = self.library.identity
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
            library=library,
            exactness=self.decoder.exactness,
        )

    @property
    def eos(self) -> tuple[int, ...]:
        """The end-of-sequence ids, increasing, without ids beyond the vocabulary."""
        return tuple(sorted(token for token in self.decoder.eos if token < self.decoder.vocabulary))

    @property
    def link_limits(self) -> Limits:
        """Limits that allow a whole distribution (codec `raw`)."""
        return Limits(payload_bytes=largest_payload(self.decoder.vocabulary))

    @property
    def threads(self) -> dict[str, Ask]:
        """Functions that ask the needed threads for a sign of life."""
        models = {"decoder": self.target, "draft decoder": self.drafter, "target decoder": self.local_target}
        asked: dict[str, Ask] = {
            name: model.decoding.on_model_thread for name, model in models.items() if model is not None
        }
        asked["retrieval"] = lambda answer: self.on_retrieval_thread(answer, tell_nobody)
        asked["messages"] = lambda answer: self.messages.submit(self, 0, answer, tell_nobody)
        return asked

    def begin(
        self,
        request: DecodeRequest[Any],
        opening: Open,
        retrieve: Callable[[Open], PromptRows],
        retrieved: Callable[[PromptRows], object] = tell_nobody,
        spare: int = 0,
    ) -> None:
        """Retrieves on the retrieval thread, then decodes until the answer is over.

        Errors end the answer. `retrieved` gets the rows, which reserve `spare` tokens for branches.
        """
        client, tenant = request.client, request.tenant

        def decode(processor: Processor | None) -> None:
            if client.over:
                return
            began = time.monotonic_ns()
            found = retrieve(opening)
            if client.recorder is not None:
                client.recorder.since("retrieve", began)
            retrieved(found)
            self.target.decode(request, opening, found, processor, spare)

        def prepare(wanted: Callable[[], bool]) -> None:
            """Compiles the answer's format, which is too slow for the retrieval thread."""
            processor = self.target.processor(opening, wanted)
            self.on_retrieval_thread(lambda: decode(processor), client.end, tenant)

        if opening.processors:
            self._formats.submit(tenant, lambda: not client.over, prepare, client.end)
        else:
            self.on_retrieval_thread(lambda: decode(self.target.processor(opening)), client.end, tenant)

    def on_retrieval_thread(self, run: Callable[[], object], failed: Failed, tenant: Hashable = None) -> None:
        """Calls `run` on the retrieval thread in the tenant's turn; see `TaskThread.submit`.

        Tenant None is this daemon's user.
        """
        self._retrieval.submit(tenant, run, failed)

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.close()
        if self._follower is not None:
            self._follower.close()
        for measuring in self._measuring:
            measuring.close()
        self.messages.close()
        self._formats.close()
        self._retrieval.close()
        for model in self._models():
            model.close()
        self.scorer.close()
        self.profiler.close()
        self.library.close()

    def retrieve(self, request: Open, scope: Scope) -> PromptRows:
        """Searches `scope` and arranges the rows. On the retrieval thread."""
        return self.target.arrange(request, self.find(request, scope), ())

    def find(self, request: Open, scope: Scope, room: int | None = None) -> list[Document]:
        """Returns an answer's documents, each of `room` tokens at most.

        None: what the context leaves. On the retrieval thread.
        """
        room = self.target.room(request) if room is None else room
        hits = self.search(request.question, request.documents, request.earlier, scope)
        passing = scope.library is not None
        names = mark_named_texts(request.question, [hit.text for hit in hits])
        return [
            replace(
                self.target.document(hit.source, hit.text, hit.similarity, room),
                origin=Origin(hit.path, hit.place, None if passing else hit.chunk, hit.similarity),
                passing=passing,
                named=name and hit.similarity >= LEAST_NEAR,
            )
            for hit, name in zip(hits, names, strict=True)
        ]

    def kv_bytes(self, request: Open | Fetch) -> int:
        """Estimates an answer's bytes of KV memory before its retrieval."""
        if isinstance(request, Fetch):
            return 0
        query = sum(map(len, self.target.tokens(request))) + request.max_tokens + 1
        passages = self.library.count_to(request.documents)
        rows = max(1, passages) if request.aggregation == "output" else 1
        tokens = min(passages * self.settings.chunk_tokens // rows + query, self.decoder.max_context)
        return self.decoder.memory.needed_bytes(rows + self.target.blank(request), tokens)

    def search(self, question: str, count: int, earlier: str, scope: Scope) -> list[Hit]:
        """Returns the `count` passages most similar to `question`, which may follow up on `earlier`.

        Raises `AnswerFailed`, or `RequestError` for a pattern without documents.
        """
        with self._told():
            return (scope.library or self.library).search(question, count, earlier, scope.only)

    def passages(self, name: str, question: str, scope: Scope) -> list[Hit]:
        """Returns a document's passages in order, with their similarity to `question`.

        Raises as `search` does, and `RequestError` for an unknown or ambiguous `name`.
        """
        with self._told():
            return (scope.library or self.library).passages(name, question, scope.only)

    def check(self, scope: Scope) -> None:
        """Raises the errors of a search, without searching."""
        with self._told():
            (scope.library or self.library).check(scope.only)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Translates the library's exceptions."""
        try:
            yield
        except UnknownDocument as error:
            raise RequestError(str(error), "long_document") from None
        except NoDocumentFits as error:
            field = f"{self.role}_documents"
            raise RequestError(
                f"Pattern {error.pattern} of {field} matches no document of the {self.role}'s library.", field
            ) from None
        except Exception as error:
            raise as_failure(error, SEARCH_FAILED) from None


def _minimum(settings: Settings) -> MinimumTimes | None:
    if settings.emulate_decode_ms is None:
        return None
    return MinimumTimes(
        settings.emulate_decode_ms / 1e3, settings.emulate_context_us / 1e6, settings.emulate_prompt_ms / 1e3
    )
