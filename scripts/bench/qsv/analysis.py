"""Orderings that the figures of quantize-sample-verify support, and whether they show in what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from scipy.stats import fisher_exact

from scripts.bench.asking import Mode
from scripts.bench.measuring import CONFIDENCE, RESAMPLES, SEED, Spread, wilson
from scripts.bench.methods.plan import TARGET, Network
from scripts.bench.qsv.plan import DDQN, EXACT, HEURISTIC, QS, RESOLUTIONS, SQ
from scripts.bench.qsv.reading import Computed

CHANCE: Final = 0.05  # of one difference where there is none, among all comparisons of an ordering
ROUNDING: Final = 1e-9  # total variation of laws that are the same


@dataclass(frozen=True, slots=True)
class Asked:
    """All answers of one way at one temperature: which are right, each one's -log p of its tokens, in nats, and the
    question that it answers.
    """

    right: tuple[bool, ...]
    surprises: tuple[tuple[float, ...], ...]
    questions: tuple[int, ...]

    @property
    def share(self) -> float:
        return sum(self.right) / len(self.right)

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share, Wilson's."""
        return wilson(sum(self.right), len(self.right))

    @property
    def entropy(self) -> float:
        """Nats per token."""
        return sum(map(sum, self.surprises)) / sum(map(len, self.surprises))

    @property
    def entropy_interval(self) -> tuple[float, float]:
        """By bootstrap over questions, whose answers are not independent; the same for the same answers."""
        _, at = np.unique(self.questions, return_inverse=True)
        sums, counts = (np.bincount(at, [of(each) for each in self.surprises]) for of in (sum, len))
        drawn = np.random.default_rng(SEED).integers(len(sums), size=(RESAMPLES, len(sums)))
        edges = 50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)
        low, high = np.percentile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), edges)
        return float(low), float(high)

    def differs(self, other: Asked) -> float:
        """The chance of shares as different as these (Fisher's exact test)."""
        table = [[sum(each.right), len(each.right) - sum(each.right)] for each in (self, other)]
        return float(fisher_exact(table).pvalue)


Answers = Mapping[tuple[str, float], Asked]  # by way and temperature
Laws = Mapping[tuple[int, float], Computed]  # by resolution and temperature
Speeds = Mapping[tuple[Network, str], Spread]  # tokens per second


@dataclass(frozen=True, slots=True)
class Ordering:
    """One that the paper's figures show, and what was found here; `shows` is None where that is open."""

    figure: str
    said: str
    found: str
    shows: bool | None


def orderings(answers: Answers, laws: Laws, speeds: Speeds) -> list[Ordering]:
    """All that what was measured can tell of."""
    return [_same(answers, laws), *_worse(laws), _entropies(answers), *_faster(speeds)]


def _same(answers: Answers, laws: Laws) -> Ordering:
    """By the laws, and nothing in the answers may speak against it: so few would let a small bias pass."""
    exact = [(way, at) for way, at in answers if way in {each.name for each in EXACT}]
    chances = {key: answers[key].differs(answers[TARGET.name, key[1]]) for key in exact}
    least = min(chances.values())
    off = max(each.exact for each in laws.values())
    tests = f"least p of {len(chances)} comparisons {least:.2f}"
    said = "Q-S keeps the target's quality, with or without dynamic lengths"
    same = off < ROUNDING and least > CHANCE / len(chances)
    return Ordering("3a", said, f"total variation {off:.0e} at most; {tests}", same)


def _worse(laws: Laws) -> list[Ordering]:
    """By the exact probabilities of right answers."""
    found = []
    for resolution in RESOLUTIONS:
        at = sorted(temperature for each, temperature in laws if each == resolution)
        losses = [laws[resolution, each].right["target"] - laws[resolution, each].right["S-Q"] for each in at]
        told = f"{losses[0]:.3f} at {at[0]:g}, {losses[-1]:.3f} at {at[-1]:g}"
        said = f"S-Q, ℓ {resolution}, loses quality against the target, and more at high temperatures"
        found.append(Ordering("3a", said, f"lost: {told}", losses[-1] > 0 and losses[-1] > losses[0]))
    return found


def _entropies(answers: Answers) -> Ordering:
    temperatures = list(dict.fromkeys(at for _, at in answers))
    ways = list(dict.fromkeys(way for way, _ in answers))
    falls = [
        f"{way} from {low:g} to {high:g}"
        for way in ways
        for low, high in pairwise(temperatures)
        if answers[way, high].entropy <= answers[way, low].entropy
    ]
    found = f"falls: {', '.join(falls)}" if falls else f"{len(ways)} of {len(ways)} ways"
    return Ordering("3b", "token entropy grows with temperature in every way", found, not falls)


def _faster(speeds: Speeds) -> list[Ordering]:
    found = []
    for network in dict.fromkeys(network for network, _ in speeds):
        pairs: Sequence[tuple[str, Sequence[Mode], Mode]] = (
            ("S-Q and Q-S of fixed length are faster than the target alone", (*SQ.values(), *QS.values()), TARGET),
            *((f"DDQN is faster than a fixed length, ℓ {each}", (DDQN,), QS[each]) for each in RESOLUTIONS),
            *((f"DDQN is faster than the heuristic, ℓ {each}", (DDQN,), HEURISTIC[each]) for each in RESOLUTIONS),
        )
        for said, faster, slower in pairs:
            those = [(each.name, speeds[network, each.name]) for each in faster if (network, each.name) in speeds]
            if those and (network, slower.name) in speeds:
                other = speeds[network, slower.name]
                told = ", ".join(f"{name}: {spread.median / other.median:.2f}" for name, spread in those)
                shows = _above([spread for _, spread in those], other)
                found.append(Ordering("4", f"{network.rate:g} kb/s: {said}", told, shows))
    return found


def _above(faster: Sequence[Spread], slower: Spread) -> bool | None:
    """Whether all of some medians are above another one, by their intervals; None where these leave it open, or there
    are none.
    """
    if slower.few or any(each.few for each in faster):
        return None
    if all(each.interval[0] > slower.interval[1] for each in faster):
        return True
    return False if any(each.interval[1] < slower.interval[0] for each in faster) else None
