"""Times of rounds: formulas for predictions and for `goodput`.

Seconds and bytes. Positions are accepted independently with probability α.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final, Literal, Protocol

from common.estimates.estimators import MovingAverage

# --- values
# In a round the drafter sends drafted tokens in a proposal, and the verifier answers with a verdict.
#
# **Allowed inputs.** Proposing a position may depend on its prefix, drafts included, and on the drafter's distribution
# there. It must not depend on the token drawn there. Otherwise proposed tokens are no draws of q, and the answer does
# not follow the verifier's distribution. So a *confidence* is the largest probability of the drafter's distribution,
# known before the draw. A drawn token's probability may only be read within the prefix.

MOST_LENGTH: Final = 16  # tokens, as QSV's actions
RESOLUTIONS: Final = (16, 32, 64, 128, 256)  # ℓ of lattice distributions
RESTED: Final = 32  # undrafted tokens of a rest

Extension = Literal["none", "last", "more"]  # proposal ends before or with a position, or continues


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """Costs of a drafter's and a verifier's rounds: seconds, bytes, bytes per second."""

    draft: float  # T_S: a draft step
    draft_least: float = math.inf  # quickest measured
    verify: float  # T_L: a verifying pass
    verify_token: float = 0.0  # extra per verified token
    rtt: float = 0.0  # of an empty message
    up_rate: float = math.inf  # unlimited, or unknown
    down_rate: float = math.inf
    up_overhead: float = 0.0  # bytes beside tokens: framing, headers, acknowledgements
    down_overhead: float = 0.0
    down_rejected: float = 0.0  # more bytes of a rejecting verdict, as DSSD's P_j

    def __post_init__(self) -> None:
        seconds = (self.draft, self.verify, self.verify_token, self.rtt)
        amounts = (*seconds, self.up_overhead, self.down_overhead, self.down_rejected)
        if not all(0.0 <= amount < math.inf for amount in amounts):
            raise ValueError(f"times and bytes of a round must be finite and not negative, got {self}")
        if not self.draft_least >= 0.0:
            raise ValueError(f"the quickest draft step can't have taken {self.draft_least} s")
        if not (self.up_rate > 0.0 and self.down_rate > 0.0):
            raise ValueError(f"rates must be positive bytes per second (inf: unlimited), got {self}")

    def at_rate(self, up_rate: float) -> RoundTimes:
        return replace(self, up_rate=up_rate)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The next proposal: up to `length` tokens, distributions in multiples of 1 / `resolution`.

    Length 0: the verifier decides without drafts. `resolution` is None without lattices.
    """

    length: int
    resolution: int | None = None

    def __post_init__(self) -> None:
        if self.length < 0:
            raise ValueError(f"a proposal has no fewer than no tokens, got {self.length}")
        if self.resolution is not None and self.resolution < 1:
            raise ValueError(f"a lattice has a resolution of at least 1, not {self.resolution}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """A finished round, in seconds of the drafter's clock except `verify_seconds`."""

    length: int  # proposed, at least 1
    accepted: int
    tokens: int  # decided, with a resampled one or bonus
    seconds: float  # from the first draft step to the verdict
    verdict_seconds: float  # from the proposal to the verdict
    verify_seconds: float  # on the verifier with its queue, as reported
    bytes_up: int  # with link overhead
    bytes_down: int
    resolution: int | None = None
    confidences: tuple[float, ...] = ()  # of the proposed; empty: unknown
    rested: bool = False  # after a rest
    step: float | None = None  # usual seconds per proposed token; None: all equal

    def __post_init__(self) -> None:
        if not (self.length > 0 and 0 <= self.accepted <= self.length and self.tokens >= 0):
            raise ValueError(
                f"a round of {self.length} tokens can't have accepted {self.accepted}, decided {self.tokens}"
            )
        seconds = (self.verify_seconds, self.verdict_seconds, self.seconds)
        if not all(0.0 <= one < math.inf for one in seconds) or self.verdict_seconds > self.seconds:
            raise ValueError(f"a round's times must be finite and its verdict's a part of the whole, got {self}")
        if self.bytes_up < 0 or self.bytes_down < 0:
            raise ValueError(f"a round can't have {self.bytes_up} bytes up and {self.bytes_down} down")
        if len(self.confidences) not in (0, self.length):
            raise ValueError(f"{self.length} proposed positions have as many confidences, not {len(self.confidences)}")

    @property
    def draft(self) -> float:
        """Seconds per proposed token."""
        return (self.seconds - self.verdict_seconds) / self.length if self.step is None else self.step

    @property
    def rejected(self) -> bool:
        return self.accepted < self.length


class Learner(Protocol):
    """Learns from rounds."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Add a finished round."""
        ...


class DraftPolicy(Learner, Protocol):
    """Decides proposals by `plan`, `extension` at each position, and `observe`, in this order.

    One answer at a time, with learning across answers. Drafting ahead, more proposals are planned before the first
    outcome.
    """

    @property
    def taught(self) -> Sequence[Learner]:
        """Estimates that `observe` updates, too."""
        ...

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> DraftPlan:
        """Plan from confidences at the prefix's latest tokens (oldest first) and times."""
        ...

    def extension(self, confidence: float, drafted: int) -> Extension:
        """Whether to propose the position after `drafted` ones, and to draft another.

        `confidence` is the distribution's largest probability *there*, before any draw; the step is spent. The first
        position is always proposed, none beyond the plan.
        """
        ...


# --- times


def expected_tokens(acceptance: float, length: int) -> float:
    """E, the tokens of a round of `length` proposed ones: accepted + 1.

    (1 - α^(γ+1)) / (1 - α); γ + 1 at α = 1. Raises `ValueError` for α outside [0, 1] or a negative length.
    """
    _check(acceptance, length)
    return sum(acceptance**accepted for accepted in range(length + 1))


def expected_tokens_of(acceptances: Sequence[float]) -> float:
    """E for different acceptances: g(x) of QSV Eq. 15."""
    expected, whole = 0.0, 1.0
    for place, acceptance in enumerate(acceptances, start=1):
        _check(acceptance, place)
        expected += place * whole * (1.0 - acceptance)
        whole *= acceptance
    return expected + (len(acceptances) + 1) * whole


def tokens_per_error(acceptance: float) -> float:
    """N = 1 / (1 - α), tokens per wrong draft; inf at α = 1."""
    _check(acceptance, 1)
    return 1.0 / (1.0 - acceptance) if acceptance < 1.0 else float("inf")


def up_seconds(times: RoundTimes, length: int, token_bytes: float) -> float:
    """Uplink seconds of a proposal."""
    return (times.up_overhead + length * token_bytes) / times.up_rate


def round_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """A synchronous round: γ T_S + T_L + RTT + B_up / R_up + B_down / R_down, expected B_down."""
    _check(acceptance, length)
    down = times.down_overhead + (1.0 - acceptance**length) * times.down_rejected
    work = length * (times.draft + times.verify_token) + times.verify
    return work + times.rtt + up_seconds(times, length, token_bytes) + down / times.down_rate


def synchronous_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token of consecutive rounds."""
    return round_seconds(times, acceptance, length, token_bytes) / expected_tokens(acceptance, length)


def keeps_up(times: RoundTimes, length: int, token_bytes: float) -> bool:
    """Whether chunks are sent as fast as drafted: serialisation <= γ T_S."""
    return up_seconds(times, length, token_bytes) <= length * times.draft


def pass_wait(times: RoundTimes, length: int) -> float:
    """A chunk's wait for the running pass: half of its excess over the chunk's drafting."""
    return max(0.0, times.verify + length * times.verify_token - length * times.draft) / 2


def ahead_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token while drafting continues after proposals, in chunks of `length`.

    A wrong token costs the rest of its chunk ((γ - 1) / 2 steps on average), the way up, a pass and the way back: t ≈
    max(T_S, (N T_S + (γ-1)/2 T_S + T_L + RTT + serialisation) / N). Without the added `pass_wait`, simulations at γ = 1
    and T_L = 6 T_S take up to 13 % longer. If chunks can't keep up (`keeps_up`), the link sets the pace instead of T_S.
    The queue at an error is omitted, so the formula is far too low there.
    """
    sent = up_seconds(times, length, token_bytes)
    pace = max(times.draft, sent / length)
    back = (times.down_overhead + times.down_rejected) / times.down_rate
    work = (length - 1) / 2 * times.draft + times.verify + length * times.verify_token
    wait = work + pass_wait(times, length) + times.rtt + sent + back
    return pace + wait / tokens_per_error(acceptance)


def undrafted_seconds(times: RoundTimes) -> float:
    """Seconds per token that the verifier decides alone: a pass each."""
    return max(times.verify + times.verify_token, times.down_overhead / times.down_rate)


def eager_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token of a verifier that decodes between chunks of `length` (ours).

    t = T_L - α^k (T_L - pace). After a wrong draft the verifier decides k tokens alone until drafts arrive, again if
    one of them differs: (α^-k - 1) N tokens on average, with N per error. The drafts then bring N at their pace.
    """
    _check(acceptance, length)
    alone, sent = undrafted_seconds(times), up_seconds(times, length, token_bytes)
    pace = min(alone, max(times.draft, sent / length))
    if pace == alone:
        return alone
    wait = times.rtt + sent + length * times.draft + pass_wait(times, length)
    caught_up: float = acceptance ** (wait / alone)
    return alone - caught_up * (alone - pace)


def coupled_acceptance(variation: float) -> tuple[float, float]:
    """Least and largest acceptance of coupled draws at a total variation distance.

    (1 - TV) / (1 + TV) and 1 - TV. Accepting with min(1, p / q) reaches the latter.
    """
    _check(variation, 1)
    return (1.0 - variation) / (1.0 + variation), 1.0 - variation


def _check(acceptance: float, length: int) -> None:
    if not 0.0 <= acceptance <= 1.0 or length < 0:
        raise ValueError(f"an acceptance is in [0, 1] and a length not negative, got {acceptance} and {length}")


# --- estimators
# Running estimates of step times, round trip and uplink rate. No clock is read.
#
# Each belongs to one thread; `common/estimates/estimators.py` has their average.

TIME_WEIGHT: Final = 0.1
WINDOW: Final = 32  # rounds for the lower envelope
PROBES: Final = 8  # latest probes and rounds, whose shortest is the round trip
LEAST_SPREAD: Final = 1.25  # ratio of sizes in a window that separates size from round trip
JITTER: Final = 0.01  # seconds that probes of one link may differ by, or half of the longer
RESOLVED: Final = 0.5e-3  # least measurable seconds of transmission


class UplinkRate:
    """Uplink bytes per second and bare round trip, from sizes and verdict delays.

    A delay without the verifier's time is round trip + size / rate. The round trip is the shortest of the latest
    probes. Without probes, it is the value at size 0 of the line below a window of different sizes, initially `rtt`. If
    it is too small, the difference counts as size: proposals become shorter, so sizes differ.

    The faster of the last two rounds counts, as no accident speeds a message up. So a faster link is believed at once,
    a slower one at the second slow round.

    A probe of a different round trip means another link, and clears earlier rounds.

    A round trip known to e seconds makes the rate wrong by the factor 1 + e · rate / size.
    """

    def __init__(self, rtt: float = 0.0) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # size, seconds without the verifier's
        self._probes: deque[float] = deque(maxlen=PROBES)
        self._latest: deque[tuple[float, float, float]] = deque(maxlen=2)  # the same, and the known round trip
        self._told = rtt  # the prior, then by windows of different sizes

    def probed(self, rtt: float) -> None:
        """Raises `ValueError` for an impossible round trip."""
        if not 0.0 <= rtt < math.inf:
            raise ValueError(f"a round trip of {rtt} s is not possible")
        if self._probes and not _alike(self._probes[-1], rtt):
            for each in (self._probes, self._points, self._latest):
                each.clear()
        self._probes.append(rtt)

    def observe(self, size: float, delay: float, verify: float) -> None:
        """Add a proposal's bytes, its verdict's delay, and the verifier's part."""
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
        """Seconds of an empty message, at most those of the latest rounds.

        Older ones may be of a quicker link, and the difference would count as size.
        """
        known = min(self._probes) if self._probes else self._told
        return min([known] + [seconds for _, seconds in list(self._points)[-PROBES:]])

    @property
    def rate(self) -> float:
        """Bytes per second; inf if unknown or unmeasurable.

        Later, shorter round trips do not matter.
        """
        if not self._latest:
            return math.inf
        known = self.round_trip
        sent = [(size, seconds - max(base, known)) for size, seconds, base in self._latest]
        return max(size / seconds if seconds > RESOLVED else math.inf for size, seconds in sent)


def _alike(one: float, other: float) -> bool:
    """Whether both, in seconds, may be of one link."""
    return abs(one - other) <= max(JITTER, max(one, other) / 2)


def line_below(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope, non-negative, of the highest line below all points.

    Highest at the mean: an edge of the lower convex hull. Raises `ValueError` without points.
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
    """Expected costs of the next rounds with one verifier; `prior` until measured.

    `prior` also has the fixed overheads.
    """

    def __init__(self, prior: RoundTimes) -> None:
        self._prior = prior
        self._draft, self._verify = MovingAverage(TIME_WEIGHT), MovingAverage(TIME_WEIGHT)
        self._draft_least = prior.draft
        self.uplink = UplinkRate(prior.rtt)
        self._rounds = 0

    def probed(self, rtt: float) -> None:
        self.uplink.probed(rtt)

    def observe(self, outcome: RoundOutcome) -> None:
        self._rounds += 1
        if outcome.rested:  # earlier steps may have competed with others
            self._draft = MovingAverage(TIME_WEIGHT)
        self._draft.update(outcome.draft)
        self._draft_least = min(self._draft_least, outcome.draft)
        self._verify.update(outcome.verify_seconds - outcome.length * self._prior.verify_token)
        down = outcome.bytes_down / self._prior.down_rate
        self.uplink.observe(max(outcome.bytes_up, 1), max(0.0, outcome.verdict_seconds - down), outcome.verify_seconds)

    def passed(self, seconds: float) -> None:
        """Add a pass for one undrafted token."""
        self._verify.update(max(0.0, seconds - self._prior.verify_token))

    def times(self) -> RoundTimes:
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


# --- sizes

SIZE_WEIGHT: Final = 0.1  # of a round


class TokenSizes:
    """Bytes of a proposed token by resolution (`{None: ...}` without lattice), across answers.

    A measurement replaces the prior at once, as flat distributions take several times the bytes. Unmeasured resolutions
    deviate like the nearest measured one.
    """

    def __init__(self, believed: Mapping[int | None, float]) -> None:
        if not believed or not all(size > 0.0 for size in believed.values()):
            raise ValueError(f"there must be a resolution to choose, and bytes for each, got {dict(believed)}")
        self._believed = dict(believed)
        self._seen: dict[int | None, MovingAverage] = {}

    def __iter__(self) -> Iterator[int | None]:
        """The possible resolutions."""
        return iter(self._believed)

    def observe(self, resolution: int | None, size: float) -> None:
        """Add a proposal's bytes per token; ignore unknown resolutions."""
        if resolution in self._believed:
            self._seen.setdefault(resolution, MovingAverage(SIZE_WEIGHT)).update(size)

    def of(self, resolution: int | None) -> float:
        seen = self._seen.get(resolution)
        if seen is not None and seen.value is not None:
            return seen.value
        tried = [at for at in self._seen if at is not None]
        if resolution is None or not tried:
            return self._believed[resolution]
        nearest = min(tried, key=lambda at: abs(math.log(at / resolution)))
        return self._believed[resolution] * self.of(nearest) / self._believed[nearest]


# --- lattice_bits
# Bits of an index: ℓ (resolution) units over V tokens, of which K have units.


def bits_to_tell(kinds: int) -> int:
    """ceil(log2(`kinds`)), exactly."""
    if kinds < 1:
        raise ValueError(f"something is one of at least 1 kinds, not of {kinds}")
    return (kinds - 1).bit_length()


@lru_cache(maxsize=1024)
def fixed_index_bits(resolution: int, vocabulary: int) -> int:
    """ceil(log2 C(ℓ + V - 1, ℓ)), QSV Eq. 6."""
    _lattice_bits_check(resolution, vocabulary)
    return bits_to_tell(math.comb(resolution + vocabulary - 1, resolution))


@lru_cache(maxsize=16384)
def short_index_bits(resolution: int, vocabulary: int, support: int) -> int:
    """ceil(log2 ℓ) + ceil(log2 C(V, K)) + ceil(log2 C(ℓ-1, K-1)): K, tokens, units."""
    _lattice_bits_check(resolution, vocabulary)
    if not 1 <= support <= min(resolution, vocabulary):
        raise ValueError(f"{resolution} units lie on 1 to {min(resolution, vocabulary)} tokens, not on {support}")
    tokens = bits_to_tell(math.comb(vocabulary, support))
    return bits_to_tell(resolution) + tokens + bits_to_tell(math.comb(resolution - 1, support - 1))


def _lattice_bits_check(resolution: int, vocabulary: int) -> None:
    if resolution < 1 or vocabulary < 1:
        raise ValueError(f"resolution and vocabulary must be at least 1, got {resolution} and {vocabulary}")
