"""The cloud's documents on the device, which answers by itself (the paper's DRCG): as text, or with keys and values."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from common.aggregation.joint import Joint
from common.model.document_states import largest_states, unpack_states
from common.runtime.reading import Document, cut
from common.runtime.request import RequestError
from common.runtime.side import LONGEST_TITLE, SideRuntime
from device.active_request import ActiveRequest
from device.cloud_view import CloudView
from device.document_receiver import LARGEST_TEXT, Body, DocumentReceiver
from proto.errors import ProtocolError, malformed
from proto.messages import Cancel, Fetch, Fetched, Form, Generated

log = logging.getLogger(__name__)

LATE = "The cloud did not take part: it did not hand over its documents in time."
MALFORMED = "The cloud did not take part: what it sent of its documents can't be used."


class Fetching:
    """Asks for the cloud's documents, retrieves the device's meanwhile, and answers from both."""

    def __init__(self, active: ActiveRequest, side: SideRuntime, joint: Joint, cloud: CloudView) -> None:
        self._active = active
        self._answer = active.answer
        self._side = side
        self._joint = joint
        self._cloud = cloud
        self._form: Form = "kv" if active.request.method == "fetch-kv" else "text"
        self._receiver = self._empty()
        self._waiting = True  # for the cloud's documents
        self._heard = time.monotonic()
        self._own: list[Document] | None = None
        self._fetched: list[Document] | None = None
        self._begun = False  # the retrieval thread's own
        self._lock = threading.Lock()  # of `_waiting` and `_receiver`

    # --- Exchange

    def start(self, absence: str | None) -> None:
        self._later(self._find)
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Fetched | Generated, size: int) -> None:
        if not isinstance(message, Fetched):
            return
        self._active.record.fetched_bytes += size
        try:
            with self._lock:
                if not self._waiting:
                    return
                self._active.ready = True
                self._heard = time.monotonic()
                self._receiver.add(message)
                if not self._receiver.complete:
                    return
                self._waiting = False
        except ProtocolError as error:
            log.warning("the cloud sent a malformed document: %s", error)
            self._give_up(MALFORMED)
            return
        self._active.with_cloud = False  # its part is done, and it has forgotten the session
        self._later(self._read)

    def without_cloud(self, sentence: str) -> None:
        with self._lock:
            if not self._waiting:
                return
            self._waiting = False
        self._alone(sentence)
        self._later(self._proceed)

    def reconnected(self) -> None:
        with self._lock:
            waiting = self._waiting
        if waiting:
            self._ask()

    def tick(self, now: float) -> None:
        if self._waiting and not self._answer.over and now - self._heard > self._cloud.silence():
            self._give_up(LATE)

    def end(self, failure: Exception | None) -> None:
        self._answer.end(failure)

    # --- the cloud's documents

    def _ask(self) -> None:
        model = self._cloud.model
        if self._form == "kv" and model != self._side.decoder.identity:
            self._answer.end(
                RequestError(
                    "Method 'fetch-kv' needs the same model on both sides, and the cloud has another one: use "
                    "'fetch-text'.",
                    "method",
                )
            )
            return
        with self._lock:
            self._receiver = self._empty()
            self._heard = time.monotonic()
            self._active.ready = False
        opening = self._active.opening
        self._active.send(Fetch(opening.session, opening.question, opening.documents, self._form))

    def _give_up(self, sentence: str) -> None:
        self._active.send(Cancel(self._active.opening.session))
        self.without_cloud(sentence)

    def _alone(self, sentence: str) -> None:
        self._active.note(sentence)
        self._active.record.alone = True
        self._active.with_cloud = False
        self._fetched = []

    def _empty(self) -> DocumentReceiver:
        decoder = self._side.decoder
        largest = LARGEST_TEXT if self._form == "text" else largest_states(decoder.layout, decoder.max_context)
        return DocumentReceiver(self._active.opening.documents, largest)

    def _read(self) -> None:
        """Bytes into documents, on the retrieval thread."""
        room = self._side.room(self._active.opening)
        try:
            self._fetched = [self._document(body, room) for body in self._receiver.bodies()]
        except ProtocolError as error:
            log.warning("the cloud sent a malformed document: %s", error)
            self._alone(MALFORMED)
        self._proceed()

    def _document(self, body: Body, room: int) -> Document:
        if self._form == "text":
            try:
                text = body.whole.decode()
            except UnicodeDecodeError:
                raise malformed("the text of a fetched document must be UTF-8") from None
            return self._side.document(body.title, text, body.similarity, room)
        decoder = self._side.decoder
        tokens, states = unpack_states(body.whole, decoder.layout, decoder.vocabulary, decoder.max_context)
        return cut(Document(body.title[:LONGEST_TITLE], tuple(tokens), body.similarity, states), room)

    # --- the answer

    def _later(self, task: Callable[[], None]) -> None:
        self._side.later(task, self.end)

    def _find(self) -> None:
        """The device's own documents, on the retrieval thread."""
        if self._answer.over:
            return
        self._own = self._side.find(self._active.opening)
        self._proceed()

    def _proceed(self) -> None:
        """Decode once both sides' documents are known; on the retrieval thread."""
        if self._begun or self._own is None or self._fetched is None or self._answer.over:
            return
        self._begun = True
        active = self._active
        found = self._side.arrange(active.opening, self._own, self._fetched)
        active.record.device_titles = found.titles
        active.record.cloud_titles = found.fetched_titles
        active.record.prompt_tokens = found.tokens
        self._side.decode(self._answer, active.opening, active.drafting, found, self._cloud.decoded, self._joint)
