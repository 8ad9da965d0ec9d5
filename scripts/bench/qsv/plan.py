"""Settings of the suite `qsv`: ways to ask, temperatures, uplinks, and sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from scripts.bench.asking import Mode, make_mode
from scripts.bench.methods.plan import ANY, DRAFT_MS, TARGET, VERIFY_MS, Network
from scripts.bench.methods.plan import Part as SpeedPart
from scripts.bench.methods.plan import Plan as SpeedPlan
from scripts.netlab.trace import TwoStates

LENGTH: Final = 3  # the paper's fixed draft length
RESOLUTIONS: Final = (16, 64)  # 64 is the paper's
INEXACT: Final = "sample-quantise"  # the order of prior art


def _way(name: str, **fields: Any) -> Mode:
    return make_mode(name, family=name, **{"method": "qsv", "draft_policy": "fixed"} | fields)


SQ: Final = {each: _way(f"S-Q, ℓ {each}", order=INEXACT, resolution=each, draft_length=LENGTH) for each in RESOLUTIONS}
QS: Final = {each: _way(f"Q-S, ℓ {each}", resolution=each, draft_length=LENGTH) for each in RESOLUTIONS}
HEURISTIC: Final = {
    each: _way(f"heuristic, ℓ {each}", draft_policy="heuristic", resolution=each) for each in RESOLUTIONS
}
GOODPUT: Final = _way("goodput", draft_policy="goodput")
DDQN: Final = _way("DDQN", draft_policy="ddqn")
EXACT: Final = (*QS.values(), HEURISTIC[64], GOODPUT, DDQN)  # beside the target, whose law they have
ASKED: Final = (TARGET, *SQ.values(), *EXACT)
TIMED: Final = (TARGET, *SQ.values(), *QS.values(), *HEURISTIC.values(), GOODPUT, DDQN)
FIXED: Final = tuple(
    _way(f"Q-S, ℓ 16, γ {length}", resolution=16, draft_length=length) for length in (2, 4, 6)
)  # by the simulator, what either rate would want and what is between them
CONFIDENCE: Final = _way("by confidence", draft_policy="confidence")
CHANGED: Final = (TARGET, *FIXED, *HEURISTIC.values(), GOODPUT, CONFIDENCE, DDQN)
A_SECOND: Final = TwoStates(dwell=0.1)  # a state lasts so long on average
UPLINKS: Final = (Network(0.0, 40.0), Network(0.0, 400.0))  # the paper's; its downlink takes no time


@dataclass(frozen=True, slots=True)
class Changing:
    """Answers over an uplink that goes to and fro between two rates."""

    ways: tuple[Mode, ...]
    seeds: tuple[int, ...] = tuple(range(1, 12))
    states: TwoStates = A_SECOND
    max_tokens: int = 96
    overlap: float = 0.9
    draft_ms: float = DRAFT_MS
    verify_ms: float = VERIFY_MS


@dataclass(frozen=True, slots=True)
class Sizes:
    """A whole run. `temperatures` are asked for, laws are computed at all of `computed`."""

    temperatures: tuple[float, ...]
    computed: tuple[float, ...]
    questions: int
    draws: int  # answers to each question
    max_tokens: int
    ways: tuple[Mode, ...]
    speed: SpeedPlan
    changing: Changing
    seed: int = 1


FULL: Final = Sizes(
    temperatures=(0.2, 0.6, 1.0, 1.4),
    computed=(0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4),
    questions=12,
    draws=8,
    max_tokens=20,  # the longest right answer has fewer
    ways=ASKED,
    speed=SpeedPlan((SpeedPart(0.9, dict.fromkeys(UPLINKS, TIMED), seeds=tuple(range(1, 7))),), max_tokens=64),
    changing=Changing(CHANGED),
)
SHORT: Final = replace(
    FULL,
    temperatures=(0.2, 1.4),
    computed=(0.2, 1.4),
    questions=2,
    draws=2,
    ways=(TARGET, SQ[16], QS[16], DDQN),
    speed=SpeedPlan(
        (SpeedPart(0.9, {UPLINKS[1]: (TARGET, SQ[64], QS[64], HEURISTIC[64], DDQN)}, seeds=(1,)),),
        max_tokens=12,
        draft_ms=2.0,
        verify_ms=8.0,
        own=ANY,
    ),
    changing=Changing((TARGET, FIXED[0], DDQN), (1, 2), max_tokens=12, draft_ms=2.0, verify_ms=8.0),
)
