"""Estimators of speed, acceptance and the link, and derived limits (DRAGON §5.2).

One thread feeds each estimator; none reads a clock. Times are seconds.
"""

from __future__ import annotations

import math
import statistics
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from common.estimates.policy import Estimates, run_ahead
from proto.messages import SEQUENCES, Probe, ProbeReply, Side

DECODE_WEIGHT = 0.2  # ζ: half of a lasting change shows after three tokens near the profiled contexts
ACCEPTANCE_WEIGHT = 0.1
LASTING_WEIGHT = 1 / 32  # of an outcome, for limiting the run-ahead

_OUTLIER_DEVIATIONS = 4.0  # robust standard deviations; offline samples beyond are dropped
_NORMAL_DEVIATION = 1.4826  # standard deviation over median absolute deviation, for a normal law
_ROUNDING = 1e-9  # relative; closer samples are on the line
_MEDIAN_OF = 3  # latest steps
_WAITS = 64  # latest waits that count
_LEAST_WAITS = 8  # fewer tell nothing
_SELDOM_EXCEEDED = 0.95  # quantile of the waits


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """Seconds of a decode step by context length: c(t) = t k_a / k_b + k_c (§5.2).

    Updates average k_a and k_b separately, so the slope is the weighted least squares slope at the frozen intercept.
    """

    numerator: float  # k_a, the mean of t (c - k_c)
    denominator: float  # k_b, the mean of t^2
    intercept: float  # k_c

    def __post_init__(self) -> None:
        if not (math.isfinite(self.numerator) and math.isfinite(self.intercept)):
            raise ValueError(f"a decode line needs finite coefficients, got {self}")
        if not 0.0 < self.denominator < math.inf:
            raise ValueError(f"the denominator of a decode line must be positive and finite, got {self.denominator}")

    @classmethod
    def of(cls, slope: float, intercept: float, context: float) -> DecodeLine:
        """From coefficients; `context` is the measured length in tokens."""
        return cls(slope * context**2, context**2, intercept)

    @classmethod
    def fit(cls, contexts: ArrayLike, seconds: ArrayLike) -> DecodeLine:
        """Least squares over samples `[n]` without outliers, with non-negative coefficients.

        Raises `ValueError` unless there are equally many positive lengths and non-negative times, at two lengths or
        more.
        """
        t = np.asarray(contexts, dtype=np.float64)
        c = np.asarray(seconds, dtype=np.float64)
        if t.ndim != 1 or t.shape != c.shape:
            raise ValueError(f"contexts {t.shape} and seconds {c.shape} must be lists of equal length")
        if not (np.isfinite(t).all() and np.isfinite(c).all() and (t > 0).all() and (c >= 0).all()):
            raise ValueError("context lengths must be positive, seconds not negative, both finite")
        if np.unique(t).size < 2:
            raise ValueError("a decode line needs samples at two context lengths or more")
        usual = _usual(t, c)
        if np.unique(t[usual]).size > 1:
            t, c = t[usual], c[usual]
        slope, intercept = _least_squares(t, c)
        return cls.of(slope, intercept, math.sqrt(float((t**2).mean())))

    @property
    def slope(self) -> float:
        """Seconds per token of context."""
        return self.numerator / self.denominator

    def predict(self, context: float) -> float:
        return max(0.0, self.intercept + self.slope * context)

    def updated(self, context: float, seconds: float, weight: float = DECODE_WEIGHT) -> DecodeLine:
        """The line after an observation of weight ζ, intercept unchanged (§5.2, runtime stage)."""
        _check_weight(weight)
        return DecodeLine(
            (1.0 - weight) * self.numerator + weight * (seconds - self.intercept) * context,
            (1.0 - weight) * self.denominator + weight * context**2,
            self.intercept,
        )


class DecodeDelay:
    """A line that follows decode steps by the median of the latest three.

    So a single stall does not bend it.
    """

    def __init__(self, line: DecodeLine, weight: float = DECODE_WEIGHT) -> None:
        _check_weight(weight)
        self.line = line
        self._weight = weight
        self._latest: deque[tuple[float, float, float]] = deque(maxlen=_MEDIAN_OF)

    def observe(self, context: float, seconds: float) -> None:
        """Add a step at `context` tokens. Raises `ValueError` for impossible values."""
        if not (0.0 < context < math.inf and 0.0 <= seconds < math.inf):
            raise ValueError(f"a decode step of {seconds} s at {context} tokens is not possible")
        # Ordered by implied slope, independent of context on a clean line.
        self._latest.append(((seconds - self.line.intercept) / context, context, seconds))
        _, middle_context, middle_seconds = sorted(self._latest)[(len(self._latest) - 1) // 2]
        self.line = self.line.updated(middle_context, middle_seconds, self._weight)

    def predict(self, context: float) -> float:
        return self.line.predict(context)


class UsualWait:
    """A seldom exceeded wait for the other side."""

    def __init__(self) -> None:
        self.seconds: float | None = None  # None until enough waits
        self._latest: deque[float] = deque(maxlen=_WAITS)

    def observe(self, seconds: float) -> None:
        """Raises `ValueError` for an impossible wait."""
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a wait of {seconds} s is not possible")
        self._latest.append(seconds)
        if len(self._latest) >= _LEAST_WAITS:
            self.seconds = sorted(self._latest)[int(_SELDOM_EXCEEDED * len(self._latest))]


class MovingAverage:
    """An exponential moving average that starts as a plain one.

    The n-th value weighs max(`weight`, 1/n), so the first does not dominate. A `prior` counts as the first.
    """

    def __init__(self, weight: float, prior: float | None = None) -> None:
        _check_weight(weight)
        self._weight = weight
        self._count = 0
        self.value: float | None = None
        if prior is not None:
            self.update(prior)

    def update(self, value: float) -> float:
        """Returns the new average. Raises `ValueError` unless `value` is finite."""
        if not math.isfinite(value):
            raise ValueError(f"can't average {value}")
        self._count += 1
        before = value if self.value is None else self.value
        self.value = before + max(self._weight, 1.0 / self._count) * (value - before)
        return self.value


class Acceptance:
    """α of each side: its next draft's chance to be the target.

    Fed with expectations (Eq. 5) if both distributions are known, else with 0 or 1.
    """

    def __init__(self, weight: float = ACCEPTANCE_WEIGHT, prior: float = 0.5) -> None:
        _check_probability(prior)
        self._averages: dict[Side, MovingAverage] = {
            "device": MovingAverage(weight, prior),
            "cloud": MovingAverage(weight, prior),
        }
        self._estimates: dict[Side, float] = {"device": prior, "cloud": prior}
        self._lasting: dict[Side, float] = {"device": 1.0, "cloud": 1.0}

    def observe(self, side: Side, value: float) -> None:
        """Add 0, 1 or an expectation. Raises `ValueError` outside [0, 1]."""
        _check_probability(value)
        self._estimates[side] = self._averages[side].update(value)
        self._lasting[side] += LASTING_WEIGHT * (value - self._lasting[side])

    def of(self, side: Side) -> float:
        """The expectation, to choose the aggregator."""
        return self._estimates[side]

    def at_most(self, side: Side) -> float:
        """An upper estimate, to limit drafts: too low costs latency, too high only work.

        The larger of a fast average, which follows accepted stretches, and a slow one, which starts at 1 and survives
        few rejections.
        """
        return max(self._estimates[side], self._lasting[side])


def _least_squares(t: NDArray[np.float64], c: NDArray[np.float64]) -> tuple[float, float]:
    """The best line with non-negative coefficients."""
    mean_t, mean_c = float(t.mean()), float(c.mean())
    slope = float(((t - mean_t) * (c - mean_c)).sum() / ((t - mean_t) ** 2).sum())
    if slope < 0.0:
        return 0.0, mean_c
    intercept = mean_c - slope * mean_t
    if intercept < 0.0:
        return float((t * c).sum() / (t**2).sum()), 0.0
    return slope, intercept


def _usual(t: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask of the samples near the main line, without stalls."""
    order = np.argsort(t, kind="stable")
    half = t.size // 2
    near, far = order[: t.size - half], order[half:]
    apart = t[far] > t[near]
    slope = np.median((c[far] - c[near])[apart] / (t[far] - t[near])[apart])
    residuals = c - slope * t
    distances = np.abs(residuals - np.median(residuals))
    limit = _OUTLIER_DEVIATIONS * _NORMAL_DEVIATION * float(np.median(distances)) + _ROUNDING * float(c.max())
    usual: NDArray[np.bool_] = distances <= limit
    return usual


def _check_weight(weight: float) -> None:
    if not 0.0 < weight <= 1.0:
        raise ValueError(f"the weight of a new observation must be in (0, 1], got {weight}")


def _check_probability(value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"an acceptance rate must be in [0, 1], got {value}")


# --- round_trip
# A link's round-trip delay: when to sample it, and results (DRAGON §5.2), also on the other clock.

REALTIME_WEIGHT = 1 / 4
HISTORY_WEIGHT = 1 / 8  # with the next, as in RFC 6298
DEVIATION_WEIGHT = 1 / 4

_SURPRISE_DEVIATIONS = 2.5  # mean deviations; a uniform jitter stays within two
_SURPRISE_SHARE = 1 / 4  # of the history; averages follow smaller deviations
_SURPRISES = 3  # in a row on one side, for a changed link
_SETTLED = 16  # samples of one link

PROBE_PERIOD = 0.5  # seconds between probes of a known link
HURRIED_PERIOD = 0.1  # of a new or apparently changed link
IDLE_PERIOD = 5.0  # of an unused link, for batteries and a cloud's gateway
MOST_HURRIED = 8  # running probes; more would expire on a slow link

_USUAL_OF = 96  # latest samples
_MOST_USUAL = 1.5  # times the shortest of these

_ROUND_TRIP_ROUNDING = 1e-3  # seconds of tolerance for a polling thread

# Latest round trips for the clock offset, and their age in microseconds, because clocks drift.
_BEST_OF, _LATEST = 32, 16_000_000


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """A sample in microseconds of this side's clock; `received` by the other's."""

    sent: int
    received: int  # when the other side saw the probe
    back: int

    @property
    def rtt(self) -> float:
        """In seconds."""
        return (self.back - self.sent) / 1e6


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Nanoseconds that the other monotonic clock is `ahead`.

    The error is half of the directions' difference, so at most half the round trip: `uncertainty`.
    """

    ahead: int
    uncertainty: int


class ClockDifference:
    """The clock offset by the shortest recent round trip.

    It had the shortest queues, so the smallest possible difference of directions.
    """

    def __init__(self) -> None:
        self._recent: deque[RoundTrip] = deque(maxlen=_BEST_OF)

    def observe(self, trip: RoundTrip) -> None:
        self._recent.append(trip)
        while self._recent[0].sent < trip.sent - _LATEST:
            self._recent.popleft()

    @property
    def offset(self) -> ClockOffset | None:
        """None before the first sample."""
        best = min(self._recent, key=lambda trip: trip.back - trip.sent, default=None)
        if best is None:
            return None
        # Half microseconds are 500 ns.
        return ClockOffset(500 * (2 * best.received - best.sent - best.back), 500 * (best.back - best.sent))


class RoundTrips:
    """Makes probes and processes replies, in microseconds of a monotonic clock.

    One object per connection, as peers' clocks differ.
    """

    def __init__(self, outstanding: int = 16) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding}.")
        self._limit = outstanding
        self._waiting: OrderedDict[int, int] = OrderedDict()  # sequence -> sent
        self._next = 0
        self._latest = -1  # send time of the latest answered one

    @property
    def outstanding(self) -> int:
        """Number of running probes since the latest answered one; late replies still count."""
        return sum(sent > self._latest for sent in self._waiting.values())

    def probe(self, now: int) -> Probe:
        probe = Probe(self._next, now)
        self._next = (self._next + 1) % SEQUENCES
        self._waiting[probe.sequence] = now
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
        return probe

    def reply(self, reply: ProbeReply, now: int) -> RoundTrip | None:
        """The sample of a reply at `now`; None if unexpected or repeated."""
        sent = self._waiting.get(reply.sequence)
        if sent is None or sent != reply.sent or now < sent:
            return None
        del self._waiting[reply.sequence]
        self._latest = max(self._latest, sent)
        return RoundTrip(sent, reply.received, now)


class RoundTripTime:
    """The mean (ours) of the paper's real-time and historical moving averages.

    Three consecutive samples far from the history, on one side, restart the averages. Otherwise they would remember a
    changed link, or follow spikes.
    """

    def __init__(self) -> None:
        self.changes = 0  # of the link
        self._start()
        self._surprises: list[float] = []
        self._band = (0.0, 0.0)  # before the surprises

    def observe(self, seconds: float) -> None:
        """Raises `ValueError` for a negative or infinite round trip."""
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a round trip of {seconds} s is not possible")
        self._look_for_change(seconds)
        if len(self._surprises) == _SURPRISES:
            seconds = statistics.median(self._surprises)  # some may be from before
            self._surprises = []
            self.changes += 1
            self._start()
        self._take(seconds)

    @property
    def estimate(self) -> float | None:
        """Expected seconds of the next trip; None before the first sample."""
        if self._realtime.value is None or self._history.value is None:
            return None
        return 0.5 * (self._realtime.value + self._history.value)

    @property
    def deviation(self) -> float:
        """Mean absolute deviation in seconds; 0 before the second sample."""
        return self._deviation.value or 0.0

    @property
    def usual(self) -> float | None:
        """Median seconds, at most 1.5 times the shortest; None without samples.

        A path may vary by a fifth (§7.2). A persistent queue is not usual.
        """
        ordered = sorted(self._latest)
        return min(ordered[len(ordered) // 2], _MOST_USUAL * ordered[0]) if ordered else None

    @property
    def settled(self) -> bool:
        """Whether the current link has enough samples."""
        return self._samples >= _SETTLED and not self._surprises

    def upper(self, deviations: float = 4.0) -> float | None:
        """A seldom exceeded trip as in RFC 6298, for time-outs and run-ahead."""
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
        """Collect samples in a row beyond one end of the band.

        The band precedes the first of them, as each moves history and deviation.
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
        """Whether to probe `now` (monotonic seconds), then counted as done; `idle`: unused."""
        hurried = not settled and outstanding < MOST_HURRIED
        period = HURRIED_PERIOD if hurried else IDLE_PERIOD if idle and settled else PROBE_PERIOD
        if now - self._last < period - _ROUND_TRIP_ROUNDING:
            return False
        self._last = now
        return True

    def spare(self, now: float) -> None:
        """Note an answer's round trip, which replaces a probe."""
        self._last = now


# --- ahead
# Decoding ahead: drafts on a chain, and branches beside it.
#
# An undecided prefix's decoding saves a step of the slower side. A branch pays if that saving times its chance exceeds
# its cost in this side's step. The cost is 0 while this side waits in every step.

FAINT: Final = 0.01  # least chance of a branch without cost

_FIRST: Final = 30.0  # initial branches per second
_MOST: Final = 1_000.0  # beyond models of a few milliseconds per step
_INFLATED: Final = 1.35  # times the usual trip: a full link or a busy machine
_NOISE: Final = 0.01  # seconds
_CAREFUL: Final = 1.1  # growth above half of an excessive rate


@dataclass(frozen=True, slots=True)
class SpeculationLimits:
    """Limits of decoding ahead."""

    max_drafts: int = 1  # on the chain; 1 is synchronous
    max_rows: int = 1  # prefixes per step
    min_chance: float = inf  # of a branch; more than 1: none
    free_branches: int = 0  # branches per step without cost, with a chance of `FAINT`
    spare_tokens: int = 0  # of branches in the rows

    @property
    def branching(self) -> bool:
        return self.max_rows > 1 and self.min_chance <= 1.0


def limit_speculation(drafts: int, most: int, own: float, other: float, trip: float, row: float) -> SpeculationLimits:
    """Limit branches beside a chain of `drafts`, at most `most` prefixes per step.

    Seconds: both sides' steps `own` and `other`, a rejection's wait `trip`, another prefix's cost `row`.
    """
    waits = trip + own - other if trip > 0.0 else 2 * own - other  # after a rejection, for the slower side
    slower = max(own, other)
    if drafts < 2 or most < 2 or waits <= 0.0 or row > slower or slower <= 0.0:
        return SpeculationLimits(drafts)
    if row <= 0.0:
        return SpeculationLimits(drafts, most, FAINT, most)
    return SpeculationLimits(drafts, most, max(FAINT, row / slower), int(min(max(0.0, other - own) / row, most)))


class Allowance:
    """Branches per second on a connection, increased until trips grow.

    A queue is seen late. So a rate that was excessive, or may be on a changed path, is approached slowly.
    """

    def __init__(self) -> None:
        self.rate = _FIRST
        self._enough = _MOST
        self._next = 0.0
        self._changes = 0

    def observe(self, now: float, trip: float, usual: float, changes: int) -> None:
        """Add smoothed and `usual` trips at `now` in seconds; `changes` of the path."""
        if changes != self._changes:
            self._changes = changes
            self._too_much(min(_FIRST, self.rate))
        if now < self._next:
            return
        self._next = now + max(trip, 0.05)
        if trip > _INFLATED * usual + _NOISE:
            self._too_much(max(1.0, 0.25 * self.rate))
        else:
            self.rate = min(_MOST, self.rate * (2.0 if self.rate < self._enough else _CAREFUL))

    def _too_much(self, rate: float) -> None:
        self._enough = max(_FIRST, 0.5 * self.rate)
        self.rate = rate


# --- model
# Both sides' speed and agreement, measured on one side of a connection (DRAGON §5.2).
#
# Daemons and simulator share it, so they decide alike.

DIGEST_PERIOD: Final = 0.1  # seconds
TYPICAL_CONTEXT: Final = 256.0  # tokens, without a measured context

SIDES: Final[tuple[Side, Side]] = ("device", "cloud")


class PeerModel:
    """Decode times and acceptance for `role`. One thread feeds it."""

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine) -> None:
        """`own` is shared by this side's connections; `remote` is the other's profile."""
        self.role: Side = role
        self._own = own
        self._remote = DecodeDelay(remote)
        self._context = TYPICAL_CONTEXT
        self._acceptance = Acceptance()

    def decoded(self, context: int) -> None:
        """Note this side's step, `context` tokens in the longest row."""
        self._context = float(context)

    def remote_decoded(self, seconds: float) -> None:
        """Add a reported step. Raises `ValueError` for an impossible one."""
        # Its context is unknown; both sides' rows are similar.
        self._remote.observe(self._context, seconds)

    def observe_acceptance(self, expected: tuple[float, float] | None, accepted: Mapping[Side, bool]) -> None:
        """Add a decision: Eq. 5 of (device, cloud), or known drafts' outcomes."""
        alphas = accepted if expected is None else dict(zip(SIDES, expected, strict=True))
        for side, alpha in alphas.items():
            self._acceptance.observe(side, float(alpha))

    def estimates(self, rtt: float = 0.0) -> Estimates:
        """Inputs of Eq. 7."""
        own, remote = self._own.predict(self._context), self._remote.predict(self._context)
        device, cloud = (own, remote) if self.role == "device" else (remote, own)
        return Estimates(device, cloud, rtt, self._acceptance.of("device"), self._acceptance.of("cloud"))

    def run_ahead(self, longest: float | None, maximum: int) -> int:
        """Drafts that keep this side busy during a verdict.

        `longest`: a seldom exceeded round trip, None if unknown.
        """
        own, other = self._own.predict(self._context), self._remote.predict(self._context)
        if longest is None or own <= 0.0:
            return maximum
        # A verdict needs the slower side's draft.
        return run_ahead(longest + other, own, maximum, self._acceptance.at_most(self.role))

    def ahead(
        self, longest: float | None, maximum: int, trip: float | None, most: int, row: float, rate: float
    ) -> SpeculationLimits:
        """Limits of decoding ahead, within `maximum` drafts and `most` prefixes per step.

        In seconds, `trip` is a rejection's wait (None: branches are useless) and `row` another prefix's cost. `rate`:
        branches per second.
        """
        drafts = self.run_ahead(longest, maximum)
        if trip is None or longest is None:
            return SpeculationLimits(drafts)
        own, other = self._own.predict(self._context), self._remote.predict(self._context)
        carried = rate * own if own > 0.0 else 0.0  # avoids inf * 0
        return limit_speculation(drafts, min(most, 1 + int(min(carried, most))), own, other, trip, row)
