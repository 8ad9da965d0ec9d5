"""Estimators of both sides' speed and acceptance, of the link between them, and what follows (DRAGON §5.2).

Every estimator is fed by its caller and belongs to one thread; none reads a clock. Times are seconds.
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

DECODE_WEIGHT = 0.2  # ζ: half of a lasting change is seen after about three tokens near the profiled contexts
ACCEPTANCE_WEIGHT = 0.1
LASTING_WEIGHT = 1 / 32  # of an outcome in the acceptance that bounds the run-ahead

_OUTLIER_DEVIATIONS = 4.0  # robust standard deviations beyond which an offline sample is not used
_NORMAL_DEVIATION = 1.4826  # standard deviation of a normal law over its median absolute deviation
_ROUNDING = 1e-9  # relative; samples this close to a line are on it
_MEDIAN_OF = 3  # latest decode steps of which the middle one counts
_WAITS = 64  # latest waits that tell what is usual
_LEAST_WAITS = 8  # fewer tell nothing
_SELDOM_EXCEEDED = 0.95  # share of the waits that are no longer than the usual one


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """Seconds of a decode step over the context length: c(t) = t k_a / k_b + k_c (§5.2).

    k_a and k_b are kept apart because the online update averages them separately, which makes the slope the
    weighted least squares slope of all observations under the frozen intercept.
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
        """A line from its coefficients; `context` is the length around which it was measured, in tokens."""
        return cls(slope * context**2, context**2, intercept)

    @classmethod
    def fit(cls, contexts: ArrayLike, seconds: ArrayLike) -> DecodeLine:
        """Least squares over samples `[n]` without outliers; neither coefficient is negative.

        Raises `ValueError` for samples that aren't positive lengths and non-negative times in equal number,
        or that are all at one context length.
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
        """Seconds of a decode step that sees `context` tokens."""
        return max(0.0, self.intercept + self.slope * context)

    def updated(self, context: float, seconds: float, weight: float = DECODE_WEIGHT) -> DecodeLine:
        """The line after one more observation of weight ζ; the intercept stays (§5.2, runtime stage)."""
        _check_weight(weight)
        return DecodeLine(
            (1.0 - weight) * self.numerator + weight * (seconds - self.intercept) * context,
            (1.0 - weight) * self.denominator + weight * context**2,
            self.intercept,
        )


class DecodeDelay:
    """A decode line that follows its side's decode steps.

    Of the latest three steps the middle one counts, so that a single stall does not bend the line.
    """

    def __init__(self, line: DecodeLine, weight: float = DECODE_WEIGHT) -> None:
        _check_weight(weight)
        self.line = line
        self._weight = weight
        self._latest: deque[tuple[float, float, float]] = deque(maxlen=_MEDIAN_OF)

    def observe(self, context: float, seconds: float) -> None:
        """Take in a decode step of `seconds` over `context` tokens. Raises `ValueError` for impossible numbers."""
        if not (0.0 < context < math.inf and 0.0 <= seconds < math.inf):
            raise ValueError(f"a decode step of {seconds} s at {context} tokens is not possible")
        # Ordered by the slope that each implies: that is independent of the context on a clean line.
        self._latest.append(((seconds - self.line.intercept) / context, context, seconds))
        _, middle_context, middle_seconds = sorted(self._latest)[(len(self._latest) - 1) // 2]
        self.line = self.line.updated(middle_context, middle_seconds, self._weight)

    def predict(self, context: float) -> float:
        """Seconds of a decode step that sees `context` tokens."""
        return self.line.predict(context)


class UsualWait:
    """A wait for the other side that is seldom exceeded, from the latest ones."""

    def __init__(self) -> None:
        self.seconds: float | None = None  # None before there were some
        self._latest: deque[float] = deque(maxlen=_WAITS)

    def observe(self, seconds: float) -> None:
        """Take in a wait. Raises `ValueError` for an impossible number."""
        if not 0.0 <= seconds < math.inf:
            raise ValueError(f"a wait of {seconds} s is not possible")
        self._latest.append(seconds)
        if len(self._latest) >= _LEAST_WAITS:
            self.seconds = sorted(self._latest)[int(_SELDOM_EXCEEDED * len(self._latest))]


class MovingAverage:
    """An exponential moving average that starts as a plain one.

    The n-th value has the weight max(`weight`, 1/n): early values aren't drowned by the first. A `prior`
    counts as the first value.
    """

    def __init__(self, weight: float, prior: float | None = None) -> None:
        _check_weight(weight)
        self._weight = weight
        self._count = 0
        self.value: float | None = None
        if prior is not None:
            self.update(prior)

    def update(self, value: float) -> float:
        """The average with `value` in it. Raises `ValueError` unless `value` is finite."""
        if not math.isfinite(value):
            raise ValueError(f"can't average {value}")
        self._count += 1
        before = value if self.value is None else self.value
        self.value = before + max(self._weight, 1.0 / self._count) * (value - before)
        return self.value


class Acceptance:
    """α of each side: how probable it is that its next draft is the target.

    Fed with expectations (Eq. 5) where the sampler knows both distributions, else with outcomes, 0 or 1.
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
        """Take in the acceptance of a draft of `side`: 0, 1 or its expectation. Raises `ValueError` beyond [0, 1]."""
        _check_probability(value)
        self._estimates[side] = self._averages[side].update(value)
        self._lasting[side] += LASTING_WEIGHT * (value - self._lasting[side])

    def of(self, side: Side) -> float:
        """The expectation, for choosing the aggregator."""
        return self._estimates[side]

    def at_most(self, side: Side) -> float:
        """An upper estimate, for giving up drafts: too low a one costs latency, too high a one only work.

        The larger of a fast average, which follows stretches where everything is accepted, and a slow one, which no
        few rejections bring down and which comes down from 1.
        """
        return max(self._estimates[side], self._lasting[side])


def _least_squares(t: NDArray[np.float64], c: NDArray[np.float64]) -> tuple[float, float]:
    """Slope and intercept of the best line with neither of them negative."""
    mean_t, mean_c = float(t.mean()), float(c.mean())
    slope = float(((t - mean_t) * (c - mean_c)).sum() / ((t - mean_t) ** 2).sum())
    if slope < 0.0:
        return 0.0, mean_c
    intercept = mean_c - slope * mean_t
    if intercept < 0.0:
        return float((t * c).sum() / (t**2).sum()), 0.0
    return slope, intercept


def _usual(t: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mask of the samples near the line that most of them lie on, without stalls of the machine."""
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
# The delay of both directions of a link together: when to sample it, and what the samples say (DRAGON §5.2), also of
# the other side's clock.

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

_ROUND_TRIP_ROUNDING = 1e-3  # seconds; a thread that looks every so often must not miss the moment by less

# Latest round trips of which the shortest tells the clocks apart, and microseconds for which they do: clocks drift.
_BEST_OF, _LATEST = 32, 16_000_000


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One sample. Times are microseconds of this side's monotonic clock, `received` of the other's."""

    sent: int
    received: int  # when the other side saw the probe
    back: int

    @property
    def rtt(self) -> float:
        """Round-trip time, seconds."""
        return (self.back - self.sent) / 1e6


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Offset of the other side's monotonic clock: `ahead` of this one's, nanoseconds.

    Exact when both directions took equally long; else wrong by half of the difference, which is at most
    `uncertainty`: half of the round trip.
    """

    ahead: int
    uncertainty: int


class ClockDifference:
    """The offset of the other side's clock, from the shortest of the recent round trips.

    That one had least time in queues, so the least that the two directions can differ by.
    """

    def __init__(self) -> None:
        self._recent: deque[RoundTrip] = deque(maxlen=_BEST_OF)

    def observe(self, trip: RoundTrip) -> None:
        self._recent.append(trip)
        while self._recent[0].sent < trip.sent - _LATEST:
            self._recent.popleft()

    @property
    def offset(self) -> ClockOffset | None:
        """The offset; None before the first sample."""
        best = min(self._recent, key=lambda trip: trip.back - trip.sent, default=None)
        if best is None:
            return None
        # Half microseconds are 500 ns.
        return ClockOffset(500 * (2 * best.received - best.sent - best.back), 500 * (best.back - best.sent))


class RoundTrips:
    """Makes probes and reads their replies; the caller brings a monotonic clock in microseconds.

    One object per connection: a new peer's clock starts elsewhere.
    """

    def __init__(self, outstanding: int = 16) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding}.")
        self._limit = outstanding
        self._waiting: OrderedDict[int, int] = OrderedDict()  # sequence -> sent
        self._next = 0
        self._latest = -1  # when the latest probe was sent that came back

    @property
    def outstanding(self) -> int:
        """Probes under way; those before one that came back are taken to be lost, though late replies count."""
        return sum(sent > self._latest for sent in self._waiting.values())

    def probe(self, now: int) -> Probe:
        """The next probe, sent at `now`."""
        probe = Probe(self._next, now)
        self._next = (self._next + 1) % SEQUENCES
        self._waiting[probe.sequence] = now
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
        return probe

    def reply(self, reply: ProbeReply, now: int) -> RoundTrip | None:
        """The sample of a reply that arrived at `now`; None if it was not asked for, or seen before."""
        sent = self._waiting.get(reply.sequence)
        if sent is None or sent != reply.sent or now < sent:
            return None
        del self._waiting[reply.sequence]
        self._latest = max(self._latest, sent)
        return RoundTrip(sent, reply.received, now)


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
        if now - self._last < period - _ROUND_TRIP_ROUNDING:
            return False
        self._last = now
        return True

    def spare(self, now: float) -> None:
        """Note that the link has just carried a message and its answer: that tells as much as a probe."""
        self._last = now


# --- ahead
# Decoding ahead: so many drafts along a side's chain, and branches beside it. Pure.
#
# A prefix that is decoded before it is known to be the answer's brings the answer forward by a step of the slower side.
# A branch is decoded where that, times its chance, is more than what it adds to this side's step. What it adds is
# nothing as long as this side waits for the other in every step anyway.

FAINT: Final = 0.01  # chance of a branch that is decoded where it costs nothing

_FIRST: Final = 30.0  # branches per second that a new connection may carry
_MOST: Final = 1_000.0  # more than models of a few milliseconds a step decode
_INFLATED: Final = 1.35  # times the usual round trip; a longer one says that the link is full, or the machine busy
_NOISE: Final = 0.01  # seconds that round trips differ by in any case
_CAREFUL: Final = 1.1  # growth where half of what was too much is reached


@dataclass(frozen=True, slots=True)
class SpeculationLimits:
    """Bounds of decoding ahead."""

    max_drafts: int = 1  # of the chain, beyond the committed prefix; 1 is synchronous
    max_rows: int = 1  # prefixes of one decode step, at most
    min_chance: float = inf  # chance that a branch must have at least; more than 1: there are none
    free_branches: int = 0  # branches of one decode step that cost nothing: `FAINT` is enough for them
    spare_tokens: int = 0  # tokens of branches that the rows hold beside a whole answer

    @property
    def branching(self) -> bool:
        return self.max_rows > 1 and self.min_chance <= 1.0


def limit_speculation(drafts: int, most: int, own: float, other: float, trip: float, row: float) -> SpeculationLimits:
    """Branches beside a chain of `drafts`, in steps of `most` prefixes at most.

    Seconds: `own` and `other` are both sides' decode steps, `trip` is how long a rejection waits for the network, `row`
    what one prefix more adds to this side's step.
    """
    waits = trip + own - other if trip > 0.0 else 2 * own - other  # after a rejection, as the slower side sees it
    slower = max(own, other)
    if drafts < 2 or most < 2 or waits <= 0.0 or row > slower or slower <= 0.0:
        return SpeculationLimits(drafts)
    if row <= 0.0:
        return SpeculationLimits(drafts, most, FAINT, most)
    return SpeculationLimits(drafts, most, max(FAINT, row / slower), int(min(max(0.0, other - own) / row, most)))


class Allowance:
    """Branches per second that a connection carries: more and more, until round trips grow by it.

    A queue is seen late, and is long then. So what was too much once is approached slowly the next time, and what may
    have been too much, as the way has become another one, as well.
    """

    def __init__(self) -> None:
        self.rate = _FIRST
        self._enough = _MOST
        self._next = 0.0
        self._changes = 0

    def observe(self, now: float, trip: float, usual: float, changes: int) -> None:
        """Take in a smoothed round trip and the `usual` one, at `now`, all in seconds, after so many `changes` of the
        way.
        """
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
# Estimates of both sides' speed and agreement over one connection, from one side's measurements (DRAGON §5.2).
#
# The daemons and the simulator feed the same object, so that both decide by the same estimates.

#

DIGEST_PERIOD: Final = 0.1  # seconds between two looks at what was measured
TYPICAL_CONTEXT: Final = 256.0  # tokens; where a line without a measured context is pinned

SIDES: Final[tuple[Side, Side]] = ("device", "cloud")


class PeerModel:
    """Decode times of both sides and acceptance rates of their drafts, as `role` sees them. One thread feeds it."""

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine) -> None:
        """`own` is this side's decode time, which all its connections share; `remote` the other side's profile."""
        self.role: Side = role
        self._own = own
        self._remote = DecodeDelay(remote)
        self._context = TYPICAL_CONTEXT
        self._acceptance = Acceptance()

    def decoded(self, context: int) -> None:
        """Note a decode step of this side for this connection, at `context` tokens in its longest row."""
        self._context = float(context)

    def remote_decoded(self, seconds: float) -> None:
        """Take in the step time that the other side reports. Raises `ValueError` for an impossible number."""
        # Its context is not told; the two sides' rows are about equally long.
        self._remote.observe(self._context, seconds)

    def observe_acceptance(self, expected: tuple[float, float] | None, accepted: Mapping[Side, bool]) -> None:
        """Take in a decided position: Eq. 5 of (device, cloud) if there is one, else outcomes of the known drafts."""
        alphas = accepted if expected is None else dict(zip(SIDES, expected, strict=True))
        for side, alpha in alphas.items():
            self._acceptance.observe(side, float(alpha))

    def estimates(self, rtt: float = 0.0) -> Estimates:
        """The current inputs of Eq. 7."""
        own, remote = self._own.predict(self._context), self._remote.predict(self._context)
        device, cloud = (own, remote) if self.role == "device" else (remote, own)
        return Estimates(device, cloud, rtt, self._acceptance.of("device"), self._acceptance.of("cloud"))

    def run_ahead(self, longest: float | None, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way.

        `longest` is a round trip that is seldom exceeded, None as long as nothing is known of it.
        """
        own, other = self._own.predict(self._context), self._remote.predict(self._context)
        if longest is None or own <= 0.0:
            return maximum
        # The verdict on a draft comes no sooner than the slower side's draft for the same position.
        return run_ahead(longest + other, own, maximum, self._acceptance.at_most(self.role))

    def ahead(
        self, longest: float | None, maximum: int, trip: float | None, most: int, row: float, rate: float
    ) -> SpeculationLimits:
        """Bounds of decoding ahead for this side: `maximum` drafts and `most` prefixes per step at most.

        `trip` is how long a rejection waits for the network, None where branches are of no use; `row` what one prefix
        more adds to a step, both in seconds; `rate` are branches per second that the connection carries.
        """
        drafts = self.run_ahead(longest, maximum)
        if trip is None or longest is None:
            return SpeculationLimits(drafts)
        own, other = self._own.predict(self._context), self._remote.predict(self._context)
        carried = rate * own if own > 0.0 else 0.0  # of a step; a rate without a bound has no product with 0
        return limit_speculation(drafts, min(most, 1 + int(min(carried, most))), own, other, trip, row)
