"""The keys that each token of a group sees, as numbers from which a kernel or a mask is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.engine.model.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Sight:
    """The columns that each token sees: those from `lows` on and before `stops`, then some of a tree's."""

    lows: NDArray[np.int64]  # [rows, query]
    stops: NDArray[np.int64]  # [rows, query]
    longest: int  # columns that hold tokens, in the longest row
    bases: NDArray[np.int64]  # [rows]: columns of the tree's first token
    seen: NDArray[np.bool_]  # [query, nodes]: of the tree's tokens; no nodes where there is none

    @property
    def first(self) -> int:
        """The first column that any token sees."""
        return int(self.lows.min())

    @property
    def full(self) -> bool:
        """Whether every token sees all columns from `first` on."""
        return not self.seen.size and bool((self.lows == self.first).all() and (self.stops == self.longest).all())

    @property
    def causal(self) -> bool:
        """Whether the columns are the tokens themselves, each of which sees those before it and itself."""
        rows, query = self.lows.shape
        triangle = np.broadcast_to(np.arange(1, query + 1), (rows, query))
        return (
            not self.seen.size
            and self.longest == query
            and not self.lows.any()
            and bool((self.stops == triangle).all())
        )

    def hidden(self) -> NDArray[np.bool_]:
        """The columns from `first` on that tokens don't see, `[rows, query, columns]`."""
        columns = np.arange(self.first, self.longest)
        hidden: NDArray[np.bool_] = (columns < self.lows[..., None]) | (columns >= self.stops[..., None])
        nodes = self.seen.shape[1]
        for row, base in enumerate(self.bases.tolist() if nodes else ()):
            begin = max(base, self.first)
            hidden[row, :, begin - self.first : base + nodes - self.first] = ~self.seen[:, begin - base :]
        return hidden


def chain_sight(places: NDArray[np.int64], longest: int, window: int | None) -> Sight:
    """The sight of tokens at the columns `places` [rows, query] that look back over `window` tokens or all."""
    stops = places + 1
    lows = np.zeros_like(stops) if window is None else np.maximum(0, stops - window)
    return Sight(lows, stops, longest, places[:, 0], np.zeros((places.shape[1], 0), np.bool_))


def tree_sight(tree: Tree, bases: Sequence[int], query: int, longest: int, window: int | None) -> Sight:
    """The sight of the last `query` tokens of a tree in rows where it begins at the columns `bases`."""
    first = np.asarray(bases)
    stops = np.repeat(first[:, None], query, 1)
    depths, seen = tree.depths[-query:], tree.seen[-query:]
    if window is None:
        return Sight(np.zeros_like(stops), stops, longest, first, seen)
    lows = np.clip(stops + depths + 1 - window, 0, stops)
    return Sight(lows, stops, longest, first, seen & (tree.depths > depths[:, None] - window))
