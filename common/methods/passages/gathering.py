"""The documents of an answer on the device: its own, and the cloud's, which that hands over while these are found."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from common.answer.errors import RequestError
from common.answer.watch import Silence
from common.daemon.model_runtime import LONGEST_TITLE
from common.daemon.prompt_rows import Document, cut
from common.engine.kv.document_states import largest_states, unpack_states
from common.methods.interface import DeviceContext
from common.methods.passages.receiver import LARGEST_TEXT, Body, DocumentReceiver, WantedBytes
from common.process.log_lines import AnswerName
from proto.errors import ProtocolError, malformed
from proto.fields import Form
from proto.messages import Cancel, Fetch, Fetched, Message

log = logging.getLogger(__name__)

LATE = "The cloud did not take part: it did not hand over its documents in time."
MALFORMED = "The cloud did not take part: what it sent of its documents can't be used."

Found = Callable[[list[Document], list[Document]], None]


class Gathering:
    """Gathering of both sides' documents for a `DeviceHalf`. Without the cloud, they are this device's."""

    def __init__(
        self,
        context: DeviceContext,
        form: Form,
        room: int,
        over: Callable[[], bool],
        found: Found,
        failed: Callable[[Exception], object],
    ) -> None:
        """`found` is called with the device's documents and the cloud's, on the retrieval thread, unless the answer is
        `over`; what goes wrong before is handed to `failed`. A document has `room` tokens at most.
        """
        self._context = context
        self._side = context.side
        self._form: Form = form
        self._room = room
        self._over = over
        self._found = found
        self._failed = failed
        self._receiver = self._empty()
        self._waiting = True  # for the cloud's documents
        self._silence = Silence()
        self._wanted = WantedBytes()
        self._asked = 0  # times
        self._own: list[Document] | None = None
        self._fetched: list[Document] | None = None
        self._begun = False  # for the retrieval thread only
        self._lock = threading.Lock()  # of `_waiting` and `_receiver`

    @property
    def waiting(self) -> bool:
        """Whether the cloud's documents are still awaited."""
        return self._waiting

    def start(self, absence: str | None) -> None:
        """Search, and ask the cloud unless `absence` says why it can't take part."""
        self._later(self._find)
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        """Take in a part of the cloud's documents. Raises `ProtocolError` when it is malformed."""
        if not isinstance(message, Fetched):
            return
        with self._lock:
            if not self._waiting:
                return
            self._context.phase.join()
            self._receiver.add(message)
            self._wanted.arrived(self._receiver.size)
            if not self._receiver.complete:
                return
            self._waiting = False
        self._context.phase.leave()  # its part is done, and it has forgotten the session
        self._later(self._read)

    def without_cloud(self, sentence: str) -> None:
        """Go on without the cloud's documents, if they are not there yet."""
        with self._lock:
            if not self._waiting:
                return
            self._waiting = False
        self._alone(sentence)
        self._later(self._proceed)

    def reconnected(self) -> None:
        """Ask a cloud that is connected again."""
        with self._lock:
            waiting = self._waiting
        if waiting:
            self._ask()

    def tick(self, now: float) -> None:
        """Look at the clock: a cloud whose documents do not come on is given up."""
        if self._over():
            return
        limits, come = self._context.cloud.limits(read=False), self._wanted.progress
        if self._silence.over(now, come, (self._asked, self._context.phase.joined), self._waiting, False, limits):
            self._context.send(Cancel(self._context.opening.session))
            self.without_cloud(LATE)

    def _ask(self) -> None:
        hello = self._context.cloud.hello
        if self._form == "kv" and hello is not None and hello.model != self._side.decoder.identity:
            self._failed(
                RequestError(
                    "Method 'fetch-kv' needs the same model on both sides, and the cloud has another one: use "
                    "'fetch-text'.",
                    "method",
                )
            )
            return
        with self._lock:
            self._receiver = self._empty()
            self._asked += 1
            self._context.phase.restart()
        opening = self._context.opening
        self._context.send(
            Fetch(opening.session, opening.question, opening.documents, self._form, opening.earlier, opening.only)
        )

    def _alone(self, sentence: str) -> None:
        self._context.note(sentence, absence=True)
        self._context.record.alone = True
        self._context.phase.leave()
        self._fetched = []

    def _empty(self) -> DocumentReceiver:
        decoder = self._side.decoder
        largest = LARGEST_TEXT if self._form == "text" else largest_states(decoder.layout, decoder.max_context)
        return DocumentReceiver(self._context.opening.documents, largest)

    def _later(self, task: Callable[[], None]) -> None:
        self._side.later(task, self._failed)

    # --- on the retrieval thread

    def _read(self) -> None:
        """Turn the received bytes into documents."""
        try:
            self._fetched = [self._document(body) for body in self._receiver.bodies()]
        except ProtocolError as error:
            name = AnswerName.of(self._context.opening.session)
            log.warning("answer %s: the cloud sent a malformed document: %s", name, error)
            self._alone(MALFORMED)
        self._proceed()

    def _document(self, body: Body) -> Document:
        if self._form == "text":
            try:
                text = body.whole.decode()
            except UnicodeDecodeError:
                raise malformed("the text of a fetched document must be UTF-8") from None
            return self._side.target.document(body.title, text, body.similarity, self._room)
        decoder = self._side.decoder
        tokens, states = unpack_states(body.whole, decoder.layout, decoder.vocabulary, decoder.max_context)
        text = decoder.tokenizer.decode(tokens)
        return cut(Document(body.title[:LONGEST_TITLE], tuple(tokens), body.similarity, text, states), self._room)

    def _find(self) -> None:
        """Retrieve the device's own documents."""
        if not self._over():
            self._own = self._side.find(self._context.opening, self._context.scope, self._room)
            self._proceed()

    def _proceed(self) -> None:
        """Hand over once both sides' documents are known."""
        if self._begun or self._own is None or self._fetched is None or self._over():
            return
        self._begun = True
        self._found(self._own, self._fetched)
