"""The device's engine: answers requests, with the cloud while there is one and alone while there is none."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from common.aggregation.joint import make_joint
from common.runtime.failures import as_failure
from common.runtime.handshake import changes
from common.runtime.opening import open_session
from common.runtime.reading import Retrieved
from common.runtime.request import AnswerFailed, EngineStatus, Request, RequestError
from common.runtime.scheduler import Scheduler
from common.runtime.side import SideRuntime
from device.active_request import BUSY, ActiveRequest
from device.checks import check
from device.cloud_connection import CloudConnection, Link, alone
from device.cloud_view import PREFILL_PATIENCE, CloudView
from device.exchange import FETCHES, WHOLE_ANSWERS, decides_alone
from device.fetching import Fetching
from device.opening import make_opening
from device.sequence_wise import SequenceWise
from device.settings import DeviceSettings
from proto.errors import ProtocolError
from proto.messages import (
    Busy,
    Close,
    Closed,
    Contributions,
    Draft,
    Error,
    Fetched,
    Generated,
    Message,
    Open,
    Ready,
    Resolve,
    Resolved,
    Side,
    Sync,
    Target,
)

log = logging.getLogger(__name__)

MALFORMED = "what it sent of the answer can't be used."


class DeviceEngine:
    """Implements `Engine`. Start it before the first request; close it once."""

    def __init__(self, settings: DeviceSettings, side: SideRuntime) -> None:
        self._settings = settings
        self._side = side
        self._active: dict[int, ActiveRequest] = {}
        self._lock = threading.Lock()  # of the table
        self._served = 0
        self._scheduler = Scheduler(self._tick, side.died)
        connection = None
        if settings.cloud is not None and settings.privacy != "offline":
            connection = CloudConnection(settings.cloud, side, self._on_message, self._on_welcome)
        self.cloud = CloudView(settings, side, connection)

    def start(self, link: Link | None) -> None:
        """Begin to serve; `link` is not started yet."""
        if self.cloud.connection is not None and link is not None:
            self.cloud.connection.attach(link)
        self._scheduler.start()

    def close(self) -> None:
        for active in self._all():
            active.cancel()
        self._scheduler.close()

    # --- Engine

    def generate(self, request: Request) -> ActiveRequest:
        """Start an answer. Raises `RequestError` for input that can't be served."""
        check(request, self._settings)
        self._check_length(request)
        opening = make_opening(request, self._settings.run_ahead, self.cloud.estimates(), self._side.eos)
        active = self._prepare(request, opening)
        with self._lock:
            self._active[opening.session] = active
        with _ending(active):
            self._begin(active)
        return active

    @property
    def model(self) -> str:
        return self._side.decoder.identity

    def status(self) -> EngineStatus:
        counts = self._side.library.counts
        connection = self.cloud.connection
        return EngineStatus(
            model=self.model,
            tokenizer=self._side.tokenizer.content_hash,
            scorer=self._side.scorer.identity,
            documents=counts.documents,
            chunks=counts.chunks,
            active=len(self._active),
            served=self._served,
            cloud=connection.status() if connection is not None else alone(self._settings.privacy),
        )

    # --- a new answer

    def _check_length(self, request: Request) -> None:
        room = self._side.decoder.max_context - request.max_tokens - 1
        if len(self._side.tokenizer.encode(request.prompt)) > room:
            raise RequestError(
                f"The question is too long: the model's context holds {self._side.decoder.max_context} tokens, "
                f"and {request.max_tokens} of them are for the answer.",
                "prompt",
            )

    def _prepare(self, request: Request, opening: Open) -> ActiveRequest:
        side = self._side
        participants: frozenset[Side] = frozenset({"device", "cloud"})
        if request.sources != "both":
            participants = frozenset({request.sources})
        has_cloud = self.cloud.connection is not None
        with_cloud = "cloud" in participants and request.privacy != "offline" and has_cloud
        if not with_cloud or decides_alone(request):
            participants = participants & {"device"}
        if not participants or (request.sources == "cloud" and not self.cloud.connected):
            raise AnswerFailed(self.cloud.absence)
        try:
            opened = open_session("device", opening, side.decoder, self.cloud.estimates, participants)
        except ValueError as error:
            raise RequestError(f"{error}.", "sampler") from None
        active = ActiveRequest(request, opening, opened, with_cloud, side, self.cloud, self._release)
        if request.sources == "both" and not has_cloud:
            active.note(self.cloud.absence)
        if request.method in WHOLE_ANSWERS:
            active.exchange = SequenceWise(active, side, self.cloud)
        if request.method in FETCHES:
            joint = make_joint(opening, side.decoder.vocabulary, str(side.decoder.torch_device))
            active.exchange = Fetching(active, side, joint, self.cloud)
        opened.session.run_ahead = self._run_ahead(active)
        return active

    def _begin(self, active: ActiveRequest) -> None:
        if active.exchange is not None:
            active.exchange.start(None if active.with_cloud and self.cloud.connected else self.cloud.absence)
            return
        if active.with_cloud and self.cloud.connected:
            active.opened_on = self.cloud.hello
            active.send(active.opening)
        elif active.with_cloud:
            active.note(self.cloud.absence)
            active.answer.go_alone()
        if "device" in active.answer.session.config.participants:
            retrieved = partial(self._retrieved, active)
            self._side.begin(active.answer, active.opening, active.drafting, retrieved, self.cloud.decoded)

    def _retrieved(self, active: ActiveRequest, retrieved: Retrieved) -> None:
        active.record.device_titles = retrieved.titles
        active.record.prompt_tokens += retrieved.tokens
        if retrieved.prompt.absent:
            active.answer.without_documents()

    # --- the link's events

    def _on_welcome(self) -> None:
        """The cloud is there (again): open the running answers on it, with what they have so far."""
        for active in self._all():
            with _ending(active):
                self._reopen(active)

    def _on_message(self, message: Message, size: int) -> None:
        active = self._active.get(getattr(message, "session", 0))
        if active is None or not active.with_cloud:
            return
        with _ending(active):
            self._heard(active, message, size)

    def _heard(self, active: ActiveRequest, message: Message, size: int) -> None:
        if active.tracing is not None and active.tracing.heard(message):
            return
        match message:
            case Draft() | Target() | Resolve() | Resolved() | Sync():
                active.record.received_bytes += size
                if isinstance(message, Draft):
                    active.ready = True
                    self.cloud.peer.remote_decoded(message.decode_time / 1e6)
                self._deliver(active, message)
            case Fetched() | Generated():
                if active.exchange is not None:
                    active.exchange.receive(message, size)
            case Ready():
                active.ready = True
                active.record.cloud_titles = message.titles
                active.record.prompt_tokens += message.prompt_tokens
                self._deliver(active, message)
                if not message.titles and active.request.sources == "both" and active.exchange is None:
                    active.send(Close(message.session, 0))  # it has no documents, and with that nothing to say
                    active.with_cloud = False
            case Contributions():
                active.contributed(message)
            case Closed():
                active.close(message)
            case Error(code="unknown-session"):
                self._reopen(active)
            case Error():
                active.without_cloud(message.text)
            case Busy():
                active.busy(message.retry_after / 1e6)
            case _:
                log.info("ignored a %s: a cloud does not send it", type(message).__name__)

    def _deliver(self, active: ActiveRequest, message: Draft | Target | Resolve | Resolved | Sync | Ready) -> None:
        try:
            active.answer.receive(message)
        except ProtocolError as error:
            log.warning("the cloud sent a malformed payload: %s", error)
            active.send(Error(message.session, error.code, str(error)))
            active.without_cloud(MALFORMED)

    def _reopen(self, active: ActiveRequest) -> None:
        if not active.with_cloud:
            return
        if active.exchange is not None:
            active.exchange.reconnected()
            return
        if active.answer.over:
            return
        active.ready = False
        before, now = active.opened_on, self.cloud.hello
        active.opened_on = now or before
        changed = changes(before, now) if before is not None and now is not None else []
        active.send(active.opening)
        position = active.answer.rejoined(bool(changed))
        for what in changed:
            active.note(f"From token {position} on the cloud is another one than before: its {what} has changed.")

    # --- the clock

    def _tick(self, now: float) -> None:
        for active in self._all():
            with _ending(active):
                self._look_after(active, now)

    def _look_after(self, active: ActiveRequest, now: float) -> None:
        active.tick(now)
        if active.exchange is not None:
            active.exchange.tick(now)
        if active.must_do_without(self._settings.patience, now):
            active.without_cloud(BUSY)
        elif active.retry_at is not None and now >= active.retry_at:
            active.retry_at, active.with_cloud = None, True
            self._reopen(active)
        if active.answer.over:
            return
        if active.request.sources == "cloud" and active.silent(now) > PREFILL_PATIENCE:
            active.answer.end(AnswerFailed("The cloud stopped answering, and only its documents were asked for."))
        active.answer.poll(now, self.cloud.limits(active.answer.session.stage.heard), self._run_ahead(active))

    def _run_ahead(self, active: ActiveRequest) -> int:
        return 1 if active.request.method == "token-wise" else self.cloud.peer.run_ahead(active.opening.run_ahead)

    def _all(self) -> list[ActiveRequest]:
        with self._lock:
            return list(self._active.values())

    def _release(self, session: int) -> None:
        with self._lock:
            if self._active.pop(session, None) is not None:
                self._served += 1


@contextmanager
def _ending(active: ActiveRequest) -> Iterator[None]:
    """What is raised inside is one answer's affair: it ends, and whoever reads it is told."""
    try:
        yield
    except Exception as error:
        active.end(as_failure(error))
