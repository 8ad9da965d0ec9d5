"""Limits on the wait for the other side: reminders, then continuing alone.

A peer's claims count within local measurements and ceilings. Only progress extends the wait: decided tokens, wanted
bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from common.estimates.policy import Estimates

SHORTEST_RESYNC: Final = 0.5  # seconds
# Enough for a verdict and the next draft, a question and its answer, and lagging estimates.
PATIENCE_TRIPS: Final = 3
PATIENCE_STEPS: Final = 4
PATIENCE_WAITS: Final = 4  # times a seldom exceeded wait, as busy machines have a long tail
RESYNC_TRIPS: Final = 4
RESYNC_STEPS: Final = 4

# Ceilings against a peer that delays replies and tokens, or misreports its steps.
MOST_TRIP: Final = 8.0  # seconds; 5 s that vary by a fifth
MOST_STEP: Final = 4.0  # seconds
MOST_WAIT: Final = 8.0  # seconds of a measured wait

MOST_READING: Final = 300.0  # seconds to read a prompt or generate an answer
FIRST_READING: Final = 45.0  # seconds, until a longer one was measured
TRUSTED: Final = 4  # times the measured readings
MOST_HALVINGS: Final = 5  # one per wasted wait for a reading
ANSWER_STEPS: Final = 4  # cloud steps per token of a whole answer

STAGES: Final = 4  # times the patience, for all signs without progress
MOST_COUNTED: Final = 0.25  # seconds between looks; the excess is this side's sleep
MOST_ARRIVING: Final = 120.0  # uncounted seconds of an incoming message
MOST_DOUBLINGS: Final = 5  # of the time of distrust after wasted waits


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """Limits in seconds."""

    resync: float  # silence before a reminder
    patience: float  # silence before the device continues alone
    arriving: bool = False  # a message arrives, fast enough to wait for
    reading: bool = False  # the other side reads its prompt, so its silence says nothing about tokens

    @classmethod
    def of(cls, estimates: Estimates, longest: float | None, patience: float, usual: float | None = None) -> WaitLimits:
        """At least a working cloud's delay, from the link and the cloud's steps.

        `longest`: a seldom exceeded round trip. `patience`: the device's minimum. `usual`: a seldom exceeded wait,
        which bounds the claimed steps. None before the first.
        """
        trip = min(longest or estimates.rtt, MOST_TRIP)
        step = min(estimates.cloud_decode, MOST_STEP if usual is None else usual, MOST_STEP)
        resync = RESYNC_TRIPS * min(estimates.rtt, MOST_TRIP) + RESYNC_STEPS * step
        heard = PATIENCE_TRIPS * trip + PATIENCE_STEPS * step
        seen = PATIENCE_WAITS * min(usual or 0.0, MOST_WAIT)
        return cls(max(SHORTEST_RESYNC, resync), max(patience, heard, seen))


class ReadingTrust:
    """Bounds the wait for a cloud that claims to read or generate.

    The claim counts at the measured speed, initially at the profile's. The longest success bounds the next wait. Each
    wasted wait halves the bound until a success.
    """

    def __init__(self) -> None:
        self._longest = 0.0  # seconds
        self._rates: deque[float] = deque(maxlen=8)  # seconds per token
        self._vain = 0

    def seconds(self, prompt_tokens: int, tokens: int, step: float) -> float:
        """Seconds to wait for `prompt_tokens` to read and `tokens` to generate."""
        step = min(step, MOST_STEP)
        rate = TRUSTED * max(self._rates) if self._rates else step
        bound = min(max(FIRST_READING, TRUSTED * self._longest), MOST_READING)
        return min(prompt_tokens * rate + ANSWER_STEPS * tokens * step, bound * 0.5**self._vain)

    def ended(self, prompt_tokens: int, seconds: float) -> None:
        """Note a reading, from its claim to the first token."""
        self._vain = 0
        self._longest = max(self._longest, seconds)
        if prompt_tokens:
            self._rates.append(seconds / prompt_tokens)

    def in_vain(self) -> None:
        """Note a reading without a token."""
        self._vain = min(self._vain + 1, MOST_HALVINGS)


class Stopwatch:
    """Sums the seconds between looks, without this side's sleep."""

    def __init__(self) -> None:
        self.total = 0.0
        self.since = 0.0  # with the current `mark`
        self._looked: float | None = None
        self._mark: Hashable = None

    def look(self, now: float, mark: Hashable = None) -> float:
        """Note the time in seconds. Returns the counted time since the last look."""
        counted = 0.0 if self._looked is None else min(max(now - self._looked, 0.0), MOST_COUNTED)
        self._looked = now
        self.total += counted
        self.since = self.since + counted if mark == self._mark else 0.0
        self._mark = mark
        return counted


class ProgressTimeout:
    """Measures the lack of progress while only the other side can advance the answer.

    This side's sleep (a stopped process, a closed lid) does not count.
    """

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        """`waited` gets the seconds of each wait for progress or a given-up cloud."""
        self._tell = waited
        self._clock = Stopwatch()
        self._progress = 0
        self._stage: Hashable = None
        self._waited = 0.0  # since progress, without reading
        self._staged = 0.0  # since a hopeful sign
        self._spent = 0.0  # since progress, in shares of a stage's patience
        self._arriving = 0.0  # uncounted, as a message arrives
        self._vain = 0  # times in a row without progress
        self._alone = 0.0  # since the last end of patience
        self._gave_up: float | None = None  # that ended the patience, until the other side returns
        self._away = False

    def over(self, now: float, progress: int, stage: Hashable, waiting: bool, away: bool, limits: WaitLimits) -> bool:
        """Whether patience ends now (seconds). Call it at events and periodically.

        `progress` counts contributions and never falls. A new `stage` (a sign, a question) restarts the patience,
        finitely often. `away`: already given up.
        """
        elapsed = self._clock.look(now)
        if progress > self._progress:
            if not away and not limits.reading:
                self._tell(self._waited)
            self._progress, self._vain, self._gave_up = progress, 0, None
            self._start()
        if away:
            self._away = True
            self._alone += elapsed
            return False
        if self._away:
            self._away = False
            self._start()
            if self._gave_up is not None and not limits.reading:
                self._tell(self._gave_up + self._alone)
            self._gave_up = None
        self._waited += 0.0 if limits.reading else elapsed
        if not waiting:
            return False
        if limits.arriving and self._arriving < MOST_ARRIVING:
            self._arriving += elapsed
            return False
        if stage != self._stage:
            self._stage, self._staged = stage, 0.0
        else:
            self._staged += elapsed
        self._spent += elapsed / limits.patience
        return self._ends(limits)

    def _ends(self, limits: WaitLimits) -> bool:
        doubted = self._vain > 1 and self._alone < limits.patience * 2 ** min(self._vain - 1, MOST_DOUBLINGS)
        if doubted:
            return True  # it returned before without progress
        if self._staged < limits.patience and self._spent < STAGES:
            return False
        self._vain += 1
        self._alone, self._gave_up = 0.0, self._waited
        return True

    def _start(self) -> None:
        self._waited = self._staged = self._spent = self._arriving = 0.0


class WaitingSide(Protocol):
    """An answer that may wait for the other side."""

    @property
    def progress(self) -> int:
        """Count of contributions, never falling."""
        ...

    @property
    def stage(self) -> Hashable:
        """Changes with each hopeful sign."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether only the other side can advance the answer."""
        ...

    @property
    def away(self) -> bool:
        """Whether the other side was given up."""
        ...


class Watch:
    """One answer's clock: schedules reminders and gives up."""

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        """`waited` as in `ProgressTimeout`."""
        self._silence = ProgressTimeout(waited)
        self._stage: Hashable = None
        self._asked = 0.0  # latest sign or reminder

    def heard(self, now: float) -> None:
        """Note a sign or a reminder."""
        self._asked = now

    def look(self, now: float, answer: WaitingSide, limits: WaitLimits) -> tuple[bool, bool]:
        """Whether to remind, and whether patience ends (seconds)."""
        waiting, stage, away = answer.waiting, answer.stage, answer.away
        over = self._silence.over(now, answer.progress, stage, waiting, away, limits)
        if not waiting and not away:
            self._stage = None
        elif stage != self._stage and not away:
            self._stage, self._asked = stage, now
        elif now - self._asked >= limits.resync:
            self._asked = now
            return True, over
        return False, over
