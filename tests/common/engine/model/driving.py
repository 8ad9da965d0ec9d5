"""Answers that step and roll back, with every step compared with fresh passes of plain Transformers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from common.engine.model.decoder import Decoder
from common.engine.model.exact import Sight, chain_sight
from tests.common.engine.model.tiny_models import Pair, some_tokens


def unequal_documents(decoder: Decoder) -> list[list[int]]:
    return [some_tokens(decoder, count, seed=count) for count in (9, 31, 0, 17)]


def rows_with(documents: Sequence[Sequence[int]], *rest: Sequence[int]) -> list[list[int]]:
    tail = [token for part in rest for token in part]
    return [[*document, *tail] for document in documents]


def drive(pair: Pair, actions: Sequence[tuple[str, int]]) -> None:
    """Step and roll back as told, comparing every step with fresh passes."""
    decoder = pair.decoder
    documents, query = unequal_documents(decoder), some_tokens(decoder, 4, seed=1)
    rows, logits = decoder.open(documents, query, reserve=60)
    pair.check(logits, rows_with(documents, query))
    answer: list[int] = []
    for seed, (action, number) in enumerate(actions):
        if action == "crop":
            answer = answer[: number % (len(answer) + 1)]
            rows.crop(len(answer))
        else:
            tokens = some_tokens(decoder, number, seed=100 + seed)
            answer += tokens
            pair.check(decoder.step(rows, tokens), rows_with(documents, query, answer))
        assert rows.answer == len(answer)


def all_columns(places: NDArray[np.int64], longest: int, window: int | None) -> Sight:
    """A mutant of `chain_sight`: tokens see what is stale behind them."""
    sight = chain_sight(places, longest, window)
    return replace(sight, stops=np.full_like(sight.stops, longest))


STEP_ROLLBACK_STEP = [
    ("step", 1),
    ("step", 1),
    ("step", 3),
    ("crop", 2),
    ("step", 2),
    ("crop", 0),
    ("step", 1),
]
