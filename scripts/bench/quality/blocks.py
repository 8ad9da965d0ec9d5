"""One pass over documents that share a row as blocks, each read by itself (`common/engine/sequences.py`: `Blocks`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class BlockPass:
    """Tokens `[n]` with their positions and the tokens that each of them sees, `[n, n]`."""

    tokens: Tensor
    positions: Tensor
    sees: Tensor

    @property
    def mask(self) -> Tensor:
        """Additive mask of the attention scores, `[1, 1, n, n]`."""
        return torch.zeros(self.sees.shape).masked_fill(~self.sees, float("-inf"))[None, None]


def block_pass(documents: Sequence[Sequence[int]], query: Sequence[int], begin: int, again: float = 0.0) -> BlockPass:
    """The pass over `[begin][documents][query]`. Every document is read behind a `begin` of its own, which stands just
    before it; of all but the first, the share `again` of its first tokens is read once more behind all that stands
    before (as EPIC does, Hu et al. 2024), and what follows sees these instead.
    """
    tokens, positions = list[int](), list[int]()
    of, told = list[int](), list[bool]()  # the document that a token belongs to; whether what follows sees it
    end = 1
    for number, document in enumerate(documents):
        refreshed = round(again * len(document)) if number else 0
        tokens += [begin, *document]
        positions += range(end - 1, end + len(document))
        of += [number] * (len(document) + 1)
        told += [number == 0, *(place >= refreshed for place in range(len(document)))]
        end += len(document)
    seeing = [False] * len(tokens)  # whether a token sees other documents
    end = 1
    for number, document in enumerate(documents):
        refreshed = round(again * len(document)) if number else 0
        tokens += document[:refreshed]
        positions += range(end, end + refreshed)
        of += [number] * refreshed
        end += len(document)
    tokens += query
    positions += range(end, end + len(query))
    of += [len(documents)] * len(query)
    told += [True] * (len(tokens) - len(told))
    seeing += [True] * (len(tokens) - len(seeing))
    place, whose = torch.tensor(positions), torch.tensor(of)
    behind = place[:, None] >= place[None]
    alone = (whose[:, None] == whose[None]) & ~torch.tensor(seeing)[None] & ~torch.tensor(seeing)[:, None]
    together = torch.tensor(seeing)[:, None] & torch.tensor(told)[None]
    return BlockPass(torch.tensor(tokens), place, behind & (alone | together))
