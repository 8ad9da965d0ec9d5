"""Whole sessions follow the law of the mixture, whatever is drafted, rejected and rolled back on the way.

A vocabulary of four, two tokens, so that the law of every answer is known exactly. G-tests over 6,500 runs with
seeds 0, 1, 2, ... and random interleavings. A right implementation fails one with probability 1e-4 (the seeds are
fixed: it either does or not). One whose law is 0.005 nats off fails with probability .99: a weight of .31 that is .037
too large or too small, for example. Each mutant must fail with a p-value below 1e-9 in 600 runs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from common.answer.values import SideDraft, View
from common.estimates.estimators import FAINT, SpeculationLimits
from common.methods.aggregate.session import Action, PlacementPolicy, Session, SessionConfig, SessionSampler
from common.methods.paper.sampler import PaperDraft, PaperSampler, draw_draft, truncate
from common.sampling.certificate import WHOLE, Outcome, RaceView, eta_fixed
from common.sampling.compiled import SeededDraws
from common.sampling.race import RaceSampler
from common.sampling.truncation import renormalised
from proto.codes import RaceEntries, TopPEntries, decode_probabilities, encode_probabilities
from proto.messages import Draft, Placement, Side
from tests.common.methods.aggregate.pump import run

VOCABULARY = 4
LENGTH = 2
RUNS = 6_500
MUTANT_RUNS = 600
AHEAD = SpeculationLimits(3)
EVIDENCE = {"device": 0.0, "cloud": 0.8}


@dataclass(frozen=True)
class Table:
    """Strongly disagreeing sides, by which few answers tell a wrong weight: p(. | side, previous token)."""

    seed: int = 137

    def of(self, side: Side, prefix: Sequence[int]) -> NDArray[np.float64]:
        key = (self.seed, 1 if side == "device" else 2, *(token + 1 for token in prefix))
        found: NDArray[np.float64] = np.random.default_rng(key).dirichlet(np.full(VOCABULARY, 0.2)) + 0.02
        found /= found.sum()
        return found


PREFIXES: list[tuple[int, ...]] = [(), *((token,) for token in range(VOCABULARY))]
TABLES = {(side, prefix): Table().of(side, prefix) for side in ("device", "cloud") for prefix in PREFIXES}


def eta() -> float:
    return eta_fixed(EVIDENCE["device"], EVIDENCE["cloud"]) / WHOLE


def law(rounded: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> dict[tuple[int, ...], float]:
    """Probability of every answer, from the distributions as they are sent."""
    result: dict[tuple[int, ...], float] = {}
    for first in range(VOCABULARY):
        for second in range(VOCABULARY):
            probability = 1.0
            for prefix, token in (((), first), ((first,), second)):
                mixture = eta() * rounded(TABLES["device", prefix]) + (1 - eta()) * rounded(TABLES["cloud", prefix])
                probability *= mixture[token] / mixture.sum()
            result[first, second] = probability
    return result


def p_value(counts: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """The p-value of a G-test."""
    total = sum(counts.values())
    observed = np.array([counts[answer] for answer in expected], dtype=float)
    wanted = np.array([total * probability for probability in expected.values()])
    statistic = 2 * float(np.sum(observed * np.log(np.maximum(observed, 1e-300) / wanted)))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


@dataclass(frozen=True)
class Alternating:
    def next_aggregator(self, position: int, accepted: object) -> Side:
        return "device" if position % 2 == 0 else "cloud"


@dataclass(frozen=True)
class Always:
    side: Side

    def next_aggregator(self, position: int, accepted: object) -> Side:
        return self.side


CODES = {key: RaceEntries(np.arange(VOCABULARY, dtype=np.uint32), encode_probabilities(p)) for key, p in TABLES.items()}


class RaceRun:
    """One seed's race between both sides."""

    def __init__(self, seed: int) -> None:
        self.sampler = RaceSampler(seed, 1.0, VOCABULARY, VOCABULARY)
        self.aggregation: SessionSampler = self.sampler

    def predict(self, side: Side, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        view: RaceView = self.sampler.receive(position, CODES[side, tuple(prefix)])
        return view, EVIDENCE[side]


TRUNCATED = {key: truncate(torch.from_numpy(p.astype(np.float32)), 1.0) for key, p in TABLES.items()}
DISTRIBUTIONS = {key: renormalised(*truncated) for key, truncated in TRUNCATED.items()}


class PaperRun:
    """One seed's Algorithm 1; the whole distribution is sent (top_p = 1), as float16."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.aggregation: SessionSampler = PaperSampler(seed, 1.0, 1.0, "top-p", VOCABULARY)

    def predict(self, side: Side, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        """Draft as `PaperSampler.draft` does, on the few truncated tables that there are."""
        key = (side, tuple(prefix))
        token = draw_draft(side, DISTRIBUTIONS[key], SeededDraws(self.seed, position))
        ids, weights = TRUNCATED[key]
        entries = TopPEntries(ids, weights, int(np.searchsorted(ids, token)))
        return PaperDraft(token, entries, DISTRIBUTIONS[key]), EVIDENCE[side]


@dataclass(frozen=True)
class Game:
    """Settings of a run."""

    kind: type[RaceRun] | type[PaperRun]
    placement: Placement
    session: type[Session] = Session
    ahead: SpeculationLimits = AHEAD


def answers(game: Game, seeds: range) -> Counter[tuple[int, ...]]:
    """Count of each answer."""
    placement, session = game.placement, game.session
    policies: dict[Placement, PlacementPolicy] = {"greedy": Alternating(), "cloud": Always("cloud")}
    policy = policies.get(placement, Always("device"))
    config = SessionConfig(1, placement, frozenset({VOCABULARY}), LENGTH, VOCABULARY)
    order = random.Random(seeds.start)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in seeds:
        one = game.kind(seed)
        device, cloud = (session(role, config, one.aggregation, policy, game.ahead) for role in ("device", "cloud"))
        counts[run(device, cloud, one.predict, order)] += 1
    return counts


def as_float16(p: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = p.astype(np.float32).astype(np.float16).astype(np.float64)
    result: NDArray[np.float64] = weights / weights.sum()
    return result


def as_code(p: NDArray[np.float64]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = decode_probabilities(encode_probabilities(p))
    return values


@pytest.mark.timeout(400)
class TestLaw:
    def test_race(self) -> None:
        assert p_value(answers(Game(RaceRun, "mirrored"), range(RUNS)), law(as_code)) > 1e-4

    def test_race_with_branches(self) -> None:
        branching = Game(RaceRun, "device", ahead=SpeculationLimits(2, 4, FAINT, 4))
        assert p_value(answers(branching, range(RUNS)), law(as_code)) > 1e-4

    def test_paper(self) -> None:
        assert p_value(answers(Game(PaperRun, "greedy"), range(RUNS)), law(as_float16)) > 1e-4


class EtaOfTheWrongSide(Session):
    """Weighs each side with the other one's evidence."""

    def drafted(self, draft: SideDraft) -> list[Action]:
        return super().drafted(replace(draft, evidence=-draft.evidence + sum(EVIDENCE.values())))


class Stale(Session):
    """Aggregates whatever was drafted for a position, however its prefix went on."""

    def _on_draft(self, message: Draft) -> list[Action]:
        if message.position == self.position:
            message = replace(message, digest=self.digest(self.position))
        return super()._on_draft(message)

    def _decide(self) -> tuple[Outcome | None, bool]:
        drafts = self.remote._drafts.get(self.position, {})
        for draft in list(drafts.values()):
            self.remote.put(self.position, self.digest(self.position), draft)
        return super()._decide()


class TestMutants:
    @pytest.mark.parametrize(
        ("kind", "placement", "rounded"), [(RaceRun, "device", as_code), (PaperRun, "device", as_float16)]
    )
    @pytest.mark.parametrize("mutant", [EtaOfTheWrongSide, Stale])
    def test_is_caught(
        self,
        mutant: type[Session],
        kind: type[RaceRun] | type[PaperRun],
        placement: Placement,
        rounded: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> None:
        assert p_value(answers(Game(kind, placement, mutant), range(MUTANT_RUNS)), law(rounded)) < 1e-9

    @pytest.mark.parametrize(("kind", "rounded"), [(RaceRun, as_code), (PaperRun, as_float16)])
    def test_is_caught_because_of_the_mutation(
        self,
        kind: type[RaceRun] | type[PaperRun],
        rounded: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> None:
        assert p_value(answers(Game(kind, "device"), range(MUTANT_RUNS)), law(rounded)) > 1e-4
