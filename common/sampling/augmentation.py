"""The verifier's distribution moved towards the drafter's (RAPID, Eqs. 6 and 8), and the paper's residual (Eq. 10).

p̂ is the softmax of z / T + eta m (q - p), with p = softmax(z / T), so p̂_i ∝ p_i exp(eta m_i (q_i - p_i)). The mask m
is that of the authors' program: 0 where q is less than a tenth of its largest. (Eq. 9 instead puts p back where p̂ is
small, which leaves a mass other than 1.)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from common.sampling.draws import Draws
from common.sampling.noise import Purpose
from common.sampling.truncation import Distribution, renormalised

LEAST: Final = 0.1  # of the drafter's largest probability: what is less moves nothing


def augmented(verifier: Distribution, drafter: Distribution, eta: float) -> Distribution:
    """p̂ for p and q, on the tokens of p; p itself for `eta` 0."""
    if eta == 0:
        return verifier
    trusted = drafter.probabilities >= LEAST * drafter.probabilities.max()
    ids, wanted = drafter.ids[trusted], drafter.probabilities[trusted]
    places = verifier.ids.searchsorted(ids)
    places[places == len(verifier.ids)] = 0
    there = verifier.ids[places] == ids
    shift = np.zeros(len(verifier.ids))
    shift[places[there]] = eta * (wanted[there] - verifier.probabilities[places[there]])
    return renormalised(verifier.ids, verifier.probabilities * np.exp(shift - shift.max()))


def likeliest(distribution: Distribution) -> Distribution:
    """All mass on the most probable token, on the lowest id of equals: what temperature 0 makes of a distribution."""
    place = int(distribution.probabilities.argmax())
    return Distribution(distribution.ids[place : place + 1], np.ones(1))


def paper_replacement(verifier: Distribution, target: Distribution, drafter: Distribution, draws: Draws) -> int:
    """A token in place of one that p̂, here `target`, rejected, from norm(max(p - p̂, p - q, 0)).

    What follows is neither p nor p̂: where both q and p̂ are above p, nothing takes the surplus away.
    """
    probabilities = verifier.probabilities
    weights = np.maximum(probabilities - target.at(verifier.ids), probabilities - drafter.at(verifier.ids))
    weights = np.maximum(weights, 0.0)
    return int(verifier.ids[draws.pick(Purpose.RESIDUAL, weights if weights.any() else probabilities)])
