"""One answer on the cloud: what it notes for the device's report."""

from __future__ import annotations

import time

from cloud.reciting import Reciter
from common.runtime.answer import Answer
from common.speculation.values import Commit
from proto.messages import WHOLE_SHARE, Closed, Open, Spans
from proto.payloads.trace import SPANS_PER_MESSAGE, encode_spans


class Watcher:
    """Observes an answer; the cloud shows nothing to anybody, so there is nothing to do but go on."""

    def committed(self, commit: Commit) -> bool:
        return True

    def withdrawn(self, position: int) -> None:
        pass

    def ended(self, failure: Exception | None) -> None:
        pass


class Hosted:
    """A device's session on this cloud."""

    def __init__(self, opened: Open, answer: Answer, reciter: Reciter | None = None) -> None:
        self.opened = opened
        self.answer = answer
        self.reciter = reciter  # of an answer that is told as a whole
        self.titles: tuple[str, ...] | None = None  # known after retrieval
        self.heard = time.monotonic()
        self._position = 0

    def end(self) -> None:
        """Stop here: closed, cancelled, or the device is gone."""
        self.answer.end()

    def silent(self, now: float) -> float:
        """Seconds since the device was heard, or since the answer last went on (alone, the cloud needs no word)."""
        position = self.answer.session.position
        if position != self._position:
            self._position, self.heard = position, now
        return now - self.heard

    def closed(self) -> Closed:
        """The session's figures and each document's share of each token."""
        session, outcome = self.answer.session, self.answer.outcome
        documents = max(1, len(self.titles or ()))
        rows = bytearray()
        for shares, cloud_share in zip(outcome.shares, outcome.cloud_shares, strict=True):
            scale = WHOLE_SHARE if cloud_share is None else WHOLE_SHARE * cloud_share
            row = [round(scale * share) for share in shares[:documents]]
            rows += bytes(row + [0] * (documents - len(row)))
        return Closed(
            session.config.session,
            session.counters.drafted,
            session.counters.accepted["cloud"],
            session.counters.rollbacks["cloud"],
            self.answer.preempted,
            session.counters.stale,
            session.counters.disagreements,
            bytes(rows),
        )

    def traced(self) -> list[Spans]:
        """This side's half of the trace; nothing unless it was asked for."""
        recorder = self.answer.recorder
        if recorder is None:
            return []
        spans, size = list(recorder.spans), SPANS_PER_MESSAGE
        payloads = [encode_spans(spans[start : start + size]) for start in range(0, len(spans), size)]
        return [
            Spans(self.opened.session, part, len(payloads), recorder.dropped, payload)
            for part, payload in enumerate(payloads)
        ]
