"""The delay of both directions of a link together: when to sample it, and what the samples say (DRAGON §5.2)."""

from __future__ import annotations

import math
import statistics
from collections import deque

from common.estimates.estimators import MovingAverage

REALTIME_WEIGHT = 1 / 4
HISTORY_WEIGHT = 1 / 8  # this and the next are those of RFC 6298
DEVIATION_WEIGHT = 1 / 4

_SURPRISE_DEVIATIONS = 2.5  # mean deviations from the history; a uniform jitter stays within two
_SURPRISE_SHARE = 1 / 4  # of the history: what deviates less, the averages follow soon enough
_SURPRISES = 3  # in a row to the same side, and it was no spike: the link has changed
_SETTLED = 16  # samples of one link after which there is no hurry

PROBE_PERIOD = 0.5  # seconds between two probes of a link that is known
HURRIED_PERIOD = 0.1  # of one that is new, or seems to have changed
IDLE_PERIOD = 5.0  # of one that no answer uses: it costs both sides' batteries, and a cloud's gateway
MOST_HURRIED = 8  # probes under way at most while hurrying: on a long way the oldest would be given up

_USUAL_OF = 96  # latest samples
_MOST_USUAL = 1.5  # times the shortest of these

_ROUNDING = 1e-3  # seconds; a thread that looks every so often must not miss the moment by less


class RoundTripTime:
    """Two moving averages, a real-time and a historical one, as in the paper, which leaves open how they are combined:
    here the estimate is their mean.

    Averages would remember a link that has changed for a long time, or follow every spike. So they start anew when
    three samples in a row are far from the history, and all to one side.
    """

    def __init__(self) -> None:
        self.changes = 0  # of the link
        self._start()
        self._surprises: list[float] = []
        self._band = (0.0, 0.0)  # the band that the surprises left, from least to most

    def observe(self, seconds: float) -> None:
        """Take one round trip in. Raises `ValueError` for a negative or endless one."""
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a round trip of {seconds} s is not possible")
        self._look_for_change(seconds)
        if len(self._surprises) == _SURPRISES:
            seconds = statistics.median(self._surprises)  # some may have been under way during the change
            self._surprises = []
            self.changes += 1
            self._start()
        self._take(seconds)

    @property
    def estimate(self) -> float | None:
        """Seconds the next round trip is expected to take; None before the first sample."""
        if self._realtime.value is None or self._history.value is None:
            return None
        return 0.5 * (self._realtime.value + self._history.value)

    @property
    def deviation(self) -> float:
        """Mean absolute deviation from the historical average, seconds; 0 before the second sample."""
        return self._deviation.value or 0.0

    @property
    def usual(self) -> float | None:
        """Seconds that half of the latest samples don't exceed, at most 1.5 times the shortest; None before the first.

        A way may become a fifth longer and shorter by itself (§7.2). A queue that stands for most of the time is not
        usual.
        """
        ordered = sorted(self._latest)
        return min(ordered[len(ordered) // 2], _MOST_USUAL * ordered[0]) if ordered else None

    @property
    def settled(self) -> bool:
        """Whether the estimate rests on many samples of the link as it is; until then, more of them are welcome."""
        return self._samples >= _SETTLED and not self._surprises

    def upper(self, deviations: float = 4.0) -> float | None:
        """A round trip that is seldom exceeded, as RFC 6298 has it: for time-outs and run-ahead."""
        estimate = self.estimate
        return None if estimate is None else estimate + deviations * self.deviation

    def _start(self) -> None:
        self._realtime = MovingAverage(REALTIME_WEIGHT)
        self._history = MovingAverage(HISTORY_WEIGHT)
        self._deviation = MovingAverage(DEVIATION_WEIGHT)
        self._samples = 0
        self._latest: deque[float] = deque(maxlen=_USUAL_OF)

    def _take(self, seconds: float) -> None:
        self._samples += 1
        self._latest.append(seconds)
        if self._history.value is not None:
            self._deviation.update(abs(seconds - self._history.value))
        self._realtime.update(seconds)
        self._history.update(seconds)

    def _look_for_change(self, seconds: float) -> None:
        """Count samples in a row beyond the same end of the band.

        The band is that from before the first of them: each widens the deviation and moves the history.
        """
        if self._history.value is None:
            return
        if self._surprises:
            least, most = self._band
            last = self._surprises[-1]
            if (seconds > most and last > most) or (seconds < least and last < least):
                self._surprises.append(seconds)
                return
            self._surprises = []
        history = self._history.value
        width = max(_SURPRISE_DEVIATIONS * self.deviation, _SURPRISE_SHARE * history)
        self._band = (history - width, history + width)
        if abs(seconds - history) > width:
            self._surprises = [seconds]


class Pace:
    """Schedule of the probes."""

    def __init__(self) -> None:
        self._last = -IDLE_PERIOD

    def due(self, now: float, settled: bool, outstanding: int, idle: bool = False) -> bool:
        """Whether to probe `now` (monotonic seconds); yes means that it is done. `idle`: no answer uses the link."""
        hurried = not settled and outstanding < MOST_HURRIED
        period = HURRIED_PERIOD if hurried else IDLE_PERIOD if idle and settled else PROBE_PERIOD
        if now - self._last < period - _ROUNDING:
            return False
        self._last = now
        return True

    def spare(self, now: float) -> None:
        """Note that the link has just carried a message and its answer: that tells as much as a probe."""
        self._last = now
