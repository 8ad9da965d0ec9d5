"""Worlds of two sides with a model in a hash, and the answer that one process gives for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from common.answer.patience import WaitLimits
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.session import PlacementPolicy, SessionConfig
from common.methods.paper.sampler import PaperSampler
from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.compiled import race_noise
from common.sampling.race import RaceSampler
from proto.codes import decode_probabilities, nearest
from proto.messages import Placement, Sampler, Side
from scripts.simulation.world import Fate, Network, Outage, SideModel, World
from tests.common.methods.aggregate.table_model import EOS, TableModel, TablePredictor

VOCABULARY = 12
NEVER = float("inf")
DEFAULT_LIMITS = WaitLimits(1.0, NEVER)


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
) -> RaceSampler:
    return RaceSampler(seed, temperature, entries, vocabulary, hide_ids=hide_ids)


def one_process(model: TableModel, seed: int, temperature: float, length: int) -> list[int]:
    """The fastest tokens of both sides' mixture, from the race's definition: no lists, no drafts, no session."""
    everything = np.arange(model.vocabulary)
    answer: list[int] = []
    while len(answer) < length and EOS not in answer:
        (device, ours), (cloud, theirs) = (model.distribution(side, answer) for side in ("device", "cloud"))
        eta = eta_fixed(ours, theirs)
        noise = race_noise(seed, len(answer), everything, temperature)
        speeds = [decode_probabilities(nearest(each.astype(np.float32))) / noise for each in (device, cloud)]
        answer.append(int((eta * speeds[0] + (WHOLE - eta) * speeds[1]).argmax()))
    return answer


def build(
    setting: Setting,
    model: TableModel,
    seed: int,
    temperature: float,
    entries: int,
    length: int,
    network: Network,
    pace: np.random.Generator,
    ahead: SpeculationLimits,
    limits: WaitLimits = DEFAULT_LIMITS,
    hide_ids: bool = False,
    sampler: Sampler = "race",
    participants: frozenset[Side] = frozenset({"device", "cloud"}),
    policy: Callable[[Side], PlacementPolicy] | None = None,
) -> World:
    """`hide_ids`: the device names no tokens, as where it keeps its distributions to itself."""
    config = SessionConfig(7, setting.placement, frozenset({EOS}), length, model.vocabulary, participants)

    def side(role: Side) -> SideModel:
        aggregation: RaceSampler | PaperSampler
        if sampler == "paper":
            aggregation = PaperSampler(seed, temperature, 1.0, "top-p", model.vocabulary, role)
        else:
            aggregation = sampling(seed, temperature, entries, model.vocabulary, hide_ids and role == "device")
        mean = float(pace.uniform(0.01, 0.2))
        return SideModel(
            TablePredictor(model, role, aggregation),
            aggregation,
            lambda position: mean * pace.uniform(0.5, 2),
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
