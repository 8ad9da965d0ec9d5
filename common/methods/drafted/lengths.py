"""Proposal lengths of one answer, by the request's policy and measured rounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, log
from statistics import median
from typing import Final, Self

from common.answer.request import RequestError
from common.draft_policy.ddqn import DoubleQ
from common.draft_policy.policy import (
    ConfidenceAcceptance,
    FixedPlan,
    Goodput,
    Heuristic,
    PositionAcceptance,
    Trials,
    Undrafted,
)
from common.draft_policy.times import (
    RESTED,
    DraftPlan,
    DraftPolicy,
    Extension,
    RoundEstimates,
    RoundOutcome,
    RoundTimes,
    TokenSizes,
    undrafted_seconds,
)
from common.estimates.profiler import PeerEstimates
from common.methods.drafted.drafting import RoundsConfig
from common.methods.drafted.method import DraftRequest
from proto.framing import encode, wire_size
from proto.messages import Decided, Propose, Verdict

# --- history

PROBE: Final = 16  # bytes of a frame
_PROPOSAL: Final = 26  # without tokens
_VERDICT: Final = 22


@dataclass(slots=True)
class RoundHistory:
    """Times, acceptance and sizes of a method's rounds, across answers. Use under `lock`.

    Sizes are bytes beyond a probe, whose round trip includes its own and the link's overhead (encryption, TCP, IP).
    """

    estimates: RoundEstimates
    acceptance: PositionAcceptance = field(default_factory=PositionAcceptance)
    confidence: ConfidenceAcceptance = field(default_factory=ConfidenceAcceptance)
    trials: Trials = field(default_factory=Trials)
    undrafted: int = 0  # since the last proposal
    lock: threading.Lock = field(default_factory=threading.Lock)
    _sizes: dict[tuple[tuple[int | None, float], ...], TokenSizes] = field(default_factory=dict, init=False)

    @classmethod
    def expecting(cls, draft: float, verify: float, rtt: float) -> Self:
        """Start from priors in seconds."""
        up, down = float(_PROPOSAL - PROBE), float(_VERDICT - PROBE)
        times = RoundTimes(draft=draft, verify=verify, rtt=rtt, up_overhead=up, down_overhead=down)
        return cls(RoundEstimates(times))

    @classmethod
    def of(cls, peer: PeerEstimates, method: str, draft: float) -> RoundHistory:
        """The history of `method` with `peer`; `draft` is a prior."""
        now = peer.estimates
        return peer.histories.of(cls, method, lambda: cls.expecting(draft, now.cloud_decode, now.rtt))

    def sizes_of(self, believed: Mapping[int | None, float]) -> TokenSizes:
        """Sizes for these priors: options change a token's size."""
        return self._sizes.setdefault(tuple(believed.items()), TokenSizes(believed))


# --- lengths

LEAST_SURVIVAL: Final = 0.05  # least chance of reaching a draft; others waste bytes
SHORTEST_AHEAD: Final = 4  # tokens

TokenBytes = Mapping[int | None, float]  # by resolution


class PolicyLengths:
    """Implements `Lengths`. For one thread at a time."""

    def __init__(
        self,
        policy: DraftPolicy,
        history: RoundHistory,
        rtt: Callable[[], float | None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rtt`: probed seconds, None before the first."""
        self._policy = policy
        self._history = history
        self._untaught = [each for each in (history.acceptance, history.confidence) if each not in policy.taught]
        self._rtt = rtt
        self._now = now
        self._plan = DraftPlan(1)
        self._most_ahead = SHORTEST_AHEAD
        self._open: dict[int, _SentProposal] = {}  # by round

    @property
    def most_ahead(self) -> int:
        return self._most_ahead

    def plan(self, confidences: Sequence[float]) -> DraftPlan:
        with self._history.lock:
            rtt = self._rtt()
            if rtt is not None:
                self._history.estimates.probed(rtt)
            self._plan = self._policy.plan(confidences, self._history.estimates.times())
            self._most_ahead = reach(self._history.acceptance.overall)
        return self._plan

    def extension(self, confidence: float, drafted: int) -> Extension:
        return self._policy.extension(confidence, drafted)

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        with self._history.lock:
            rested = self._history.undrafted >= RESTED
            self._history.undrafted = 0
        size, resolution = _beyond_probe(message), self._plan.resolution
        self._open[message.round] = _SentProposal(
            self._now(), tuple(steps), size, tuple(confidences), resolution, rested
        )

    def undrafted(self, message: Decided, tokens: int) -> None:
        with self._history.lock:
            if message.verify_time:
                self._history.estimates.passed(message.verify_time / 1e6)
            self._history.undrafted += tokens
            self._history.trials.earn(tokens * undrafted_seconds(self._history.estimates.times()))

    def judged(self, message: Verdict | Decided, accepted: Sequence[int], last: int, token: bool) -> None:
        """Only the last of proposals judged together times a round."""
        now, size = self._now(), _beyond_probe(message)
        rounds = [number for number in self._open if number <= last][-len(accepted) :]
        judged = [self._open[number] for number in rounds]
        self._open = {number: each for number, each in self._open.items() if number > last}
        with self._history.lock:
            for each, held in zip(judged, accepted, strict=True):
                outcome = each.outcome(held, token, now - each.sent, message.verify_time / 1e6, size)
                for learner in (self._policy, *self._untaught):
                    learner.observe(outcome)
                if each is judged[-1] and message.round == last:
                    self._history.estimates.observe(outcome)
                if outcome.rejected:
                    break  # later ones were not judged


def _beyond_probe(message: Propose | Verdict | Decided) -> int:
    """As in `RoundHistory`."""
    return max(0, wire_size(encode(message)) - PROBE)


def reach(acceptance: float) -> int:
    """Most consecutive drafts that match with the chance `LEAST_SURVIVAL`."""
    alpha = min(max(acceptance, 0.1), 0.99)
    return max(SHORTEST_AHEAD, ceil(log(LEAST_SURVIVAL) / log(alpha)))


@dataclass(frozen=True, slots=True)
class _SentProposal:
    """A proposal without a verdict."""

    sent: float  # monotonic seconds
    steps: tuple[float, ...]  # of drafts
    size: int  # bytes
    confidences: tuple[float, ...]
    resolution: int | None
    rested: bool

    @property
    def length(self) -> int:
        return len(self.confidences)

    def outcome(self, accepted: int, token: bool, delay: float, verify: float, size: int) -> RoundOutcome:
        # The first step also reads the tokens decided since the last draft, many after a rest.
        usual = median(self.steps) * len(self.steps) / self.length
        return RoundOutcome(
            length=self.length,
            accepted=accepted,
            tokens=accepted + token,
            seconds=sum(self.steps) + delay,
            verdict_seconds=delay,
            verify_seconds=min(verify, delay),
            bytes_up=self.size,
            bytes_down=size,
            resolution=self.resolution,
            confidences=self.confidences,
            rested=self.rested,
            step=usual,
        )


def make_policy(request: DraftRequest, sizes: TokenBytes, config: RoundsConfig, history: RoundHistory) -> DraftPolicy:
    """Make the request's policy from prior `sizes`.

    Raises `RequestError` for a policy that excludes drafting ahead.
    """
    first = next(iter(sizes))
    match request.draft_policy:
        case "goodput" | "confidence":
            by_confidence = request.draft_policy == "confidence"
            if by_confidence and config.ahead:
                raise RequestError("Drafting ahead, proposals are not ended by confidence.", "draft_policy")
            with history.lock:
                learnt = history.sizes_of(sizes)
            undrafted: Undrafted = "eager" if config.eager else "deferred" if config.defers else "never"
            if request.provisional:  # for the user to see
                undrafted = "never"
            return Goodput(
                learnt,
                ahead=config.ahead > 0,
                acceptance=history.acceptance,
                confidence=history.confidence if by_confidence else None,
                undrafted=undrafted,
                trials=history.trials,
            )
        case "heuristic":
            return Heuristic(resolution=first)
        case "ddqn":
            return DoubleQ(acceptance=history.confidence)
        case _:
            return FixedPlan(request.draft_length, first)
