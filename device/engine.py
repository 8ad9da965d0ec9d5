"""Answers requests with the cloud while available, else alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from common.answer.request import PRIVACY_LEVELS, Request, RequestError, TooLong
from common.configuration.settings import readable_name
from common.daemon.handshake import as_failure
from common.daemon.side import Scope, SideRuntime
from common.daemon.start import Ticker
from common.engine.model.prompt import Conversation, Query, ToolFormat
from common.library.hit import Hit
from common.methods.catalog import METHODS
from common.methods.interface import Method, check_documents
from common.methods.open_message import open_message
from common.processors.trial import always
from common.transport.sending import LinkCounters
from device.active_request import ActiveRequest
from device.cloud_connection import CloudConnection, CloudView, LinkToCloud, alone
from device.doctor.checks import Finding, check_running
from device.documents import OwnDocuments
from device.interface import CloudStatus, EngineStatus, Tell, TextVectors
from device.metrics import DeviceMetrics
from device.request_files import RequestFiles
from device.settings import DeviceSettings
from proto.messages import LONGEST_QUESTION, Message, Open

Result = TypeVar("Result")


class DeviceEngine:
    """Implements `Engine`. Start it before the first request; close it once."""

    def __init__(self, settings: DeviceSettings, side: SideRuntime, process: bool = False) -> None:
        """`process`: this engine owns the process, so its metrics include it."""
        self._settings = settings
        self._side = side
        self.name = readable_name(settings.model)
        self.embedder = readable_name(settings.embedder)
        self._active: dict[int, ActiveRequest] = {}
        self._lock = threading.Lock()  # of the table
        self._served = 0
        self.documents = OwnDocuments(settings, side.library, self._search)
        self._files = RequestFiles(settings, side.embedder, self.documents.most_bytes)
        self._ticker = Ticker(self._tick, side.died)
        connection = None
        if settings.cloud is not None and settings.privacy != "offline":
            connection = CloudConnection(settings.cloud, side, self._on_message, self._on_welcome, self._on_refusal)
        self.cloud = CloudView(settings, side, connection)
        self._metrics = DeviceMetrics(side, self.cloud, lambda: len(self._active), self._link_counts, process)

    def start(self, link: LinkToCloud | None) -> None:
        """Starts serving; `link` must not be started yet."""
        if self.cloud.connection is not None and link is not None:
            self.cloud.connection.attach(link)
        self._ticker.start()

    def close(self) -> None:
        for active in self._all():
            active.cancel()
        self._ticker.close()
        self._files.clear()

    # --- Engine

    def generate(
        self, request: Request, tell: Tell, number: int | None = None, wanted: Callable[[], bool] = always
    ) -> ActiveRequest:
        """See `Engine`."""
        try:
            active = self._prepared(request, tell, number, wanted)
        except Exception as error:
            self._metrics.refused(error)
            raise
        with self._lock:
            self._active[active.opening.session] = active
        with _ending(active):
            active.start()
        return active

    def _prepared(self, request: Request, tell: Tell, number: int | None, wanted: Callable[[], bool]) -> ActiveRequest:
        """Raises `RequestError` or `AnswerFailed`."""
        came = time.monotonic()
        method = method_of(request, self._settings)
        run_ahead, estimates = self._settings.run_ahead, self.cloud.estimates()
        opening = open_message(method, request, run_ahead, estimates, self._side.eos, number)
        self._check_length(opening)
        self._side.target.processor(opening)  # checked early
        match_from = self._settings.match_from
        library = self._files.open(request.files, wanted) if request.files else None
        scope = Scope(request.device_documents, library)
        try:
            self._side.check(scope)
            active = ActiveRequest(
                method,
                request,
                opening,
                self._side,
                self.cloud,
                tell,
                self._metrics,
                self._release,
                partial(self._answer_without_documents, tell),
                match_from,
                scope,
                came,
            )
            for file in () if library is None else library.files():
                for remark in file.remarks:
                    active.note(f"{file.relative_path}: {remark}.")
            return active
        except BaseException:
            self._forget(scope)
            raise

    def _answer_without_documents(self, tell: Tell, former: ActiveRequest) -> None:
        """The reader has got nothing of the answer yet."""
        with self._lock:
            self._active.pop(former.opening.session, None)
        request = former.request.model_copy(update={"documents": 0, "seed": former.opening.seed})

        def begin() -> None:
            active = self._prepared(request, tell, None, always)
            with self._lock:
                self._active[active.opening.session] = active
            with _ending(active):
                active.follow(former)

        self._side.on_retrieval_thread(begin, former.fail)

    def put(self, conversation: Conversation) -> Query:
        """Raises `ValueError` if the chat template refuses."""
        return self._side.format.query(conversation)

    @property
    def tools(self) -> ToolFormat:
        return self._side.format.tools

    def encode(self, text: str) -> list[int]:
        return self._side.tokenizer.encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Raises `ValueError` for an unknown id."""
        most = min(self._side.tokenizer.size, self._side.decoder.vocabulary)
        if not all(0 <= token < most for token in tokens):
            raise ValueError(f"a token id is from 0 to {most - 1}")
        return self._side.tokenizer.decode(tokens)

    def piece(self, token: int) -> str:
        return self._side.tokenizer.piece(token)

    def embed(self, texts: Sequence[str]) -> TextVectors:
        """Returns vectors, in turns with questions. Raises `AnswerFailed`."""
        embedder, listed = self._side.embedder, list(texts)

        def embedded() -> TextVectors:
            counts, most = embedder.token_counts(listed), embedder.max_tokens()
            cut = tuple(number for number, count in enumerate(counts) if count > most)
            return TextVectors(embedder.encode(listed), sum(min(count, most) for count in counts), cut)

        return self._in_turn(embedded)

    @property
    def model(self) -> str:
        return self._side.decoder.identity

    def status(self) -> EngineStatus:
        counts = self._side.library.counts
        return EngineStatus(
            name=self.name,
            embedder=self.embedder,
            number_type=str(self._side.decoder.dtype).removeprefix("torch."),
            weights=self._side.decoder.weights,
            threads=self._side.decoder.threads,
            privacy=self._settings.privacy,
            data=str(self._settings.data),
            model=self.model,
            exactness=self._side.decoder.exactness,
            tokenizer=self._side.tokenizer.content_hash,
            scorer=self._side.scorer.identity,
            documents=counts.documents,
            chunks=counts.chunks,
            active=len(self._active),
            served=self._served,
            cloud=self._cloud_status(),
        )

    def metrics(self) -> bytes:
        return self._metrics.text()

    def diagnose(self) -> list[Finding]:
        """Findings of `dragon doctor` that are useful while running."""
        return list(check_running(self._settings, self._cloud_status(), self._side.library))

    def _cloud_status(self) -> CloudStatus:
        connection = self.cloud.connection
        return connection.status() if connection is not None else alone(self._settings.privacy)

    def _link_counts(self) -> LinkCounters | None:
        return None if self.cloud.connection is None else self.cloud.connection.counters()

    def _search(self, query: str, count: int) -> list[Hit]:
        return self._in_turn(lambda: self._side.search(query, count, "", Scope()))

    def _in_turn(self, work: Callable[[], Result]) -> Result:
        """Runs `work` on the retrieval thread, and raises its errors."""
        done: Future[Result] = Future()
        self._side.on_retrieval_thread(lambda: done.set_result(work()), done.set_exception)
        return done.result()

    def _check_length(self, request: Open) -> None:
        if self._side.target.room(request) >= 0:
            return
        most = self._side.decoder.max_context
        question = len(self.encode(request.question)) + request.max_tokens
        raise TooLong(
            f"The question{' with the earlier turns' if question < most else ''} is too long: the model's context "
            "holds "
            f"{most} tokens, and {request.max_tokens} of them are for the answer; shorten it, start a new "
            "conversation, or lower max_tokens."
        )

    # --- the link's events

    def _on_welcome(self) -> None:
        """Opens the running answers on a (re)connected cloud."""
        for active in self._all():
            with _ending(active):
                active.reopen()

    def _on_refusal(self, reason: str) -> None:
        for active in self._all():
            with _ending(active):
                active.refused(reason)

    def _on_message(self, message: Message, size: int) -> None:
        active = self._active.get(getattr(message, "session", 0))
        if active is not None:
            with _ending(active):
                active.heard(message, size)

    # --- the clock

    def _tick(self, now: float) -> bool:
        requests = self._all()
        for active in requests:
            with _ending(active):
                active.tick(now, self._settings)
        return bool(requests)

    def _all(self) -> list[ActiveRequest]:
        with self._lock:
            return list(self._active.values())

    def _release(self, session: int) -> None:
        with self._lock:
            active = self._active.pop(session, None)
            if active is None:
                return
            self._served += 1
        if active.scope.library is not None:  # after searches, on a thread without waiting users
            self._side.on_retrieval_thread(lambda: self._forget(active.scope), lambda error: self._forget(active.scope))

    def _forget(self, scope: Scope) -> None:
        if scope.library is not None:
            self._files.close(scope.library)


@contextmanager
def _ending(active: ActiveRequest) -> Iterator[None]:
    """Confines an exception to one answer, which ends."""
    try:
        yield
    except Exception as error:
        active.end(as_failure(error, session=active.opening.session))


def method_of(request: Request, settings: DeviceSettings) -> Method:
    """Raises `RequestError`, naming the field."""
    method = METHODS.get(request.method)
    if method is None:
        raise RequestError(f"There is no method {request.method!r}; there are {', '.join(METHODS)}.", "method")
    if not request.question.strip():
        raise RequestError("The question is empty.", "prompt")
    long_question = len(request.question.encode()) > LONGEST_QUESTION  # token ids may replace the prompt
    if long_question or len(request.prompt.encode()) > LONGEST_QUESTION:
        said = "question is" if long_question else "question with the earlier turns is"
        raise TooLong(f"The {said} longer than {LONGEST_QUESTION} bytes.")
    if request.max_tokens > settings.max_tokens:
        raise RequestError(
            f"max_tokens is {request.max_tokens}; this device allows 1 to {settings.max_tokens}.", "max_tokens"
        )
    if PRIVACY_LEVELS.index(request.privacy) > PRIVACY_LEVELS.index(settings.privacy):
        raise RequestError(
            f"This device is set to privacy {settings.privacy!r}; a request can't loosen it to {request.privacy!r}.",
            "privacy",
        )
    if request.sources == "cloud" and request.privacy == "offline":
        raise RequestError("Privacy 'offline' keeps the question here: sources can't be 'cloud'.", "sources")
    check_documents(request)
    method.check(request)
    return method
