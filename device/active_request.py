"""One request being answered on the device: text out of tokens, and the way to its report."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from common.model.tokenizer import StopFilter
from common.runtime.answer import Answer
from common.runtime.failures import as_failure
from common.runtime.opening import Opened
from common.runtime.request import (
    AnswerFailed,
    Finished,
    FinishReason,
    Request,
    TokenEvent,
)
from common.runtime.side import SideRuntime
from common.speculation.session import Session
from common.speculation.values import Commit
from common.tracing.recorder import Recorder
from device.cloud_view import CloudView
from device.exchange import Exchange
from device.report import Record, build_report
from device.tracing import Tracing
from proto.messages import (
    Cancel,
    Close,
    Closed,
    Contributions,
    Draft,
    Hello,
    Message,
    Open,
    Resolve,
    Resolved,
    Sync,
    Target,
)

CLOSING_PATIENCE = 1.0  # seconds of silence until the report is made without the cloud's part
BUSY_PATIENCE = 2.0  # seconds that a first token waits for a place on the cloud, unless the setting `patience` is less
BUSY = "it serves as many answers as it can."


class ActiveRequest:
    """A `Generation`, and the observer of the answer behind it.

    The events wait in a queue for whoever iterates; an answer has at most `max_tokens` of them.
    """

    def __init__(
        self,
        request: Request,
        opening: Open,
        opened: Opened,
        with_cloud: bool,
        side: SideRuntime,
        cloud: CloudView,
        released: Callable[[int], None],
    ) -> None:
        self.request = request
        self.opening = opening
        self.drafting = opened.drafting
        self.record = Record(time.monotonic(), opening.seed)
        self.tracing = self._tracing(opened.session, cloud) if request.trace else None
        recorder = None if self.tracing is None else self.tracing.recorder
        self.answer = Answer(opened.session, self.send, self, cloud.judged, side.decoding, recorder)
        self.exchange: Exchange | None = None  # of a method that does not go token by token
        self.with_cloud = with_cloud  # the session is, or shall be, open on the cloud
        self.retry_at: float | None = None  # when a cloud that had no place is asked again
        self.opened_on: Hello | None = None  # the cloud that the session was last opened on
        self.ready = False  # the cloud has retrieved
        self._text: list[str] = []
        self._stream = side.tokenizer.stream()
        self._stops = StopFilter(request.stop)
        self._cloud = cloud
        self._released = released
        self._events: queue.SimpleQueue[TokenEvent | Finished | Exception] = queue.SimpleQueue()
        self._reason: FinishReason = "cancelled"
        self._ended: float | None = None
        self._heard = 0.0  # when the cloud last said anything of its part of the report
        self._done = False

    # --- Generation

    def __iter__(self) -> Iterator[TokenEvent | Finished]:
        while True:
            event = self._events.get()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, Finished):
                yield self._traced(event)
                return
            yield event

    def cancel(self) -> None:
        self.end(None)

    def end(self, failure: Exception | None) -> None:
        """Stop here: cancelled, or failed, which reaches whoever iterates."""
        if self.exchange is not None:
            self.exchange.end(failure)
        else:
            self.answer.end(failure)
        if failure is not None:
            self.close(None)  # it was over: nobody waits for the cloud's part of the report any more

    # --- messages

    def send(self, message: Message) -> None:
        """To the cloud, if it takes part; counts the bytes of what belongs to the tokens."""
        if self.tracing is not None and isinstance(message, Open):
            self.tracing.recorder.message("send", message)
        size = self._cloud.send(message) if self.with_cloud else 0
        if isinstance(message, Draft | Target | Resolve | Resolved | Sync):
            self.record.sent_bytes += size

    def busy(self, seconds: float) -> None:
        """The cloud has no place: ask again after `seconds` if nothing of the answer is decided yet."""
        if self.record.token_times:
            self.without_cloud(BUSY)
        else:
            self.with_cloud = False
            self.retry_at = time.monotonic() + seconds

    def must_do_without(self, patience: float, now: float) -> bool:
        """Whether a place on the cloud would come too late: nothing else is left to do, `patience` would be over."""
        if self.retry_at is None or (self.exchange is None and not self.answer.session.waiting):
            return False
        return max(now, self.retry_at) > self.record.started + min(patience, BUSY_PATIENCE)

    def without_cloud(self, reason: str) -> None:
        """The cloud takes no part from here on, for `reason`, a sentence; its session is free already."""
        if self._ended is not None:
            self.close(None)
            return
        tokens = len(self.record.token_times)
        begun = f"The cloud took no part after {tokens} tokens" if tokens else "The cloud did not take part"
        sentence = f"{begun}: {reason}"
        self.with_cloud, self.retry_at = False, None
        if self.exchange is not None:
            self.exchange.without_cloud(sentence)
        elif self.request.sources == "cloud":
            self.answer.end(AnswerFailed(sentence))
        else:
            self.note(sentence)
            self.answer.go_alone()

    def note(self, sentence: str) -> None:
        """Tell the user, once."""
        if sentence not in self.record.notes:
            self.record.notes.append(sentence)

    # --- Observer

    def committed(self, commit: Commit) -> bool:
        self.record.token_times.append(time.monotonic())
        if commit.token in self.opening.eos:
            self._reason = "stop"
            self._emit(commit, self._rest())
            return True
        text, stopped = self._stops.push(self._stream.push(commit.token))
        if stopped:
            self._reason = "stop"
        elif len(self.record.token_times) >= self.request.max_tokens:
            self._reason = "length"
            text += self._rest()
        self._emit(commit, text)
        return not stopped

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("the device never takes a shown token back")

    def ended(self, failure: Exception | None) -> None:
        """Ask the cloud for its part of the report, or do without."""
        self._ended = self._heard = time.monotonic()
        if failure is not None:
            self.send(Cancel(self.opening.session))
            self._finish(failure)
        elif self._reason == "cancelled":
            self.send(Cancel(self.opening.session))
            self.close(None)
        elif self.ready and self.with_cloud and not self.away:
            self._cloud.send(Close(self.opening.session, len(self.record.token_times)))
        else:
            self.send(Cancel(self.opening.session))
            self.close(None)

    # --- the end

    @property
    def away(self) -> bool:
        return self.answer.session.away

    def silent(self, now: float) -> float:
        """Seconds since the last token, or since the request."""
        times = self.record.token_times
        return now - (times[-1] if times else self.record.started)

    def tick(self, now: float) -> None:
        """Give up waiting for the cloud's part of the report when it takes too long."""
        if self._ended is not None and not self._done and now - self._heard > CLOSING_PATIENCE:
            self.close(None)

    def contributed(self, message: Contributions) -> None:
        """A part of the cloud's part of the report."""
        if self._ended is not None:
            self._heard = time.monotonic()
            self.record.contributions.add(message, len(self.record.token_times))

    def close(self, closed: Closed | None) -> None:
        """Everything is known: the last event."""
        if self._done or self._ended is None:
            return
        self._note_absence(self.answer.session.counters.degraded)
        rtt = self._cloud.peer.meter.rtt
        try:
            report = build_report(self.request, self.record, self.answer, closed, rtt, self._ended)
        except Exception as error:
            self._finish(as_failure(error))
        else:
            self._finish(Finished(self._reason, "".join(self._text), report))

    @staticmethod
    def _tracing(session: Session, cloud: CloudView) -> Tracing:
        alone = session.config.participants == {"device"}
        return Tracing(Recorder("device", cloud.estimates, session.aggregator, alone), lambda: cloud.peer.meter)

    def _traced(self, finished: Finished) -> Finished:
        """With the trace, which is put together here: the reader's thread has the time, the engine's have not."""
        if self.tracing is None:
            return finished
        return replace(finished, report=replace(finished.report, trace=self.tracing.merged()))

    def _note_absence(self, degraded: list[int]) -> None:
        """A cloud that went in the middle; what kept it away from the beginning is noted already."""
        if degraded and not self.record.notes:
            tokens = len(self.record.token_times)
            self.note(
                f"The cloud was away for {len(degraded)} of {tokens} tokens: only this device's documents took part "
                "in them."
            )

    def _finish(self, event: Finished | Exception) -> None:
        self._done = True
        self._events.put(event)
        self._released(self.opening.session)

    def _rest(self) -> str:
        text, stopped = self._stops.push(self._stream.finish())
        return text if stopped else text + self._stops.finish()

    def _emit(self, commit: Commit, text: str) -> None:
        self._text.append(text)
        degraded = commit.degraded or self.record.alone
        self._events.put(TokenEvent(text, commit.token, commit.position, degraded))
