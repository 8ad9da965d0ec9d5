"""Tokens per second of policies on every network, on the same answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from common.draft_policy.acceptance import ConfidenceAcceptance
from common.draft_policy.ddqn import ACTIONS, DoubleQ, Network
from common.draft_policy.goodput import Goodput
from common.draft_policy.rules import Fixed, Heuristic
from common.draft_policy.sizes import TokenSizes
from common.draft_policy.values import RESOLUTIONS, DraftPolicy, Plan
from scripts.simulated_rounds.rounds import simulate_rounds
from scripts.simulated_rounds.scenario import RoundScenario
from scripts.simulated_rounds.uplinks import HIGH, LOW
from scripts.train_policy.recording import recorded
from scripts.train_policy.settings import ALPHAS, ANSWERS, NETWORKS, TIMES, TOKEN_BYTES, scenario

PAPERS_RESOLUTION: Final = 64
# Seeds of the record's answers; training draws its own from all numbers below 2^31.
HELD_OUT: Final = range(1_000_000, 1_000_004)
TOKENS: Final = 800  # of each
CONFIDENCES: Final = (0.5, 0.7, 0.9, 0.97)


@dataclass(frozen=True, slots=True)
class Setting:
    """One network and kind of answers: a model of them and its mean acceptance, or a drafter that was recorded."""

    network: str
    answers: str
    alpha: float

    def scenario(self, tokens: int) -> RoundScenario:
        """An answer of it; of recorded ones, one that was held out of training."""
        modelled = ANSWERS.get(self.answers)
        positions = recorded(held_out=True)[self.answers] if modelled is None else modelled(self.alpha)
        return scenario(positions, NETWORKS[self.network], tokens)


def settings() -> list[Setting]:
    """Modelled answers on all networks."""
    return [Setting(*one) for one in product(NETWORKS, ANSWERS, ALPHAS)]


def recorded_settings() -> list[Setting]:
    """Recorded answers on all networks."""
    found = recorded(held_out=True)
    return [Setting(network, name, round(found[name].alpha, 2)) for network, name in product(NETWORKS, found)]


def throughput(policy: DraftPolicy, setting: Setting, seeds: Sequence[int], tokens: int) -> float:
    """Tokens per second of answers one after the other: the policy and the estimates go on learning."""
    one = setting.scenario(tokens)
    estimates = one.estimates()
    answers = [simulate_rounds(one, policy, seed, estimates) for seed in seeds]
    return sum(answer.tokens for answer in answers) / sum(answer.seconds for answer in answers)


def fixed(setting: Setting, seeds: Sequence[int], tokens: int, plans: Sequence[Plan] = ACTIONS) -> dict[Plan, float]:
    """Tokens per second of every fixed plan."""
    return {plan: throughput(Fixed(plan.length, plan.resolution), setting, seeds, tokens) for plan in plans}


def adaptive(network: Network) -> Mapping[str, Callable[[], DraftPolicy]]:
    """The policies that adapt, by name. The heuristic does not choose a resolution: the paper's, and the coarsest."""
    return {
        f"heuristic at {PAPERS_RESOLUTION}": lambda: Heuristic(resolution=PAPERS_RESOLUTION),
        f"heuristic at {RESOLUTIONS[0]}": lambda: Heuristic(resolution=RESOLUTIONS[0]),
        "goodput": lambda: Goodput(TokenSizes(TOKEN_BYTES)),
        "by confidence": lambda: Goodput(TokenSizes(TOKEN_BYTES), confidence=ConfidenceAcceptance()),
        "DDQN": lambda: DoubleQ(network),
    }


def actions(network: Network) -> list[dict[str, Any]]:
    """Choices of a network in some states: all confidences alike, at the rates of the paper's link."""
    policy, told = DoubleQ(network), []
    for rate, confidence in product((LOW, HIGH), CONFIDENCES):
        plan = policy.plan([confidence] * 16, TIMES.at_rate(rate))
        told.append(
            {"confidence": confidence, "bytes_per_second": rate, "length": plan.length, "resolution": plan.resolution}
        )
    return told
