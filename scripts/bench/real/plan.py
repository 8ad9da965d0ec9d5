"""Sizes of the suites on real text."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.bench.asking import Mode
from scripts.bench.latency.plan import (
    ANY,
    CLOUD_ONLY,
    DEVICE_ONLY,
    PAPER_GREEDY,
    RACE_DEVICE,
    RACE_DEVICE_CHAIN,
    RACE_GREEDY,
    RACE_MIRRORED,
    RACE_MIRRORED_CHAIN,
    TOKEN_WISE,
    Floors,
    Leg,
)
from scripts.bench.latency.plan import Plan as LatencyPlan
from scripts.bench.plan import Plan
from scripts.bench.quality.perplexity import Sizes

LEGS = (Leg(300, 6, (0.7,)), Leg(100, 3, (0.7,)))
RACES = (RACE_DEVICE, RACE_DEVICE_CHAIN, RACE_GREEDY, RACE_MIRRORED, RACE_MIRRORED_CHAIN)
MODES = (DEVICE_ONLY, CLOUD_ONLY, TOKEN_WISE, PAPER_GREEDY, *RACES)
AS_IT_IS = Floors(0, 0)  # real decode times


@dataclass(frozen=True, slots=True)
class RealPlan:
    """One run of everything."""

    perplexity: Sizes
    acceptance: Plan
    latency: LatencyPlan
    trace: Plan
    answers: Plan


def _latency(legs: tuple[Leg, ...], modes: tuple[Mode, ...], tokens: int, own: float) -> LatencyPlan:
    slow = (TOKEN_WISE, PAPER_GREEDY)
    return LatencyPlan(floors=(AS_IT_IS,), legs=legs, modes=modes, max_tokens=tokens, seed=9, own=own, slow=slow)


FULL = RealPlan(
    Sizes(document=64, window=128, library=2000, windows=16, counts=(0, 1, 2, 4, 8, 16), context=2304),
    Plan(documents=(4,), temperatures=(0.0, 0.3, 0.7, 1.0), questions=8, tokens=48, seed=21),
    _latency(LEGS, MODES, 200, LatencyPlan().own),
    Plan(rtts=(300.0,), steps=((0.0, 0.0),), questions=2, tokens=100, temperatures=(0.7,), seed=11),
    Plan(questions=200, tokens=48, documents=(4,), seed=5),
)
SHORT = RealPlan(
    Sizes(document=16, window=16, library=6, windows=2, counts=(0, 1)),
    Plan(documents=(1,), temperatures=(0.7,), questions=1, tokens=4, seed=21),
    _latency((Leg(60, 1, (0.7,)),), (DEVICE_ONLY, TOKEN_WISE, RACE_DEVICE), 6, ANY),
    Plan(rtts=(60.0,), steps=((0.0, 0.0),), questions=1, tokens=4, temperatures=(0.7,), seed=11),
    Plan(questions=3, tokens=8, documents=(2,), seed=5),
)
