"""Values of simulated rounds: the scenario, a proposal with its fate, and the sums of an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

from common.draft_policy.estimators import RoundEstimates
from common.draft_policy.values import Extension, Outcome, Plan, RoundTimes
from scripts.simulated_rounds.confidences import ConfidenceModel, Positions
from scripts.simulated_rounds.payloads import Payload
from scripts.simulated_rounds.uplinks import UplinkModel

PROBE_SECONDS = 2.0  # between probes of the round trip
REMEMBERED = 16  # confidences of the prefix that a policy is told

Extends = Callable[[float, int], Extension]  # `DraftPolicy.extension`


@dataclass(frozen=True, slots=True)
class RoundScenario:
    """Everything that the time of an answer depends on.

    `times` are the true ones but for the uplink's rate, which `uplink` has. Policies are told estimates that begin with
    them and with an unlimited uplink.
    """

    times: RoundTimes
    positions: ConfidenceModel
    payload: Payload
    uplink: UplinkModel
    tokens: int = 500
    ahead: bool = False
    most_ahead: int = 64  # tokens beyond the last verdict, when drafting ahead

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.most_ahead < 1:
            raise ValueError(f"an answer and the lead have at least 1 token, got {self.tokens} and {self.most_ahead}")

    def estimates(self) -> RoundEstimates:
        """The drafter's knowledge before its first round: everything but the uplink's rate."""
        return RoundEstimates(self.times.at_rate(inf))


@dataclass(slots=True)
class SimulatedRounds:
    """Sums of an answer."""

    tokens: int = 0
    seconds: float = 0.0
    rounds: int = 0
    proposed: int = 0
    judged: int = 0  # proposed tokens that were accepted, or the first of their proposal to be rejected
    accepted: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    @property
    def throughput(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def acceptance(self) -> float:
        """Accepted tokens over judged ones: α."""
        return self.accepted / self.judged if self.judged else 0.0

    def add(self, outcome: Outcome) -> None:
        """Count a round; its time is the caller's to add."""
        self.tokens += outcome.tokens
        self.rounds += 1
        self.proposed += outcome.length
        self.judged += outcome.accepted + outcome.rejected
        self.accepted += outcome.accepted
        self.bytes_up += outcome.bytes_up
        self.bytes_down += outcome.bytes_down


@dataclass(slots=True)
class Proposal:
    """One proposal, and how it will be judged."""

    place: int  # of its first token
    plan: Plan
    confidences: tuple[float, ...]
    steps: int  # of the drafter: one more than tokens where the last one was not proposed
    accepted: int
    size: int  # bytes

    @property
    def length(self) -> int:
        return len(self.confidences)

    @property
    def rejected(self) -> bool:
        return self.accepted < self.length


def acceptance(scenario: RoundScenario, answer: Positions, place: int, plan: Plan) -> float:
    """Probability that the token proposed at a position is accepted: measured at this resolution, or as modelled."""
    measured = None if plan.resolution is None else answer.rounded.get(plan.resolution)
    if measured is not None:
        return float(measured[place])
    kept = scenario.payload.kept(plan.resolution, float(answer.confidences[place]))
    return kept * float(answer.acceptances[place])


def propose(scenario: RoundScenario, answer: Positions, place: int, plan: Plan, extension: Extends) -> Proposal:
    """The proposal of `plan` from position `place` on; nothing is proposed behind the answer's last position."""
    confidences: list[float] = []
    bits, steps, accepted, whole = 0, 0, 0, True
    for drafted in range(min(plan.length, scenario.tokens - place)):
        confidence = float(answer.confidences[place + drafted])
        extended, steps = extension(confidence, drafted), steps + 1
        if drafted and extended == "none":
            break
        confidences.append(confidence)
        bits += scenario.payload.bits(plan.resolution, confidence)
        whole = whole and bool(answer.uniforms[place + drafted] < acceptance(scenario, answer, place + drafted, plan))
        accepted += whole
        if extended == "last":
            break
    return Proposal(place, plan, tuple(confidences), steps, accepted, ceil(bits / 8 + scenario.times.up_overhead))


def verdict_size(scenario: RoundScenario, proposal: Proposal) -> int:
    """Bytes of a verdict."""
    times = scenario.times
    return ceil(times.down_overhead + proposal.rejected * times.down_rejected)
