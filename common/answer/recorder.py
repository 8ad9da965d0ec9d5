"""Records one side of a traced answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from common.answer.values import Commit, Send, Withdraw
from common.estimates.policy import Estimates
from proto.messages import Decided, Message, Open, Ready, Side, Spans, Target, Verdict
from proto.payloads.trace import MESSAGES, SPANS_PER_MESSAGE, Kind, Span, encode_spans

MOST_SPANS: Final = 8192  # a few megabytes per side and answer; later ones are counted
MOST_PARTS: Final = -(-MOST_SPANS // SPANS_PER_MESSAGE)  # messages


class Recorder:
    """Collects spans, microseconds each. Any thread may call it; it never blocks.

    `estimates` are noted with every aggregation. `aggregator` decides the first position. `alone`: only this side's
    documents take part.
    """

    def __init__(
        self,
        role: Side,
        estimates: Callable[[], Estimates],
        aggregator: Side,
        alone: bool = False,
        most: int = MOST_SPANS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.spans: list[Span] = []
        self.dropped = 0
        self._role: Side = role
        self._estimates = estimates
        self._aggregator: Side = aggregator  # of the next position
        self._alone = alone
        self._most = most
        self._clock = clock
        self._cause: int | None = None  # start of the current event

    def since(self, kind: Kind, start: int) -> None:
        """Note retrieval or prefill from `start` on."""
        self._note(Span(kind, "", 0, start, self._clock()))

    def message(self, kind: Kind, message: Message, at: int | None = None) -> None:
        """Note an answer's message; ignore others."""
        at = self._clock() if at is None else at
        detail = type(message).__name__.lower()
        if detail not in MESSAGES:
            return
        if kind == "receive" and not isinstance(message, Open | Ready):
            self._cause = at
        position, epoch = getattr(message, "position", 0), getattr(message, "epoch", getattr(message, "term", 0))
        match message:
            case Target() | Decided():
                count = len(message.tokens)
            case Verdict():
                count = message.accepted + 1
            case _:
                count = 1
        self._note(Span(kind, detail, position, at, at, epoch, max(count, 1)))

    def step(self, detail: str, position: int, epoch: int, start: int, end: int, count: int = 1) -> None:
        """Note a step: made, late or preempted, in `epoch`."""
        if detail != "pre-empted":
            self._cause = end
        self._note(Span("decode", detail, position, start, end, epoch, count))

    def acted(self, actions: Sequence[object], aggregator: Side, position: int) -> None:
        """Note an event's actions; `aggregator` then decides `position`."""
        now = self._clock()
        start = now if self._cause is None else self._cause
        self._cause = None
        for action in actions:
            match action:
                case Send(message):
                    self.message("send", message, now)
                case Commit():
                    self._decided(action, start, now)
                case Withdraw(cut):
                    self._note(Span("roll back", "", cut, now, now))
        if aggregator != self._aggregator:
            self._aggregator = aggregator
            self._note(Span("migrate", aggregator, position, now, now))

    def _decided(self, commit: Commit, start: int, now: int) -> None:
        verdicts = commit.accepted.get("device"), commit.accepted.get("cloud")
        position = commit.position
        alone = self._alone or commit.degraded
        if alone or commit.cloud_share is not None:  # decided here
            found = self._estimates()
            estimates = (
                found.device_decode,
                found.cloud_decode,
                found.rtt,
                found.device_acceptance,
                found.cloud_acceptance,
            )
            detail = "alone" if alone else "both"
            self._note(Span("aggregate", detail, position, start, now, accepted=verdicts, estimates=estimates))
        else:
            self._note(Span("follow", "", position, start, now, accepted=verdicts))
        if commit.accepted.get(self._role) is False:
            self._note(Span("roll back", "", position, now, now))

    def _note(self, span: Span) -> None:
        if len(self.spans) < self._most:
            self.spans.append(span)
        else:
            self.dropped += 1


def span_messages(session: int, recorder: Recorder | None) -> Iterator[Spans]:
    """Messages with the spans; empty without a recorder."""
    if recorder is None:
        return
    spans, size = list(recorder.spans), SPANS_PER_MESSAGE
    payloads = [encode_spans(spans[start : start + size]) for start in range(0, len(spans), size)]
    for part, payload in enumerate(payloads):
        yield Spans(session, part, len(payloads), recorder.dropped, payload)
