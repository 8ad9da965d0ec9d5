"""Processor time per token of everything but the model's forward pass, in microseconds, stage by stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from common.configuration.settings import EMBEDDED_TOKENIZER
from common.engine.jobs import ScoringRun
from common.engine.model.tokenizer import Tokenizer
from common.scoring.lexical import LexicalScorer
from proto.messages import Placement, Side
from scripts.bench.engine.distributions import FRESH, Logits
from scripts.bench.engine.pair import SIDES, STAGES, Pair, Sources, make_request
from scripts.bench.engine.plan import Plan
from scripts.bench.measuring import SPREADS, Spread, Table
from scripts.bench.rows import Row, groups, middle, spread, table, values

DOCUMENTS = 4
DOCUMENT_TOKENS = 120
PLACEMENTS: tuple[Placement, ...] = ("device", "mirrored")
AIMS = {4096: 300.0, 151_936: 1000.0}  # microseconds per token on one side, by vocabulary


FULL = Plan(vocabularies=(4096, 151_936), temperatures=(0.0, 0.7, 1.0), tokens=40, rounds=3, seed=11)
SHORT = replace(FULL, vocabularies=(512,), tokens=8, rounds=1)


def measure(plan: Plan) -> Iterator[Row]:
    """A row for each token of each setting, with microseconds by stage."""
    reader = Tokenizer.load(str(EMBEDDED_TOKENIZER))
    for vocabulary in plan.vocabularies:
        pools = {side: Logits.draw(side, vocabulary, DOCUMENTS, "flat", plan.seed) for side in SIDES}
        scoring = {side: _scoring(side, vocabulary, plan.seed) for side in SIDES}
        for round_, temperature, placement in product(range(plan.rounds), plan.temperatures, PLACEMENTS):
            request = make_request(temperature=temperature, placement=placement, seed=plan.seed + round_)
            sources = {side: Sources(pools[side], scoring[side]) for side in SIDES}
            pair = Pair(request, vocabulary, sources, reader=reader)
            pair.run(plan.tokens + FRESH)
            for side in SIDES:
                setting = {"vocabulary": vocabulary, "temperature": temperature, "placement": placement, "side": side}
                # The first ones touch fresh memory and compile nothing twice.
                for lap in pair.halves[side].stages.laps[FRESH:]:
                    stages = {stage: round(lap.get(stage, 0.0), 1) for stage in STAGES}
                    yield setting | stages | {"total": sum(lap.values())}


def _scoring(side: Side, vocabulary: int, seed: int) -> ScoringRun:
    random = np.random.default_rng((seed, 1 if side == "device" else 2))
    scorer = LexicalScorer.from_table(random.uniform(1, 6, vocabulary).astype(np.float32))
    documents = [random.integers(vocabulary, size=DOCUMENT_TOKENS).tolist() for _ in range(DOCUMENTS)]
    return scorer.begin(documents[0][:12], documents)


def by_side(rows: Iterable[Row]) -> str:
    """Medians of both sides in every placement: the least and the most, microseconds."""
    medians = [Spread.of(values(those, "total")).median for those in groups(rows, "placement", "side").values()]
    return f"{min(medians):,.0f}-{max(medians):,.0f} µs"


def show(rows: Iterable[Row]) -> Table:
    """A line for each setting: the stages' medians, and the total with its spread."""
    named = [
        row | {"name": f"V={row['vocabulary']} T={row['temperature']:g} {row['placement']}/{row['side']}"}
        for row in rows
    ]
    columns = {stage: middle(stage) for stage in STAGES} | {f"total: {SPREADS}": spread("total", tails=True)}
    return table(named, {"µs per token": "name"}, columns)
