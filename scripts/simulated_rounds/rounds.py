"""Rounds of drafting and verifying under a virtual clock, one after the other; `rounds_ahead.py` lets them overlap.

The policies are those of the daemons. An answer is a list of positions, each with its own outcome, so that policies can
be compared on the same answers.
"""

from __future__ import annotations

from common.draft_policy.estimators import RoundEstimates
from common.draft_policy.times import expected_tokens_of
from common.draft_policy.values import DraftPolicy, Outcome, Plan
from scripts.simulated_rounds.rounds_ahead import simulate_ahead
from scripts.simulated_rounds.scenario import (
    PROBE_SECONDS,
    REMEMBERED,
    Extends,
    RoundScenario,
    SimulatedRounds,
    acceptance,
    propose,
    verdict_size,
)
from scripts.simulated_rounds.uplinks import Uplink


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


def simulate_rounds(
    scenario: RoundScenario, policy: DraftPolicy, seed: int, estimates: RoundEstimates | None = None
) -> SimulatedRounds:
    """One answer. The same for the same arguments; `policy` and `estimates` go on learning from answer to answer."""
    learnt = estimates or scenario.estimates()
    if scenario.ahead:
        return simulate_ahead(scenario, policy, seed, learnt)
    rounds, told, probe = SynchronousRounds(scenario, seed), SimulatedRounds(), 0.0
    while not rounds.finished:
        if rounds.now >= probe:
            learnt.probed(scenario.times.rtt)
            probe = rounds.now + PROBE_SECONDS
        outcome = rounds.step(policy.plan(rounds.confidences, learnt.times()), policy.extension)
        learnt.observe(outcome)
        policy.observe(outcome)
        told.add(outcome)
    told.seconds = rounds.now
    return told
