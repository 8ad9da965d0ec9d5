"""Streamed models beside resident ones, and the answer that is compared."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from common.answer.values import ROOT
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.model.errors import ModelError
from common.engine.model.files import weight_files
from common.engine.model.packed import Feed
from common.engine.streaming import CHUNK_BYTES, StreamedLayers, Streaming, WeightFiles, aligned
from tests.common.engine.model.tiny_models import DEMO, some_tokens

LAYERS = 10  # of the inflated embedded model
KV = 2**23
TOKENIZER = str(DEMO / "tokenizer")


def budget(folder: Path, layers: int, itemsize: int = 4) -> int:
    """The smallest budget with which that many layers of the inflated model stay, in numbers of `itemsize` bytes."""
    files = WeightFiles(weight_files(folder))
    sizes = {name: aligned((place.last - place.first) * itemsize // 4) for name, place in files.places.items()}
    files.close()
    by_layer = [sum(size for name, size in sizes.items() if f".{layer}." in name) for layer in range(LAYERS)]
    streamed = by_layer[layers:]
    return sum(sizes.values()) + KV - sum(streamed) + (2 * max(streamed) + CHUNK_BYTES if streamed else 0)


def load(folder: Path, budget_bytes: int, dtype: Any = "auto", **options: Any) -> Decoder:
    tokenizer = None if (folder / "tokenizer.json").exists() else TOKENIZER
    wanted = Streaming(budget_bytes, **options)
    return Decoder.load(
        str(folder), tokenizer=tokenizer, dtype=dtype, kv_bytes=KV, document_cache_bytes=0, streaming=wanted
    )


def streamed_of(decoder: Decoder) -> StreamedLayers:
    assert decoder.streamed is not None
    return decoder.streamed


def smallest_budget(folder: Path) -> int:
    with pytest.raises(ModelError, match="smallest is") as caught:
        load(folder, 1)
    return int(str(caught.value).partition("smallest is ")[2].partition(":")[0])


def answer(decoder: Decoder) -> tuple[Rows, list[Tensor]]:
    """Prefill in chunks, steps, a roll-back, a tree of which a path is kept, and steps of two answers together."""
    document, other = some_tokens(decoder, 50, seed=1), some_tokens(decoder, 9, seed=2)
    logits: list[Tensor] = []
    rows = decoder.take_rows([document, other], [7, 8, 9], 40)
    for row, tokens in enumerate((document, other)):
        for start in range(0, len(tokens), 20):
            alone = rows.alone(row)
            alone.fed = start
            logits.append(decoder.forward([Feed(alone, tokens[start : start + 20], 0)]))
        rows.starts[row] = len(tokens)
    logits.append(decoder.forward([Feed(rows, [7, 8, 9])]))
    logits += [decoder.step(rows, [20 + step]) for step in range(3)]
    rows.crop(1)
    logits.append(decoder.forward([Feed(rows, [5, 6, 7, 8], 4, [ROOT, 0, 0, 2])]))
    rows.keep(rows.fed - 4, [0, 2])
    second, _ = decoder.open([[3] * 12], [5], 8)
    logits.append(decoder.forward([Feed(rows, [11]), Feed(second, [12, 13], 2)]))
    decoder.memory.give_back(second)
    return rows, logits


@lru_cache(maxsize=1)
def expected(resident: Decoder) -> list[Tensor]:
    """The logits of `answer`, computed once for tests that compare with the same model in turn."""
    rows, logits = answer(resident)
    resident.memory.give_back(rows)
    return logits


def same(decoder: Decoder, resident: Decoder) -> None:
    rows, logits = answer(decoder)
    assert all(torch.equal(mine, its) for mine, its in zip(logits, expected(resident), strict=True))
    decoder.memory.give_back(rows)
