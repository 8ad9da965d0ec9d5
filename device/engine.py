"""The device's engine: answers requests, with the cloud while there is one and alone while there is none."""

from __future__ import annotations

import logging
import threading
from functools import partial

from common.aggregation.joint import make_joint
from common.runtime.answer import Answer
from common.runtime.handshake import changes
from common.runtime.opening import open_session
from common.runtime.reading import Retrieved
from common.runtime.request import AnswerFailed, EngineStatus, Request, RequestError
from common.runtime.scheduler import Scheduler, look_at_each
from common.runtime.side import SideRuntime
from device.asked import Asked
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


class DeviceEngine:
    """Implements `Engine`. Start it before the first request; close it once."""

    def __init__(self, settings: DeviceSettings, side: SideRuntime) -> None:
        self._settings = settings
        self._side = side
        self._active: dict[int, Asked] = {}
        self._lock = threading.Lock()  # of the table
        self._served = 0
        self._scheduler = Scheduler(self._tick)
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
        for asked in self._all():
            asked.cancel()
        self._scheduler.close()

    # --- Engine

    def generate(self, request: Request) -> Asked:
        """Start an answer. Raises `RequestError` for input that can't be served."""
        check(request, self._settings)
        self._check_length(request)
        opening = make_opening(request, self._settings.run_ahead, self.cloud.estimates())
        asked = self._prepare(request, opening)
        with self._lock:
            self._active[opening.session] = asked
        if asked.exchange is not None:
            asked.exchange.start(None if asked.with_cloud and self.cloud.connected else self.cloud.absence)
            return asked
        if asked.with_cloud and self.cloud.connected:
            asked.opened_on = self.cloud.hello
            asked.send(opening)
        elif asked.with_cloud:
            asked.note(self.cloud.absence)
            asked.answer.go_alone()
        if "device" in asked.answer.session.config.participants:
            self._side.begin(asked.answer, opening, asked.drafting, partial(self._retrieved, asked), self.cloud.decoded)
        return asked

    def status(self) -> EngineStatus:
        files = self._side.library.files()
        connection = self.cloud.connection
        return EngineStatus(
            model=self._side.decoder.identity,
            tokenizer=self._side.tokenizer.content_hash,
            scorer=self._side.scorer.identity,
            documents=len(files),
            chunks=self._side.library.count,
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

    def _prepare(self, request: Request, opening: Open) -> Asked:
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
        asked = Asked(request, opening, opened, with_cloud, side, self.cloud, self._release)
        if request.sources == "both" and not has_cloud:
            asked.note(self.cloud.absence)
        if request.method in WHOLE_ANSWERS:
            asked.exchange = SequenceWise(asked, side, self.cloud)
        if request.method in FETCHES:
            joint = make_joint(opening, side.decoder.vocabulary, str(side.decoder.torch_device))
            asked.exchange = Fetching(asked, side, joint, self.cloud)
        opened.session.run_ahead = self._run_ahead(asked)
        return asked

    def _retrieved(self, asked: Asked, retrieved: Retrieved) -> None:
        asked.record.device_titles = retrieved.titles
        asked.record.prompt_tokens += retrieved.tokens
        if retrieved.prompt.absent:
            asked.answer.without_documents()

    # --- the link's events

    def _on_welcome(self) -> None:
        """The cloud is there (again): open the running answers on it, with what they have so far."""
        for asked in self._all():
            if asked.with_cloud:
                self._reopen(asked)

    def _on_message(self, message: Message, size: int) -> None:
        asked = self._active.get(getattr(message, "session", 0))
        if asked is None:
            return
        if asked.tracing is not None and asked.tracing.heard(message):
            return
        match message:
            case Draft() | Target() | Resolve() | Resolved() | Sync():
                asked.record.received_bytes += size
                if isinstance(message, Draft):
                    asked.ready = True
                    self.cloud.peer.remote_decoded(message.decode_time / 1e6)
                self._deliver(asked.answer, message)
            case Fetched() | Generated():
                if asked.exchange is not None:
                    asked.exchange.receive(message, size)
            case Ready():
                asked.ready = True
                asked.record.cloud_titles = message.titles
                asked.record.prompt_tokens += message.prompt_tokens
                self._deliver(asked.answer, message)
                if not message.titles and asked.request.sources == "both" and asked.exchange is None:
                    asked.send(Close(message.session, 0))  # it has no documents, and with that nothing to say
                    asked.with_cloud = False
            case Closed():
                asked.close(message)
            case Error(code="unknown-session"):
                self._reopen(asked)
            case Error():
                self._do_without(asked, f"The cloud did not take part: {message.text}")
            case Busy():
                self._do_without(asked, "The cloud did not take part: it serves as many answers as it can.")
            case _:
                log.info("ignored a %s: a cloud does not send it", type(message).__name__)

    def _deliver(self, answer: Answer, message: Message) -> None:
        try:
            answer.receive(message)
        except ProtocolError as error:
            log.warning("the cloud sent a malformed payload: %s", error)

    def _reopen(self, asked: Asked) -> None:
        if asked.exchange is not None:
            asked.exchange.reconnected()
            return
        if asked.answer.over:
            return
        asked.ready = False
        before, now = asked.opened_on, self.cloud.hello
        asked.opened_on = now or before
        changed = changes(before, now) if before is not None and now is not None else []
        asked.send(asked.opening)
        position = asked.answer.rejoined(bool(changed))
        for what in changed:
            asked.note(f"From token {position} on the cloud is another one than before: its {what} has changed.")

    def _do_without(self, asked: Asked, sentence: str) -> None:
        if asked.exchange is not None:
            asked.exchange.without_cloud(sentence)
            return
        asked.note(sentence)
        asked.with_cloud = False
        if asked.request.sources == "cloud":
            asked.answer.end(AnswerFailed(sentence))
        else:
            asked.answer.go_alone()

    # --- the clock

    def _tick(self, now: float) -> None:
        look_at_each(self._all(), lambda asked: self._look_at(asked, now), self._failed)

    def _look_at(self, asked: Asked, now: float) -> None:
        asked.tick(now)
        if asked.exchange is not None:
            asked.exchange.tick(now)
        if asked.answer.over:
            return
        if asked.request.sources == "cloud" and asked.silent(now) > PREFILL_PATIENCE:
            asked.answer.end(AnswerFailed("The cloud stopped answering, and only its documents were asked for."))
        asked.answer.poll(now, self.cloud.limits(asked.answer.session.stage.heard), self._run_ahead(asked))

    def _failed(self, asked: Asked) -> None:
        failure = AnswerFailed("The device failed on this answer; the daemon's log says why.")
        if asked.answer.over:  # and waits for the cloud's part of the report
            asked.ended(failure)
        else:
            asked.answer.end(failure)

    def _run_ahead(self, asked: Asked) -> int:
        return 1 if asked.request.method == "token-wise" else self.cloud.peer.run_ahead(asked.opening.run_ahead)

    def _all(self) -> list[Asked]:
        with self._lock:
            return list(self._active.values())

    def _release(self, session: int) -> None:
        with self._lock:
            if self._active.pop(session, None) is not None:
                self._served += 1
