"""Trees of tokens behind what a row holds: alternatives that one pass reads together (EdgeLLM §III-B, SpecInfer).

A token's column in KV memory is the row's base plus its place in the tree, its position the base plus its depth. It
sees what lies before the base, its ancestors and itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.answer.values import ROOT


@dataclass(frozen=True, slots=True)
class Tree:
    """Depths of a tree's tokens `[nodes]`, 0 for children of the root, and which of its tokens each sees `[nodes,
    nodes]`.
    """

    depths: NDArray[np.int64]
    seen: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.depths)


def tree_of(parents: Sequence[int]) -> Tree | None:
    """The tree in which token i follows token `parents[i]`, or the `ROOT`; None for a chain.

    Raises `ValueError` for a token before its parent.
    """
    if all(parent == place - 1 for place, parent in enumerate(parents)):
        return None
    nodes = len(parents)
    depths, seen = np.zeros(nodes, np.int64), np.eye(nodes, dtype=np.bool_)
    for place, parent in enumerate(parents):
        if not ROOT <= parent < place:
            raise ValueError(f"token {place} of a tree can't follow token {parent}: parents come before children")
        if parent != ROOT:
            depths[place] = depths[parent] + 1
            seen[place] |= seen[parent]
    return Tree(depths, seen)
