"""Probability that the verifier draws what the draft model holds probable, learnt from what it drew.

The draft model tells each candidate's share of the speeds, s_i = (q_i / E_i^T) / Σ_j q_j / E_j^T, in the race that the
verifier will run with the same noise E on its own distribution p. If both distributions were the same, the first one
would win. If ln p_i is ln q_i off by Gumbel noise of the scale 1/κ, candidate i wins with probability

    s_i^κ / Σ_j s_j^κ

and at temperature 0, where s = q, κ = 1 believes the draft model's own probabilities. How far apart two models are
differs from place to place, so each κ of a few has a weight, the share of the latest places that it explains (EM).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

EXPONENTS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
PRIOR: Final = (0.5, 1.0, 2.0, 1.0, 1.0)  # places that each is believed to have explained
MEMORY: Final = 128  # latest places that count
_STEPS: Final = 4  # of EM after each of them; the weights were nearly right before it
_LEAST: Final = 1e-12  # of a probability


class Agreement:
    """Of one draft model and one verifier; of use in many answers. One thread tells of what was drawn, any may ask."""

    def __init__(self, prior: Sequence[float] = PRIOR) -> None:
        """`prior` are places, not negative and some of them positive, that each of the `EXPONENTS` is believed to have
        explained.
        """
        self._exponents = np.asarray(EXPONENTS)
        self._prior = np.asarray(prior, np.float64)
        self._weights = self._prior / self._prior.sum()
        self._seen: deque[NDArray[np.float64]] = deque(maxlen=MEMORY)  # likelihoods of what was drawn, by exponent

    def of(self, shares: Sequence[float]) -> list[float]:
        """Probability that each candidate is drawn, from the positive shares of all candidates, whose sum is 1
        at most: the rest is of tokens that are not listed.
        """
        return np.minimum(self._weights @ self._wins(shares), 1.0).tolist() if len(shares) else []

    def judged(self, shares: Sequence[float], drawn: int | None) -> None:
        """Note which of the candidates with these `shares` the verifier drew; None: a token that is not listed."""
        if not len(shares):
            return
        wins = self._wins(shares)
        likely = 1.0 - wins.sum(axis=1) if drawn is None else wins[:, drawn]
        self._seen.append(np.maximum(likely, _LEAST))  # what was thought impossible happens, too
        seen, weights = np.stack(self._seen), self._weights
        for _ in range(_STEPS):
            explained = weights * seen
            counts = self._prior + (explained / explained.sum(axis=1, keepdims=True)).sum(axis=0)
            weights = counts / counts.sum()
        self._weights = weights  # as a whole, for those who read meanwhile

    def _wins(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """Probabilities of the candidates by exponent, `[exponents, candidates]`."""
        logs = np.log(np.asarray(shares, np.float64))
        # The largest is the unit: no power overflows.
        powers = np.exp(self._exponents[:, None] * (logs - logs.max()))
        # What is not listed is no more probable than the last that is: as if it were tokens of that share.
        last, rest = float(logs.min()), max(0.0, 1.0 - math.fsum(shares))
        unlisted = np.exp(self._exponents * (last - logs.max())) * (rest / math.exp(last))
        return np.asarray(powers / (powers.sum(axis=1) + unlisted)[:, None])
