"""Double deep Q-learning (van Hasselt et al. 2016) of a policy of drafting, seeded and on one thread.

The learner sees states, actions and rewards of the simulator, over networks and answers of many kinds. Times and rates
are those of quantize-sample-verify's section V-A: 5 ms a draft step, 32 ms a verifying pass, an uplink of 40 and 400
kb/s, downlink and round trip free. Half of the answers are measured ones, in `recorded.safetensors`: SmolLM2 drafts for
itself with weights of 6, 5 and 4 bits, and its answers at temperature 1 about the cloud's sample documents are the
target's. An array has each position's confidence `[answers, tokens]`, another one the acceptances Σ min(p, q)
`[resolutions, answers, tokens]`: of the drafter's whole distribution, then rounded to each resolution.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import Tensor, nn

from common.draft_policy.ddqn import ACTIONS, HIDDEN, STATE, state_of
from common.draft_policy.policy import ConfidenceAcceptance
from common.draft_policy.times import RESOLUTIONS, RoundEstimates, RoundTimes
from scripts.simulation.rounds import (
    HIGH,
    LOW,
    ConfidenceModel,
    ConstantRate,
    Lattice,
    Recorded,
    RoundScenario,
    Steady,
    SynchronousRounds,
    TwoStateRate,
    UplinkModel,
    Varying,
)

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


@dataclass(frozen=True, slots=True)
class Training:
    """All that a training run is a function of."""

    seed: int = 1
    steps: int = 150_000  # of the optimiser
    streams: int = 8  # rounds that are added before each step
    batch: int = 256
    replay: int = 200_000  # rounds that are remembered
    discount: float = 0.0  # .6 and .9 reached no more: what is proposed hardly changes the states to come
    rate: float = 2e-3  # of Adam, falling to 0 along a cosine
    target: int = 500  # steps between copies of the network that values the next state
    explored: float = 0.5  # share of the steps in which ever fewer actions are random
    least_random: float = 0.1


def network() -> nn.Sequential:
    """The layers that `common/draft_policy/ddqn.py` runs."""
    return nn.Sequential(
        nn.Linear(STATE, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, len(ACTIONS))
    )


class Replay:
    """The latest rounds: state, action, reward, next state, whether the answer goes on."""

    def __init__(self, size: int, random: np.random.Generator) -> None:
        self._states = np.zeros((size, STATE), np.float32)
        self._next = np.zeros((size, STATE), np.float32)
        self._actions = np.zeros(size, np.int64)
        self._rewards = np.zeros(size, np.float32)
        self._lasts = np.zeros(size, np.float32)
        self._random, self._size, self._count = random, size, 0

    def add(self, state: np.ndarray, action: int, reward: float, following: np.ndarray, ended: bool) -> None:
        """Remember a round in place of the oldest."""
        place = self._count % self._size
        self._states[place], self._next[place] = state, following
        self._actions[place], self._rewards[place], self._lasts[place] = action, reward, not ended
        self._count += 1

    def batch(self, count: int) -> tuple[Tensor, ...]:
        """Rounds at random."""
        chosen = self._random.integers(min(self._count, self._size), size=count)
        arrays = (self._states, self._actions, self._rewards, self._next, self._lasts)
        return tuple(torch.from_numpy(array[chosen]) for array in arrays)


def train(training: Training, say: Callable[[str], None]) -> nn.Sequential:
    """A trained network; the same for the same `training` on one machine."""
    torch.manual_seed(training.seed)
    torch.use_deterministic_algorithms(True)
    random = np.random.default_rng((training.seed, 5))
    streams = [Stream(training.seed * 1000 + number) for number in range(training.streams)]
    states = np.stack([stream.state() for stream in streams])
    replay = Replay(training.replay, random)
    online = network()
    valued = copy.deepcopy(online)
    optimiser = torch.optim.Adam(online.parameters(), lr=training.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.steps)
    loss_of = nn.SmoothL1Loss()
    lost = 0.0
    for step in range(training.steps):
        share = max(training.least_random, 1.0 - step / (training.explored * training.steps))
        with torch.no_grad():
            best = online(torch.from_numpy(states)).argmax(1).numpy()
        for number, stream in enumerate(streams):
            action = int(random.integers(len(ACTIONS)) if random.random() < share else best[number])
            reward, ended = stream.step(action)
            following = stream.state()
            replay.add(states[number], action, reward, following, ended)
            states[number] = following
        state, taken, reward_of, after, goes_on = replay.batch(training.batch)
        wanted = reward_of
        if training.discount:
            with torch.no_grad():
                # Double: the online network chooses the action, the older one values it.
                chosen = online(after).argmax(1, keepdim=True)
                wanted = reward_of + training.discount * goes_on * valued(after).gather(1, chosen)[:, 0]
        loss = loss_of(online(state).gather(1, taken[:, None])[:, 0], wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        lost += 0.001 * (float(loss.detach()) - lost)
        if step % training.target == 0:
            valued.load_state_dict(online.state_dict())
        if step % 5000 == 0:
            say(f"step {step}: loss {lost:.4f}, {share:.0%} of the actions random")
    return online
