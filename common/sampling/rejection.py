"""Speculative sampling: proposed tokens are accepted or drawn again so that they follow the verifier's distribution.

A token x drawn from q is accepted with probability min(1, p(x) / q(x)), else drawn again from norm(max(0, p - q)).
Both together follow p, whatever q is, if q is what x was drawn from: after its temperature, truncation and rounding.
(DSSD prints the ratio upside down; that would make the result as far from p as q is.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from common.sampling.draws import Draws
from common.sampling.noise import Purpose
from common.sampling.truncation import Distribution


def propose(drafter: Distribution, draws: Draws) -> int:
    """A token drawn from the drafter's distribution q."""
    return int(drafter.ids[draws.pick(Purpose.PROPOSE, drafter.probabilities)])


def accepts(token: int, proposed: float, verifier: Distribution, draws: Draws) -> bool:
    """Whether a token holds that was drawn with probability `proposed` = q(x) > 0."""
    return draws.happens(Purpose.ACCEPT, min(1.0, verifier.of(token) / proposed))


def replacement(verifier: Distribution, drafter: Distribution, draws: Draws) -> int:
    """A token in place of one that was not accepted, from norm(max(0, p - q))."""
    return int(verifier.ids[draws.pick(Purpose.RESIDUAL, _residual(verifier, drafter))])


def bonus(verifier: Distribution, draws: Draws) -> int:
    """A token behind a whole proposal, from p."""
    return int(verifier.ids[draws.pick(Purpose.BONUS, verifier.probabilities)])


def acceptance(verifier: Distribution, drafter: Distribution) -> float:
    """The probability that a token drawn from q is accepted: 1 - TV(p, q)."""
    return float(np.minimum(verifier.at(drafter.ids), drafter.probabilities).sum())


def _residual(verifier: Distribution, drafter: Distribution) -> NDArray[np.float64]:
    weights = np.maximum(0.0, verifier.probabilities - drafter.at(verifier.ids))
    return weights if weights.any() else verifier.probabilities  # the two differ by rounding only
