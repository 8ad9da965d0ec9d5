"""Speculative aggregation as in the paper (DRAGON §4.2, Algorithm 1), the baseline of the race.

Algorithm 1 prints the wrong weight. As Appendix A.2 and Eq. 5 have it, a draft x of side a is rejected with

    probability  η^b (1 - p^b(x) / p^a(x))  where p^a(x) > p^b(x),  b the other side,

and then drawn again from norm(max(0, p^b - p^a)). Both results follow η^a p^a + η^b p^b; one is taken by a
fair coin.

Randomness comes through `Draws`, keyed by purpose and side name, so the outcome does not depend on who
aggregates.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from common.sampling.draws import Draws
from common.sampling.noise import Purpose
from common.sampling.truncation import Distribution
from proto.fields import Side

GAMMA: Final = 0.5  # γ^device = γ^cloud (§4.3)

_DRAFT: Final = {"device": Purpose.DRAFT_DEVICE, "cloud": Purpose.DRAFT_CLOUD}
_ACCEPT: Final = {"device": Purpose.ACCEPT_DEVICE, "cloud": Purpose.ACCEPT_CLOUD}
_RESIDUAL: Final = {"device": Purpose.RESIDUAL_DEVICE, "cloud": Purpose.RESIDUAL_CLOUD}


def draw_draft(side: Side, own: Distribution, draws: Draws) -> int:
    """The draft of `side`, from the distribution that it sends."""
    return int(own.ids[draws.pick(_DRAFT[side], own.probabilities)])


def aggregate(
    device_token: int,
    device: Distribution,
    cloud_token: int,
    cloud: Distribution,
    eta_device: float,
    draws: Draws,
) -> int:
    """The target token, distributed as η^device p^device + η^cloud p^cloud (Eq. 4).

    Each draft must be drawn from its side's distribution.
    """
    from_device = _sample("device", device_token, device, cloud, 1.0 - eta_device, draws)
    from_cloud = _sample("cloud", cloud_token, cloud, device, eta_device, draws)
    return from_device if draws.happens(Purpose.CHOICE, GAMMA) else from_cloud


def most_probable(device: Distribution, cloud: Distribution, eta_device: float) -> int:
    """The argmax of the mixture, the lowest id of equals: the target at temperature 0."""
    found: list[tuple[float, int]] = []
    for ids in (device.ids, cloud.ids):  # their union would have to be sorted
        mixture = eta_device * device.at(ids) + (1.0 - eta_device) * cloud.at(ids)
        place = int(mixture.argmax())
        found.append((-float(mixture[place]), int(ids[place])))
    return min(found)[1]


def expected_acceptance(device: Distribution, cloud: Distribution, eta_device: float) -> tuple[float, float]:
    """α of device and cloud: how probable it is that the side's draft is the target (Eq. 5).

        α^a = γ (1 - η^b δ) + γ Σ_x p^a(x) p(x),    δ = 1 - Σ_x min(p^a(x), p^b(x)),    p the mixture

    The other side's result is independent of this draft and follows the mixture: that is the p of the second
    sum, as the proof of Theorem 4.2 has it.
    """
    cloud_at_device = cloud.at(device.ids)
    divergence = 1.0 - float(np.minimum(device.probabilities, cloud_at_device).sum())
    both = float((device.probabilities * cloud_at_device).sum())
    eta_cloud = 1.0 - eta_device
    device_again = eta_device * float((device.probabilities**2).sum()) + eta_cloud * both
    cloud_again = eta_cloud * float((cloud.probabilities**2).sum()) + eta_device * both
    return (
        GAMMA * (1.0 - eta_cloud * divergence) + (1.0 - GAMMA) * device_again,
        (1.0 - GAMMA) * (1.0 - eta_device * divergence) + GAMMA * cloud_again,
    )


def _sample(side: Side, token: int, own: Distribution, other: Distribution, eta_other: float, draws: Draws) -> int:
    """The paper's function Sample: keep the draft, or draw again where the other side has more."""
    own_probability, other_probability = own.of(token), other.of(token)
    if own_probability <= other_probability:
        return token
    if not draws.happens(_ACCEPT[side], eta_other * (1.0 - other_probability / own_probability)):
        return token
    residual = np.maximum(0.0, other.probabilities - own.at(other.ids))
    if not residual.any():  # the two differ by rounding only
        return token
    return int(other.ids[draws.pick(_RESIDUAL[side], residual)])
