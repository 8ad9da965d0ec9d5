"""The simulator as a learner sees it: states, actions, rewards, over networks and answers of many kinds.

Times and rates are those of quantize-sample-verify's section V-A: 5 ms a draft step, 32 ms a verifying pass, an uplink
of 40 and 400 kb/s, downlink and round trip free. Half of the answers are measured ones, in `recorded.safetensors`:
SmolLM2 drafts for itself with weights of 6, 5 and 4 bits, and its answers at temperature 1 about the cloud's sample
documents are the target's. An array has each position's confidence `[answers, tokens]`, another one the acceptances
Σ min(p, q) `[resolutions, answers, tokens]`: of the drafter's whole distribution, then rounded to each resolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from common.draft_policy.ddqn import ACTIONS, state_of
from common.draft_policy.policy import ConfidenceAcceptance
from common.draft_policy.times import RESOLUTIONS, RoundEstimates, RoundTimes
from scripts.simulation.models import (
    HIGH,
    LOW,
    ConfidenceModel,
    ConstantRate,
    Lattice,
    Recorded,
    Steady,
    TwoStateRate,
    UplinkModel,
    Varying,
)
from scripts.simulation.rounds import RoundScenario, SynchronousRounds

VOCABULARY: Final = 50_272
TIMES: Final = RoundTimes(draft=0.005, verify=0.032)
LEAST_ALPHA, MOST_ALPHA = 0.45, 0.97
SLOWEST, FASTEST = LOW / 2, HIGH * 2  # bytes per second, of constant links
SHORTEST, LONGEST = 0.15, 8.0  # seconds that a state of a Markov link lasts on average
TOKENS: Final = 600  # of an answer
EARLY_SECONDS: Final = 1.0  # that the throughput believed at first counts as much as
EARLY_THROUGHPUT: Final = 45.0  # tokens per second
RECORD: Final = Path(__file__).with_name("recorded.safetensors")
DRAFTERS: Final = ("6 bits", "5 bits", "4 bits")
TRAINED_ON: Final = 16  # of the 24 recorded answers; the others are held out


def scenario(positions: ConfidenceModel, uplink: UplinkModel, tokens: int) -> RoundScenario:
    """An answer of these models."""
    return RoundScenario(TIMES, positions, Lattice(VOCABULARY), uplink, tokens)


@cache
def recorded(held_out: bool) -> Mapping[str, Recorded]:
    """The answers' positions by drafter: those to train on, or those held out."""
    arrays = load_file(RECORD)
    rows = slice(TRAINED_ON, None) if held_out else slice(TRAINED_ON)
    found = {}
    for name in DRAFTERS:
        confidences = arrays[f"{name}, confidences"][rows].ravel().astype(np.float64)
        whole, *rounded = arrays[f"{name}, acceptances"][:, rows].reshape(len(RESOLUTIONS) + 1, -1).astype(np.float64)
        found[name] = Recorded(confidences, whole, dict(zip(RESOLUTIONS, rounded, strict=True)))
    return found


class Stream:
    """One answer after the other, each of its own network and acceptance: modelled, or recorded of real models.

    The reward of a round is N - λT: N what the action decides on average (Eq. 14), T what it took, and λ the tokens per
    second of the answer so far. Eq. 13's N / T, summed, would reward many short rounds.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng((seed, 4))
        self._begin()

    def state(self) -> NDArray[np.float32]:
        """The facts that a policy may know now."""
        told = [self._acceptance.of(confidence, confidence) for confidence in self._rounds.confidences]
        return state_of(told, self._estimates.times().up_rate)

    def step(self, action: int) -> tuple[float, bool]:
        """Reward of an action, and whether the answer has ended with it; then the next one has begun."""
        rounds, plan = self._rounds, ACTIONS[action]
        expected = rounds.expected_tokens(plan)
        outcome = rounds.step(plan, lambda confidence, drafted: "more")
        self._estimates.observe(outcome)
        self._acceptance.observe(outcome)
        running = (EARLY_SECONDS * EARLY_THROUGHPUT + rounds.place) / (EARLY_SECONDS + rounds.now)
        reward = expected - running * outcome.seconds
        ended = rounds.finished
        if ended:
            self._begin()
        return reward, ended

    def _begin(self) -> None:
        seed = int(self._random.integers(2**31))
        one = scenario(self._positions(), self._uplink(), TOKENS)
        self._rounds = SynchronousRounds(one, seed)
        self._acceptance = ConfidenceAcceptance()  # as the policy has it: what a confidence was worth so far
        self._estimates: RoundEstimates = one.estimates()
        self._estimates.probed(one.times.rtt)

    def _positions(self) -> ConfidenceModel:
        alpha = float(self._random.uniform(LEAST_ALPHA, MOST_ALPHA))
        kind = self._random.random()
        if kind < 0.5:
            measured = list(recorded(held_out=False).values())
            return measured[int(self._random.integers(len(measured)))]
        return Steady(alpha) if kind < 0.7 else Varying(alpha)

    def _uplink(self) -> UplinkModel:
        kind = self._random.random()
        if kind < 0.4:
            return ConstantRate(LOW if kind < 0.2 else HIGH)
        if kind < 0.6:
            return ConstantRate(float(np.exp(self._random.uniform(np.log(SLOWEST), np.log(FASTEST)))))
        lasting = np.exp(self._random.uniform(np.log(SHORTEST), np.log(LONGEST)))
        change = min(1.0, 0.1 / float(lasting))
        return TwoStateRate(change, change)
