"""The fastest tokens of a race over a whole vocabulary, without knowing every token's speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.noise import VocabularyNoise, exponential
from proto.logcode import decode

Found = tuple[NDArray[np.int64], NDArray[np.float64]]

# A bound is p / (1 - u), a speed p̂ / E. The code of p is off by up to 1.75e-4 of it (half a step, and what float32
# adds to that), E and the bound by 3e-7: no speed is above MARGIN times its bound.
MARGIN: Final = 1.0 + 2.0**-10
# No bound is below its p, and a p below this has code 0.
IMPOSSIBLE: Final = 2.0**-33

_GROUPS: Final = 4096  # of tokens that share one maximum; as cheap to sort as it is to find the maxima
_FIRST_LOOK: Final = 4  # groups looked at first, per token wanted; about 1.6 would do on the average
_WIDER: Final = 4


def race(
    probabilities: torch.Tensor,
    codes: torch.Tensor,
    depth: int,
    seed: int,
    position: int,
    noise: VocabularyNoise | None,
) -> Found:
    """The `depth` fastest tokens with their speeds p̂ / E, by id; fewer when fewer have a positive p̂.

    `codes` uint16 [vocab] are those of float32 `probabilities` [vocab]. Without `noise` E is 1 (temperature 0).
    """

    def speeds(ids: NDArray[np.int64]) -> NDArray[np.float64]:
        rounded = decode(codes[torch.from_numpy(ids).to(codes.device)].cpu().numpy())
        return rounded if noise is None else rounded / exponential(seed, position, ids)

    bounds = probabilities if noise is None else noise.speed_bounds(probabilities, seed, position)
    return fastest(bounds, depth, speeds)


def fastest(bounds: torch.Tensor, depth: int, speeds: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> Found:
    """The `depth` fastest tokens of positive speed, by id; of equally fast ones, those with the lowest ids.

    `speeds(ids)` are exact; `bounds` float32 [vocab] say which tokens to ask it for: a speed is at most MARGIN times
    the bound, and 0 where the bound is below IMPOSSIBLE. Where bounds are of no use (NaN, too many alike) more
    tokens are asked for, in the end all.
    """
    size = len(bounds)
    width = max(1, size // _GROUPS)
    groups = size // width
    body = bounds[: width * groups].reshape(width, groups)  # group g: the ids g, g + groups, ...
    tail = np.arange(width * groups, size)
    highest = body.amax(dim=0)
    count = _FIRST_LOOK * depth
    while count < groups:
        top, chosen = torch.topk(highest, count)
        rest = float(top[-1])  # no token that is passed over has a higher bound
        places, looked_at = chosen.cpu().numpy(), body[:, chosen].cpu().numpy()
        members, columns = np.nonzero(looked_at >= rest)
        found = _best(np.concatenate([members * groups + places[columns], tail]), depth, speeds)
        if rest < IMPOSSIBLE or (len(found[0]) == depth and float(found[1].min()) > rest * MARGIN):
            return found
        count *= _WIDER
    return _best(np.arange(size), depth, speeds)


def _best(ids: NDArray[np.int64], depth: int, speeds: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> Found:
    exact = speeds(ids)
    slowest = float(np.partition(exact, -depth)[-depth]) if len(ids) > depth else 0.0
    kept = np.flatnonzero((exact >= slowest) & (exact > 0))
    kept = kept[np.argsort(ids[kept])]
    if len(kept) > depth:  # several are as fast as the slowest one
        equal = exact[kept] == slowest
        kept = kept[~equal | (np.cumsum(equal) <= depth - np.count_nonzero(~equal))]
    return ids[kept], exact[kept]
