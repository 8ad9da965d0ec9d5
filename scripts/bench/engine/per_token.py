"""Processor time per token of everything but the model's forward pass, in microseconds, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.model.tokenizer import Tokenizer
from common.engine.scorer import ScoringRun
from common.scoring.lexical import LexicalScorer
from proto.fields import Placement, Side
from scripts.bench.engine.distributions import FRESH, Logits
from scripts.bench.engine.pair import SIDES, STAGES, Pair, Sources, make_request
from scripts.bench.measuring import SPREADS, Spread, Table
from scripts.bench.plan import Plan

DOCUMENTS = 4
DOCUMENT_TOKENS = 120
PLACEMENTS: tuple[Placement, ...] = ("device", "mirrored")
AIMS = {4096: 300.0, 151_936: 1000.0}  # microseconds per token on one side, by vocabulary


FULL = Plan(vocabularies=(4096, 151_936), temperatures=(0.0, 0.7, 1.0), tokens=40, rounds=3, seed=11)
SHORT = replace(FULL, vocabularies=(512,), tokens=8, rounds=1)


@dataclass(frozen=True, slots=True)
class Case:
    """One column of the table."""

    vocabulary: int
    temperature: float
    placement: Placement
    side: Side

    @property
    def name(self) -> str:
        return f"V={self.vocabulary} T={self.temperature:g} {self.placement}/{self.side}"


def measure(plan: Plan) -> dict[Case, list[dict[str, float]]]:
    """Laps (microseconds by stage, one per token) of every case."""
    laps: dict[Case, list[dict[str, float]]] = {}
    reader = Tokenizer.load(str(EMBEDDED_TOKENIZER))
    for vocabulary in plan.vocabularies:
        pools = {side: Logits.draw(side, vocabulary, DOCUMENTS, "flat", plan.seed) for side in SIDES}
        scoring = {side: _scoring(side, vocabulary, plan.seed) for side in SIDES}
        for round_ in range(plan.rounds):
            for temperature in plan.temperatures:
                for placement in PLACEMENTS:
                    request = make_request(temperature=temperature, placement=placement, seed=plan.seed + round_)
                    sources = {side: Sources(pools[side], scoring[side]) for side in SIDES}
                    pair = Pair(request, vocabulary, sources, reader=reader)
                    pair.run(plan.tokens + FRESH)
                    for side in SIDES:
                        case = Case(vocabulary, temperature, placement, side)
                        # The first ones touch fresh memory and compile nothing twice.
                        laps.setdefault(case, []).extend(pair.halves[side].stages.laps[FRESH:])
    return laps


def _scoring(side: Side, vocabulary: int, seed: int) -> ScoringRun:
    random = np.random.default_rng((seed, 1 if side == "device" else 2))
    scorer = LexicalScorer.from_table(random.uniform(1, 6, vocabulary).astype(np.float32))
    documents = [random.integers(vocabulary, size=DOCUMENT_TOKENS).tolist() for _ in range(DOCUMENTS)]
    return scorer.begin(documents[0][:12], documents)


def totals(laps: list[dict[str, float]]) -> list[float]:
    return [sum(lap.values()) for lap in laps]


def by_side(laps: dict[Case, list[dict[str, float]]], vocabulary: int, temperature: float) -> str:
    """Medians of both sides in every placement: the least and the most, microseconds."""
    medians = [
        Spread.of(totals(of_case)).median
        for case, of_case in laps.items()
        if (case.vocabulary, case.temperature) == (vocabulary, temperature)
    ]
    return f"{min(medians):,.0f}-{max(medians):,.0f} µs"


def show(laps: dict[Case, list[dict[str, float]]]) -> Table:
    """One row per case: the stages' medians, and the total with its spread."""
    rows = []
    for case, of_case in laps.items():
        medians = [Spread.of([lap.get(stage, 0.0) for lap in of_case]).median for stage in STAGES]
        rows.append([case.name, *(f"{median:.0f}" for median in medians), Spread.of(totals(of_case)).text()])
    return Table(["µs per token", *STAGES, f"total: {SPREADS}"], rows)


def record(laps: dict[Case, list[dict[str, float]]]) -> dict[str, Any]:
    """Raw samples by case and stage."""
    return {
        case.name: {stage: [round(lap.get(stage, 0.0), 1) for lap in of_case] for stage in STAGES}
        for case, of_case in laps.items()
    }
