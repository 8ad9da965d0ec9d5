"""One session on one side, as the daemon's threads share it.

The session is a pure object, so a lock around it is all the coordination there is: the decoder thread hands in
drafts, the link thread messages, the scheduler thread looks at the clock. The thread that hands in an event
also carries out the actions; each is a hand-over to a queue and takes microseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from common.engine.sampling import Drawn, Mixing
from common.runtime.answer_record import AnswerRecord
from common.session.session import Session
from common.session.values import Action, Commit, Finish, LocalDraft, LookUp, Send, Withdraw, Work
from common.session.watch import Patience, Watch
from common.tracing.recorder import Recorder
from proto.messages import Draft, Message


class Observer(Protocol):
    """Gets the tokens and the end of an answer. Called under the answer's lock: be quick, don't call the answer."""

    def committed(self, commit: Commit) -> bool:
        """Take a token that became final. Returns whether the answer goes on."""
        ...

    def withdrawn(self, position: int) -> None: ...

    def ended(self, failure: Exception | None) -> None:
        """Nothing more will be committed; `failure` says why when the answer could not be completed."""
        ...


class NullObserver:
    """Observes and does nothing; the answer goes on."""

    def committed(self, commit: Commit) -> bool:
        return True

    def withdrawn(self, position: int) -> None:
        pass

    def ended(self, failure: Exception | None) -> None:
        pass


class Engine(Protocol):
    """The thread that owns the model, as an answer sees it."""

    def wake(self) -> None:
        """Look at the answers again: one of them may have got work, or lost it."""
        ...

    def task(self, run: Callable[[], None]) -> None:
        """Call `run` on the thread, soon."""
        ...


class SessionDriver:
    """A session with its lock; carries out the session's actions."""

    def __init__(
        self,
        session: Session,
        send: Callable[[Message], None],
        observer: Observer,
        observe_acceptance: Callable[[Commit], None],
        engine: Engine,
        recorder: Recorder | None = None,
    ) -> None:
        self.session = session
        self.recorder = recorder  # None: nobody asked for a trace
        self.record = AnswerRecord()
        self.preempted = 0
        self.over = False  # finished, failed or cancelled
        self._send = send
        self._observer = observer
        self._observe_acceptance = (
            observe_acceptance  # called with the commits that were decided between both sides' drafts
        )
        self._engine = engine
        self._watch = Watch()
        self._lock = threading.Lock()

    # --- events, from any thread

    def receive(self, message: Message) -> None:
        """Take in a message, on the link thread. Raises `ProtocolError` when it is malformed."""
        arrived = time.monotonic_ns()
        with self._lock:
            if self.recorder is not None:
                self.recorder.message("receive", message, arrived)
            if isinstance(message, Draft):
                self.record.remote_decode(message.decode_time)
            if not self.over:
                self._apply(self.session.received(message))

    def drawn(self, work: Work, drawn: Sequence[Drawn], seconds: float) -> None:
        """From the engine's thread: a step ended that took `seconds`. A session wants one position at a time."""
        (draft,) = drawn
        found = LocalDraft(work.position, work.digest, draft.view, draft.evidence, int(seconds * 1e6))
        self.drafted(found, draft.mixing, seconds)

    def drafted(self, draft: LocalDraft, mixture: Mixing, seconds: float) -> None:
        """Hand a draft to the session; its step took `seconds`."""
        ended = time.monotonic_ns()
        with self._lock:
            if self.over:
                return
            self.record.drafted(draft.position, mixture, seconds)
            epoch, late = self.session.epoch, self.session.counters.late
            actions = self.session.drafted(draft)
            if self.recorder is not None:
                detail = "drafted" if self.session.counters.late == late else "late"
                self.recorder.step(detail, draft.position, epoch, ended - int(seconds * 1e9), ended)
            self._apply(actions)
            if draft.position < self.session.position:
                self.record.forget(draft.position)

    def gave_up(self, work: Work, started: int) -> None:
        """Note that the step begun at `started` (nanoseconds) was pre-empted, on the decoder thread."""
        self.preempted += 1
        if self.recorder is not None:
            self.recorder.step("pre-empted", work.position, work.epoch, started, time.monotonic_ns())

    def poll(self, now: float, limits: Patience, run_ahead: int) -> None:
        """Look at the clock, on the scheduler thread, from time to time."""
        with self._lock:
            if self.over:
                return
            actions = self._watch.poll(self.session, now, limits)
            if actions or run_ahead != self.session.run_ahead:
                self.session.run_ahead = run_ahead
                self._apply(actions)

    def go_alone(self) -> None:
        """Carry on without the cloud, which is known to be away."""
        with self._lock:
            if not self.over:
                self._apply(self.session.out_of_patience())

    def without_documents(self) -> None:
        """Note that this side has retrieved no documents."""
        with self._lock:
            if not self.over:
                self._apply(self.session.without_documents(self.session.role))

    def rejoined(self, changed: bool = False) -> int:
        """Tell the reconnected cloud where this answer stands; see `Session.rejoined`. Returns the position."""
        with self._lock:
            position = self.session.position
            if not self.over:
                self._apply(self.session.rejoined(changed))
            return position

    def end(self, failure: Exception | None = None) -> None:
        """Stop here: cancelled, failed, or closed by the other side."""
        with self._lock:
            self._end(failure)

    # --- what the decoder thread asks

    def work(self) -> tuple[Work, list[int]] | None:
        """The next step and the whole path it is conditioned on."""
        with self._lock:
            if self.over:
                return None
            work = self.session.work
            return (work, self.session.path[: work.position]) if work is not None else None

    @property
    def resting(self) -> bool:
        return False

    def outdated(self, work: Work) -> bool:
        """Whether the step under way for `work` has become useless. Takes no lock: it reads two single values."""
        return self.over or self.session.epoch != work.epoch

    # --- actions

    def _apply(self, actions: list[Action]) -> None:
        if self.recorder is not None:
            self.recorder.acted(actions, self.session.aggregator, self.session.position)
        goes_on = True
        for action in actions:
            match action:
                case Send():
                    self._send(action.message)
                case LookUp():
                    self._engine.task(partial(self._look_up, action))
                case Commit():
                    self.record.commit(action, self.session.role)
                    # Alone, a side accepts whatever it drafts.
                    if action.accepted and not action.degraded and len(self.session.config.participants) == 2:
                        self._observe_acceptance(action)
                    goes_on = goes_on and self._observer.committed(action)
                case Withdraw():
                    self.record.withdraw(action.position)
                    self._observer.withdrawn(action.position)
                case Finish():
                    goes_on = goes_on and self.session.role == "cloud"  # which stays until the device is done
        if goes_on:
            self._engine.wake()
        else:
            self._end(None)  # after the last target was sent, so that the message that ends the session follows it

    def _look_up(self, action: LookUp) -> None:
        """Compute what is asked, on the engine's thread, which owns the mixtures."""
        if self.over:
            return
        try:
            payload = self.session.aggregation.supply(action.view, action.ids, action.depth)
            with self._lock:
                if not self.over:
                    self._apply(self.session.looked_up(action, payload))
        except Exception as error:
            self.end(error)

    def _end(self, failure: Exception | None) -> None:
        if self.over:
            return
        self.over = True
        self._observer.ended(failure)
        self._engine.wake()
