"""The fastest tokens of races over a whole vocabulary, without knowing every token's speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import IMPOSSIBLE, SLACK

Found = tuple[NDArray[np.int64], NDArray[np.float64]]
Speeds = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]  # of (race, token) pairs

_GROUPS: Final = 4096  # of tokens that share one maximum; as cheap to sort as it is to find the maxima
_FIRST_LOOK: Final = 4  # groups looked at first, per token wanted; about 1.6 would do on the average
_WIDER: Final = 4


def fastest(bounds: torch.Tensor, depths: Sequence[int], speeds: Speeds) -> list[Found]:
    """The `depths[r]` fastest tokens of positive speed of every race r, by id; of equally fast ones, those with the
    lowest ids.

    `speeds(races, ids)` are exact; `bounds` float32 `[races, vocab]` say which tokens to ask it for: log2 of a speed is
    at most SLACK above the bound, and the speed is 0 where the bound is below IMPOSSIBLE. Where bounds are of no use
    (NaN, too many alike) more tokens are asked for, in the end all.
    """
    races, size = bounds.shape
    width = max(1, size // _GROUPS)
    groups = size // width
    body = bounds[:, : width * groups].view(races, width, groups)  # group g: the ids g, g + groups, ...
    tail = np.arange(width * groups, size)
    highest = body[:, 0] if width == 1 else body.amax(dim=1)
    found: dict[int, Found] = {}
    count = _FIRST_LOOK * max(depths)
    left = list(range(races))
    while left and count < groups:
        whole = len(left) == races
        rest = _look(
            body if whole else body[left], highest if whole else highest[left], count, tail, left, depths, speeds, found
        )
        left = [race for race, certain in zip(left, rest, strict=True) if not certain]
        count *= _WIDER
    for race in left:
        ids = np.arange(size)
        found[race] = best(ids, speeds(np.full(size, race), ids), depths[race])
    return [found[race] for race in range(races)]


def _look(
    body: torch.Tensor,
    highest: torch.Tensor,
    count: int,
    tail: NDArray[np.int64],
    races: Sequence[int],
    depths: Sequence[int],
    speeds: Speeds,
    found: dict[int, Found],
) -> list[bool]:
    """Look at the `count` best groups of each of `races`; returns for which of them what was found is certain."""
    groups, width = highest.shape[1], body.shape[1]
    top, chosen = torch.topk(highest, count, sorted=False)
    rest = top.amin(dim=1).cpu().numpy().astype(np.float64)  # no token that is passed over has a higher bound
    places = chosen.cpu().numpy()
    if width == 1:
        row, ids = np.repeat(np.arange(len(races)), count), places.reshape(-1)
    else:
        looked_at = body.gather(2, chosen[:, None, :].expand(-1, width, -1)).cpu().numpy()
        row, members, columns = np.nonzero(looked_at >= rest[:, None, None])
        ids = members * groups + places[row, columns]
    ends = np.searchsorted(row, np.arange(len(races) + 1))
    parts = [np.concatenate([ids[ends[index] : ends[index + 1]], tail]) for index in range(len(races))]
    lengths = [len(part) for part in parts]
    exact = speeds(np.repeat(np.asarray(races), lengths), np.concatenate(parts))
    certain, start = [], 0
    for index, race in enumerate(races):
        stop = start + lengths[index]
        found[race] = best(parts[index], exact[start:stop], depths[race])
        slowest = float(found[race][1].min()) if len(found[race][1]) == depths[race] else 0.0
        limit = 2.0 ** min(rest[index] + SLACK, 1000.0) if rest[index] > -1000.0 else 0.0
        certain.append(bool(rest[index] < IMPOSSIBLE or slowest > limit))
        start = stop
    return certain


def best(ids: NDArray[np.int64], exact: NDArray[np.float64], depth: int) -> Found:
    """The `depth` fastest of `ids` [n], in any order, whose speeds are `exact` [n]; of equally fast ones the lowest."""
    if len(ids) <= depth and exact.min(initial=1.0) > 0:
        order = ids.argsort()
        return ids[order], exact[order]
    slowest = float(np.partition(exact, -depth)[-depth]) if len(ids) > depth else 0.0
    kept = np.flatnonzero((exact >= slowest) & (exact > 0))
    kept = kept[np.argsort(ids[kept])]
    if len(kept) > depth:  # several are as fast as the slowest one
        equal = exact[kept] == slowest
        kept = kept[~equal | (np.cumsum(equal) <= depth - np.count_nonzero(~equal))]
    return ids[kept], exact[kept]
