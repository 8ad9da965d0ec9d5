"""One answer on the cloud, from `Open` to `Closed`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from cloud.contributions import contribution_messages
from cloud.refusals import failure_message, unknown_session
from cloud.whole_answer_sender import WholeAnswerSender
from common.engine.sampling import Drafter
from common.runtime.answer import Answer
from common.runtime.opening import open_session
from common.runtime.peer_estimates import PeerEstimates
from common.runtime.reading import Retrieved
from common.runtime.recording import RecordingDrafting, question_evidence
from common.runtime.side import SideRuntime
from common.speculation.values import Commit
from common.speculation.watch import Limits
from common.tracing.recorder import Recorder
from proto.framing import HEADER_LIMIT
from proto.messages import (
    Closed,
    Draft,
    Error,
    Message,
    Open,
    Ready,
    Resolve,
    Resolved,
    Side,
    Spans,
    Sync,
    Target,
)
from proto.payloads.trace import SPANS_PER_MESSAGE, encode_spans

NEVER = float("inf")
TITLES_BYTES = HEADER_LIMIT - 2048  # for all titles of a `Ready`; the rest is for its other fields and their lengths


class CloudSession:
    """A device's session on this cloud, and the observer of its answer.

    Whatever fails in it is told to the device as an `Error`, which ends the session on both sides.
    """

    def __init__(
        self,
        request: Open,
        side: SideRuntime,
        estimates: PeerEstimates,
        send: Callable[[Message], object],
        over: Callable[[CloudSession], None],
    ) -> None:
        """`over` is told when the session ends by itself. Raises `ValueError` for a request that can't be served."""
        participants: frozenset[Side] = frozenset({"cloud"})
        if request.sources == "both":
            participants |= {"device"}
        opened = open_session("cloud", request, side.decoder, lambda: estimates.estimates, participants)
        self._request = request
        self._side = side
        self._estimates = estimates
        self._send = send
        self._over = over
        self._drafting: Drafter = opened.drafting
        self._whole_answer: WholeAnswerSender | None = None
        if request.delivery == "sequence":
            recording = RecordingDrafting(opened.drafting)
            self._drafting = recording
            self._whole_answer = WholeAnswerSender(request, recording, send)
        recorder = None
        if request.trace:
            alone = "device" not in participants
            recorder = Recorder("cloud", lambda: estimates.estimates, opened.session.aggregator, alone)
            recorder.message("receive", request)
        self._answer = Answer(opened.session, self._announce, self, estimates.judged, side.decoding, recorder)
        self._titles: tuple[str, ...] = ()  # known after retrieval
        self.began = self._heard = time.monotonic()
        self._position = 0

    # --- what the sessions do with it

    def begin(self) -> None:
        """Retrieve, and decode until the end."""
        decoded = partial(self._side.profiler.decoded, self._estimates)
        self._side.begin(self._answer, self._request, self._drafting, self._retrieved, decoded)

    def receive(self, message: Draft | Target | Resolve | Resolved | Sync) -> None:
        """Take in what the device says of the answer. Raises `ProtocolError` when it is malformed."""
        self._heard = time.monotonic()
        self._answer.receive(message)

    def tick(self, now: float, run_ahead: int) -> None:
        """Look at the clock; `run_ahead` is the most drafts that this cloud wants to hold."""
        ahead = self._estimates.run_ahead(min(self._request.run_ahead, run_ahead))
        self._answer.poll(now, Limits(NEVER, NEVER), ahead)

    def silent(self, now: float) -> float:
        """Seconds since the device was heard, or since the answer last went on (alone, the cloud needs no word)."""
        position = self._answer.session.position
        if position != self._position:
            self._position, self._heard = position, now
        return now - self._heard

    def given_up(self) -> Error:
        """What the device is told when it was silent for too long: it may come back."""
        return unknown_session(self._request.session)

    def end(self) -> None:
        """Stop here: closed, cancelled, given up, or the device is gone."""
        self._answer.end()

    # --- Observer, under the answer's lock

    def committed(self, commit: Commit) -> bool:
        if self._whole_answer is not None:
            self._whole_answer.committed(commit.token)
        return True

    def withdrawn(self, position: int) -> None:
        pass

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self._send(failure_message(self._request.session, failure))
            self._over(self)

    # --- the way of the answer

    def _announce(self, message: Message) -> None:
        if self._whole_answer is None:  # an answer that is sent as a whole says nothing of single tokens
            self._send(message)

    def _retrieved(self, retrieved: Retrieved) -> None:
        """On the retrieval thread."""
        self._titles = retrieved.titles
        if self._whole_answer is not None:
            self._whole_answer.evidence = question_evidence(self._side.scorer, retrieved.prompt)
        ready = Ready(self._request.session, fitting(retrieved.titles), retrieved.tokens)
        if self._answer.recorder is not None:
            self._answer.recorder.message("send", ready)
        self._send(ready)
        if retrieved.prompt.absent and self._request.sources == "both":
            self._answer.end()  # the device decides alone, so there is nothing to read

    # --- what is noted for the device's report

    def closing(self) -> Iterator[Message]:
        """End the answer; the messages that tell what this side noted of it, `Closed` the last."""
        self._answer.end()  # nothing changes any more
        session, outcome = self._answer.session, self._answer.outcome
        number = session.config.session
        yield from self._spans()
        yield from contribution_messages(number, len(self._titles), outcome.shares, outcome.cloud_shares)
        yield Closed(
            number,
            session.counters.drafted,
            session.counters.accepted["cloud"],
            session.counters.rollbacks["cloud"],
            self._answer.preempted,
            session.counters.stale,
            session.counters.disagreements,
        )

    def _spans(self) -> Iterator[Spans]:
        """This side's half of the trace; nothing unless it was asked for."""
        recorder = self._answer.recorder
        if recorder is None:
            return
        spans, size = list(recorder.spans), SPANS_PER_MESSAGE
        payloads = [encode_spans(spans[start : start + size]) for start in range(0, len(spans), size)]
        for part, payload in enumerate(payloads):
            yield Spans(self._request.session, part, len(payloads), recorder.dropped, payload)


def fitting(titles: Sequence[str]) -> tuple[str, ...]:
    """`titles`, the long ones cut so that all of them fit into the header of a `Ready`."""
    longest = TITLES_BYTES // max(1, len(titles))
    return tuple(title.encode()[:longest].decode(errors="ignore") for title in titles)
