"""Limits on the wait for the other side: until it is asked again, and until the device carries on alone.

What a peer says of itself is believed within what was measured here, and within ceilings. Only progress is waited for:
tokens that are decided, bytes that are wanted. A message that brings neither changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Protocol

from common.estimates.policy import Estimates

SHORTEST_RESYNC: Final = 0.5  # seconds
# Enough for a verdict and the draft after it, a question and its answer, and estimates that lag behind.
PATIENCE_TRIPS: Final = 3
PATIENCE_STEPS: Final = 4
PATIENCE_WAITS: Final = 4  # times the wait that is seldom exceeded: a busy machine's waits have a long tail
RESYNC_TRIPS: Final = 4
RESYNC_STEPS: Final = 4

# A peer can hold back the replies to probes, its tokens, and the truth about its steps; so much of each is believed.
MOST_TRIP: Final = 8.0  # seconds; 5 s that swing by a fifth
MOST_STEP: Final = 4.0  # seconds
MOST_WAIT: Final = 8.0  # seconds, of one that was measured

MOST_READING: Final = 300.0  # seconds for reading a prompt, or generating an answer, however fast it was before
FIRST_READING: Final = 45.0  # seconds of that, as long as none was seen to end later
TRUSTED: Final = 4  # times what was measured of a cloud's readings
MOST_HALVINGS: Final = 5  # of that, one for each reading that was waited for in vain
ANSWER_STEPS: Final = 4  # steps of the cloud that a token of an answer may take which comes as a whole

STAGES: Final = 4  # times the patience that all hopeful signs without progress are worth together
MOST_COUNTED: Final = 0.25  # seconds between two looks; what is more, this side itself has slept
MOST_ARRIVING: Final = 120.0  # seconds that a message may be on its way in, without the waiting being counted
MOST_DOUBLINGS: Final = 5  # of the time for which a cloud that was waited for in vain is not believed


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """Both in seconds."""

    resync: float  # silence after which the committed prefix is sent again
    patience: float  # silence after which the device carries on alone
    arriving: bool = False  # a message is coming in, no slower than one that is worth waiting for
    reading: bool = False  # the other side reads its prompt: what that takes tells nothing about single tokens

    @classmethod
    def of(cls, estimates: Estimates, longest: float | None, patience: float, usual: float | None = None) -> WaitLimits:
        """Limits from the link and the cloud's steps: no shorter than a working cloud may take to be heard.

        `longest` is a round trip that is seldom exceeded, None before the first; `patience` the least for the device;
        `usual` a wait for the cloud that is seldom exceeded, None before there were some. Once there were, they bound
        what the cloud says of its steps.
        """
        trip = min(longest or estimates.rtt, MOST_TRIP)
        step = min(estimates.cloud_decode, MOST_STEP if usual is None else usual, MOST_STEP)
        resync = RESYNC_TRIPS * min(estimates.rtt, MOST_TRIP) + RESYNC_STEPS * step
        heard = PATIENCE_TRIPS * trip + PATIENCE_STEPS * step
        seen = PATIENCE_WAITS * min(usual or 0.0, MOST_WAIT)
        return cls(max(SHORTEST_RESYNC, resync), max(patience, heard, seen))


class ReadingTrust:
    """Bounds what a cloud says it has to read or to generate before anything comes of it.

    The claim counts at the measured speed of the cloud, or at that of its profile before the first reading. The
    longest reading that brought a token bounds the next one; each reading in vain halves the bound until one ends.
    """

    def __init__(self) -> None:
        self._longest = 0.0  # seconds
        self._rates: deque[float] = deque(maxlen=8)  # seconds per token of the latest ones
        self._vain = 0

    def seconds(self, prompt_tokens: int, tokens: int, step: float) -> float:
        """Seconds to wait for `prompt_tokens` that are read and `tokens` that are generated, at a profiled `step`."""
        step = min(step, MOST_STEP)
        rate = TRUSTED * max(self._rates) if self._rates else step
        bound = min(max(FIRST_READING, TRUSTED * self._longest), MOST_READING)
        return min(prompt_tokens * rate + ANSWER_STEPS * tokens * step, bound * 0.5**self._vain)

    def ended(self, prompt_tokens: int, seconds: float) -> None:
        """Note a reading of so many tokens, from its claim to the first token of the answer."""
        self._vain = 0
        self._longest = max(self._longest, seconds)
        if prompt_tokens:
            self._rates.append(seconds / prompt_tokens)

    def in_vain(self) -> None:
        """Note a reading that brought no token."""
        self._vain = min(self._vain + 1, MOST_HALVINGS)


class Stopwatch:
    """Counts the seconds between looks, but for those that this side itself has slept through."""

    def __init__(self) -> None:
        self.total = 0.0
        self.since = 0.0  # it was looked at with another `mark`
        self._looked: float | None = None
        self._mark: Hashable = None

    def look(self, now: float, mark: Hashable = None) -> float:
        """Note the time `now`, in seconds of any clock; returns what counts of the time since the last look."""
        counted = 0.0 if self._looked is None else min(max(now - self._looked, 0.0), MOST_COUNTED)
        self._looked = now
        self.total += counted
        self.since = self.since + counted if mark == self._mark else 0.0
        self._mark = mark
        return counted


class ProgressTimeout:
    """Measures how long the other side has made no progress while nothing else could bring the answer forward.

    What this side slept through is not counted: a stopped process or a closed lid is nobody else's silence.
    """

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        """`waited` is told the seconds from one progress to the next, or to the return of a cloud that was given up."""
        self._tell = waited
        self._clock = Stopwatch()
        self._progress = 0
        self._stage: Hashable = None
        self._waited = 0.0  # since there was progress, but for what reading takes
        self._staged = 0.0  # since there was a hopeful sign
        self._spent = 0.0  # patience since there was progress, as a share of what each stage has
        self._arriving = 0.0  # not counted, as something came in
        self._vain = 0  # times in a row that patience ended without any progress before
        self._alone = 0.0  # since it ended last
        self._gave_up: float | None = None  # the wait that ended so, until the other side is back
        self._away = False

    def over(self, now: float, progress: int, stage: Hashable, waiting: bool, away: bool, limits: WaitLimits) -> bool:
        """Whether patience ends now (seconds of any clock). To be called at events and periodically.

        `progress` counts what the other side has brought, and only grows. A new `stage` (it was heard, it was asked
        something else) starts the patience anew, but not without end. `away`: it is given up already.
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
            return True  # it said before that it was back, and brought nothing
        if self._staged < limits.patience and self._spent < STAGES:
            return False
        self._vain += 1
        self._alone, self._gave_up = 0.0, self._waited
        return True

    def _start(self) -> None:
        self._waited = self._staged = self._spent = self._arriving = 0.0


class WaitingSide(Protocol):
    """An answer whose other side is waited for, or may be."""

    @property
    def progress(self) -> int:
        """Counts what the other side has brought. It only grows."""
        ...

    @property
    def stage(self) -> Hashable:
        """Changes with each hopeful sign."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether only the other side can bring the answer forward."""
        ...

    @property
    def away(self) -> bool:
        """Whether the other side was given up."""
        ...


class Watch:
    """The clock of one answer: says when to ask the other side again, and when to give it up."""

    def __init__(self, waited: Callable[[float], object] = lambda seconds: None) -> None:
        """`waited`: as of `ProgressTimeout`."""
        self._silence = ProgressTimeout(waited)
        self._stage: Hashable = None
        self._asked = 0.0  # when the other side was last heard, or asked

    def heard(self, now: float) -> None:
        """Note that the other side was heard or asked at `now`."""
        self._asked = now

    def look(self, now: float, answer: WaitingSide, limits: WaitLimits) -> tuple[bool, bool]:
        """Whether to ask the other side again, and whether patience ends now (seconds of any clock)."""
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
