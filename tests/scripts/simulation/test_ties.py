"""Answers over distributions in which many tokens are equally probable: certificates take many rounds of asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from common.answer.patience import WaitLimits
from common.estimates.estimators import SpeculationLimits
from proto.messages import Side
from scripts.simulation.world import Fate, Network, World
from tests.common.methods.aggregate.table_model import TableModel
from tests.scripts.simulation.worlds import SETTINGS, build, one_process

ONE_WAY = 0.15  # seconds
RESYNC = 0.5  # less than the rounds of one position take: what is sent again meets what was asked for
LENGTH = 8


@dataclass(frozen=True)
class Coarse(TableModel):
    """Probabilities of a few values only."""

    def distribution(self, side: Side, prefix: Sequence[int]) -> tuple[NDArray[np.float64], float]:
        exact, evidence = super().distribution(side, prefix)
        rounded = 2.0 ** np.round(np.log2(np.maximum(exact, 1e-3)))
        return rounded / rounded.sum(), evidence


def answered(name: str, entries: int, temperature: float, seed: int) -> tuple[World, list[int]]:
    vocabulary = 48
    model = Coarse(vocabulary, seed, disagreement=0.9, end=0.0)
    generator = np.random.default_rng(seed)
    network = Network(lambda sender: Fate((ONE_WAY,)))
    world = build(
        SETTINGS[name],
        model,
        seed,
        temperature,
        entries,
        LENGTH,
        network,
        generator,
        SpeculationLimits(6),
        limits=WaitLimits(RESYNC, float("inf")),
        hide_ids=name == "device",
    )
    assert world.run(until=600), "the answer never ended"
    return world, one_process(model, seed, temperature, LENGTH)


@pytest.mark.parametrize("name", ["device", "cloud", "mirrored"])
@pytest.mark.parametrize("entries", [1, 4])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_answer_is_that_of_one_process(name: str, entries: int, temperature: float) -> None:
    """A refused message would raise here."""
    failures = 0
    for seed in range(6):
        world, expected = answered(name, entries, temperature, seed)
        assert list(world.device.session.committed) == expected
        failures += world.device.session.counters.certificate_failures
    if temperature == 0 and name == "device":
        assert failures > 10
