"""Attackers' success from their likelihoods: pure functions of the rows that `records` leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from scripts.bench.measuring import CONFIDENCE, mean_of
from scripts.bench.rows import Row, groups

TEXT: Final = "text"  # the attacker who sees question and answer alone
FALSE_ALARMS: Final = 0.01

Floats = NDArray[np.float64]


class Guess(NamedTuple):
    """An attacker's state after all answers about one secret."""

    secret: int
    logs: Floats  # likelihood of each candidate
    tokens: int

    @property
    def hit(self) -> float:
        """The chance to name the secret, with a coin between equals."""
        best = np.flatnonzero(self.logs >= self.logs.max() - 1e-9)
        return float(self.secret in best) / len(best)

    @property
    def bits(self) -> float:
        """The attacker's gain on this secret; negative if it was led astray."""
        return float(np.log2(len(self.logs)) + (self.logs - np.logaddexp.reduce(self.logs))[self.secret] / np.log(2))

    @property
    def exposure(self) -> float:
        """log2 of the candidates over the secret's mean rank among equals (Carlini et al. 2019)."""
        own = self.logs[self.secret]
        above, equal = int((self.logs > own + 1e-9).sum()), int((np.abs(self.logs - own) <= 1e-9).sum())
        return float(np.log2(len(self.logs) / (above + (equal + 1) / 2)))

    @property
    def scores(self) -> Floats:
        """Each candidate's logarithm of the odds against the mean of the others."""
        weights = np.exp(self.logs - self.logs.max())
        others = (weights.sum() - weights) / (len(weights) - 1)
        odds: Floats = np.log(np.maximum(weights, 1e-12)) - np.log(np.maximum(others, 1e-12))
        return odds


def guesses(rows: Iterable[Row], attacker: str) -> list[Guess]:
    """The attacker's state for each secret, in the order of secrets."""
    found = []
    for those in groups(rows, "trial").values():
        logs = np.sum([row["logs"][attacker] for row in those], axis=0)
        found.append(Guess(those[0]["secret"], logs, sum(row["tokens"] for row in those)))
    return found


def share_of(count: int, of: int) -> tuple[float, float, float]:
    """Share with its Clopper-Pearson interval."""
    interval = binomtest(count, of).proportion_ci(CONFIDENCE, "exact")
    return count / of, float(interval.low), float(interval.high)


def excess(seen: Sequence[Guess], text: Sequence[Guess]) -> tuple[float, float, float]:
    """The share of secrets that the view names beyond the text, paired by secret."""
    return mean_of([one.hit - other.hit for one, other in zip(seen, text, strict=True)])


def separation(positive: Sequence[float], negative: Sequence[float]) -> tuple[float, float]:
    """Area under the curve, and true positives at 1 % false ones."""
    high, low = np.asarray(positive), np.sort(np.asarray(negative))
    below, upto = np.searchsorted(low, high, "left"), np.searchsorted(low, high, "right")
    edge = low[min(len(low) - 1, int(np.ceil((1 - FALSE_ALARMS) * len(low))))]
    return float((below + upto).mean() / (2 * len(low))), float((high > edge).mean())


def told_apart(seen: Sequence[Guess]) -> tuple[float, float]:
    """As `separation`, of secrets from the other candidates."""
    positive = [float(guess.scores[guess.secret]) for guess in seen]
    negative = [score for guess in seen for score in np.delete(guess.scores, guess.secret).tolist()]
    return separation(positive, negative)


def shown(figure: tuple[float, float, float], scale: float = 100, digits: int = 1, sign: str = "") -> str:
    """A figure with its interval, in per cent unless scaled otherwise."""
    middle, low, high = (f"{scale * each:{sign}.{digits}f}" for each in figure)
    return f"{middle} [{low} to {high}]"
