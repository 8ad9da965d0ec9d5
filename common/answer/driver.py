"""One side of an answer for the daemon's threads.

A lock around the state machine is the only coordination. The decoder thread delivers drafts, the link thread messages,
the scheduler thread the time. Each also carries out the resulting actions, which fill queues in microseconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from statistics import median
from typing import Generic, Protocol, TypeVar

from common.answer.recorder import Recorder
from common.answer.report import RECENT, AnswerRecord
from common.answer.values import Commit, Finish, Send, SideDraft, TreeWork, Withdraw
from proto.messages import Message, Side


class Observer(Protocol):
    """Gets an answer's tokens under its lock: be quick, don't call the answer."""

    def committed(self, commit: Commit) -> bool:
        """Process a final token. Returns whether the answer goes on."""
        ...

    def withdrawn(self, position: int) -> None: ...

    def ended(self, failure: Exception | None) -> None:
        """Process the end; `failure` explains an incomplete answer."""
        ...


class NullObserver:
    """Ignores everything; the answer goes on."""

    def committed(self, commit: Commit) -> bool:
        return True

    def withdrawn(self, position: int) -> None:
        pass

    def ended(self, failure: Exception | None) -> None:
        pass


class ModelThread(Protocol):
    """An answer's view of a model's thread."""

    def wake(self) -> None:
        """Check the answers for new or withdrawn work."""
        ...

    def on_model_thread(self, run: Callable[[], None], tenant: Hashable = None) -> None:
        """Call `run` on the thread soon, charged to the peer `tenant`."""
        ...


class StateMachine(Protocol):
    """One side's state machine; any thread may read properties without the lock."""

    @property
    def epoch(self) -> int:
        """Number of the current path; older work is useless."""
        ...

    @property
    def position(self) -> int:
        """Number of decided tokens."""
        ...

    @property
    def aggregator(self) -> Side:
        """The side that decides `position`."""
        ...


W = TypeVar("W", bound=TreeWork)


class Preview:
    """Reports changed drafts, under the answer's lock."""

    def __init__(self, drafts: Callable[[], Sequence[int]], tell: Callable[[Sequence[int]], object]) -> None:
        self._drafts = drafts
        self._tell = tell
        self._told: tuple[int, ...] = ()

    def show(self, decided: bool = False) -> None:
        """Report changed drafts; `decided`: a token has withdrawn earlier ones."""
        if decided:
            self._told = ()
        drafts = tuple(self._drafts())
        if drafts != self._told:
            self._told = drafts
            self._tell(drafts)


class Driver:
    """A machine with its lock; `ModelSeat`s connect it with models."""

    def __init__(
        self,
        role: Side,
        machine: StateMachine,
        engines: Sequence[ModelThread],
        send: Callable[[Message], object],
        observer: Observer,
        recorder: Recorder | None = None,
        preview: Preview | None = None,
    ) -> None:
        """`engines` are woken about work; `preview` shows drafts."""
        self.role: Side = role
        self.machine = machine
        self.recorder = recorder  # None: no trace
        self.record = AnswerRecord()
        self.over = False  # finished, failed or cancelled
        self.lock = threading.RLock()
        self._preview = preview
        self._engines = engines
        self._send = send
        self._observer = observer

    def apply(self, event: Callable[[], Sequence[object]]) -> None:
        """Deliver an event, from any thread, and carry out its actions."""
        with self.lock:
            if not self.over:
                self.carry_out(event())

    def end(self, failure: Exception | None = None) -> None:
        """Stop: done, cancelled, failed, or closed by the other side."""
        with self.lock:
            if not self.over:
                self.over = True
                self._observer.ended(failure)
                self.wake()

    # --- under the lock

    def wake(self) -> None:
        for engine in self._engines:
            engine.wake()

    def carry_out(self, actions: Sequence[object]) -> None:
        """Carry out `actions` in order; the last may end the answer."""
        if self.recorder is not None:
            self.recorder.acted(actions, self.machine.aggregator, self.machine.position)
        goes_on = True
        for action in actions:
            if goes_on or not isinstance(action, Commit):  # nothing after the end counts
                goes_on = self.act(action) and goes_on
        self.record.forget_before(self.machine.position)
        if not goes_on:
            self.end()
            return
        self.wake()
        if self._preview is not None and not self.over:
            self._preview.show(decided=any(isinstance(action, Commit) for action in actions))

    def act(self, action: object) -> bool:
        """Carry out one action. Returns whether the answer goes on."""
        if isinstance(action, Send):
            self._send(action.message)
        elif isinstance(action, Commit):
            self.record.commit(action, self.role)
            return self._observer.committed(action)
        elif isinstance(action, Withdraw):
            self.record.withdraw(action.position)
            self._observer.withdrawn(action.position)
        elif isinstance(action, Finish):
            return False
        else:
            raise TypeError(f"a driver has no idea of {type(action).__name__}")
        return True


class ModelSeat(Generic[W]):
    """One model's part in an answer, on the engine's thread. Implements `Client`."""

    resting = False

    def __init__(
        self,
        driver: Driver,
        work: Callable[[], W | None],
        drawn: Callable[[W, Sequence[SideDraft], float, float], Sequence[object] | None],
        late: Callable[[], int] = lambda: 0,
    ) -> None:
        """All functions are called under the lock.

        `work` returns the next work. `drawn` gets a step's drafts, seconds and monotonic end in seconds. It returns
        actions, or None if work can't have changed. `late` counts late drafts.
        """
        self.driver = driver
        self.preempted = 0
        self.recent: deque[float] = deque(maxlen=RECENT)  # seconds
        self.seconds = 0.0  # in all
        self._work = work
        self._drawn = drawn
        self._late = late

    @property
    def over(self) -> bool:
        return self.driver.over

    @property
    def recorder(self) -> Recorder | None:
        return self.driver.recorder

    @property
    def step_ms(self) -> float:
        """Median of the latest steps, 0 before the first."""
        return 1e3 * median(self.recent) if self.recent else 0.0

    def work(self) -> W | None:
        with self.driver.lock:
            return None if self.over else self._work()

    def outdated(self, work: W) -> bool:
        """Whether the step has become useless; reads two values without a lock."""
        return self.driver.over or self.driver.machine.epoch != work.epoch

    def drawn(self, work: W, drawn: Sequence[SideDraft], seconds: float) -> None:
        ended = time.monotonic_ns()
        driver = self.driver
        with driver.lock:
            if driver.over:
                return
            self.recent.append(seconds)
            self.seconds += seconds
            before = 0 if driver.recorder is None else self._late()
            actions = self._drawn(work, drawn, seconds, ended / 1e9)
            if driver.recorder is not None:
                what = work.made if self._late() == before else "late"
                began = ended - int(seconds * 1e9)
                driver.recorder.step(what, work.position, work.epoch, began, ended, work.positions)
            if actions is not None:
                driver.carry_out(actions)

    def gave_up(self, work: W, started: int) -> None:
        """Note a preempted step; `started` is monotonic nanoseconds."""
        self.preempted += 1
        if self.driver.recorder is not None:
            self.driver.recorder.step("pre-empted", work.position, work.epoch, started, time.monotonic_ns())

    def end(self, failure: Exception) -> None:
        self.driver.end(failure)
