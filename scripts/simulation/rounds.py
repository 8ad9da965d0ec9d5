"""Rounds of drafting and verifying under a virtual clock, one after the other.

The policies are those of the daemons. An answer is a list of positions, each with its own outcome, so that policies can
be compared on the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

from common.draft_policy.times import Extension, Outcome, Plan, RoundEstimates, RoundTimes, expected_tokens_of
from scripts.simulation.models import ConfidenceModel, Payload, Positions, Uplink, UplinkModel

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

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError(f"an answer has at least 1 token, got {self.tokens}")

    def estimates(self) -> RoundEstimates:
        """The drafter's knowledge before its first round: everything but the uplink's rate."""
        return RoundEstimates(self.times.at_rate(inf))


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


class SynchronousRounds:
    """One answer, a round at a time: for simulations, and for policies that learn from it."""

    def __init__(self, scenario: RoundScenario, seed: int) -> None:
        self._scenario = scenario
        self._answer = scenario.positions.draw(scenario.tokens, seed)
        self._uplink: Uplink = scenario.uplink.draw(seed)
        self._seen: list[float] = []
        self.now = 0.0
        self.place = 0  # positions that are decided

    @property
    def finished(self) -> bool:
        return self.place >= self._scenario.tokens

    @property
    def confidences(self) -> list[float]:
        """Of the latest decided positions that the drafter has computed: of a bonus it has not."""
        return self._seen[-REMEMBERED:]

    def expected_tokens(self, plan: Plan) -> float:
        """Tokens that a proposal of this plan decides on average: QSV Eqs. 14 and 15, from the true acceptances."""
        places = range(self.place, min(self.place + plan.length, self._scenario.tokens))
        return expected_tokens_of([acceptance(self._scenario, self._answer, place, plan) for place in places])

    def step(self, plan: Plan, extension: Extends) -> Outcome:
        """Draft, send, verify, and have the verdict back. Raises `ValueError` once the answer has ended."""
        scenario, times = self._scenario, self._scenario.times
        if self.finished:
            raise ValueError(f"the answer has ended at its {scenario.tokens} tokens")
        proposal = propose(scenario, self._answer, self.place, plan, extension)
        length, accepted = proposal.length, proposal.accepted
        sent = self.now + proposal.steps * times.draft
        arrived = self._uplink.finish(sent, proposal.size) + times.rtt / 2
        verify, down = times.verify + length * times.verify_token, verdict_size(scenario, proposal)
        heard = arrived + verify + times.rtt / 2 + down / times.down_rate
        tokens = min(accepted + 1, scenario.tokens - self.place)
        self._seen += proposal.confidences[: accepted + 1]
        outcome = Outcome(
            length=length,
            accepted=accepted,
            tokens=tokens,
            seconds=heard - self.now,
            verdict_seconds=heard - sent,
            verify_seconds=verify,
            bytes_up=proposal.size,
            bytes_down=down,
            resolution=plan.resolution,
            confidences=proposal.confidences,
        )
        self.now, self.place = heard, self.place + tokens
        return outcome
