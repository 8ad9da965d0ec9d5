"""Common parts of aggregating and drafting methods, per side and answer.

A part connects the answer's `Driver` with its daemon: retrieval, prompt, first and last messages, report. A method adds
a state machine and messages.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from common.answer.driver import Driver, ModelSeat, NullObserver
from common.answer.recorder import Recorder, span_messages
from common.answer.report import contribution_messages, text_messages
from common.answer.request import unknown_session
from common.answer.values import Asker
from common.daemon.handshake import changes
from common.daemon.model_runtime import PromptRows
from common.daemon.side import Scope
from common.engine.draw import Drafter
from common.engine.jobs import DecodeRequest
from common.methods.interface import CloudContext, DeviceContext
from proto.framing import HEADER_LIMIT
from proto.messages import Closed, Error, Hello, Message, Open, Ready, Side

TITLES_BYTES = HEADER_LIMIT - 2048  # the rest is for other fields of a `Ready`


def short_titles(titles: Sequence[str]) -> tuple[str, ...]:
    """Cut long titles to the header of a `Ready`."""
    longest = TITLES_BYTES // max(1, len(titles))
    return tuple(title.encode()[:longest].decode(errors="ignore") for title in titles)


class CloudPart(NullObserver, ABC):
    """One session. Implements `CloudHalf` and the answer's `Observer`.

    A failure is sent as an `Error`, which ends the session on both sides.
    """

    slow = False
    answer: Driver
    part: ModelSeat[Any]
    drafter: Drafter  # draws this side's drafts

    def __init__(self, request: Open, context: CloudContext) -> None:
        self.request = request
        self.context = context
        self.began = self.heard = time.monotonic()  # `heard`: latest sign of the device
        self._titles: tuple[str, ...] = ()  # known after retrieval
        self._texts: tuple[str, ...] = ()  # of the documents
        self._position = 0  # at the last `silent`

    # --- for the methods

    @property
    @abstractmethod
    def decided(self) -> Sequence[int]:
        """The answer so far."""

    @property
    def scope(self) -> Scope:
        return Scope(self.request.only)

    @property
    def spare(self) -> int:
        """Tokens of room in the rows, beyond the answer."""
        return 0

    def recorder(self, aggregator: Side, alone: bool) -> Recorder | None:
        """A recorder if the device requested a trace, else None."""
        if not self.request.trace:
            return None
        estimates = self.context.estimates
        recorder = Recorder("cloud", lambda: estimates.estimates, aggregator, alone)
        recorder.message("receive", self.request)
        return recorder

    def find(self, request: Open) -> PromptRows:
        """The answer's rows. On the retrieval thread."""
        return self.context.side.retrieve(request, self.scope)

    def retrieve(self, request: Open) -> PromptRows:
        """The answer's rows with reserved memory. On the retrieval thread."""
        rows = self.find(request)
        self.context.reserve(self, self.context.side.target.kv_bytes(request, rows, self.spare))
        return rows

    def retrieved(self, rows: PromptRows) -> None:
        """Announce the documents to the device. On the retrieval thread."""
        self._titles, self._texts = rows.titles, rows.texts
        ready = Ready(self.request.session, short_titles(rows.titles), rows.tokens, rows.closest)
        if self.answer.recorder is not None:
            self.answer.recorder.message("send", ready)
        self.context.send(ready)

    @abstractmethod
    def closed(self) -> Closed:
        """The session's counts."""

    # --- CloudHalf

    def begin(self) -> None:
        context = self.context
        decoded = partial(context.side.profiler.decoded, context.estimates)
        request = DecodeRequest(self.part, self.drafter, decoded, context.tenant, Asker(waited=context.waited))
        context.side.begin(request, self.request, self.retrieve, self.retrieved, self.spare)

    def check(self, message: Message) -> None:
        """Accept: the codec has rejected malformed messages."""

    def receive(self, message: Message) -> None:
        """Ignore the message."""

    @abstractmethod
    def tick(self, now: float, run_ahead: int) -> None:
        """See `CloudHalf`."""

    def silent(self, now: float) -> float:
        """Seconds since the device sent or accepted data, or a token was decided.

        Lone clouds and eager verifiers need no messages.
        """
        position = self.answer.machine.position
        if position != self._position:
            self._position, self.heard = position, now
        return now - self.heard

    def given_up(self) -> Error:
        return unknown_session(self.request.session)

    def finish(self, done: Callable[[], object]) -> None:
        self.answer.end()
        done()

    def closing(self) -> Iterator[Message]:
        session, record = self.request.session, self.answer.record
        yield from span_messages(session, self.answer.recorder)
        if record.apart:
            pieces = self.context.side.tokenizer.pieces(self.decided[: len(record.shares)])
            yield from contribution_messages(session, len(self._titles), record.shares, record.cloud_shares)
            yield from text_messages(session, self._texts, pieces, record.shares, record.cloud_shares)
        yield self.closed()

    def end(self) -> None:
        self.answer.end()

    # --- Observer, under the answer's lock

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self.context.failed(self, self.request.session, failure)


class DevicePart(ABC):
    """Implements a part of `DeviceHalf`."""

    answer: Driver

    def __init__(self, context: DeviceContext) -> None:
        self.context = context

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self.answer.over

    def end(self, failure: Exception | None) -> None:
        self.answer.end(failure)


class OpenedPart(DevicePart):
    """An answer on the device with a reopenable session on the cloud."""

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context)
        self.prompt_tokens: int | None = None  # announced by the cloud
        self._opened_on: Hello | None = None  # the latest cloud of the session

    def send(self, message: Message) -> None:
        self.context.send(message)

    def open(self) -> list[str]:
        """Open the session. Returns the cloud's changes since the previous opening."""
        before, now = self._opened_on, self.context.cloud.hello
        self._opened_on = now or before
        self.send(self.context.opening)
        return changes(before, now) if before is not None and now is not None else []

    def ready(self, message: Ready) -> None:
        self.prompt_tokens = message.prompt_tokens
        self._opened_on = self.context.cloud.hello  # a changed cloud has sent a new `Hello` before

    def reopen(self, rejoin: Callable[[bool], int]) -> None:
        """Open the session on a reconnected cloud.

        `rejoin` gets whether the cloud has changed, synchronizes it, and returns the position.
        """
        if self.over:
            return
        self.context.phase.restart()
        changed = self.open()
        position = rejoin(bool(changed))
        for what in changed:
            self.context.note(f"From token {position} on, another cloud took part: its {what} has changed.")
