"""A state machine of `common/rounds` as the daemon's threads share it: a lock, and the actions carried out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from common.engine.sampling import Drawn, Mixing
from common.runtime.session_driver import Engine
from common.session.values import Action, Commit, Finish, Send, View, Work
from common.tracing.recorder import Recorder
from proto.fields import Side
from proto.messages import Message


class Machine(Protocol):
    """The drafter's or the verifier's state machine."""

    @property
    def epoch(self) -> int: ...

    @property
    def position(self) -> int: ...

    def work(self) -> tuple[Work, list[int]] | None: ...

    def drawn(self, work: Work, views: Sequence[View], seconds: float, now: float) -> list[Action]: ...


class RoundsDriver:
    """Implements the engine's `Client` for one side of an answer.

    `committed` takes the tokens that are decided, with the mixture behind each where this side has one, and says
    whether the answer goes on. Both callbacks are called under the lock: they must be quick and not call back.
    """

    def __init__(
        self,
        machine: Machine,
        engine: Engine,
        send: Callable[[Message], object],
        committed: Callable[[Commit, Mixing | None], bool],
        ended: Callable[[Exception | None], None],
        aggregator: Side,
        recorder: Recorder | None = None,
    ) -> None:
        """`aggregator` is noted in the trace as the side that decides."""
        self.machine = machine
        self.recorder = recorder
        self.over = False
        self.resting = False
        self.preempted = 0
        self.lock = threading.RLock()
        self._engine = engine
        self._send = send
        self._committed = committed
        self._ended = ended
        self._aggregator: Side = aggregator
        self._mixings: dict[int, Mixing] = {}  # of positions that are not decided

    def apply(self, event: Callable[[], list[Action]]) -> None:
        """Let something happen to the machine, and carry out what follows. From any thread."""
        with self.lock:
            if not self.over:
                self._carry_out(event())

    # --- Client

    def work(self) -> tuple[Work, list[int]] | None:
        with self.lock:
            return None if self.over else self.machine.work()

    def outdated(self, work: Work) -> bool:
        return self.over or self.machine.epoch != work.epoch

    def drawn(self, work: Work, drawn: Sequence[Drawn], seconds: float) -> None:
        ended = time.monotonic_ns()
        with self.lock:
            if self.over:
                return
            if self.recorder is not None:
                self.recorder.step("drafted", work.position, work.epoch, ended - int(seconds * 1e9), ended, work.count)
            self._mixings.update((work.position + place, draft.mixing) for place, draft in enumerate(drawn))
            self._carry_out(self.machine.drawn(work, [draft.view for draft in drawn], seconds, ended / 1e9))

    def gave_up(self, work: Work, started: int) -> None:
        self.preempted += 1
        if self.recorder is not None:
            self.recorder.step("pre-empted", work.position, work.epoch, started, time.monotonic_ns())

    def end(self, failure: Exception | None = None) -> None:
        with self.lock:
            self._end(failure)

    # --- actions, under the lock

    def _carry_out(self, actions: Sequence[Action]) -> None:
        if self.recorder is not None:
            self.recorder.acted(actions, self._aggregator, self.machine.position)
        goes_on = True
        for action in actions:
            match action:
                case Send(message):
                    self._send(message)
                case Commit():
                    goes_on = self._committed(action, self._mixings.pop(action.position, None)) and goes_on
                case Finish():
                    goes_on = False
        for position in [position for position in self._mixings if position < self.machine.position]:
            del self._mixings[position]
        if goes_on:
            self._engine.wake()
        else:
            self._end(None)

    def _end(self, failure: Exception | None) -> None:
        if not self.over:
            self.over = True
            self._ended(failure)
            self._engine.wake()
