"""Estimators of the two sides' speed and acceptance (DRAGON §5.2); `round_trip.py` has the link between them.

Every estimator is fed by its caller and belongs to one thread; none reads a clock. Times are seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proto.messages import Side

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
