"""Bytes per token on the wire, by message and direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from proto.fields import Codec, Sampler, Side
from scripts.bench.engine.distributions import Even, Logits, Shape
from scripts.bench.engine.pair import SIDES, Pair, Sources, make_request
from scripts.bench.measuring import Table, grouped
from scripts.bench.plan import Plan
from scripts.bench.workload import Demonstration

DOCUMENTS = 4
DRAFT_AIM = 200.0  # bytes per token, cloud to device, codec race
TARGET_AIM = 24.0  # bytes per token, device to cloud
EMBEDDED, LARGEST = 2048, 151_936  # vocabularies
SHAPES: tuple[Shape, ...] = ("peaked", "flat")


# Synthetic distributions of `positions` each, and the embedded model on `questions` of its own.
FULL = Plan(vocabularies=(50_257, 151_936), positions=24, questions=20, tokens=32, seed=5)
SHORT = replace(FULL, vocabularies=(300, 5000), positions=4, questions=2, tokens=6)


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to send distributions."""

    sampler: Sampler
    codec: Codec
    temperature: float


# The paper's sampler has no use at temperature 0, where one token is all that a truncation keeps.
MODES = (Mode("race", "race", 0.0), Mode("race", "race", 1.0), Mode("paper", "top-p", 1.0), Mode("paper", "raw", 1.0))


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes per token by message, placement `device`."""

    vocabulary: int
    distribution: Literal["peaked", "flat", "embedded model"]
    mode: Mode
    tokens: int
    down: dict[str, float]  # cloud to device
    up: dict[str, float]  # device to cloud


WAYS: tuple[Callable[[Traffic], dict[str, float]], ...] = (lambda one: one.down, lambda one: one.up)


def measure(plan: Plan, demonstration: Demonstration | None) -> list[Traffic]:
    """Every combination; without a demonstration, the synthetic distributions only."""
    found = []
    for mode in MODES:
        if demonstration is not None:
            found.append(_embedded(plan, mode, demonstration))
        for vocabulary in plan.vocabularies:
            for shape in SHAPES:
                found.append(_synthetic(plan, mode, vocabulary, shape))
    return sorted(found, key=lambda traffic: traffic.vocabulary)


def _synthetic(plan: Plan, mode: Mode, vocabulary: int, shape: Shape) -> Traffic:
    sources = {
        side: Sources(Logits.draw(side, vocabulary, DOCUMENTS, shape, plan.seed), Even(DOCUMENTS)) for side in SIDES
    }
    pair = Pair(_request(mode, plan.seed, plan.positions), vocabulary, sources)
    tokens = len(pair.run(plan.positions))
    return _traffic(vocabulary, shape, mode, tokens, [pair])


def _embedded(plan: Plan, mode: Mode, demonstration: Demonstration) -> Traffic:
    pairs, tokens, vocabulary = [], 0, demonstration.decoder.vocabulary
    for number, question in enumerate(demonstration.questions[: plan.questions]):
        request = _request(mode, plan.seed + number, plan.tokens)
        pair = Pair(request, vocabulary, demonstration.sources(question, plan.tokens), demonstration.decoder.eos)
        tokens += len(pair.run(plan.tokens))
        pairs.append(pair)
    return _traffic(vocabulary, "embedded model", mode, tokens, pairs)


def _request(mode: Mode, seed: int, max_tokens: int) -> Any:
    return make_request(
        sampler=mode.sampler, codec=mode.codec, temperature=mode.temperature, seed=seed, max_tokens=max_tokens
    )


def _traffic(
    vocabulary: int,
    distribution: Literal["peaked", "flat", "embedded model"],
    mode: Mode,
    tokens: int,
    pairs: Sequence[Pair],
) -> Traffic:
    def per_token(side: Side) -> dict[str, float]:
        total: dict[str, int] = {}
        for pair in pairs:
            for name, size in pair.halves[side].bytes.items():
                total[name] = total.get(name, 0) + size
        return {name: size / tokens for name, size in total.items()}

    return Traffic(vocabulary, distribution, mode, tokens, per_token("cloud"), per_token("device"))


def by_vocabulary(found: Sequence[Traffic]) -> tuple[str, str]:
    """The most bytes per token that the race sends (cloud to device, device to cloud), of each vocabulary."""
    race = grouped((one for one in found if one.mode.codec == "race"), lambda one: one.vocabulary)
    told = [[max(sum(way(one).values()) for one in race[size]) for size in sorted(race)] for way in WAYS]
    down, up = (" / ".join(f"{each:.0f}" for each in sizes) for sizes in told)
    return down, up


def by_codec(found: Sequence[Traffic]) -> Table:
    """Bytes per token from cloud to device at temperature 1."""
    by_source: dict[tuple[str, str, int], Traffic] = {
        (one.mode.codec, one.distribution, one.vocabulary): one for one in found if one.mode.temperature
    }
    columns: dict[str, tuple[str, int]] = {f"V = {LARGEST:,}, {shape}": (shape, LARGEST) for shape in SHAPES}
    columns = {f"V = {EMBEDDED:,}, embedded model": ("embedded model", EMBEDDED), **columns}

    def shown(codec: str, source: tuple[str, int]) -> str | None:
        one = by_source.get((codec, *source))
        return None if one is None else f"{sum(one.down.values()):,.0f}"

    return Table.crossed(["codec"], {(mode.codec,): mode.codec for mode in MODES}, columns, shown)


def show(found: Sequence[Traffic]) -> Table:
    columns: dict[str, Callable[[Traffic], object]] = {
        "V": lambda traffic: traffic.vocabulary,
        "distribution": lambda traffic: traffic.distribution,
        "codec": lambda traffic: f"{traffic.mode.codec}, T = {traffic.mode.temperature:g}",
        "cloud to device, bytes per token": lambda traffic: _listed(traffic.down),
        "device to cloud": lambda traffic: _listed(traffic.up),
    }
    return Table.of(found, columns)


def _listed(sizes: dict[str, float]) -> str:
    parts = ", ".join(f"{name} {size:.1f}" for name, size in sizes.items())
    return f"{sum(sizes.values()):.1f} ({parts})"
