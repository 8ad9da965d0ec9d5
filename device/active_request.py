"""One request being answered on the device, and the reader's view of its tokens."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from common.answer.patience import Stopwatch
from common.answer.recorder import Recorder
from common.answer.report import UNREAD, AnswerRecord, Record, Report, build_report, untold
from common.answer.request import (
    NO_DOCUMENT_FITS,
    QUESTION_TOO_LONG,
    AnswerFailed,
    Request,
    RequestError,
    TooLong,
)
from common.answer.values import Asker, Commit, Phase
from common.daemon.handshake import as_failure
from common.daemon.side import Scope, SideRuntime
from common.engine.jobs import Prompt
from common.engine.model.tokenizer import REPLACEMENT, StopFilter, Tokenizer
from common.methods.interface import LIFECYCLE, DeviceHalf, Method
from common.metrics.answers import failure_kind
from common.process.log_lines import AnswerName
from device.cloud_connection import CloudView
from device.ending import Ending
from device.interface import (
    Finished,
    FinishReason,
    PromptProgress,
    Provisional,
    Tell,
    TokenChance,
    TokenEvent,
    Unmatched,
    Waiting,
)
from device.metrics import DeviceMetrics
from device.settings import DeviceSettings
from device.tracing import Tracing
from proto.errors import ProtocolError
from proto.messages import Busy, Cancel, Close, Closed, Contributions, Error, Fetched, Message, Open, Ready, Side

RECENT = 8  # tokens of context for decoding provisional ones
NOTHING: Final = -1.0  # closeness when no document was found
NOT_FOUND: Final = "No document was found: the model answers without documents and may invent facts."
NOT_CLOSE: Final = "No document is close to the question: the model answers without documents and may invent facts."
REFUSAL: Final = "I don't know: no document that was found is close to the question."  # in place of the answer

# Detects an answer that repeats itself to the last token, as small models do.
LONGEST_CYCLE: Final = 32  # tokens
SHORTEST_RUN: Final = 48  # tokens
FEWEST_CYCLES: Final = 4


class ShownAnswer:
    """Tells events: at most `max_tokens`, and one per wait.

    From any thread, but one token at a time.
    """

    def __init__(self, request: Request, tokenizer: Tokenizer, eos: Collection[int], tell: Tell) -> None:
        self.reason: FinishReason = "cancelled"
        self._request = request
        self._tokenizer = tokenizer
        self._eos = eos
        self._text: list[str] = []
        self._stream = tokenizer.stream()
        self._stops = StopFilter(request.stop)
        self._recent: deque[int] = deque(maxlen=RECENT)
        # Repetition in a format can be data, and a cut would break it.
        bound = request.response_format is not None or (request.calls is not None and request.calls.must)
        self._repetition = Repetition() if request.end_repetition and not bound else None
        self.tell = tell

    @property
    def repeats(self) -> bool:
        return self._repetition is not None and self._repetition.ended

    @property
    def text(self) -> str:
        return "".join(self._text)

    def committed(self, commit: Commit, alone: bool) -> bool:
        """Shows a final token. Returns whether the answer continues.

        `alone`: without the cloud.
        """
        self._recent.append(commit.token)
        if commit.token in self._eos:
            self.reason = "stop"
            self._emit(commit, self._rest(), alone)
            return True
        text, stopped = self._stops.push(self._stream.push(commit.token))
        if stopped:
            self.reason = "stop"
        elif self._repetition is not None and self._repetition.push(commit.token):
            self.reason, stopped = "stop", True
            text += self._rest()
        elif commit.position + 1 >= self._request.max_tokens:
            self.reason = "length"
            text += self._rest()
        self._emit(commit, text, alone)
        return not stopped

    def unmatched(self, closest: float) -> None:
        """Shows that no document is close, before the first token."""
        self.tell(Unmatched(closest, NOT_FOUND if closest == NOTHING else NOT_CLOSE))

    def refuse(self, commit: Commit) -> None:
        """Shows the refusal in place of all tokens."""
        self.reason = "stop"
        self._text.append(REFUSAL)
        self.tell(TokenEvent(REFUSAL, commit.token, commit.position, commit.degraded))

    def provisional(self, drafts: Sequence[int]) -> None:
        self.tell(Provisional(self._tokenizer.continuation(self._recent, drafts)))

    def end(self, event: Finished | Exception) -> None:
        self.tell(event)

    def _rest(self) -> str:
        text, stopped = self._stops.push(self._stream.finish())
        return text if stopped else text + self._stops.finish()

    def _emit(self, commit: Commit, text: str, alone: bool) -> None:
        self._text.append(text)
        degraded = commit.degraded or alone
        self.tell(TokenEvent(text, commit.token, commit.position, degraded, self._chances(commit)))

    def _chances(self, commit: Commit) -> tuple[TokenChance, ...]:
        """Requested log-probabilities, empty for an end-of-sequence token, which is no text."""
        wanted = self._request.top_logprobs
        if commit.logprobs is None or wanted is None or commit.token in self._eos:
            return ()
        told = [(commit.token, commit.logprobs.token), *commit.logprobs.top[:wanted]]
        return tuple(self._chance(token, logprob) for token, logprob in told)

    def _chance(self, token: int, logprob: float) -> TokenChance:
        text = self._tokenizer.piece(token)
        return TokenChance(text, logprob, self._tokenizer.piece_bytes(token) if REPLACEMENT in text else b"")


class Repetition:
    """Detects repetition at the end of an answer."""

    def __init__(self) -> None:
        self.ended = False  # the end is one repeated cycle
        self._tokens: list[int] = []
        self._runs = [0] * (LONGEST_CYCLE + 1)  # by cycle: tokens at the end equal to those a cycle before

    def push(self, token: int) -> bool:
        """Returns whether the end repeats a cycle often and long enough."""
        self._tokens.append(token)
        place = len(self._tokens) - 1
        for cycle in range(1, LONGEST_CYCLE + 1):
            before = place - cycle
            same = before >= 0 and self._tokens[before] == token
            run = self._runs[cycle] = self._runs[cycle] + 1 if same else 0
            # The run starts with the second repetition.
            self.ended |= run + cycle >= max(SHORTEST_RUN, FEWEST_CYCLES * cycle)
        return self.ended


# --- active_request
# Turns one request's tokens into text, and its figures into a report.

log = logging.getLogger(__name__)

SOONEST_REOPENING = 0.5  # seconds between reopenings, for a forgetful cloud
BUSY_PATIENCE = 2.0  # seconds of a first token's wait for a slot, within the setting `patience`
BUSY = "it serves as many answers as it can."
READING_SHOWN = 1.0  # seconds before the progress of reading is shown, and between two times
NO_WORD = "The answer waits for the cloud, which sent nothing new in {:g} seconds."
REPEATS = "Stopped: the answer had started to repeat itself."
NOT_REFUSED = (
    "No document is close to the question. It was still answered, because a refusal has neither the format nor the "
    "tool calls of this request."
)
MALFORMED = "the messages that it sent can't be used."
NOT_MOVED = "This model can't reuse stored documents in one row: the documents of this answer were read together."
OFFLINE = "The cloud did not take part: privacy 'offline' keeps the question on this device."


class ActiveRequest:
    """Implements `Generation` for the answer's reader, and `DeviceContext` for its method."""

    def __init__(
        self,
        method: Method,
        request: Request,
        opening: Open,
        side: SideRuntime,
        cloud: CloudView,
        tell: Tell,
        metrics: DeviceMetrics,
        released: Callable[[int], None],
        again: Callable[[ActiveRequest], object],
        match_from: float,
        scope: Scope,
        came: float,  # arrival, before its files were read
    ) -> None:
        """Raises `RequestError`, or `AnswerFailed` if a needed cloud is missing."""
        self.request = request
        self.opening = opening
        self.side = side
        self.scope = scope
        self.cloud = cloud.of(request)
        self.record = Record(came, opening.seed, opening.session, side.decoder.weights, begun=time.monotonic())
        self.record.asker = Asker(request.keeper, self.record.waited, self.record.read)
        wanted = request.sources != "device" and request.privacy != "offline" and cloud.connection is not None
        self.phase = Phase("asked" if wanted else "alone")
        self._tracing: Tracing | None = None
        self.retry_at: float | None = None  # time to ask a busy cloud again
        self._shown = ShownAnswer(request, side.tokenizer, opening.eos, tell)
        self._metrics = metrics
        self._released = released
        self._again = again  # answers without documents
        self._anew = False  # no document is close, so `_again` answers
        self._successor: ActiveRequest | None = None  # the answer without documents
        self._cancelled = False
        self._match_from = match_from  # minimum cosine of a close document
        self._clock = Stopwatch()
        self._absent: str | None = None  # reason for the cloud's absence at the start
        self._absences: set[str] = set()  # notes with reasons for tokens without the cloud
        self._refusal: str | None = None  # the latest refusal, by or of the cloud
        self._reopened = -SOONEST_REOPENING
        self._reading: float | None = None  # start of the cloud's reading, as far as known
        self._told_tokens = -1  # tokens at the latest `Waiting`
        self._told_read = self.record.begun, (0, 0)  # when progress was shown, and which
        self._tokens: list[int] = []
        reread = partial(side.target.reread, keeper=request.keeper)
        self._ending = Ending(self.record.begun, reread, self._make_report)
        self._order = threading.Lock()  # orders messages and their count: no opening after the end
        self.half: DeviceHalf = method.device(self)

    # --- Generation

    def cancel(self) -> None:
        with self._order:
            self._cancelled, successor = True, self._successor
        if successor is not None:
            successor.cancel()
        if self._anew:
            return
        self.end(None)
        if not self._ending.over:  # nobody waits for the report
            self.send(Cancel(self.opening.session))
            self._ending.give_up()

    # --- from the engine

    def start(self) -> None:
        """Raises `AnswerFailed` if the request waits for an unusable cloud."""
        if self.opening.aggregation == "blocks" and self.side.decoder.rotation is None:
            self.note(NOT_MOVED)
        absence = self._absence()
        if self.request.wait and self.phase.open and absence is not None:
            if self.cloud.refusal is not None:
                raise AnswerFailed(absence)
            absence = None  # the cloud may connect later
        self._absent = absence
        self.half.start(absence)

    def follow(self, former: ActiveRequest) -> None:
        """Replaces an answer whose documents are not close to the question."""
        with former._order:
            former._successor, cancelled = self, former._cancelled
        record, begun = self.record, former.record
        record.started, record.memory_wait, record.sent = begun.started, begun.memory_wait, replace(begun.sent)
        record.closest, record.unmatched = begun.closest, True
        record.notes += [note for note in begun.notes if note == NOT_REFUSED]
        if begun.closest is not None:
            self._shown.unmatched(begun.closest)
        self.start()
        if cancelled:
            self.cancel()

    def fail(self, error: Exception) -> None:
        self._finish(as_failure(error, session=self.opening.session))

    def heard(self, message: Message, size: int) -> None:
        """Handles a message of `size` bytes from the cloud."""
        if not self.phase.open or (self._tracing is not None and self._tracing.heard(message)):
            return
        quoted = isinstance(message, Fetched) and self._ending.at is not None  # for the report
        if isinstance(message, Fetched):
            self.record.fetched_bytes += 0 if quoted else size
        elif not isinstance(message, LIFECYCLE):
            self.record.received_bytes += size
        match message:
            case Ready():
                self.phase.join()
                # An absence in between is noted at the end.
                self.record.notes[:] = [note for note in self.record.notes if note != self._absent]
                self.record.cloud_titles, self.record.cloud_closest = message.titles, message.closest
                self.record.cloud_prompt_tokens = message.prompt_tokens
                self._deliver(message)
                if self.phase.joined:  # without documents it leaves at once
                    self._reading = self._reading or time.monotonic()
            case Contributions():
                if self._ending.at is not None:  # part of the report
                    self.record.contributions.add(message, len(self.record.token_times))
            case Fetched() if quoted:
                self.record.contributions.add_text(message, len(self.record.cloud_titles))
            case Closed():
                self._ending.close(message)
            case Error(code="unknown-session"):
                if self._ending.at is not None or time.monotonic() - self._reopened >= SOONEST_REOPENING:
                    self.reopen()
            case Error(code="document") if not self.record.token_times:
                self.end(RequestError(message.text, "long_document"))  # nothing to answer from
            case Error(code=code) if (
                code == QUESTION_TOO_LONG and self.request.sources == "cloud" and (not self.record.token_times)
            ):
                self.end(TooLong(message.text))  # its context may be shorter
            case Error(code=code) if (
                code == NO_DOCUMENT_FITS and self.request.sources == "cloud" and not self.record.token_times
            ):
                self.end(RequestError(message.text, "cloud_documents"))  # nothing to answer from
            case Error():
                self._without_cloud(message.text)
            case Busy():
                self._busy(message.retry_after / 1e6)
            case _:
                self._deliver(message)

    def reopen(self) -> None:
        """Opens the answer on a (re)connected cloud."""
        if self._ending.at is not None:
            self._ending.close(None)  # no report
        elif self.phase.open:
            self._reopened = time.monotonic()
            self.half.reconnected()

    def refused(self, reason: str) -> None:
        """Notes that a reconnected cloud is unusable."""
        if not self.phase.open or self._ending.at is not None or reason == self._refusal:
            return
        self._refusal = reason
        self._go_on(reason)

    def tick(self, now: float, settings: DeviceSettings) -> None:
        """Handles timeouts. `settings` limit a first token's wait for a busy cloud."""
        self._clock.look(now, len(self.record.token_times))
        if self._ending.at is not None:
            cloud, reads = self.cloud.connected and self.phase.open, self.opening.aggregation != "output"
            self._ending.tick(now, cloud, reads, self.record.contributions.size, self.cloud.closing())
            return
        self.half.tick(now)
        self._tell_reading(now)
        if self.request.wait and self.half.waiting:
            self._wait(settings)
        if self.retry_at is None:
            return
        late = self._clock.total + max(0.0, self.retry_at - now) > min(settings.patience, BUSY_PATIENCE)
        if self.half.waiting and late and not self.request.wait:
            self._without_cloud(BUSY)  # a slot would come too late
        elif now >= self.retry_at:
            self.retry_at = None
            self.phase.ask()
            self.reopen()

    def end(self, failure: Exception | None) -> None:
        """Ends early. The reader gets `failure`, if any."""
        self.half.end(failure)
        if failure is not None:
            self._ending.close(None)  # nobody waits for the cloud's part any more

    def _tell_reading(self, now: float) -> None:
        """Shows how far the prompt is read."""
        told, before = self._told_read
        done, total = progress = self.record.progress
        if not self.record.token_times and done < total and progress != before and now - told >= READING_SHOWN:
            self._told_read = now, progress
            self._shown.tell(PromptProgress(done, total))

    def _wait(self, settings: DeviceSettings) -> None:
        """Tells the reader about the wait, and ends a too long one."""
        tokens = len(self.record.token_times)
        if self._clock.since > settings.wait_seconds:
            self.end(AnswerFailed(NO_WORD.format(settings.wait_seconds)))
        elif self._clock.since > settings.patience and tokens != self._told_tokens:
            self._told_tokens = tokens
            self._shown.tell(Waiting())

    def _absence(self) -> str | None:
        if self.phase.open and self.cloud.connected:
            return None
        offline = self.request.privacy == "offline" and self.cloud.connection is not None
        return OFFLINE if offline else self.cloud.absence

    def _deliver(self, message: Message) -> None:
        try:
            self.half.receive(message)
        except ProtocolError as error:
            log.warning("answer %s: the cloud sent a malformed message: %s", AnswerName.of(self.opening.session), error)
            self.send(Error(self.opening.session, error.code, str(error)))
            self._without_cloud(MALFORMED)

    def _busy(self, seconds: float) -> None:
        """Asks again after `seconds`, unless tokens are decided."""
        if self.record.token_times and not self.request.wait:
            self._without_cloud(BUSY)
        else:
            self.phase.leave()
            self.retry_at = time.monotonic() + seconds

    def _without_cloud(self, reason: str) -> None:
        """Continues without the cloud, whose session has ended; `reason` is a sentence."""
        if self._ending.at is not None:
            self._ending.close(None)
            return
        self.retry_at = None
        self.phase.leave()
        self._go_on(reason)

    def _go_on(self, reason: str) -> None:
        """Continues without the cloud, or fails if the request requires it."""
        tokens = len(self.record.token_times)
        begun = f"The cloud took no part after {tokens} tokens" if tokens else "The cloud did not take part"
        if self.request.wait:
            self.end(AnswerFailed(f"{begun}: {reason}"))
        else:
            self.half.without_cloud(f"{begun}: {reason}")

    # --- DeviceContext

    def trace(self, aggregator: Side, alone: bool) -> Recorder | None:
        if not self.request.trace:
            return None
        recorder = Recorder("device", self.cloud.estimates, aggregator, alone)
        self._tracing = Tracing(recorder, lambda: self.cloud.peer.meter, self.record.started)
        return recorder

    def send(self, message: Message) -> None:
        if self._tracing is not None and isinstance(message, Open):
            self._tracing.recorder.message("send", message)
        with self._order:
            late = isinstance(message, Open) and self._ending.at is not None  # the cloud got the end
            size = self.cloud.send(message) if self.phase.open and not late else 0
            if size:
                self.record.sent.count(message, size, self.request.history, self.opening.sampler)

    def note(self, sentence: str, absence: bool = False) -> None:
        if absence:
            self._absences.add(sentence)
        if sentence not in self.record.notes:
            self.record.notes.append(sentence)

    def silent(self, now: float) -> float:
        return now - (self.record.token_times or [self.record.begun])[-1]

    def reread(self, apart: Prompt | None, record: AnswerRecord) -> None:
        self._ending.behind(apart, record)

    def committed(self, commit: Commit) -> bool:
        first = not self.record.token_times
        self.record.token_times.append(time.monotonic())
        self._tokens.append(commit.token)
        if first and self._refuses(commit):
            return False
        if self.phase.joined and not commit.degraded:
            self._has_read(shared=True)
            self.cloud.progressed()
        goes_on = self._shown.committed(commit, self.record.alone)
        if self._shown.repeats:
            self.note(REPEATS)
        return goes_on

    def _has_read(self, shared: bool) -> None:
        if self._reading is not None:
            self.cloud.read(self.record.cloud_prompt_tokens, time.monotonic() - self._reading, shared)
            self._reading = None

    def _refuses(self, commit: Commit) -> bool:
        """Judges closeness. Returns whether the answer, or its use of documents, ends."""
        record, request, wanted = self.record, self.request, self.request.unmatched
        if record.unmatched:
            return False
        asked = request.privacy != "offline" and self.cloud.connection is not None
        record.closest = found = _closest(request, record, commit.degraded or not asked)
        if found is None or found >= self._match_from or wanted == "answer":
            return False
        formed = request.response_format is not None or request.calls is not None  # a refusal has no format or calls
        if wanted == "refuse" and not formed:
            record.unmatched = record.refused = True
            self._shown.refuse(commit)
            return True
        if request.files or request.device_documents or request.cloud_documents:
            return False  # the user's own choice of documents
        record.unmatched = True
        if wanted == "refuse":
            self.note(NOT_REFUSED)
        if found == NOTHING:
            self._shown.unmatched(found)
            return False
        self._anew = True
        return True

    def provisional(self, drafts: Sequence[int]) -> None:
        if self.record.token_times or self.request.unmatched == "answer":  # otherwise it may restart
            self._shown.provisional(drafts)

    def withdrawn(self, position: int) -> None:
        raise RuntimeError("the device never takes a shown token back")

    def ended(self, failure: Exception | None) -> None:
        self._has_read(shared=False)
        if self._anew and failure is None:
            self.send(Cancel(self.opening.session))
            self._again(self)
            return
        wanted = failure is None and self._shown.reason != "cancelled"
        self._ending.begin(self._tokens if wanted and not self.record.refused else (), failure is not None)
        asked, session = wanted and self.phase.joined and not self.half.away, self.opening.session
        self.send(Close(session, len(self.record.token_times)) if asked else Cancel(session))
        if failure is not None:
            self._finish(failure)
        elif not asked:
            self._ending.close(None)

    # --- the end

    def _make_report(self, closed: Closed | None, ended: float) -> None:
        """Makes the report; `closed` is the cloud's part, or None."""
        try:
            part = self.half.report(closed)
            shown = len(self.record.token_times)  # more may be decided after a stop string
            part = replace(part, degraded=tuple(position for position in part.degraded if position < shown))
            self._note_absence(part.degraded)
            if self._shown.reason != "cancelled":
                if part.unattributed:
                    self.note(untold(part.unattributed, shown))
                if self._ending.unread:
                    self.note(UNREAD)
            report = build_report(self.request, self.record, part, self.cloud.peer.meter.rtt, ended)
        except Exception as error:
            self._finish(as_failure(error, session=self.opening.session))
        else:
            self._report(report)

    def _report(self, report: Report) -> None:
        finished, tracing = Finished(self._shown.reason, self._shown.text, report), self._tracing
        if tracing is None:
            self._finish(finished)
            return

        def merge() -> None:  # too slow for the engine's and the link's threads
            self._finish(replace(finished, report=replace(report, trace=tracing.merged())))

        self.side.on_retrieval_thread(merge, self._finish)

    def _note_absence(self, degraded: Sequence[int]) -> None:
        """Notes an absence in the middle, unless a reason is noted."""
        if degraded and self._absences.isdisjoint(self.record.notes):
            away = f"{len(degraded)} of {len(self.record.token_times)}"
            self.note(f"The cloud was away for {away} tokens: only this device's documents were used for them.")

    def _finish(self, event: Finished | Exception) -> None:
        self._metrics.ended(self.record, event)
        if isinstance(event, Exception):
            log.info("answer %s failed: %s", AnswerName.of(self.opening.session), failure_kind(event))
        self._shown.end(event)
        self._released(self.opening.session)


def _closest(request: Request, record: Record, alone: bool) -> float | None:
    """Largest cosine of a document and the question, None if a side's is unknown.

    `alone`: the first token was decided without the cloud.
    """
    if request.documents == 0:
        return None  # no search
    found = [NOTHING]
    if request.sources != "cloud":
        if len(record.origins) != len(record.device_titles):
            return None
        if None in record.origins:
            return None
        found.append(record.own_closest)
    if request.sources != "device" and not record.alone:
        if record.cloud_closest is not None:
            found.append(record.cloud_closest)
        elif not (alone and request.sources == "both"):
            return None
    return max(found)
