"""Common parts of aggregating and drafting methods in one answer, on the cloud and the device.

A part connects the answer's `Driver` with its daemon: retrieval, prompt, first and last messages, report. A method adds
its state machine and its own messages.
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
from common.daemon.handshake import changes
from common.daemon.model_runtime import PromptRows
from common.daemon.side import Scope
from common.engine.draw import Drafter
from common.engine.jobs import DecodeRequest
from common.methods.interface import CloudContext, DeviceContext
from proto.framing import HEADER_LIMIT
from proto.messages import Closed, Error, Hello, Message, Open, Ready, Side

TITLES_BYTES = HEADER_LIMIT - 2048  # for all titles of a `Ready`; the rest is for its other fields


def short_titles(titles: Sequence[str]) -> tuple[str, ...]:
    """Cut long `titles` so that all fit into the header of a `Ready`."""
    longest = TITLES_BYTES // max(1, len(titles))
    return tuple(title.encode()[:longest].decode(errors="ignore") for title in titles)


class CloudPart(NullObserver, ABC):
    """One session, from `Open` to `Closed`. Implements `CloudHalf` and the answer's `Observer`.

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
        """The documents that may be read."""
        return Scope(self.request.only)

    @property
    def spare(self) -> int:
        """Extra tokens of room in the rows, beyond the answer."""
        return 0

    def recorder(self, aggregator: Side, alone: bool) -> Recorder | None:
        """A recorder if the device requested a trace; otherwise None."""
        if not self.request.trace:
            return None
        estimates = self.context.estimates
        recorder = Recorder("cloud", lambda: estimates.estimates, aggregator, alone)
        recorder.message("receive", self.request)
        return recorder

    def find(self, request: Open) -> PromptRows:
        """The rows of the answer. On the retrieval thread."""
        return self.context.side.retrieve(request, self.scope)

    def retrieve(self, request: Open) -> PromptRows:
        """The rows of the answer, after memory is reserved for them. On the retrieval thread."""
        rows = self.find(request)
        self.context.reserve(self, self.context.side.target.kv_bytes(request, rows, self.spare))
        return rows

    def retrieved(self, rows: PromptRows) -> None:
        """Announce this side's documents to the device. On the retrieval thread."""
        self._titles, self._texts = rows.titles, rows.texts
        ready = Ready(self.request.session, short_titles(rows.titles), rows.tokens, rows.closest)
        if self.answer.recorder is not None:
            self.answer.recorder.message("send", ready)
        self.context.send(ready)

    @abstractmethod
    def closed(self) -> Closed:
        """The message with the session's counts."""

    # --- CloudHalf

    def begin(self) -> None:
        context = self.context
        decoded = partial(context.side.profiler.decoded, context.estimates)
        request = DecodeRequest(self.part, self.drafter, decoded, context.tenant, context.waited)
        context.side.begin(request, self.request, self.retrieve, self.retrieved, self.spare)

    def check(self, message: Message) -> None:
        """Accept all messages: the codec rejects malformed ones."""

    def receive(self, message: Message) -> None:
        """Ignore the message."""

    @abstractmethod
    def tick(self, now: float, run_ahead: int) -> None:
        """Check the clock; see `CloudHalf`."""

    def silent(self, now: float) -> float:
        """Seconds since the device last sent or accepted data, or a token was decided.

        A cloud that answers alone and an eager verifier need no messages.
        """
        position = self.answer.machine.position
        if position != self._position:
            self._position, self.heard = position, now
        return now - self.heard

    def given_up(self) -> Error:
        return unknown_session(self.request.session)

    def finish(self, done: Callable[[], object]) -> None:
        self.answer.end()  # nothing changes any more
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
    """One answer on the device. Implements a part of `DeviceHalf`."""

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
    """One answer on the device with a session on the cloud, which may be reopened."""

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context)
        self.prompt_tokens: int | None = None  # the cloud's announced prompt length
        self._opened_on: Hello | None = None  # the cloud that the session was last opened on

    def send(self, message: Message) -> None:
        """Send a message of the session to the cloud."""
        self.context.send(message)

    def open(self) -> list[str]:
        """Open the session on the cloud. Returns the cloud's changes since the previous opening."""
        before, now = self._opened_on, self.context.cloud.hello
        self._opened_on = now or before
        self.send(self.context.opening)
        return changes(before, now) if before is not None and now is not None else []

    def ready(self, message: Ready) -> None:
        """Note that the cloud has retrieved its documents."""
        self.prompt_tokens = message.prompt_tokens
        self._opened_on = self.context.cloud.hello  # a changed cloud has sent a new `Hello` before this

    def reopen(self, rejoin: Callable[[bool], int]) -> None:
        """Open the session on a reconnected cloud.

        `rejoin` gets whether the cloud has changed, sends the committed prefix, and returns the position.
        """
        if self.over:
            return
        self.context.phase.restart()
        changed = self.open()
        position = rejoin(bool(changed))
        for what in changed:
            self.context.note(f"From token {position} on the cloud is another one than before: its {what} has changed.")
