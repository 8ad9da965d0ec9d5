"""One side of an answer as the daemon's threads share it.

A state machine is a pure object, so a lock around it is all the coordination there is: the decoder thread hands in
drafts, the link thread messages, the scheduler thread looks at the clock. The thread that hands in an event also
carries out the actions; each is a hand-over to a queue and takes microseconds.
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


class ModelThread(Protocol):
    """The thread that owns a model, as an answer sees it."""

    def wake(self) -> None:
        """Look at the answers again: one of them may have got work, or lost it."""
        ...

    def on_model_thread(self, run: Callable[[], None], tenant: Hashable = None) -> None:
        """Call `run` on the thread, soon, at the cost of the peer `tenant`, if it is for one."""
        ...


class StateMachine(Protocol):
    """The state machine of one side of an answer. Any thread reads the properties without the lock."""

    @property
    def epoch(self) -> int:
        """Number of the path that distributions are wanted along; work of an older one is useless."""
        ...

    @property
    def position(self) -> int:
        """Tokens that are decided."""
        ...

    @property
    def aggregator(self) -> Side:
        """The side that decides `position`."""
        ...


W = TypeVar("W", bound=TreeWork)


class Preview:
    """Tells the drafts behind the decided tokens, whenever they have changed. Under the answer's lock."""

    def __init__(self, drafts: Callable[[], Sequence[int]], tell: Callable[[Sequence[int]], object]) -> None:
        self._drafts = drafts
        self._tell = tell
        self._told: tuple[int, ...] = ()

    def show(self, decided: bool = False) -> None:
        """Look at the drafts; `decided`: a token was, which has taken back what was told."""
        if decided:
            self._told = ()
        drafts = tuple(self._drafts())
        if drafts != self._told:
            self._told = drafts
            self._tell(drafts)


class Driver:
    """A machine with its lock; carries out its actions. `ModelSeat`s connect it with the models that it asks."""

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
        """`role` is this side, `engines` are woken when there may be work, or none any more; `preview` shows drafts."""
        self.role: Side = role
        self.machine = machine
        self.recorder = recorder  # None: nobody asked for a trace
        self.record = AnswerRecord()
        self.over = False  # finished, failed or cancelled
        self.lock = threading.RLock()
        self._preview = preview
        self._engines = engines
        self._send = send
        self._observer = observer

    def apply(self, event: Callable[[], Sequence[object]]) -> None:
        """Let something happen to the machine, and carry out what follows. From any thread."""
        with self.lock:
            if not self.over:
                self.carry_out(event())

    def end(self, failure: Exception | None = None) -> None:
        """Stop here: done, cancelled, failed, or closed by the other side."""
        with self.lock:
            if not self.over:
                self.over = True
                self._observer.ended(failure)
                self.wake()

    # --- under the lock

    def wake(self) -> None:
        """Have the models look for work."""
        for engine in self._engines:
            engine.wake()

    def carry_out(self, actions: Sequence[object]) -> None:
        """Carry out `actions`; the answer ends with the last of them, after what was sent before."""
        if self.recorder is not None:
            self.recorder.acted(actions, self.machine.aggregator, self.machine.position)
        goes_on = True
        for action in actions:
            if goes_on or not isinstance(action, Commit):  # what follows the end is no part of the answer
                goes_on = self.act(action) and goes_on
        self.record.forget_before(self.machine.position)
        if not goes_on:
            self.end()
            return
        self.wake()
        if self._preview is not None and not self.over:
            self._preview.show(decided=any(isinstance(action, Commit) for action in actions))

    def act(self, action: object) -> bool:
        """Carry out one action; returns whether the answer goes on."""
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
    """One model's part in an answer, which the engine's thread calls. Implements `Client`."""

    resting = False

    def __init__(
        self,
        driver: Driver,
        work: Callable[[], W | None],
        drawn: Callable[[W, Sequence[SideDraft], float, float], Sequence[object] | None],
        late: Callable[[], int] = lambda: 0,
    ) -> None:
        """All are called under the lock: `work` for what is wanted next; `drawn` with the drafts of a step, the seconds
        that it took, and the time (monotonic, in seconds), for the actions, None where nobody need look for work;
        `late` counts drafts that came too late.
        """
        self.driver = driver
        self.preempted = 0
        self.recent: deque[float] = deque(maxlen=RECENT)  # seconds of steps
        self.seconds = 0.0  # of all
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
        """Whether the step under way for `work` has become useless. Takes no lock: it reads two single values."""
        return self.driver.over or self.driver.machine.epoch != work.epoch

    def drawn(self, work: W, drawn: Sequence[SideDraft], seconds: float) -> None:
        """Hand the drafts of a step to the machine; the step took `seconds`."""
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
        """Note that the step begun at `started` (monotonic nanoseconds) was given up."""
        self.preempted += 1
        if self.driver.recorder is not None:
            self.driver.recorder.step("pre-empted", work.position, work.epoch, started, time.monotonic_ns())

    def end(self, failure: Exception) -> None:
        self.driver.end(failure)
