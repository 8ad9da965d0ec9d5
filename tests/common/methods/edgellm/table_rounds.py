"""An answer by trees over table models: what both models are asked for is computed from whole paths."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import Commit, TreeWork
from common.methods.edgellm.device import Finishers
from common.methods.edgellm.growth import Candidate, Growth
from common.methods.edgellm.rounds import TreeConfig, TreeRounds
from common.sampling.race import Race, RaceKernel

Model = Callable[[Sequence[int]], NDArray[np.float64]]  # next-token distribution [vocab] behind a path
VOCABULARY = 12
KERNEL = RaceKernel(VOCABULARY, "cpu")


def token(model: Model, path: Sequence[int], seed: int, temperature: float) -> int:
    """The token that wins the race behind `path`."""
    mixture = torch.from_numpy(model(path).astype(np.float32))[None]
    ((ids, _),) = KERNEL.run(mixture, [Race(seed, len(path), temperature, 1)])
    return int(ids[0])


def alone(model: Model, config: TreeConfig, seed: int, temperature: float) -> list[int]:
    """The verifier's answer, token by token."""
    path: list[int] = []
    while not path or not config.ends(path[-1], len(path)):
        path.append(token(model, path, seed, temperature))
    return path


def candidates(model: Model, path: Sequence[int], seed: int, temperature: float, count: int = 5) -> list[Candidate]:
    """Candidates of a draft model behind `path`."""
    mixture = torch.from_numpy(model(path).astype(np.float32))
    drafter = Finishers(seed, temperature, count)
    (found,) = KERNEL.run(mixture[None], [drafter.race(len(path))])
    return list(drafter.drafted(len(path), mixture, found).candidates)


@dataclass
class Pair:
    """Both models of an answer. Drafts during a verification come or don't, as `random` has it."""

    config: TreeConfig
    growth: Growth
    drafter: Model
    target: Model
    seed: int = 0
    temperature: float = 1.0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rounds = TreeRounds(self.config, self.growth)

    def run(self) -> list[int]:
        while self.rounds.finished is None:
            while (wanted := self.rounds.draft()) is not None:
                self.draft(wanted)
            asked = self.rounds.verify()
            assert asked is not None
            assert list(asked.path) == self.tokens
            for _ in range(self.random.randrange(8)):
                if (wanted := self.rounds.draft()) is not None:
                    self.draft(wanted)
            self.verify(asked)
        assert self.rounds.draft() is None
        assert self.rounds.verify() is None
        return self.tokens

    def draft(self, reading: TreeWork) -> None:
        (path,) = reading.paths
        assert len(path) < self.config.max_tokens - 1
        assert not set(path) & self.config.eos
        self.rounds.drafted(reading, candidates(self.drafter, path, self.seed, self.temperature))

    def verify(self, reading: TreeWork) -> None:
        drawn = [token(self.target, path, self.seed, self.temperature) for path in reading.paths]
        outcome = self.rounds.verified(reading, drawn)
        commits = [action for action in outcome.actions if isinstance(action, Commit)]
        assert len(commits) == len(outcome.places) > 0
        for place, commit in zip(outcome.places, commits, strict=True):
            assert (commit.position, commit.token) == (len(self.tokens), drawn[place])
            assert reading.paths[place] == self.tokens
            self.tokens.append(commit.token)
