"""Values that decide the length of a round of drafting, and the seam that decisions go through.

A round: the drafter drafts some tokens and sends them in a proposal, the verifier answers with a verdict.

**What a decision may read.** Whether a position is proposed may depend on the prefix before it, the drafted tokens in
it included, and on the drafter's distribution at that position; never on the token that is drawn there. Otherwise the
tokens that get proposed are no draws of q any more, and the answer does not follow the verifier's distribution. So a
*confidence* is the largest probability of the drafter's distribution at a position, which is known before the draw. It
is not the probability of what was drawn: that one may only be read at positions that the prefix already has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

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
class Plan:
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
class Outcome:
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

    def observe(self, outcome: Outcome) -> None:
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

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> Plan:
        """The next proposal, from the confidences at the latest tokens of the prefix (oldest first) and the times."""
        ...

    def extension(self, confidence: float, drafted: int) -> Extension:
        """Whether the position behind the first `drafted` ones of this proposal is proposed, too, and one more drafted.

        `confidence` is the largest probability of the drafter's distribution *there*, before anything is drawn from it:
        the step that it takes is spent. The first position is always proposed, and none beyond the plan's length.
        """
        ...
