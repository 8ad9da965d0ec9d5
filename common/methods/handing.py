"""Documents in parts: paced sending, receiving, gathering."""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from common.answer.patience import ProgressTimeout
from common.answer.request import RequestError
from common.daemon.model_runtime import LONGEST_TITLE, Document, cut_document
from common.engine.kv.documents import largest_states, unpack_states
from common.methods.halves import DevicePart
from common.methods.interface import DeviceContext
from common.process.log_lines import AnswerName
from proto.errors import ProtocolError, malformed, too_large
from proto.framing import PAYLOAD_LIMIT
from proto.messages import Cancel, Fetch, Fetched, Form, Message

AHEAD: Final = 2**20  # bytes in the link per device, which other answers' drafts wait for


class DocumentOutbox:
    """A session's document parts that wait for the link. For one thread at a time."""

    def __init__(self, session: int, send: Callable[[Fetched], int], queued: Callable[[], int]) -> None:
        """`send` returns the bytes sent, 0 if dropped; `queued` those waiting for the device."""
        self._session = session
        self._send = send
        self._queued = queued
        self._parts: deque[Fetched] = deque()

    @property
    def empty(self) -> bool:
        return not self._parts

    @property
    def waiting_bytes(self) -> int:
        return sum(len(part.payload) for part in self._parts)

    def add(self, index: int, count: int, title: str, similarity: float, body: bytes) -> None:
        """Add document `index` of `count`."""
        pieces = [body[start : start + PAYLOAD_LIMIT] for start in range(0, len(body), PAYLOAD_LIMIT)] or [b""]
        for part, piece in enumerate(pieces):
            short = title[:LONGEST_TITLE]
            self._parts.append(Fetched(self._session, index, count, part, len(pieces), similarity, short, piece))

    def add_none(self) -> None:
        """Announce that there are no documents."""
        self._parts.append(Fetched(self._session, 0, 0, 0, 0, 0.0, "", b""))

    def pump(self) -> bool:
        """Fill the link. Returns whether anything was sent."""
        moved = False
        while self._parts and self._queued() < AHEAD and self._send(self._parts[0]):
            self._parts.popleft()
            moved = True
        return moved


# --- receiver

LARGEST_TEXT = 2**20  # bytes of one document's text
LEAST_BYTES = 2**13  # of documents per patience that count as progress; a trickle does not
LARGEST_TOTAL = 2**28  # bytes of all documents of an answer


@dataclass(slots=True)
class ReceivedDocument:
    """A document with its received parts."""

    title: str
    similarity: float
    parts: int
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def whole(self) -> bytes:
        return b"".join(self.pieces[part] for part in range(self.parts))


class DocumentReceiver:
    """Collects up to `documents` documents of up to `largest` bytes each.

    Parts may be repeated, in any order, and requested again.
    """

    def __init__(self, documents: int, largest: int) -> None:
        self._documents = documents
        self._largest = min(largest, LARGEST_TOTAL)
        self._most = 0  # bytes received in the best attempt
        self.restart()

    def restart(self) -> None:
        """Start a new request."""
        self._count: int | None = None  # as announced
        self._bodies: dict[int, ReceivedDocument] = {}
        self._size = 0  # bytes of distinct parts
        self._missing = 0  # of begun documents

    @property
    def progress(self) -> int:
        """Progress over all attempts; never falls."""
        return self._most // LEAST_BYTES

    @property
    def complete(self) -> bool:
        return self._count is not None and len(self._bodies) == self._count and not self._missing

    def bodies(self) -> list[ReceivedDocument]:
        """The documents in the cloud's order, once complete."""
        return [self._bodies[index] for index in sorted(self._bodies)]

    def add(self, message: Fetched) -> None:
        """Add a part. Raises `ProtocolError`; all documents are then unusable."""
        if message.count > self._documents:
            raise too_large(f"at most {self._documents} documents were asked for")
        if self._count not in (None, message.count):
            raise malformed("the parts of fetched documents must agree on their number")
        self._count = message.count
        if not message.count:
            return
        body = self._body(message)
        if not message.part < body.parts or message.parts != body.parts:
            raise malformed("the parts of a fetched document must agree on their number and be below it")
        size = len(message.payload)
        if (size != PAYLOAD_LIMIT) if message.part < body.parts - 1 else not 0 < size <= PAYLOAD_LIMIT:
            raise malformed(f"parts of a fetched document but the last must have {PAYLOAD_LIMIT} bytes")
        if message.part in body.pieces:
            return
        self._size += size
        if self._size > LARGEST_TOTAL:
            raise too_large(f"the documents of an answer must have at most {LARGEST_TOTAL} bytes")
        body.pieces[message.part] = message.payload
        self._missing -= 1
        self._most = max(self._most, self._size)

    def _body(self, message: Fetched) -> ReceivedDocument:
        known = self._bodies.get(message.index)
        if known is not None:
            return known
        if message.index >= message.count:
            raise malformed("the index of a fetched document must be below their number")
        if not 0 < message.parts <= -(-self._largest // PAYLOAD_LIMIT):
            raise too_large(f"a fetched document must have at most {self._largest} bytes")
        body = self._bodies[message.index] = ReceivedDocument(message.title, message.similarity, message.parts)
        self._missing += message.parts
        return body


# --- gathering

log = logging.getLogger(__name__)

LATE = "The cloud did not take part: it did not send its documents in time."
MALFORMED = "The cloud did not take part: the documents that it sent can't be used."


class GatheringDevice(DevicePart):
    """The device's half of an answer made here from both sides' documents.

    Without the cloud it uses its own.
    """

    def __init__(self, context: DeviceContext, form: Form, room: int, both: bool = True) -> None:
        """`room`: most tokens per document. `both`: use the cloud's, too."""
        super().__init__(context)
        self._form: Form = form
        self._room = room
        decoder = context.side.decoder
        largest = LARGEST_TEXT if form == "text" else largest_states(decoder.layout, decoder.max_context)
        self._receiver = DocumentReceiver(context.opening.documents, largest)
        self._waiting = both  # for the cloud's documents
        self._silence = ProgressTimeout()
        self._asked = 0  # number of requests
        self._own: list[Document] | None = None
        self._fetched: list[Document] | None = None if both else []
        self._begun = False  # for the retrieval thread only
        self._lock = threading.Lock()  # protects `_waiting` and `_receiver`

    @abstractmethod
    def found(self, own: list[Document], fetched: list[Document]) -> None:
        """Begin with both sides' documents. On the retrieval thread."""

    # --- DeviceHalf

    @property
    def waiting(self) -> bool:
        return self._waiting

    def start(self, absence: str | None) -> None:
        """Search, and ask the cloud unless `absence` explains why not."""
        self.context.side.on_retrieval_thread(self._find, self.end)
        if not self._waiting:
            return
        if absence is None:
            self._ask()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        """Add a part. Raises `ProtocolError` if it is malformed."""
        if not isinstance(message, Fetched):
            return
        with self._lock:
            if not self._waiting:
                return
            self.context.phase.join()
            self._receiver.add(message)
            if not self._receiver.complete:
                return
            self._waiting = False
        self.context.phase.leave()  # the cloud has forgotten the session
        self.context.side.on_retrieval_thread(self._read, self.end)

    def without_cloud(self, sentence: str) -> None:
        """Continue without missing documents of the cloud."""
        with self._lock:
            if not self._waiting:
                return
            self._waiting = False
        self._alone(sentence)
        self.context.side.on_retrieval_thread(self._proceed, self.end)

    def reconnected(self) -> None:
        """Ask again."""
        with self._lock:
            waiting = self._waiting
        if waiting:
            self._ask()

    def tick(self, now: float) -> None:
        """Give up on stalled documents."""
        if self.over or not self._waiting:
            return
        limits, come = self.context.cloud.limits(read=False), self._receiver.progress
        if self._silence.over(now, come, (self._asked, self.context.phase.joined), True, False, limits):
            self.context.send(Cancel(self.context.opening.session))
            self.without_cloud(LATE)

    def _ask(self) -> None:
        hello = self.context.cloud.hello
        if self._form == "kv" and hello is not None and hello.model != self.context.side.decoder.identity:
            self.end(
                RequestError(
                    "Method 'fetch-kv' needs the same model on both sides, and the cloud has another one: use "
                    "'fetch-text'.",
                    "method",
                )
            )
            return
        with self._lock:
            self._receiver.restart()
            self._asked += 1
            self.context.phase.restart()
        opening = self.context.opening
        self.context.send(
            Fetch(opening.session, opening.question, opening.documents, self._form, opening.earlier, opening.only)
        )

    def _alone(self, sentence: str) -> None:
        self.context.note(sentence, absence=True)
        self.context.record.alone = True
        self.context.phase.leave()
        self._fetched = []

    # --- on the retrieval thread

    def _read(self) -> None:
        try:
            self._fetched = [self._document(body) for body in self._receiver.bodies()]
        except ProtocolError as error:
            name = AnswerName.of(self.context.opening.session)
            log.warning("answer %s: the cloud sent a malformed document: %s", name, error)
            self._alone(MALFORMED)
        self._proceed()

    def _document(self, body: ReceivedDocument) -> Document:
        if self._form == "text":
            try:
                text = body.whole.decode()
            except UnicodeDecodeError:
                raise malformed("the text of a fetched document must be UTF-8") from None
            return self.context.side.target.document(body.title, text, body.similarity, self._room)
        decoder = self.context.side.decoder
        tokens, states = unpack_states(body.whole, decoder.layout, decoder.vocabulary, decoder.max_context)
        text = decoder.tokenizer.decode(tokens)
        return cut_document(
            Document(body.title[:LONGEST_TITLE], tuple(tokens), body.similarity, text, states), self._room
        )

    def _find(self) -> None:
        if not self.over:
            self._own = self.context.side.find(self.context.opening, self.context.scope, self._room)
            self._proceed()

    def _proceed(self) -> None:
        """Begin once both sides' documents are known."""
        if self._begun or self._own is None or self._fetched is None or self.over:
            return
        self._begun = True
        self.found(self._own, self._fetched)
