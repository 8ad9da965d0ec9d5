"""Documents for a device that reads them itself (DRCG), sent with pacing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from common.answer.report import MethodReport, attribute_to_device
from common.daemon.handshake import as_failure
from common.daemon.model_runtime import Document
from common.daemon.side import Scope
from common.engine.jobs import DecodeRequest, DocumentJob
from common.engine.kv.documents import pack_states
from common.engine.kv.memory import DocumentStates
from common.library.hit import Hit
from common.methods.aggregate.device import DeviceAnswer
from common.methods.handing import DocumentOutbox, GatheringDevice
from common.methods.interface import CloudContext, DeviceContext
from common.methods.paper.joint import make_joint
from common.methods.paper.sampler import make_paper_sampler
from proto.messages import Closed, Error, Fetch, Form, Message, Open

UNPREPARED = "The cloud could not prepare its documents; its log says why."
PREPARED = 2**22  # waiting bytes that postpone the next document


class FetchCloud:
    """Implements `CloudHalf`. Uses a session slot until the link has the last part."""

    slow = False

    def __init__(self, request: Open | Fetch, context: CloudContext) -> None:
        """Raises `ValueError` for a request that can't be served."""
        if not isinstance(request, Fetch):
            raise ValueError("Documents are asked for with Fetch.")
        self._request = request
        self._context = context
        self._over = False
        self._hits: Sequence[Hit] = ()
        self._prepared = 0  # documents that are split into parts
        self._preparing = True  # or retrieving documents
        self._parts = DocumentOutbox(request.session, context.send, context.queued)
        self.began = self._moved = time.monotonic()  # `_moved`: latest sent part
        self._lock = threading.Lock()  # of all changing fields

    def begin(self) -> None:
        self._later(self._retrieve)

    def end(self) -> None:
        self._over = True

    def check(self, message: Message) -> None:
        """Refuse nothing."""

    def receive(self, message: Message) -> None:
        """Ignore the message."""

    def finish(self, done: Callable[[], object]) -> None:
        done()

    def closing(self) -> Iterator[Message]:
        self.end()
        yield Closed(self._request.session, 0, 0, 0, 0, 0, 0)  # nothing to report

    def given_up(self) -> Error:
        return Error(self._request.session, "failed", "The documents were not taken in time.")

    def silent(self, now: float) -> float:
        """Seconds since a part was sent."""
        return now - self._moved

    def tick(self, now: float, run_ahead: int) -> None:
        self._pump()

    def _pump(self) -> None:
        with self._lock:
            finished = self._send_parts()
        if finished:
            self._context.over(self)

    def _send_parts(self) -> bool:
        if not self._over and self._parts.pump():
            self._moved = time.monotonic()
        if self._over or self._preparing:
            return False
        if self._prepared < len(self._hits):
            if self._parts.waiting_bytes < PREPARED:
                self._preparing = True
                self._later(partial(self._prepare, self._prepared))
            return False
        return self._parts.empty

    def _retrieve(self) -> None:
        request = self._request
        if self._over:
            return
        hits = self._context.side.search(request.question, request.documents, request.earlier, Scope(request.only))
        with self._lock:
            self._hits, self._preparing = hits, False
            if not hits:
                self._parts.add_none()
        self._pump()

    def _prepare(self, index: int) -> None:
        """Runs on the retrieval thread."""
        hit = self._hits[index]
        if self._request.form == "text":
            self._ready(hit, hit.text.encode())
            return
        document = self._context.side.target.document(
            hit.source, hit.text, hit.similarity, self._context.side.decoder.max_context
        )
        job = DocumentJob(
            document.tokens,
            self._context.tenant,
            done=partial(self._computed, hit, document.tokens),
            failed=lambda error: self._fail(as_failure(error, UNPREPARED)),
            over=lambda: self._over,
        )
        self._context.side.decoding.submit(job)

    def _computed(self, hit: Hit, tokens: tuple[int, ...], states: DocumentStates) -> None:
        self._later(partial(self._pack, hit, tokens, states))

    def _pack(self, hit: Hit, tokens: tuple[int, ...], states: DocumentStates) -> None:
        self._ready(hit, pack_states(tokens, states))

    def _ready(self, hit: Hit, body: bytes) -> None:
        with self._lock:
            self._parts.add(self._prepared, len(self._hits), hit.source, hit.similarity, body)
            self._prepared += 1
            self._preparing = False
        self._pump()

    def _later(self, task: Callable[[], None]) -> None:
        self._context.side.on_retrieval_thread(task, self._fail, self._context.tenant)

    def _fail(self, failure: Exception) -> None:
        if not self._over:
            self._over = True
            self._context.failed(self, self._request.session, failure)


# --- device_half


class FetchDevice(GatheringDevice):
    """Implements `DeviceHalf`: fetches documents, and answers from both sides'."""

    def __init__(self, context: DeviceContext, form: Form) -> None:
        side, opening = context.side, context.opening
        super().__init__(context, form, side.target.room(opening))
        self._device = DeviceAnswer(context, frozenset({"device"}), make_paper_sampler)
        self.answer = self._device.answer
        self._joint = make_joint(opening, side.decoder.vocabulary, str(side.decoder.torch_device))

    @property
    def away(self) -> bool:
        return self._device.away

    def report(self, closed: Closed | None) -> MethodReport:
        return self._device.figures(closed, attribute_to_device(self.context.record, self.answer.record.shares))

    def found(self, own: list[Document], fetched: list[Document]) -> None:
        context, target = self.context, self.context.side.target
        rows = target.arrange(context.opening, own, fetched)
        rows.note(context.record)
        context.reread(rows.apart, self.answer.record)
        part, drafter, measured = self._device.answer.part, self._device.drafter, context.cloud.decoded
        request = DecodeRequest(part, drafter, measured, asker=context.record.asker, joint=self._joint)
        target.decode(request, context.opening, rows, target.processor(context.opening))
