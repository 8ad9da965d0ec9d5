"""The suite `lattice`: what it takes to quantise a distribution, and the bytes and microseconds of its index.

Distributions are synthetic. The last row of a vocabulary and a resolution has every unit on a token of its own, drawn
uniformly: what a distribution can take at worst, and about what a random index does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from common.sampling.lattice import quantise
from proto.payloads.lattice import FORMATS, IndexCode, LatticeEntries, decode_lattice, encode_lattice
from scripts.bench.measuring import SPREADS, Spread, Table
from scripts.bench.plan import Plan
from scripts.bench.positions import synthetic
from scripts.bench.results import Results

P = ParamSpec("P")
R = TypeVar("R")

MOST_FIXED: Final = 128  # units: beyond, the fixed index is not meant to be used

FULL = Plan(
    vocabularies=(2048, 50_272, 151_936),
    entropies=(1.0, 3.0, 5.0),
    resolutions=(16, 64, 128, 256, 1024),
    positions=40,
    seed=34,
)
SHORT = replace(FULL, vocabularies=(2048,), entropies=(3.0,), resolutions=(16, 256), positions=3)


@dataclass(frozen=True, slots=True)
class Coded:
    """One index code, position by position: bytes of the payload, microseconds to make and to read it."""

    sizes: list[int] = field(default_factory=list)
    encoding: list[float] = field(default_factory=list)
    decoding: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of distribution at one resolution."""

    vocabulary: int
    entropy: float | None  # nats; None: every unit on another token
    resolution: int
    quantising: list[float] = field(default_factory=list)  # milliseconds
    tokens: list[int] = field(default_factory=list)  # K
    coded: dict[IndexCode, Coded] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "all different" if self.entropy is None else f"{self.entropy:g} nats"


def run(results: Results) -> None:
    plan = SHORT if results.short else FULL
    measured = []
    for vocabulary in plan.vocabularies:
        results.say(f"vocabulary of {vocabulary}")
        for entropy in (*plan.entropies, None):
            measured += _measure(plan, vocabulary, entropy)
    results.table("Quantising a distribution, milliseconds", show_quantising(measured), SPREADS)
    results.table("A position by index code: bytes, microseconds to make and to read it", show(measured), SPREADS)
    results.samples("lattice", {"plan": plan.sizes(), "measured": [asdict(each) for each in measured]})


def _measure(plan: Plan, vocabulary: int, entropy: float | None) -> list[Measured]:
    found = {resolution: Measured(vocabulary, entropy, resolution) for resolution in plan.resolutions}
    random = np.random.default_rng(plan.seed)
    for probabilities in _distributions(plan, vocabulary, entropy):
        for resolution, each in found.items():
            if probabilities is None:
                counts = np.zeros(vocabulary, dtype=np.int64)
                counts[random.choice(vocabulary, resolution, replace=False)] = 1
            else:
                counts, seconds = _timed(quantise, probabilities, resolution)
                each.quantising.append(1e3 * seconds)
            ids = np.flatnonzero(counts)
            each.tokens.append(len(ids))
            entries = LatticeEntries(ids.astype(np.uint32), counts[ids].astype(np.uint32))
            for code in FORMATS:
                if code == "short" or resolution <= MOST_FIXED:
                    _add(each.coded.setdefault(code, Coded()), entries, code, vocabulary)
    return list(found.values())


def _distributions(plan: Plan, vocabulary: int, entropy: float | None) -> Iterator[NDArray[np.float32] | None]:
    if entropy is None:
        yield from [None] * plan.positions
        return
    for position in synthetic(vocabulary, entropy, plan.positions, plan.seed):
        yield position.cloud.numpy()


def _add(coded: Coded, entries: LatticeEntries, code: IndexCode, vocabulary: int) -> None:
    positions: list[tuple[LatticeEntries, int | None]] = [(entries, int(entries.ids[-1]))]
    payload, encoding = _timed(encode_lattice, positions, code, vocabulary)
    read, decoding = _timed(decode_lattice, payload, code, vocabulary, 1, 0)
    if not np.array_equal(read[0][0].counts, entries.counts):
        raise RuntimeError("a lattice payload did not come back as it was sent")
    coded.sizes.append(len(payload))
    coded.encoding.append(1e6 * encoding)
    coded.decoding.append(1e6 * decoding)


def _timed(function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> tuple[R, float]:
    """What `function` returns, and the seconds it took."""
    started = time.perf_counter()
    returned = function(*arguments, **options)
    return returned, time.perf_counter() - started


def show_quantising(measured: list[Measured]) -> Table:
    rows: list[list[object]] = [
        [each.vocabulary, each.name, each.resolution, Spread.of(each.quantising).text(2)]
        for each in measured
        if each.quantising
    ]
    return Table(["V", "distribution", "units", "ms"], rows)


def show(measured: list[Measured]) -> Table:
    rows: list[list[object]] = []
    for each in measured:
        for code, coded in each.coded.items():
            row: list[object] = [each.vocabulary, each.name, each.resolution, f"{median(each.tokens):.0f}", code]
            row += [f"{median(coded.sizes):.0f}", Spread.of(coded.encoding).text(), Spread.of(coded.decoding).text()]
            rows.append(row)
    return Table(["V", "distribution", "units", "tokens", "index", "bytes", "µs to make", "µs to read"], rows)
