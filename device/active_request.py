"""One request being answered on the device: its tokens are turned into text, its figures into a report."""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from common.methods.interface import LIFECYCLE, DeviceHalf, Method
from common.methods.report import Record, build_report
from common.methods.request import Request
from common.model.tokenizer import StopFilter
from common.runtime.errors import RequestError
from common.runtime.failures import as_failure
from common.runtime.side import SideRuntime
from common.session.values import Commit
from common.tracing.recorder import Recorder
from device.cloud_view import CloudView
from device.interface import AnswerEvent, Finished, FinishReason, Provisional, TokenChance, TokenEvent
from device.tracing import Tracing
from proto.errors import ProtocolError
from proto.fields import Side
from proto.messages import Busy, Cancel, Close, Closed, Contributions, Error, Fetched, Message, Open, Ready

log = logging.getLogger(__name__)

CLOSING_PATIENCE = 1.0  # seconds of silence until the report is made without the cloud's part
BUSY_PATIENCE = 2.0  # seconds that a first token waits for a place on the cloud, unless the setting `patience` is less
RECENT = 8  # tokens behind which provisional ones are decoded
BUSY = "it serves as many answers as it can."
MALFORMED = "what it sent of the answer can't be used."
OFFLINE = "The cloud did not take part: privacy 'offline' keeps the question on this device."


class ActiveRequest:
    """Implements `Generation` for the reader of the answer, and `DeviceContext` for the method that makes it.

    The events wait in a queue; an answer has at most `max_tokens` of them.
    """

    def __init__(
        self,
        method: Method,
        request: Request,
        opening: Open,
        side: SideRuntime,
        cloud: CloudView,
        released: Callable[[int], None],
    ) -> None:
        """Raises `RequestError`, or `AnswerFailed` where the cloud is needed and not there."""
        self.request = request
        self.opening = opening
        self.side = side
        self.cloud = cloud
        self.record = Record(time.monotonic(), opening.seed)
        self.with_cloud = request.sources != "device" and request.privacy != "offline" and cloud.connection is not None
        self.ready = False
        self._tracing: Tracing | None = None
        self.retry_at: float | None = None  # when a cloud that had no place is asked again
        self._text: list[str] = []
        self._stream = side.tokenizer.stream()
        self._stops = StopFilter(request.stop)
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._released = released
        self._events: queue.SimpleQueue[AnswerEvent | Exception] = queue.SimpleQueue()
        self._reason: FinishReason = "cancelled"
        self._ended: float | None = None
        self._heard = 0.0  # when the cloud last said anything of its part of the report
        self._done = False
        self.half: DeviceHalf = method.device(self)

    # --- Generation

    def __iter__(self) -> Iterator[AnswerEvent]:
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

    # --- from the engine

    def start(self) -> None:
        """Begin to answer."""
        self.half.start(self._absence())

    def heard(self, message: Message, size: int) -> None:
        """Take in a message of this answer from the cloud, of `size` bytes."""
        if not self.with_cloud or (self._tracing is not None and self._tracing.heard(message)):
            return
        if isinstance(message, Fetched):
            self.record.fetched_bytes += size
        elif not isinstance(message, LIFECYCLE):
            self.record.received_bytes += size
        match message:
            case Ready():
                self.ready = True
                self.record.cloud_titles = message.titles
                self.record.prompt_tokens += message.prompt_tokens
                self._deliver(message)
            case Contributions():
                self._contributed(message)
            case Closed():
                self._close(message)
            case Error(code="unknown-session"):
                self.reopen()
            case Error(code="document") if not self.record.token_times:
                self.end(RequestError(message.text, "long_document"))  # there is nothing to answer from
            case Error():
                self._without_cloud(message.text)
            case Busy():
                self._busy(message.retry_after / 1e6)
            case _:
                self._deliver(message)

    def reopen(self) -> None:
        """Turn to a cloud that is connected (again) and does not know this answer."""
        if self.with_cloud:
            self.half.reconnected()

    def tick(self, now: float, patience: float) -> None:
        """Look at the clock; a first token waits for a busy cloud `patience` seconds at most."""
        if self._ended is not None:
            if not self._done and now - self._heard > CLOSING_PATIENCE:
                self._close(None)
            return
        self.half.tick(now)
        if self.retry_at is None:
            return
        if self.half.waiting and max(now, self.retry_at) > self.record.started + min(patience, BUSY_PATIENCE):
            self._without_cloud(BUSY)  # a place would come too late
        elif now >= self.retry_at:
            self.retry_at, self.with_cloud = None, True
            self.reopen()

    def end(self, failure: Exception | None) -> None:
        """Stop here: cancelled, or failed; the reader gets the failure."""
        self.half.end(failure)
        if failure is not None:
            self._close(None)  # it was over: nobody waits for the cloud's part of the report any more

    def _absence(self) -> str | None:
        if self.with_cloud and self.cloud.connected:
            return None
        offline = self.request.privacy == "offline" and self.cloud.connection is not None
        return OFFLINE if offline else self.cloud.absence

    def _deliver(self, message: Message) -> None:
        try:
            self.half.receive(message)
        except ProtocolError as error:
            log.warning("the cloud sent a malformed message: %s", error)
            self.send(Error(self.opening.session, error.code, str(error)))
            self._without_cloud(MALFORMED)

    def _busy(self, seconds: float) -> None:
        """The cloud has no place: ask again after `seconds` if nothing of the answer is decided yet."""
        if self.record.token_times:
            self._without_cloud(BUSY)
        else:
            self.with_cloud = False
            self.retry_at = time.monotonic() + seconds

    def _without_cloud(self, reason: str) -> None:
        """Go on without the cloud, for `reason`, a sentence; the cloud has ended its session already."""
        if self._ended is not None:
            self._close(None)
            return
        tokens = len(self.record.token_times)
        begun = f"The cloud took no part after {tokens} tokens" if tokens else "The cloud did not take part"
        self.with_cloud, self.retry_at = False, None
        self.half.without_cloud(f"{begun}: {reason}")

    # --- DeviceContext

    def trace(self, aggregator: Side, alone: bool) -> Recorder | None:
        if not self.request.trace:
            return None
        cloud = self.cloud
        self._tracing = Tracing(Recorder("device", cloud.estimates, aggregator, alone), lambda: cloud.peer.meter)
        return self._tracing.recorder

    def send(self, message: Message) -> None:
        if self._tracing is not None and isinstance(message, Open):
            self._tracing.recorder.message("send", message)
        size = self.cloud.send(message) if self.with_cloud else 0
        if not isinstance(message, LIFECYCLE):
            self.record.sent_bytes += size

    def note(self, sentence: str) -> None:
        if sentence not in self.record.notes:
            self.record.notes.append(sentence)

    def silent(self, now: float) -> float:
        times = self.record.token_times
        return now - (times[-1] if times else self.record.started)

    def committed(self, commit: Commit) -> bool:
        self.record.token_times.append(time.monotonic())
        self._recent.append(commit.token)
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

    def provisional(self, drafts: Sequence[int]) -> None:
        self._events.put(Provisional(self.side.tokenizer.continuation(self._recent, drafts)))

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("the device never takes a shown token back")

    def ended(self, failure: Exception | None) -> None:
        # Ask the cloud for its part of the report, or do without.
        self._ended = self._heard = time.monotonic()
        if failure is not None:
            self.send(Cancel(self.opening.session))
            self._finish(failure)
        elif self._reason == "cancelled":
            self.send(Cancel(self.opening.session))
            self._close(None)
        elif self.ready and self.with_cloud and not self.half.away:
            self.cloud.send(Close(self.opening.session, len(self.record.token_times)))
        else:
            self.send(Cancel(self.opening.session))
            self._close(None)

    # --- the end

    def _contributed(self, message: Contributions) -> None:
        """Take in some of the cloud's part of the report."""
        if self._ended is not None:
            self._heard = time.monotonic()
            self.record.contributions.add(message, len(self.record.token_times))

    def _close(self, closed: Closed | None) -> None:
        """Make the report and the last event; `closed` is None without the cloud's part of the report."""
        if self._done or self._ended is None:
            return
        try:
            part = self.half.report(closed)
            self._note_absence(part.degraded)
            report = build_report(self.request, self.record, part, self.cloud.peer.meter.rtt, self._ended)
        except Exception as error:
            self._finish(as_failure(error))
        else:
            self._finish(Finished(self._reason, "".join(self._text), report))

    def _traced(self, finished: Finished) -> Finished:
        """Add the trace, which is merged on the reader's thread: the engine's threads have no time for that."""
        if self._tracing is None:
            return finished
        return replace(finished, report=replace(finished.report, trace=self._tracing.merged()))

    def _note_absence(self, degraded: Sequence[int]) -> None:
        """Note a cloud that went away in the middle; a reason for its absence from the beginning is noted already."""
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
        self._events.put(TokenEvent(text, commit.token, commit.position, degraded, self._chances(commit)))

    def _chances(self, commit: Commit) -> tuple[TokenChance, ...]:
        """Log-probabilities that were asked for; none of the end of the sequence, which is no text."""
        wanted = self.request.top_logprobs
        if commit.logprobs is None or wanted is None or commit.token in self.opening.eos:
            return ()
        told = [(commit.token, commit.logprobs.token), *commit.logprobs.top[:wanted]]
        return tuple(TokenChance(self.side.tokenizer.piece(token), logprob) for token, logprob in told)
