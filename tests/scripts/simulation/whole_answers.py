"""Whole answers by rounds: one after the other, or overlapping.

Where rounds overlap, the drafter goes on after what it proposed until it hears that a token was wrong.

Proposals are chunks. The uplink sends one after the other, stale ones, too. The verifier takes all chunks that have
arrived into one pass, and drops what follows a token that it refused. No bonus is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.draft_policy.times import DraftPolicy, RoundEstimates, RoundOutcome
from scripts.simulation.rounds import REMEMBERED, Proposal, RoundScenario, SynchronousRounds, propose, verdict_size

MOST_AHEAD = 64  # tokens beyond the last verdict
PROBE_SECONDS = 2.0  # between probes of the round trip


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

    def add(self, outcome: RoundOutcome) -> None:
        """Count a round; its time is the caller's to add."""
        self.tokens += outcome.tokens
        self.rounds += 1
        self.proposed += outcome.length
        self.judged += outcome.accepted + outcome.rejected
        self.accepted += outcome.accepted
        self.bytes_up += outcome.bytes_up
        self.bytes_down += outcome.bytes_down


def simulate_rounds(
    scenario: RoundScenario, policy: DraftPolicy, seed: int, estimates: RoundEstimates | None = None
) -> SimulatedRounds:
    """One answer. The same for the same arguments; `policy` and `estimates` go on learning from answer to answer."""
    learnt = estimates or scenario.estimates()
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


def simulate_ahead(scenario: RoundScenario, policy: DraftPolicy, seed: int) -> SimulatedRounds:
    """One answer, drafted ahead."""
    run = _Run(scenario, policy, seed, scenario.estimates())
    while run.decided < scenario.tokens:
        run.turn()
    run.told.seconds = run.now
    return run.told


@dataclass(slots=True)
class _Pass:
    """A pass of the verifier over one or more chunks."""

    start: float
    tokens: int


@dataclass(slots=True)
class _Chunk:
    proposal: Proposal
    begun: float
    sent: float
    arrived: float
    read_in: _Pass


class _Run:
    """Drafter, link and verifier of one answer."""

    def __init__(self, scenario: RoundScenario, policy: DraftPolicy, seed: int, estimates: RoundEstimates) -> None:
        self._scenario, self._policy, self._estimates = scenario, policy, estimates
        self._answer = scenario.positions.draw(scenario.tokens, seed)
        self._uplink = scenario.uplink.draw(seed)
        self._flying: list[_Chunk] = []
        self._refused = False  # one of the chunks that are under way has a wrong token
        self._link_free = self._verifier_free = 0.0
        self._probe = 0.0
        self._drafted = 0  # position that is drafted next
        self.now = 0.0
        self.decided = 0  # positions
        self.told = SimulatedRounds()

    def turn(self) -> None:
        """Draft one chunk and send it, unless a verdict tells that it is in vain, or nothing is left to draft."""
        self._hear(self.now)
        if self.decided >= self._scenario.tokens:
            return
        scenario, times = self._scenario, self._scenario.times
        if self._drafted >= scenario.tokens or self._drafted - self.decided >= MOST_AHEAD:
            self.now = self._heard_at(self._flying[0])
            return
        if self.now >= self._probe:
            self._estimates.probed(times.rtt)
            self._probe = self.now + PROBE_SECONDS
        confidences = [float(one) for one in self._answer.confidences[max(0, self.decided - REMEMBERED) : self.decided]]
        plan = self._policy.plan(confidences, self._estimates.times())
        proposal = propose(scenario, self._answer, self._drafted, plan, self._policy.extension)
        begun, done = self.now, self.now + proposal.steps * times.draft
        if self._hear(done):
            return
        self.now = done
        self._drafted += proposal.length
        self._send(proposal, begun)

    def _send(self, proposal: Proposal, begun: float) -> None:
        self._link_free = self._uplink.finish(max(self.now, self._link_free), proposal.size)
        self.told.bytes_up += proposal.size
        if self._refused:  # it follows a wrong token: sent in vain
            return
        arrived = self._link_free + self._scenario.times.rtt / 2
        last = self._flying[-1].read_in if self._flying else None
        if last is None or arrived > last.start:
            last = _Pass(max(arrived, self._verifier_free), 0)
        last.tokens += proposal.length
        self._flying.append(_Chunk(proposal, begun, self.now, arrived, last))
        self._verifier_free = self._ends(last)
        self._refused = proposal.rejected

    def _ends(self, one: _Pass) -> float:
        times = self._scenario.times
        return one.start + times.verify + one.tokens * times.verify_token

    def _heard_at(self, chunk: _Chunk) -> float:
        times = self._scenario.times
        down = verdict_size(self._scenario, chunk.proposal) / times.down_rate
        return self._ends(chunk.read_in) + times.rtt / 2 + down

    def _hear(self, until: float) -> bool:
        """Take in the verdicts that come by `until`; whether one told of a wrong token, which `now` is moved to."""
        while self._flying and self._heard_at(self._flying[0]) <= until:
            chunk = self._flying.pop(0)
            proposal, heard = chunk.proposal, self._heard_at(chunk)
            outcome = RoundOutcome(
                length=proposal.length,
                accepted=proposal.accepted,
                tokens=proposal.accepted + proposal.rejected,
                seconds=heard - chunk.begun,
                verdict_seconds=heard - chunk.sent,
                verify_seconds=self._ends(chunk.read_in) - chunk.arrived,
                bytes_up=proposal.size,
                bytes_down=verdict_size(self._scenario, proposal),
                resolution=proposal.plan.resolution,
                confidences=proposal.confidences,
            )
            self.told.add(outcome)
            self.told.bytes_up -= proposal.size  # counted when it was sent, as those in vain are
            self._estimates.observe(outcome)
            self._policy.observe(outcome)
            self.decided = proposal.place + outcome.tokens
            if proposal.rejected:
                self.now, self._drafted, self._refused = heard, self.decided, False
                self._flying.clear()
                return True
        return False
