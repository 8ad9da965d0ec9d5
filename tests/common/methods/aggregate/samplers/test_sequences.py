"""RAG-Sequence's choice between two answers."""

from __future__ import annotations

import math

import pytest

from common.methods.paper.sequence_wise import SideAnswer, choose
from common.sampling.certificate import NO_EVIDENCE


def test_the_larger_mass_wins() -> None:
    device, cloud = SideAnswer((1, 2), math.log(0.5), 0.0), SideAnswer((3, 0), math.log(0.2), 0.0)
    assert choose(device, cloud).tokens == (1, 2)
    # three times the evidence outweighs: 0.25 * 0.5 < 0.75 * 0.2
    heavier = SideAnswer((3, 0), math.log(0.2), math.log(3.0))
    chosen = choose(device, heavier)
    assert (chosen.tokens, chosen.cloud_share) == ((3, 0), 1.0)


def test_the_device_wins_a_tie() -> None:
    chosen = choose(SideAnswer((1,), -2.0, -1.0), SideAnswer((2,), -1.0, -2.0))
    assert (chosen.tokens, chosen.cloud_share) == ((1,), 0.0)


def test_masses_of_the_same_answer_add() -> None:
    chosen = choose(SideAnswer((1,), math.log(0.3), 0.0), SideAnswer((1,), math.log(0.1), 0.0))
    assert chosen.cloud_share == pytest.approx(0.25)
    assert choose(SideAnswer((1,), -1e6, 0.0), SideAnswer((1,), 0.0, 2e30)).cloud_share == pytest.approx(1.0)


@pytest.mark.parametrize(("absent", "tokens"), [("device", (2,)), ("cloud", (1,))])
def test_a_side_without_documents_has_no_weight(absent: str, tokens: tuple[int, ...]) -> None:
    """No weight, however probable that side's answer is."""
    device = SideAnswer((1,), -0.1 if absent == "device" else -900.0, NO_EVIDENCE if absent == "device" else 0.0)
    cloud = SideAnswer((2,), -0.1 if absent == "cloud" else -900.0, NO_EVIDENCE if absent == "cloud" else 0.0)
    assert choose(device, cloud).tokens == tokens
