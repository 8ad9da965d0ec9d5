"""Double deep Q-learning (van Hasselt et al. 2016) of a policy of drafting, seeded and on one thread."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from common.draft_policy.ddqn import ACTIONS, HIDDEN, STATE
from scripts.train_policy.environment import Stream


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
