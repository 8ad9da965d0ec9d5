"""Batches of rows of similar length, as tensors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from scripts.demo_model.rows import Row, RowMaker

POOL = 256
"""Rows that are drawn and sorted by length at a time."""


@dataclass(frozen=True, slots=True)
class Batch:
    """``ids``, ``codes`` and ``positions`` are ``[rows, tokens]``, ``visible`` is ``[rows, 1, tokens,
    tokens]``."""

    ids: torch.Tensor
    codes: torch.Tensor
    positions: torch.Tensor
    visible: torch.Tensor
    tokens: int


def collate(rows: list[Row]) -> Batch:
    """Pad rows. An exchange sees the document and itself, and its positions continue the document's."""
    width = max(len(row.ids) for row in rows)
    ids, codes, parts, positions = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(4))
    for index, row in enumerate(rows):
        length = len(row.ids)
        ids[index, :length] = row.ids
        codes[index, :length] = row.codes
        part = np.asarray(row.parts)
        parts[index, :length] = part
        document = int((part == 0).sum())
        starts = np.searchsorted(part, part)
        positions[index, :length] = np.arange(length) - starts + np.where(part > 0, document, 0)
    part_of = torch.from_numpy(parts)
    visible = (part_of[:, None, :] == 0) | (part_of[:, None, :] == part_of[:, :, None])
    visible &= torch.ones(width, width, dtype=torch.bool).tril()
    tokens = sum(len(row.ids) for row in rows)
    return Batch(torch.from_numpy(ids), torch.from_numpy(codes), torch.from_numpy(positions), visible[:, None], tokens)


def batches(maker: RowMaker, random_: random.Random, budget: int, easy: bool, copies: float) -> Iterator[Batch]:
    """Endless batches of at most ``budget`` padded tokens, or one row; ``copies`` of the rows random repeats."""
    while True:
        rows = [maker.random_copy() if random_.random() < copies else maker.draw(easy) for _ in range(POOL)]
        rows.sort(key=lambda row: len(row.ids))
        groups: list[list[Row]] = [[]]
        for row in rows:
            if groups[-1] and (len(groups[-1]) + 1) * len(row.ids) > budget:
                groups.append([])
            groups[-1].append(row)
        random_.shuffle(groups)
        yield from (collate(group) for group in groups)
