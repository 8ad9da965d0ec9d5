"""The cloud's documents on the device, which answers by itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from common.aggregation.joint import make_joint
from common.kv.document_states import largest_states, unpack_states
from common.methods.attribution import of_one_process
from common.methods.device_answer import DeviceAnswer
from common.methods.fetch.receiver import LARGEST_TEXT, Body, DocumentReceiver
from common.methods.interface import DeviceContext
from common.methods.report import MethodReport
from common.runtime.errors import RequestError
from common.runtime.model_runtime import LONGEST_TITLE
from common.runtime.reading import Document, cut
from proto.errors import ProtocolError, malformed
from proto.fields import Form
from proto.messages import Cancel, Closed, Fetch, Fetched, Message

log = logging.getLogger(__name__)

LATE = "The cloud did not take part: it did not hand over its documents in time."
MALFORMED = "The cloud did not take part: what it sent of its documents can't be used."


class FetchDevice:
    """Implements `DeviceHalf`: asks for the cloud's documents, retrieves its own meanwhile, answers from both."""

    def __init__(self, context: DeviceContext, form: Form) -> None:
        decoder = context.side.decoder
        self._context = context
        self._device = DeviceAnswer(context, frozenset({"device"}))
        self._answer = self._device.answer
        self._side = context.side
        self._joint = make_joint(context.opening, decoder.vocabulary, str(decoder.torch_device))
        self._form: Form = form
        self._receiver = self._empty()
        self._waiting = True  # for the cloud's documents
        self._heard = time.monotonic()
        self._own: list[Document] | None = None
        self._fetched: list[Document] | None = None
        self._begun = False  # for the retrieval thread only
        self._lock = threading.Lock()  # of `_waiting` and `_receiver`

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._answer.over

    @property
    def away(self) -> bool:
        return self._device.away

    @property
    def waiting(self) -> bool:
        return self._waiting

    def start(self, absence: str | None) -> None:
        self._later(self._find)
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Fetched):
            return
        with self._lock:
            if not self._waiting:
                return
            self._context.ready = True
            self._heard = time.monotonic()
            self._receiver.add(message)
            if not self._receiver.complete:
                return
            self._waiting = False
        self._context.with_cloud = False  # its part is done, and it has forgotten the session
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
        if self._waiting and not self._answer.over and now - self._heard > self._context.cloud.silence():
            self._context.send(Cancel(self._context.opening.session))
            self.without_cloud(LATE)

    def end(self, failure: Exception | None) -> None:
        self._answer.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        return self._device.figures(closed, of_one_process(self._context.record, self._answer))

    # --- the cloud's documents

    def _ask(self) -> None:
        hello = self._context.cloud.hello
        if self._form == "kv" and hello is not None and hello.model != self._side.decoder.identity:
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
            self._context.ready = False
        opening = self._context.opening
        self._context.send(Fetch(opening.session, opening.question, opening.documents, self._form))

    def _alone(self, sentence: str) -> None:
        self._context.note(sentence)
        self._context.record.alone = True
        self._context.with_cloud = False
        self._fetched = []

    def _empty(self) -> DocumentReceiver:
        decoder = self._side.decoder
        largest = LARGEST_TEXT if self._form == "text" else largest_states(decoder.layout, decoder.max_context)
        return DocumentReceiver(self._context.opening.documents, largest)

    def _read(self) -> None:
        """Turn the received bytes into documents, on the retrieval thread."""
        room = self._side.target.room(self._context.opening)
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
            return self._side.target.document(body.title, text, body.similarity, room)
        decoder = self._side.decoder
        tokens, states = unpack_states(body.whole, decoder.layout, decoder.vocabulary, decoder.max_context)
        return cut(Document(body.title[:LONGEST_TITLE], tuple(tokens), body.similarity, states), room)

    # --- the answer

    def _later(self, task: Callable[[], None]) -> None:
        self._side.later(task, self.end)

    def _find(self) -> None:
        """Retrieve the device's own documents, on the retrieval thread."""
        if self._answer.over:
            return
        self._own = self._side.find(self._context.opening)
        self._proceed()

    def _proceed(self) -> None:
        """Decode once both sides' documents are known; on the retrieval thread."""
        if self._begun or self._own is None or self._fetched is None or self._answer.over:
            return
        self._begun = True
        context = self._context
        found = self._side.target.arrange(context.opening, self._own, self._fetched)
        context.record.device_titles = found.titles
        context.record.cloud_titles = found.fetched_titles
        context.record.prompt_tokens = found.tokens
        drafting, measured = self._device.drafting, context.cloud.decoded
        self._side.target.decode(self._answer, context.opening, drafting, found, measured, self._joint)
