"""Running estimates of what rounds take: step times, round trip, uplink rate. No clock is read.

Each belongs to one thread; `common/estimates/estimators.py` has the average that they share.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from common.draft_policy.values import Outcome, RoundTimes
from common.estimates.estimators import MovingAverage

TIME_WEIGHT: Final = 0.1
WINDOW: Final = 32  # rounds that the lower envelope is drawn under
PROBES: Final = 8  # latest probes, and rounds, of which the shortest counts as the round trip
LEAST_SPREAD: Final = 1.25  # the largest proposal over the smallest from which a window tells size from round trip
JITTER: Final = 0.01  # seconds that probes of one link may differ by, or else half of the longer one
RESOLVED: Final = 0.5e-3  # seconds of transmission that clocks and threads can tell from none


class UplinkRate:
    """Bytes per second upward, from sizes of proposals and the delays of their verdicts; and the bare round trip.

    A verdict's delay without the verifier's time is round trip + size / rate. The round trip is the shortest of the
    latest probes; without any, it is where the line below all points of a window of unlike sizes ends at size 0, `rtt`
    until then. Where that is too little, what is missing is put down to the size: proposals become shorter, which makes
    the sizes unlike.

    Of the last two rounds the faster one counts: no accident makes a message early, so a link that becomes fast is
    believed at once, one that becomes slow at the second slow round.

    A probe of another round trip is one of another link: rounds before it say nothing of that.

    With the round trip known to e seconds, the rate is wrong by the factor 1 + e · rate / size.
    """

    def __init__(self, rtt: float = 0.0) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # size, seconds beside the verifier's
        self._probes: deque[float] = deque(maxlen=PROBES)
        self._latest: deque[tuple[float, float, float]] = deque(maxlen=2)  # the same, and the round trip known then
        self._told = rtt  # believed, then by the last window of unlike sizes

    def probed(self, rtt: float) -> None:
        """Take in the round trip of a message of few bytes. Raises `ValueError` for one that is not possible."""
        if not 0.0 <= rtt < math.inf:
            raise ValueError(f"a round trip of {rtt} s is not possible")
        if self._probes and not _alike(self._probes[-1], rtt):
            for each in (self._probes, self._points, self._latest):
                each.clear()
        self._probes.append(rtt)

    def observe(self, size: float, delay: float, verify: float) -> None:
        """Take in a proposal's bytes, its verdict's delay and the verifier's part of it."""
        if not (size > 0.0 and 0.0 <= verify < math.inf and 0.0 <= delay < math.inf):
            raise ValueError(f"{size} bytes in {delay} s, of which {verify} s verified, is not possible")
        seconds = max(0.0, delay - verify)
        self._points.append((size, seconds))
        sizes = [one for one, _ in self._points]
        if not self._probes and max(sizes) >= LEAST_SPREAD * min(sizes):
            self._told = line_below(self._points)[0]
        self._latest.append((size, seconds, self.round_trip))

    @property
    def round_trip(self) -> float:
        """Seconds of a message without length: no more than any of the last few rounds took.

        Older ones may be of a link that was quicker; what is missing would be put down to the size.
        """
        known = min(self._probes) if self._probes else self._told
        return min([known] + [seconds for _, seconds in list(self._points)[-PROBES:]])

    @property
    def rate(self) -> float:
        """Bytes per second; inf where transmissions are too short to tell, or before a link's first. A round trip that
        is shorter by now than it was says nothing of them.
        """
        if not self._latest:
            return math.inf
        known = self.round_trip
        sent = [(size, seconds - max(base, known)) for size, seconds, base in self._latest]
        return max(size / seconds if seconds > RESOLVED else math.inf for size, seconds in sent)


def _alike(one: float, other: float) -> bool:
    """Whether two round trips, in seconds, may be those of one link, with its jitter."""
    return abs(one - other) <= max(JITTER, max(one, other) / 2)


def line_below(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope, neither negative, of the highest line at the points' mean that none of them is below.

    An edge of the lower convex hull. Raises `ValueError` without points.
    """
    ordered = sorted(points)
    if not ordered:
        raise ValueError("no line is below no points")
    hull: list[tuple[float, float]] = []
    for x, y in ordered:
        while len(hull) > 1 and _turns_down(hull[-2], hull[-1], (x, y)):
            hull.pop()
        hull.append((x, y))
    middle = sum(x for x, _ in ordered) / len(ordered)
    for (x, y), (next_x, next_y) in pairwise(hull):
        if x < next_x and next_x >= middle:
            slope = max(0.0, (next_y - y) / (next_x - x))
            break
    else:
        slope = 0.0
    lowest = min(y - slope * x for x, y in ordered)
    if lowest < 0.0:
        return 0.0, min(y / x for x, y in ordered if x > 0.0)
    return lowest, slope


def _turns_down(first: tuple[float, float], second: tuple[float, float], third: tuple[float, float]) -> bool:
    one, other = (second[0] - first[0], second[1] - first[1]), (third[0] - first[0], third[1] - first[1])
    return one[0] * other[1] - one[1] * other[0] <= 0.0


class RoundEstimates:
    """Expected costs of the next rounds with one verifier, learnt from those that were.

    `prior` has what is fixed (overheads) and what is believed before the first round.
    """

    def __init__(self, prior: RoundTimes) -> None:
        self._prior = prior
        self._draft, self._verify = MovingAverage(TIME_WEIGHT), MovingAverage(TIME_WEIGHT)
        self._draft_least = prior.draft
        self.uplink = UplinkRate(prior.rtt)
        self._rounds = 0

    def probed(self, rtt: float) -> None:
        """Take in a probe of the link."""
        self.uplink.probed(rtt)

    def observe(self, outcome: Outcome) -> None:
        """Take in a finished round."""
        self._rounds += 1
        if outcome.rested:  # what steps took then may have been beside others' work
            self._draft = MovingAverage(TIME_WEIGHT)
        self._draft.update(outcome.draft)
        self._draft_least = min(self._draft_least, outcome.draft)
        self._verify.update(outcome.verify_seconds - outcome.length * self._prior.verify_token)
        down = outcome.bytes_down / self._prior.down_rate
        self.uplink.observe(max(outcome.bytes_up, 1), max(0.0, outcome.verdict_seconds - down), outcome.verify_seconds)

    def passed(self, seconds: float) -> None:
        """Take in a pass of the verifier over one token that nobody proposed."""
        self._verify.update(max(0.0, seconds - self._prior.verify_token))

    def times(self) -> RoundTimes:
        """The estimates; what nothing has shown yet is the prior's."""
        prior = self._prior
        return RoundTimes(
            draft=prior.draft if self._draft.value is None else max(0.0, self._draft.value),
            draft_least=self._draft_least,
            verify=prior.verify if self._verify.value is None else max(0.0, self._verify.value),
            verify_token=prior.verify_token,
            rtt=self.uplink.round_trip,
            up_rate=self.uplink.rate if self._rounds else prior.up_rate,
            down_rate=prior.down_rate,
            up_overhead=prior.up_overhead,
            down_overhead=prior.down_overhead,
            down_rejected=prior.down_rejected,
        )
