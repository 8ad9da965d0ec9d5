"""Proposal policies: fixed rules, and most tokens per second by measured rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from common.draft_policy.times import (
    MOST_LENGTH,
    DraftPlan,
    Extension,
    Learner,
    RoundOutcome,
    RoundTimes,
    TokenSizes,
    ahead_seconds,
    eager_seconds,
    keeps_up,
    round_seconds,
    synchronous_seconds,
    undrafted_seconds,
)

# --- acceptance

PRIOR_ACCEPTANCE: Final = 0.7
PRIOR_POSITIONS: Final = 4.0  # positions that the prior weighs
MEMORY: Final = 200.0  # judged positions until a weight of 1/e
MEMORY_OF_RESTED: Final = 16.0  # weight of positions from before a rest
COARSENESS: Final = 1 / 3  # of a resolution's rejections, avoided at the finest
BINS: Final = 10  # of confidences


@dataclass(slots=True)
class _Share:
    """Accepted and judged positions with fading weights."""

    accepted: float = 0.0
    judged: float = 0.0

    def fade(self, kept: float) -> None:
        self.accepted *= kept
        self.judged *= kept

    def of(self, prior: float, weight: float) -> float:
        return (self.accepted + weight * prior) / (self.judged + weight)


class PositionAcceptance:
    """α: the acceptance of a position after accepted ones, by resolution.

    Untried resolutions are rated by the most tried one. A third of its rejections count as coarseness, which falls with
    the root of the resolution; coarser ones count as equally good. This optimism gets them tried while their bytes may
    pay.
    """

    def __init__(self, prior: float = PRIOR_ACCEPTANCE, weight: float = PRIOR_POSITIONS) -> None:
        if not (0.0 < prior < 1.0 and weight > 0.0):
            raise ValueError(f"a prior acceptance is in (0, 1) and counts more than 0 positions, got {prior}, {weight}")
        self._prior, self._weight = prior, weight
        self._shares: dict[int | None, _Share] = {}

    def observe(self, outcome: RoundOutcome) -> None:
        """Later positions than the rejected one were not judged."""
        judged = outcome.accepted + outcome.rejected
        kept = math.exp(-judged / MEMORY)
        known = sum(share.judged for share in self._shares.values())
        if outcome.rested and known > 0.0:
            kept = min(kept, MEMORY_OF_RESTED / known)
        for share in self._shares.values():
            share.fade(kept)
        share = self._shares.setdefault(outcome.resolution, _Share())
        share.accepted += outcome.accepted
        share.judged += judged

    @property
    def overall(self) -> float:
        """α of all resolutions."""
        shares = self._shares.values()
        together = _Share(sum(one.accepted for one in shares), sum(one.judged for one in shares))
        return together.of(self._prior, self._weight)

    def of(self, resolution: int | None) -> float:
        """α of a resolution (None: without lattice)."""
        if resolution is None:
            return self.overall
        tried, most = max(
            ((at, share) for at, share in self._shares.items() if at is not None),
            key=lambda one: one[1].judged,
            default=(resolution, _Share()),
        )
        finer = max(0.0, 1.0 - math.sqrt(tried / resolution))
        hoped = 1.0 - (1.0 - most.of(self._prior, self._weight)) * (1.0 - COARSENESS * finer)
        if resolution == tried:
            return hoped
        return self._shares.get(resolution, _Share()).of(hoped, self._weight)


class ConfidenceAcceptance:
    """α by confidence, the drafter's largest probability."""

    def __init__(self) -> None:
        self._bins = [_Share() for _ in range(BINS)]

    def observe(self, outcome: RoundOutcome) -> None:
        judged = outcome.accepted + outcome.rejected
        for share in self._bins:
            share.fade(math.exp(-judged / (MEMORY * BINS)))
        for place, confidence in enumerate(outcome.confidences[:judged]):
            share = self._bin(confidence)
            share.accepted += place < outcome.accepted
            share.judged += 1.0

    def of(self, confidence: float, prior: float) -> float:
        """α at this confidence; `prior` if little is known."""
        return self._bin(confidence).of(prior, PRIOR_POSITIONS)

    def _bin(self, confidence: float) -> _Share:
        return self._bins[min(BINS - 1, max(0, int(confidence * BINS)))]


# --- goodput

NEARLY: Final = 1.02  # of the least time: chunks within it are as good
HOPED: Final = 0.97  # hoped acceptance without recent drafts
HOPED_RATE: Final = 1.25e6  # bytes per second of an unused link
DEARER: Final = 2.0  # trials of one draft that a trial may cost
TRIED: Final = 0.02  # of the time without drafts, for trials
SAVED: Final = 5.0  # seconds left after a trial

Undrafted = Literal["never", "deferred", "eager"]


@dataclass(slots=True)
class Trials:
    """Seconds for drafts that test acceptance, drafting speed or the link.

    They are not expected to pay. Some are available initially, for unknown models.
    """

    seconds: float = 0.5

    def earn(self, seconds: float) -> None:
        """Note time without drafts."""
        self.seconds += TRIED * seconds

    def afford(self, seconds: float) -> bool:
        """Whether a trial is affordable; then it is paid. Earlier savings are unlimited."""
        affordable = self.seconds >= seconds
        if affordable:
            self.seconds = min(self.seconds - seconds, SAVED)
        return affordable


class Goodput:
    """Chooses the length and resolution of the least expected time per token.

    `sizes` has the possible resolutions. It and `acceptance` may come from earlier answers. Drafting ahead, a chunk
    must be sent as fast as it is drafted, or it is the longest: slower chunks queue up and block the link after an
    error.

    With `confidence`, each position decides. Its expected tokens are the product of acceptances up to it. That is worth
    its time at the best fixed length's throughput. A position is drafted while it pays for a step and bytes at the mean
    acceptance. It is proposed if its own acceptance pays for the bytes. Uninformative confidences give the fixed
    length.

    Undrafted tokens may be "deferred" to the verifier, or an "eager" one decides them. Then drafts must save as much as
    `NEARLY` says, except for `trials`.
    """

    def __init__(
        self,
        sizes: TokenSizes,
        *,
        most: int = MOST_LENGTH,
        ahead: bool = False,
        acceptance: PositionAcceptance | None = None,
        confidence: ConfidenceAcceptance | None = None,
        undrafted: Undrafted = "never",
        trials: Trials | None = None,
    ) -> None:
        if most < 1:
            raise ValueError(f"there must be a length to choose, got up to {most}")
        if ahead and confidence is not None:
            raise ValueError("chunks of a drafter that goes on anyway are not ended by confidence: choose one")
        self.acceptance = acceptance or PositionAcceptance()
        self._confidence = confidence
        self._sizes = sizes
        self._most, self._ahead = most, ahead
        self._predict = ahead_seconds if ahead else synchronous_seconds
        self._undrafted = undrafted
        self._trials = trials or Trials()
        self._overhead = 0.0
        # Of this round: α, the product of acceptances, and the least values to pay for bytes, and for a step with
        # bytes.
        self._alpha, self._survival, self._proposable, self._draftable = 1.0, 1.0, 0.0, 0.0

    @property
    def taught(self) -> Sequence[Learner]:
        return (self.acceptance,) if self._confidence is None else (self.acceptance, self._confidence)

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> DraftPlan:
        self._overhead = times.up_overhead
        alphas = {at: self.acceptance.of(at) for at in self._sizes}
        seconds, length, at = self._best(times, alphas)
        if self._undrafted != "never" and not self._saves(times, alphas[at], length, at):
            alphas[at] = max(alphas[at], HOPED)
            tried = self._tried(times, alphas[at], at)
            if tried is None:
                return DraftPlan(0, at)
            seconds, length = tried
        if self._confidence is None:
            return DraftPlan(length, at)
        sent = times.verify_token + self._sizes.of(at) / times.up_rate
        self._alpha = alphas[at]
        self._proposable, self._draftable = (one / seconds if seconds else 0.0 for one in (sent, times.draft + sent))
        return DraftPlan(self._most, at)

    def _best(self, times: RoundTimes, alphas: Mapping[int | None, float]) -> tuple[float, int, int | None]:
        """Seconds per token, length and resolution of the best proposal."""
        choices = [(length, at) for at in alphas for length in range(1, self._most + 1)]
        if self._ahead:
            kept_up = [one for one in choices if keeps_up(times, one[0], self._sizes.of(one[1]))]
            choices = kept_up or [(self._most, at) for at in alphas]
        found = [(self._predict(times, alphas[at], length, self._sizes.of(at)), length, at) for length, at in choices]
        best = min(found, key=lambda one: one[:2])
        if self._ahead:  # longer chunks cost little time and save bytes
            best = max((one for one in found if one[0] <= NEARLY * best[0]), key=lambda one: one[1])
        return best

    def _saves(self, times: RoundTimes, alpha: float, length: int, at: int | None) -> bool:
        predict = eager_seconds if self._undrafted == "eager" else self._predict
        return NEARLY * predict(times, alpha, length, self._sizes.of(at)) < undrafted_seconds(times)

    def _tried(self, times: RoundTimes, alpha: float, at: int | None) -> tuple[float, int] | None:
        """Hoped seconds per token and length of an affordable trial, or None.

        `alpha` is the hoped acceptance. Old measurements may be wrong, and only drafts correct them.
        """

        def cost(length: int) -> float:
            if self._undrafted == "eager":
                return length * times.draft
            return round_seconds(times, 0.0, length, self._sizes.of(at))

        least = cost(1)
        if self._trials.seconds < least:
            return None
        draft, rate = min(times.draft, times.draft_least), max(times.up_rate, HOPED_RATE)
        hoped = replace(times, draft=draft, up_rate=rate)
        seconds, longest, _ = self._best(hoped, {at: alpha})
        if not self._saves(hoped, alpha, longest, at):
            return None
        length = max(length for length in range(1, longest + 1) if cost(length) <= DEARER * least)
        return (seconds, length) if self._trials.afford(cost(length)) else None

    def extension(self, confidence: float, drafted: int) -> Extension:
        if self._confidence is None:
            return "more"
        alpha = self._confidence.of(confidence, self._alpha)
        self._survival = alpha if drafted == 0 else self._survival * alpha
        if drafted and self._survival < self._proposable:
            return "none"
        return "more" if self._survival * self._alpha >= self._draftable else "last"

    def observe(self, outcome: RoundOutcome) -> None:
        for each in self.taught:
            each.observe(outcome)
        self._sizes.observe(outcome.resolution, max(0.0, outcome.bytes_up - self._overhead) / outcome.length)


# --- rules


class FixedPlan:
    """The same in every round."""

    taught: ClassVar[Sequence[Learner]] = ()

    def __init__(self, length: int, resolution: int | None = None) -> None:
        self._plan = DraftPlan(length, resolution)

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> DraftPlan:
        return self._plan

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def observe(self, outcome: RoundOutcome) -> None:
        """Ignore the round."""


class Heuristic:
    """One token more after a wholly accepted round, else the accepted number.

    At least 1, as 0 would end all rounds. `first` is the paper's L^1.
    """

    taught: ClassVar[Sequence[Learner]] = ()

    def __init__(self, first: int = 3, resolution: int | None = None, most: int = MOST_LENGTH) -> None:
        if not 1 <= first <= most:
            raise ValueError(f"the first proposal's length must be in 1..{most}, got {first}")
        self._plan = DraftPlan(first, resolution)
        self._most = most

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> DraftPlan:
        return self._plan

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def observe(self, outcome: RoundOutcome) -> None:
        length = outcome.accepted if outcome.rejected else outcome.length + 1
        self._plan = DraftPlan(min(max(length, 1), self._most), self._plan.resolution)
