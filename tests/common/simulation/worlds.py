"""Worlds of two sides with a model in a hash, and the answer that one process gives for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.answer.watch import Patience
from common.estimates.ahead import Ahead
from common.methods.aggregate.machine.values import PlacementPolicy, SessionConfig
from common.methods.aggregate.samplers.paper import PaperAggregation
from common.methods.aggregate.samplers.race import RaceAggregation
from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.paper import PaperSampler
from common.sampling.race import LocalRace, RaceSampler
from common.simulation.link import Fate, Outage
from common.simulation.world import Network, SideModel, World
from proto.fields import Placement, Sampler, Side
from tests.common.methods.aggregate.table_model import EOS, TableModel, TablePredictor

VOCABULARY = 12
NEVER = float("inf")
DEFAULT_LIMITS = Patience(1.0, NEVER)


@dataclass(frozen=True)
class Fixed:
    """Places every aggregation by a list of sides."""

    sides: tuple[Side, ...]

    def next_aggregator(self, position: int, accepted: object) -> Side:
        return self.sides[position % len(self.sides)]


@dataclass(frozen=True)
class Setting:
    placement: Placement
    sides: tuple[Side, ...]


SETTINGS = {
    "device": Setting("device", ("device",)),
    "cloud": Setting("cloud", ("cloud",)),
    "mirrored": Setting("mirrored", ("device",)),
    "migrating": Setting("greedy", ("device", "cloud", "cloud", "device", "cloud", "device", "device")),
}


def sampling(
    seed: int, temperature: float, entries: int, vocabulary: int = VOCABULARY, hide_ids: bool = False
) -> RaceAggregation:
    sampler = RaceSampler(seed, temperature, entries, vocabulary)
    return RaceAggregation(sampler, vocabulary, exact=True, hide_ids=hide_ids)


def one_process(model: TableModel, seed: int, temperature: float, entries: int, length: int) -> list[int]:
    """Both sides' distributions in one loop: no drafts, no network, no session."""
    vocabulary = model.vocabulary
    aggregation = sampling(seed, temperature, entries, vocabulary)
    answer: list[int] = []
    while len(answer) < length and EOS not in answer:
        views, evidence = [], []
        for side in ("device", "cloud"):
            view, log_h = TablePredictor(model, side, aggregation).predict(len(answer), answer)
            views.append(view)
            evidence.append(log_h)
        scores = np.zeros(vocabulary)
        complete = RaceSampler(seed, temperature, vocabulary, vocabulary)
        eta = eta_fixed(*evidence)
        for view, weight in zip(views, (eta, WHOLE - eta), strict=True):
            assert isinstance(view, LocalRace)
            everything = complete.receive(len(answer), view.extend(vocabulary))
            for token, speed in everything.speed_of.items():
                scores[token] += weight * speed
        answer.append(int(scores.argmax()))
    return answer


def build(
    setting: Setting,
    model: TableModel,
    seed: int,
    temperature: float,
    entries: int,
    length: int,
    network: Network,
    decode: np.random.Generator,
    ahead: Ahead,
    limits: Patience = DEFAULT_LIMITS,
    hide_ids: bool = False,
    sampler: Sampler = "race",
    participants: frozenset[Side] = frozenset({"device", "cloud"}),
    policy: Callable[[Side], PlacementPolicy] | None = None,
) -> World:
    """`hide_ids`: the device names no tokens, as where it keeps its distributions to itself."""
    config = SessionConfig(7, setting.placement, frozenset({EOS}), length, model.vocabulary, participants)

    def side(role: Side) -> SideModel:
        aggregation: RaceAggregation | PaperAggregation
        if sampler == "paper":
            paper = PaperSampler(seed, temperature, 1.0, "top-p", model.vocabulary)
            aggregation = PaperAggregation(paper, role, "top-p", model.vocabulary)
        else:
            aggregation = sampling(seed, temperature, entries, model.vocabulary, hide_ids and role == "device")
        mean = float(decode.uniform(0.01, 0.2))
        return SideModel(
            TablePredictor(model, role, aggregation),
            aggregation,
            lambda position: mean * decode.uniform(0.5, 2),
            role not in model.empty,
        )

    return World(
        config,
        side("device"),
        side("cloud"),
        policy or (lambda role: Fixed(setting.sides)),
        network,
        limits,
        ahead,
    )


def rough_network(generator: np.random.Generator, loss: float, repeat: float, ordered: bool) -> Network:
    def fate(sender: Side) -> Fate:
        copies = 0 if generator.random() < loss else 1 + int(generator.random() < repeat)
        return Fate(tuple(float(generator.exponential(0.15)) for _ in range(copies)))

    outages = tuple(Outage(start, start + generator.uniform(0, 3)) for start in generator.uniform(0, 10, size=2))
    return Network(fate, ordered, outages)
