"""The verifier: sends passages to the device and judges its proposals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from common.answer.driver import Driver
from common.answer.values import Action
from common.daemon.model_runtime import ModelRuntime, PromptRows
from common.daemon.side import Scope, SideRuntime
from common.methods.drafted.drafting import ProposedToken
from common.methods.drafted.eager import make_verifying
from common.methods.drafted.method import Scheme
from common.methods.drafted.verifying import rounds_part
from common.methods.halves import CloudPart
from common.methods.handing import DocumentOutbox
from common.methods.interface import CloudContext
from proto.errors import ProtocolError
from proto.messages import Closed, Defer, Message, Open, Propose, Sync

# --- reading


@dataclass(frozen=True, slots=True)
class Passage:
    """Text from the verifier for the drafter."""

    title: str
    similarity: float  # retrieval cosine
    text: str
    passing: bool = False  # for one answer: keys and values are not kept


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The verifier's rows, and passages for the drafter."""

    rows: PromptRows
    passages: Sequence[Passage]


class PassageReading(Protocol):
    """A method's reading, on both sides' retrieval threads."""

    @property
    def most(self) -> int:
        """The most passages sent."""
        ...

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Retrieved:
        """Retrieve text within `scope`. Raises `AnswerFailed`, or `RequestError` for missing documents."""
        ...

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        """The drafter's rows."""
        ...


@dataclass(frozen=True, slots=True)
class SharedPassages:
    """Implements `PassageReading`: both sides read the best passages."""

    most: int

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Retrieved:
        hits = side.search(request.question, request.documents, request.earlier, scope)
        passages = [Passage(hit.source, hit.similarity, hit.text) for hit in hits]
        return Retrieved(self.rows(side.target, request, passages), passages)

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        room = model.room(request)
        documents = [model.document(each.title, each.text, each.similarity, room) for each in passages]
        return model.arrange(request, documents, ())


# --- the half

_NAMES = {Propose: "Proposal", Defer: "Defer"}


class VerifyingCloud(CloudPart):
    """Implements `CloudHalf`, and `Observer` of the decisions."""

    def __init__(self, request: Open, context: CloudContext, scheme: Scheme, reading: PassageReading) -> None:
        super().__init__(request, context)
        self.drafter = scheme.verifier
        self.machine = make_verifying(scheme.config, scheme.judge, context.decodes_on)
        self.slow = scheme.judge.slow
        self._judge = scheme.judge
        self._reading = reading
        decoding, recorder = context.side.decoding, self.recorder("cloud", alone=True)
        self.answer = Driver("cloud", self.machine, [decoding], context.send, self, recorder)
        self.part = rounds_part(self.answer, self.machine)
        self._passages = DocumentOutbox(request.session, context.send, context.queued)
        self._passages_lock = threading.Lock()

    @property
    def decided(self) -> Sequence[int]:
        return self.machine.decided

    # --- CloudHalf

    def check(self, message: Message) -> None:
        if isinstance(message, Propose | Defer):
            with _told_where(message):
                self.machine.check(message)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Propose | Defer | Sync):
            return
        self.heard = now = time.monotonic()
        if self.answer.recorder is not None:
            self.answer.recorder.message("receive", message)
        machine = self.machine
        if isinstance(message, Propose):
            self.context.estimates.meter.spare(now)
            with _told_where(message):
                proposed = self._read(message)
                self.answer.apply(lambda: machine.proposed(message, now, proposed))
        elif isinstance(message, Defer):
            with _told_where(message):
                self.answer.apply(lambda: machine.deferred(message, now))
        else:
            self.answer.apply(lambda: self._synchronised(message))

    def _read(self, message: Propose) -> Sequence[ProposedToken] | None:
        """Not under the lock, which the engine needs often."""
        with self.answer.lock:
            wanted = not self.answer.over and self.machine.wants(message)
        return self._judge.read(message) if wanted else None

    def _synchronised(self, message: Sync) -> list[Action]:
        actions = self.machine.synchronised(message)
        self.answer.record.withdraw(self.machine.position)
        return actions

    def tick(self, now: float, run_ahead: int) -> None:
        """Send passages while the link has room."""
        with self._passages_lock:
            if not self.answer.over and self._passages.pump():
                self.heard = now

    def closed(self) -> Closed:
        machine, session = self.machine, self.request.session
        rejected = machine.judged - machine.accepted
        return Closed(session, machine.judged, machine.accepted, rejected, self.part.preempted, machine.stale, 0)

    # --- the prompt, on the retrieval thread

    def retrieve(self, request: Open) -> PromptRows:
        """Retrieve the text, and send the drafter its passages."""
        found = self._reading.find(self.context.side, request, self.scope)
        rows = self.placed(found)
        with self._passages_lock:
            if not found.passages:
                self._passages.add_none()
            for index, each in enumerate(found.passages):
                self._passages.add(index, len(found.passages), each.title, each.similarity, each.text.encode())
            self._passages.pump()
        return rows

    def placed(self, found: Retrieved) -> PromptRows:
        """Reserve memory for the rows. Raises `NoPlace`, `RequestError`."""
        self.context.reserve(self, self.context.side.target.kv_bytes(self.request, found.rows))
        return found.rows


@contextmanager
def _told_where(message: Propose | Defer) -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        where = f"{_NAMES[type(message)]} {message.round}, at position {message.position}"
        raise ProtocolError(
            error.code,
            f"{where}, was refused: {error.text}. If that stays so, install the same version on both sides.",
        ) from None
