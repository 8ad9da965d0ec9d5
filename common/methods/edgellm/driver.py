"""The state machine of `common/trees` as the threads of two models share it: a lock, and its actions carried out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from common.engine.sampling import Drawn
from common.runtime.session_driver import Engine
from common.runtime.tree_history import TreeHistory
from common.session.values import Commit, Finish
from common.tracing.recorder import Recorder
from common.trees.rounds import Reading, TreeRounds

RECENT: Final = 256  # step times that a median is taken over

Shares = tuple[float, ...]  # of the documents in a token


class TreeDriver:
    """Both models' parts in one answer: `drafter` and `verifier` are the clients of the threads that run them.

    The callbacks are called under the lock: they must be quick and not call back.
    """

    def __init__(
        self,
        rounds: TreeRounds,
        history: TreeHistory,
        drafting: Engine | None,
        verifying: Engine,
        committed: Callable[[Commit], bool],
        provisional: Callable[[Sequence[int]], object] | None,
        ended: Callable[[Exception | None], None],
        recorder: Recorder | None = None,
    ) -> None:
        """`committed` takes a decided token and says whether the answer goes on; `provisional`, if it is wanted, the
        drafts behind them. Without `drafting` nothing is drafted.
        """
        self.rounds = rounds
        self.recorder = recorder
        self.over = False
        self.history = history
        self.lock = history.lock
        self.shares: list[Shares] = []  # of each decided token
        self.drafter = Drafting(self)
        self.verifier = Verifying(self)
        self._engines = [verifying] if drafting is None else [verifying, drafting]
        self._committed = committed
        self._provisional = provisional
        self._shown: tuple[int, ...] = ()
        self._ended = ended

    def end(self, failure: Exception | None = None) -> None:
        """Stop here: done, cancelled or failed."""
        with self.lock:
            if not self.over:
                self.over = True
                self._ended(failure)
                self.wake()

    # --- under the lock

    def wake(self) -> None:
        """Have both models look for work."""
        for engine in self._engines:
            engine.wake()

    def decide(self, reading: Reading, drawn: Sequence[Drawn]) -> None:
        """Take the verifier's tokens, and carry out what follows."""
        outcome = self.rounds.verified(reading, [draft.view.token for draft in drawn])
        if self.recorder is not None:
            self.recorder.acted(outcome.actions, "device", self.rounds.position)
        goes_on = True
        places = iter(outcome.places)
        for action in outcome.actions:
            match action:
                case Commit():
                    self.shares.append(tuple(drawn[next(places)].mixing.contributions(action.token)))
                    goes_on = goes_on and self._committed(action)
                case Finish():
                    goes_on = False
        if goes_on:
            self._shown = ()  # what became final has taken it back
            self.show()
            self.wake()
        else:
            self.end()

    def show(self) -> None:
        """Tell the drafts behind the decided tokens, where they have changed."""
        if self._provisional is not None and (drafts := self.rounds.provisional) != self._shown:
            self._shown = drafts
            self._provisional(drafts)


class _Part:
    """Implements `TreeClient` but for the work itself."""

    def __init__(self, driver: TreeDriver) -> None:
        self.driver = driver
        self.preempted = 0
        self.recent: deque[float] = deque(maxlen=RECENT)  # seconds of passes
        self.seconds = 0.0  # of all

    @property
    def over(self) -> bool:
        return self.driver.over

    @property
    def recorder(self) -> Recorder | None:
        return self.driver.recorder

    def outdated(self, work: Reading) -> bool:
        return self.driver.over or self.driver.rounds.epoch != work.epoch

    def gave_up(self, work: Reading, started: int) -> None:
        self.preempted += 1
        self._note("pre-empted", work, started, time.monotonic_ns())

    def _took(self, work: Reading, seconds: float) -> None:
        self.recent.append(seconds)
        self.seconds += seconds
        ended = time.monotonic_ns()
        self._note("drafted", work, ended - int(seconds * 1e9), ended)

    def _note(self, what: str, work: Reading, started: int, ended: int) -> None:
        if self.recorder is not None:
            self.recorder.step(what, len(work.path), work.epoch, started, ended)


class Drafting(_Part):
    """The draft model's part."""

    def work(self) -> Reading | None:
        with self.driver.lock:
            return None if self.over else self.driver.rounds.draft()

    def drawn(self, work: Reading, drawn: Sequence[Drawn], seconds: float) -> None:
        driver = self.driver
        with driver.lock:
            if driver.over:
                return
            self._took(work, seconds)
            if work.path or work.tokens:  # else it has read the question, too
                driver.history.times.drafted(seconds)
            view: Any = drawn[0].view
            driver.rounds.drafted(work, view.candidates)
            driver.show()
            if driver.rounds.draft() is None:
                driver.wake()


class Verifying(_Part):
    """The verifier's part."""

    def __init__(self, driver: TreeDriver) -> None:
        super().__init__(driver)
        self._asked: int | None = None  # epoch

    def work(self) -> Reading | None:
        driver = self.driver
        with driver.lock:
            found = None if driver.over else driver.rounds.verify()
            if found is not None and found.epoch != self._asked:
                self._asked = found.epoch
                driver.wake()  # drafting may go on
            return found

    def drawn(self, work: Reading, drawn: Sequence[Drawn], seconds: float) -> None:
        with self.driver.lock:
            if not self.driver.over:
                self._took(work, seconds)
                if work.path:  # else it has read the question, too
                    self.driver.history.times.verified(len(work.tokens), seconds)
                self.driver.decide(work, drawn)
