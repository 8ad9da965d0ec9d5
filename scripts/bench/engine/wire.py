"""Bytes per token on the wire, by message and direction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from proto.messages import Codec, Sampler, Side
from scripts.bench.engine.distributions import Even, Logits, Shape
from scripts.bench.engine.pair import SIDES, Pair, Sources, make_request
from scripts.bench.engine.plan import Plan
from scripts.bench.measuring import Table
from scripts.bench.rows import Row, groups, middle, pivot, where
from scripts.bench.workload import Demonstration

DOCUMENTS = 4
DRAFT_AIM = 200.0  # bytes per token, cloud to device, codec race
TARGET_AIM = 24.0  # bytes per token, device to cloud
EMBEDDED, LARGEST = 2048, 151_936  # vocabularies
SHAPES: tuple[Shape, ...] = ("peaked", "flat")


# Synthetic distributions of `positions` each, and the embedded model on `questions` of its own.
FULL = Plan(vocabularies=(50_257, 151_936), positions=24, questions=20, tokens=32, seed=5)
SHORT = replace(FULL, vocabularies=(300, 5000), positions=4, questions=2, tokens=6)


# The paper's sampler has no use at temperature 0, where one token is all that a truncation keeps.
MODES: tuple[tuple[Sampler, Codec, float], ...] = (  # ways to send distributions
    ("race", "race", 0.0),
    ("race", "race", 1.0),
    ("paper", "top-p", 1.0),
    ("paper", "raw", 1.0),
)
WAYS: tuple[tuple[str, Side], ...] = (("down", "cloud"), ("up", "device"))  # and who sends


def measure(plan: Plan, demonstration: Demonstration | None) -> list[Row]:
    """Bytes per token of every combination, placement `device`; of synthetic distributions only, if nothing else."""
    found = []
    for sampler, codec, temperature in MODES:
        law = {"sampler": sampler, "codec": codec, "temperature": temperature}
        if demonstration is not None:
            found.append(law | _embedded(plan, law, demonstration))
        for vocabulary, shape in product(plan.vocabularies, SHAPES):
            found.append(law | _synthetic(plan, law, vocabulary, shape))
    return sorted(found, key=lambda row: row["vocabulary"])


def _synthetic(plan: Plan, law: Row, vocabulary: int, shape: Shape) -> Row:
    sources = {
        side: Sources(Logits.draw(side, vocabulary, DOCUMENTS, shape, plan.seed), Even(DOCUMENTS)) for side in SIDES
    }
    pair = Pair(make_request(**law, seed=plan.seed, max_tokens=plan.positions), vocabulary, sources)
    tokens = len(pair.run(plan.positions))
    return {"vocabulary": vocabulary, "distribution": shape} | _traffic(tokens, [pair])


def _embedded(plan: Plan, law: Row, demonstration: Demonstration) -> Row:
    pairs, tokens, vocabulary = [], 0, demonstration.decoder.vocabulary
    for number, question in enumerate(demonstration.questions[: plan.questions]):
        request = make_request(**law, seed=plan.seed + number, max_tokens=plan.tokens)
        pair = Pair(request, vocabulary, demonstration.sources(question, plan.tokens), demonstration.decoder.eos)
        tokens += len(pair.run(plan.tokens))
        pairs.append(pair)
    return {"vocabulary": vocabulary, "distribution": "embedded model"} | _traffic(tokens, pairs)


def _traffic(tokens: int, pairs: Sequence[Pair]) -> Row:
    """Bytes per token each way: of all messages, and by message."""
    row: Row = {"tokens": tokens}
    for way, side in WAYS:
        total: Counter[str] = Counter()
        for pair in pairs:
            total.update(pair.halves[side].bytes)
        row[way] = total.total() / tokens
        row |= {f"{way} {name}": size / tokens for name, size in total.items()}
    return row


def by_vocabulary(rows: Sequence[Row]) -> tuple[str, str]:
    """The most bytes per token that the race sends (cloud to device, device to cloud), of each vocabulary."""
    race = groups(where(rows, codec="race"), "vocabulary")
    down, up = (" / ".join(f"{max(row[way] for row in race[size]):.0f}" for size in sorted(race)) for way, _ in WAYS)
    return down, up


def by_codec(rows: Sequence[Row]) -> Table:
    """Bytes per token from cloud to device at temperature 1."""
    warm = [
        row | {"source": f"V = {row['vocabulary']:,}, {row['distribution']}"} for row in where(rows, temperature=1.0)
    ]
    codecs = [codec for _, codec, _ in MODES]
    sources = [f"V = {EMBEDDED:,}, embedded model", *(f"V = {LARGEST:,}, {shape}" for shape in SHAPES)]
    return pivot(
        sorted(warm, key=lambda row: codecs.index(row["codec"])), ["codec"], "source", middle("down", ",.0f"), sources
    )
