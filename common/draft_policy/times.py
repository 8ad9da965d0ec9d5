"""Times of rounds of drafting and verifying: the formulas that predictions and the policy `goodput` share.

Seconds and bytes. Every position is accepted with the same probability α, independently of the others.
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
# Values that decide the length of a round of drafting, and the seam that decisions go through.
#
# A round: the drafter drafts some tokens and sends them in a proposal, the verifier answers with a verdict.
#
# **What a decision may read.** Whether a position is proposed may depend on the prefix before it, the drafted tokens
# in it included, and on the drafter's distribution at that position; never on the token that is drawn there. Otherwise
# the tokens that get proposed are no draws of q any more, and the answer does not follow the verifier's distribution.
# So a
# *confidence* is the largest probability of the drafter's distribution at a position, which is known before the draw.
# It
# is not the probability of what was drawn: that one may only be read at positions that the prefix already has.

MOST_LENGTH: Final = 16  # tokens of a proposal that policies consider, as far as QSV's actions go
RESOLUTIONS: Final = (16, 32, 64, 128, 256)  # ℓ of lattice distributions that are chosen among
RESTED: Final = 32  # tokens that nobody drafted, behind which a round follows a rest

Extension = Literal["none", "last", "more"]  # a proposal ends before a position, or with it, or goes on behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """Costs of rounds between one drafter and one verifier: seconds, bytes, bytes per second."""

    draft: float  # T_S: a draft step
    draft_least: float = math.inf  # the quickest one that was seen
    verify: float  # T_L: a verifying pass
    verify_token: float = 0.0  # more for every token that it verifies
    rtt: float = 0.0  # of a message without length
    up_rate: float = math.inf  # unlimited, or unknown
    down_rate: float = math.inf
    up_overhead: float = 0.0  # bytes of a round beside its tokens: framing, headers, acknowledgements
    down_overhead: float = 0.0
    down_rejected: float = 0.0  # more bytes of a verdict that rejects, as DSSD's P_j

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
        """The same on another uplink."""
        return replace(self, up_rate=up_rate)


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """The next proposal: at most `length` tokens, their distributions as multiples of 1 / `resolution`.

    0 tokens: nothing is drafted for now, and the verifier decides by itself. `resolution` is None where no lattice
    distributions travel.
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
    """Outcome of a finished round. Seconds by the drafter's clock, but for `verify_seconds`."""

    length: int  # tokens that were proposed, 1 or more
    accepted: int  # of them
    tokens: int  # of the answer that the round decided: with the resampled one or the bonus, if there was one
    seconds: float  # from the first draft step to the verdict
    verdict_seconds: float  # from the sending of the proposal to its verdict
    verify_seconds: float  # that the verifier held the proposal, waiting for its turn included; told in the verdict
    bytes_up: int  # of the proposal, with what it costs the link beside its content
    bytes_down: int
    resolution: int | None = None
    confidences: tuple[float, ...] = ()  # of the proposed positions; empty: not told
    rested: bool = False  # whether it follows a rest
    step: float | None = None  # seconds of the usual draft step, for each proposed token; None: all took as long

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
        """Seconds of a draft step, for each proposed token."""
        return (self.seconds - self.verdict_seconds) / self.length if self.step is None else self.step

    @property
    def rejected(self) -> bool:
        """Whether a proposed token was refused."""
        return self.accepted < self.length


class Learner(Protocol):
    """Learns from rounds."""

    def observe(self, outcome: RoundOutcome) -> None:
        """Take in a finished round."""
        ...


class DraftPolicy(Learner, Protocol):
    """Decides proposals, in this order: `plan`, `extension` at each position, `observe`.

    One answer at a time; what was learnt in one is of use in the next. Where the drafter drafts ahead, further
    proposals are planned before the first one's outcome is known.
    """

    @property
    def taught(self) -> Sequence[Learner]:
        """Estimates that `observe` tells of the round, too."""
        ...

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> DraftPlan:
        """The next proposal, from the confidences at the latest tokens of the prefix (oldest first) and the times."""
        ...

    def extension(self, confidence: float, drafted: int) -> Extension:
        """Whether the position behind the first `drafted` ones of this proposal is proposed, too, and one more drafted.

        `confidence` is the largest probability of the drafter's distribution *there*, before anything is drawn from it:
        the step that it takes is spent. The first position is always proposed, and none beyond the plan's length.
        """
        ...


# --- times


def expected_tokens(acceptance: float, length: int) -> float:
    """E, the tokens that a round of `length` proposed ones decides: accepted + 1.

    (1 - α^(γ+1)) / (1 - α); γ + 1 at α = 1. Raises `ValueError` for an α outside [0, 1] or a negative length.
    """
    _check(acceptance, length)
    return sum(acceptance**accepted for accepted in range(length + 1))


def expected_tokens_of(acceptances: Sequence[float]) -> float:
    """E for positions of unlike acceptance: g(x) of QSV Eq. 15."""
    expected, whole = 0.0, 1.0
    for place, acceptance in enumerate(acceptances, start=1):
        _check(acceptance, place)
        expected += place * whole * (1.0 - acceptance)
        whole *= acceptance
    return expected + (len(acceptances) + 1) * whole


def tokens_per_error(acceptance: float) -> float:
    """N = 1 / (1 - α), tokens from one that is not what the drafter proposed to the next; inf at α = 1."""
    _check(acceptance, 1)
    return 1.0 / (1.0 - acceptance) if acceptance < 1.0 else float("inf")


def up_seconds(times: RoundTimes, length: int, token_bytes: float) -> float:
    """Seconds that a proposal of `length` tokens of `token_bytes` each occupies the uplink."""
    return (times.up_overhead + length * token_bytes) / times.up_rate


def round_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """A synchronous round: γ T_S + T_L + RTT + B_up / R_up + B_down / R_down, with the expected B_down."""
    _check(acceptance, length)
    down = times.down_overhead + (1.0 - acceptance**length) * times.down_rejected
    work = length * (times.draft + times.verify_token) + times.verify
    return work + times.rtt + up_seconds(times, length, token_bytes) + down / times.down_rate


def synchronous_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token of rounds one after the other: a round's over E."""
    return round_seconds(times, acceptance, length, token_bytes) / expected_tokens(acceptance, length)


def keeps_up(times: RoundTimes, length: int, token_bytes: float) -> bool:
    """Whether chunks of `length` tokens leave no later than they are drafted: serialisation <= γ T_S."""
    return up_seconds(times, length, token_bytes) <= length * times.draft


def pass_wait(times: RoundTimes, length: int) -> float:
    """Seconds that a chunk waits for the pass under way: half of what a pass takes longer than a chunk is drafted."""
    return max(0.0, times.verify + length * times.verify_token - length * times.draft) / 2


def ahead_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token while the drafter goes on behind what it proposed, in chunks of `length` tokens.

    A wrong token costs what it takes to learn of it: the rest of its chunk ((γ - 1) / 2 steps on average), the chunk's
    way up, a pass, and the way back; so t ≈ max(T_S, (N T_S + (γ-1)/2 T_S + T_L + RTT + serialisation) / N). Added to
    it is `pass_wait`, without which simulations at γ = 1 and T_L = 6 T_S take up to 13 % longer. Where chunks can't
    keep up (`keeps_up`), the pace is the link's instead of T_S; what is queued when an error becomes known is not in
    the formula, which is far too low there.
    """
    sent = up_seconds(times, length, token_bytes)
    pace = max(times.draft, sent / length)
    back = (times.down_overhead + times.down_rejected) / times.down_rate
    work = (length - 1) / 2 * times.draft + times.verify + length * times.verify_token
    wait = work + pass_wait(times, length) + times.rtt + sent + back
    return pace + wait / tokens_per_error(acceptance)


def undrafted_seconds(times: RoundTimes) -> float:
    """Seconds per token that the verifier decides by itself and tells at once: a pass each."""
    return max(times.verify + times.verify_token, times.down_overhead / times.down_rate)


def eager_seconds(times: RoundTimes, acceptance: float, length: int, token_bytes: float) -> float:
    """Seconds per token of a verifier that decodes on while it waits for chunks of `length` tokens (ours).

    t = T_L - α^k (T_L - pace). Behind a wrong draft the verifier decides k tokens by itself until the drafts behind it
    are there, and so it does anew where one of those k is not what was drafted: (α^-k - 1) N tokens on average, N from
    one error to the next, of which the drafts then bring N at their own pace.
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
    """Least and largest acceptance of coupled draws of two distributions with this total variation distance.

    (1 - TV) / (1 + TV) and 1 - TV; the latter is what accepting min(1, p / q) reaches.
    """
    _check(variation, 1)
    return (1.0 - variation) / (1.0 + variation), 1.0 - variation


def _check(acceptance: float, length: int) -> None:
    if not 0.0 <= acceptance <= 1.0 or length < 0:
        raise ValueError(f"an acceptance is in [0, 1] and a length not negative, got {acceptance} and {length}")


# --- estimators
# Running estimates of what rounds take: step times, round trip, uplink rate. No clock is read.
#
# Each belongs to one thread; `common/estimates/estimators.py` has the average that they share.

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

    def observe(self, outcome: RoundOutcome) -> None:
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


# --- sizes
# Bytes of a proposed token with what travels beside it, as far as rounds have shown them.

SIZE_WEIGHT: Final = 0.1  # of a round's bytes per token


class TokenSizes:
    """Bytes of a proposed token by resolution (`{None: ...}` without lattice); of use in many answers.

    What was seen takes the place of what was believed at once: distributions that are flatter than expected take
    several times the bytes. A resolution that was not seen is believed to be off as much as the nearest one that was.
    """

    def __init__(self, believed: Mapping[int | None, float]) -> None:
        if not believed or not all(size > 0.0 for size in believed.values()):
            raise ValueError(f"there must be a resolution to choose, and bytes for each, got {dict(believed)}")
        self._believed = dict(believed)
        self._seen: dict[int | None, MovingAverage] = {}

    def __iter__(self) -> Iterator[int | None]:
        """The resolutions that there are."""
        return iter(self._believed)

    def observe(self, resolution: int | None, size: float) -> None:
        """Take in bytes per token of a proposal; of a resolution that can't be chosen they are ignored."""
        if resolution in self._believed:
            self._seen.setdefault(resolution, MovingAverage(SIZE_WEIGHT)).update(size)

    def of(self, resolution: int | None) -> float:
        """Bytes of a token at `resolution`, one of those that there are."""
        seen = self._seen.get(resolution)
        if seen is not None and seen.value is not None:
            return seen.value
        tried = [at for at in self._seen if at is not None]
        if resolution is None or not tried:
            return self._believed[resolution]
        nearest = min(tried, key=lambda at: abs(math.log(at / resolution)))
        return self._believed[resolution] * self.of(nearest) / self._believed[nearest]


# --- lattice_bits
# Bits of a lattice distribution: how many an index needs, without making one.
#
# A distribution over V tokens of resolution ℓ has ℓ units to share out; K tokens have at least one.


def bits_to_tell(kinds: int) -> int:
    """ceil(log2(`kinds`)), exactly: the bits that tell one of so many things from another."""
    if kinds < 1:
        raise ValueError(f"something is one of at least 1 kinds, not of {kinds}")
    return (kinds - 1).bit_length()


@lru_cache(maxsize=1024)
def fixed_index_bits(resolution: int, vocabulary: int) -> int:
    """ceil(log2 C(ℓ + V - 1, ℓ)), QSV Eq. 6: any distribution of this resolution."""
    _lattice_bits_check(resolution, vocabulary)
    return bits_to_tell(math.comb(resolution + vocabulary - 1, resolution))


@lru_cache(maxsize=16384)
def short_index_bits(resolution: int, vocabulary: int, support: int) -> int:
    """ceil(log2 ℓ) + ceil(log2 C(V, K)) + ceil(log2 C(ℓ-1, K-1)): K, which tokens, how the units are shared out."""
    _lattice_bits_check(resolution, vocabulary)
    if not 1 <= support <= min(resolution, vocabulary):
        raise ValueError(f"{resolution} units lie on 1 to {min(resolution, vocabulary)} tokens, not on {support}")
    tokens = bits_to_tell(math.comb(vocabulary, support))
    return bits_to_tell(resolution) + tokens + bits_to_tell(math.comb(resolution - 1, support - 1))


def _lattice_bits_check(resolution: int, vocabulary: int) -> None:
    if resolution < 1 or vocabulary < 1:
        raise ValueError(f"resolution and vocabulary must be at least 1, got {resolution} and {vocabulary}")
