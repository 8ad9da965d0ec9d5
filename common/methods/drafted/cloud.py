"""The verifier: hands its passages to the device, and judges what that proposes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from common.answer.driver import Driver, NullObserver
from common.answer.recorder import Recorder, span_messages
from common.answer.report import contribution_messages, text_messages
from common.answer.request import unknown_session
from common.answer.values import Action
from common.daemon.model_runtime import ModelRuntime, PromptRows, Start
from common.daemon.side import Scope, SideRuntime
from common.methods.aggregate.cloud import fitting
from common.methods.drafted.drafting import Proposed
from common.methods.drafted.eager import make_verifying
from common.methods.drafted.method import Scheme
from common.methods.drafted.verifying import rounds_part
from common.methods.interface import CloudContext
from common.methods.passages.handing import DocumentOutbox
from proto.errors import ProtocolError
from proto.messages import Closed, Defer, Error, Message, Open, Propose, Ready, Sync

# --- reading
# Readings of the two sides of a draft-and-verify answer, and what is handed over for them.


@dataclass(frozen=True, slots=True)
class Passage:
    """Text that the verifier hands to the drafter."""

    title: str
    similarity: float  # retrieval cosine
    text: str
    passing: bool = False  # it is for one answer: its keys and values are not kept


@dataclass(frozen=True, slots=True)
class Found:
    """The verifier's own rows, and the passages for the drafter."""

    rows: PromptRows
    passages: Sequence[Passage]


class Reading(Protocol):
    """A method's reading. Called on the retrieval threads of both sides."""

    @property
    def most(self) -> int:
        """Passages that are handed over at most."""
        ...

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Found:
        """Look up what the verifier reads, in `scope`.

        Raises `AnswerFailed`, or `RequestError` for what can't be looked up.
        """
        ...

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        """The drafter's rows."""
        ...


@dataclass(frozen=True, slots=True)
class SharedPassages:
    """Implements `Reading`: both sides read the same passages, those of the verifier's library that fit best."""

    most: int

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Found:
        hits = side.search(request.question, request.documents, request.earlier, scope)
        passages = [Passage(hit.source, hit.similarity, hit.text) for hit in hits]
        return Found(self.rows(side.target, request, passages), passages)

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        room = model.room(request)
        documents = [model.document(each.title, each.text, each.similarity, room) for each in passages]
        return model.arrange(request, documents, ())


# --- cloud_half

_NAMES = {Propose: "Proposal", Defer: "Defer"}


class VerifyingCloud(NullObserver):
    """Implements `CloudHalf`, and `Observer` of what is decided."""

    def __init__(self, request: Open, context: CloudContext, scheme: Scheme, reading: Reading) -> None:
        self._request = request
        self._context = context
        self._scheme = scheme
        self._reading = reading
        self._machine = make_verifying(scheme.config, scheme.judge, context.decodes_on)
        self.slow = scheme.judge.slow
        estimates = context.estimates
        recorder = Recorder("cloud", lambda: estimates.estimates, "cloud", alone=True) if request.trace else None
        if recorder is not None:
            recorder.message("receive", request)
        self._driver = Driver("cloud", self._machine, [context.side.decoding], context.send, self, recorder)
        self._part = rounds_part(self._driver, self._machine)
        self._passages = DocumentOutbox(request.session, context.send, context.queued)
        self._passages_lock = threading.Lock()
        self._titles: tuple[str, ...] = ()
        self._texts: tuple[str, ...] = ()  # of the documents
        self._position = 0
        self.began = self._heard = time.monotonic()

    # --- CloudHalf

    def begin(self) -> None:
        side, estimates = self._context.side, self._context.estimates
        decoded = partial(side.profiler.decoded, estimates)
        owner, waited = self._context.owner, self._context.waited
        drafter = self._scheme.verifier
        start = Start(self._part, self._request, drafter, decoded, self._retrieved, owner, waited)
        side.begin(start, self._retrieve)

    def check(self, message: Message) -> None:
        if isinstance(message, Propose | Defer):
            with _told_where(message):
                self._machine.check(message)

    def receive(self, message: Message) -> None:
        if not isinstance(message, Propose | Defer | Sync):
            return
        self._heard = time.monotonic()
        if self._driver.recorder is not None:
            self._driver.recorder.message("receive", message)
        machine = self._machine
        if isinstance(message, Propose):
            self._context.estimates.meter.spare(self._heard)
            with _told_where(message):
                proposed = self._read(message)
                self._driver.apply(lambda: machine.proposed(message, self._heard, proposed))
        elif isinstance(message, Defer):
            with _told_where(message):
                self._driver.apply(lambda: machine.deferred(message, self._heard))
        else:
            self._driver.apply(lambda: self._synchronised(message))

    def _read(self, message: Propose) -> Sequence[Proposed] | None:
        """The proposal's content; None where nobody wants to know. Not under the lock: the engine asks for it often."""
        with self._driver.lock:
            wanted = not self._driver.over and self._machine.wants(message)
        return self._scheme.judge.read(message) if wanted else None

    def tick(self, now: float, run_ahead: int) -> None:
        """Hand over what the link has room for of the passages."""
        with self._passages_lock:
            if not self._driver.over and self._passages.pump():
                self._heard = now

    def silent(self, now: float) -> float:
        """Seconds since the device was heard, or took something, or a token was decided: a device whose drafts all come
        too late for an eager verifier proposes nothing.
        """
        position = self._machine.position
        if position != self._position:
            self._position, self._heard = position, now
        return now - self._heard

    def given_up(self) -> Error:
        return unknown_session(self._request.session)

    def finish(self, done: Callable[[], object]) -> None:
        done()

    def closing(self) -> Iterator[Message]:
        self._driver.end()
        session, machine = self._request.session, self._machine
        yield from span_messages(session, self._driver.recorder)
        shares = self._driver.record.shares[: machine.position]
        pieces = self._context.side.tokenizer.pieces(machine.decided[: len(shares)])
        yield from contribution_messages(session, len(self._titles), shares, [None] * len(shares))
        yield from text_messages(session, self._texts, pieces, shares, [None] * len(shares))
        rejected = machine.judged - machine.accepted
        yield Closed(session, machine.judged, machine.accepted, rejected, self._part.preempted, machine.stale, 0)

    def end(self) -> None:
        self._driver.end()

    # --- the prompt, on the retrieval thread

    @property
    def scope(self) -> Scope:
        """The documents that may be read."""
        return Scope(self._request.only)

    def _retrieve(self, request: Open) -> PromptRows:
        """Look up what both sides read, and hand the drafter its passages."""
        side = self._context.side
        found = self._reading.find(side, request, self.scope)
        rows = self._claimed(found)
        with self._passages_lock:
            if not found.passages:
                self._passages.add_none()
            for index, each in enumerate(found.passages):
                self._passages.add(index, len(found.passages), each.title, each.similarity, each.text.encode())
            self._passages.pump()
        return rows

    def _claimed(self, found: Found) -> PromptRows:
        """The rows that are read, which have a place now that they are known. Raises `NoPlace`, `RequestError`."""
        self._context.reserve(self, self._context.side.target.kv_bytes(self._request, found.rows))
        return found.rows

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._titles, self._texts = retrieved.titles, retrieved.texts
        ready = Ready(self._request.session, fitting(retrieved.titles), retrieved.tokens, retrieved.closest)
        if self._driver.recorder is not None:
            self._driver.recorder.message("send", ready)
        self._context.send(ready)

    # --- Observer, under the driver's lock

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._context.failed(self, self._request.session, failure)

    def _synchronised(self, message: Sync) -> list[Action]:
        actions = self._machine.synchronised(message)
        self._driver.record.withdraw(self._machine.position)
        return actions


@contextmanager
def _told_where(message: Propose | Defer) -> Iterator[None]:
    """Name the message in what is said of it."""
    try:
        yield
    except ProtocolError as error:
        where = f"{_NAMES[type(message)]} {message.round}, at position {message.position}"
        raise ProtocolError(
            error.code,
            f"{where}, was refused: {error.text}. If that stays so, install the same version on both sides.",
        ) from None
