"""The cloud's and the device's part in one answer, as far as aggregating and drafting methods have them in common.

A part holds the answer's `Driver` and connects it with the rest of its daemon: retrieval, the prompt, the messages at
the beginning and the end, and the report. A method adds its state machine and its own messages.
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

TITLES_BYTES = HEADER_LIMIT - 2048  # for all titles of a `Ready`; the rest is for its other fields and their lengths


def short_titles(titles: Sequence[str]) -> tuple[str, ...]:
    """`titles`, with long ones cut so that all fit into the header of a `Ready`."""
    longest = TITLES_BYTES // max(1, len(titles))
    return tuple(title.encode()[:longest].decode(errors="ignore") for title in titles)


class CloudPart(NullObserver, ABC):
    """One session, from `Open` to `Closed`. Implements `CloudHalf`, and `Observer` of its answer.

    The device learns of a failure by an `Error`, which ends the session on both sides.
    """

    slow = False
    answer: Driver
    part: ModelSeat[Any]
    drafter: Drafter  # draws this side's drafts

    def __init__(self, request: Open, context: CloudContext) -> None:
        self.request = request
        self.context = context
        self.began = self.heard = time.monotonic()  # `heard`: when the device was last heard
        self._titles: tuple[str, ...] = ()  # known after retrieval
        self._texts: tuple[str, ...] = ()  # of the documents
        self._position = 0  # at the last look at the clock

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
        """Tokens that the rows shall hold beside the answer's."""
        return 0

    def recorder(self, aggregator: Side, alone: bool) -> Recorder | None:
        """Records the answer if its device has asked for a trace."""
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
        """The rows of the answer, once there is a place for them. On the retrieval thread."""
        rows = self.find(request)
        self.context.reserve(self, self.context.side.target.kv_bytes(request, rows, self.spare))
        return rows

    def retrieved(self, rows: PromptRows) -> None:
        """Tell the device which documents this side has found. On the retrieval thread."""
        self._titles, self._texts = rows.titles, rows.texts
        ready = Ready(self.request.session, short_titles(rows.titles), rows.tokens, rows.closest)
        if self.answer.recorder is not None:
            self.answer.recorder.message("send", ready)
        self.context.send(ready)

    @abstractmethod
    def closed(self) -> Closed:
        """The message with the counts of the session."""

    # --- CloudHalf

    def begin(self) -> None:
        context = self.context
        decoded = partial(context.side.profiler.decoded, context.estimates)
        request = DecodeRequest(self.part, self.drafter, decoded, context.tenant, context.waited)
        context.side.begin(request, self.request, self.retrieve, self.retrieved, self.spare)

    def check(self, message: Message) -> None:
        """Refuse nothing: the codec has refused what can be refused at once."""

    def receive(self, message: Message) -> None:
        """Ignore the message."""

    @abstractmethod
    def tick(self, now: float, run_ahead: int) -> None:
        """Look at the clock; see `CloudHalf`."""

    def silent(self, now: float) -> float:
        """Seconds since the device was heard or took something, or a token was decided.

        Neither a cloud that answers alone nor an eager verifier needs messages.
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
    """One answer on the device with a session on the cloud, which may be opened several times."""

    def __init__(self, context: DeviceContext) -> None:
        super().__init__(context)
        self.prompt_tokens: int | None = None  # that the cloud says it reads
        self._opened_on: Hello | None = None  # the cloud that the session was last opened on

    def send(self, message: Message) -> None:
        """Send a message of the session to the cloud."""
        self.context.send(message)

    def open(self) -> list[str]:
        """Open the session on the cloud. Returns what is different from the cloud that it was opened on before."""
        before, now = self._opened_on, self.context.cloud.hello
        self._opened_on = now or before
        self.send(self.context.opening)
        return changes(before, now) if before is not None and now is not None else []

    def ready(self, message: Ready) -> None:
        """Note that the cloud has retrieved its documents."""
        self.prompt_tokens = message.prompt_tokens
        self._opened_on = self.context.cloud.hello  # a changed cloud has introduced itself again before this

    def reopen(self, rejoin: Callable[[bool], int]) -> None:
        """Open the session on a reconnected cloud.

        `rejoin` is called with whether the cloud has changed. It tells the cloud where the answer stands, and returns
        the position.
        """
        if self.over:
            return
        self.context.phase.restart()
        changed = self.open()
        position = rejoin(bool(changed))
        for what in changed:
            self.context.note(f"From token {position} on the cloud is another one than before: its {what} has changed.")
