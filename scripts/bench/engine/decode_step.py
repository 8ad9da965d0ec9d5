"""The decode step over slab caches against a plain Transformers forward pass over a preallocated `StaticCache`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, StaticCache

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.model.decoder import Decoder, cache_keyword
from scripts.bench.engine.plan import Plan
from scripts.bench.rows import Row

AIM = 1.3


# One-token steps of rows this long, both ways in turn.
FULL = Plan(lengths=((300, 300, 300, 300), (300, 280, 250, 220)), tokens=24, rounds=4, seed=3)
SHORT = replace(FULL, lengths=((24, 20),), tokens=4, rounds=1)


class Plain:
    """The fastest way to step that Transformers has without compiling: nothing grows, neither cache nor mask.

    Rows are padded on the left; `room` is for how many steps the cache has places.
    """

    def __init__(self, model: PreTrainedModel, rows: Sequence[Sequence[int]], room: int) -> None:
        self._model: Any = model
        longest = max(map(len, rows))
        tokens = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows])
        self._mask = torch.ones(len(rows), longest + room, dtype=torch.int64)
        for row, padded in zip(rows, self._mask, strict=True):
            padded[: longest - len(row)] = 0
        self._cache = {cache_keyword(model): StaticCache(config=model.config, max_cache_len=longest + room)}
        self._positions = self._mask.cumsum(-1) - 1
        self._length = 0
        self._feed(tokens)

    def step(self, token: int) -> torch.Tensor:
        """Logits `[rows, vocab]`."""
        return self._feed(torch.full((len(self._mask), 1), token))

    @torch.inference_mode()
    def _feed(self, tokens: torch.Tensor) -> torch.Tensor:
        end = self._length + tokens.shape[1]
        output = self._model(
            input_ids=tokens,
            attention_mask=self._mask[:, :end],
            position_ids=self._positions[:, self._length : end].clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
            **self._cache,
        )
        self._length = end
        logits: torch.Tensor = output.logits
        return logits[:, -1].float()


def measure(plan: Plan) -> Iterator[Row]:
    """Milliseconds of processor time of each step, taken both ways, one after the other, and how far logits differ."""
    decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), threads=1)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(EMBEDDED_MODEL, dtype=decoder.dtype).eval()
    for lengths in plan.lengths:
        yield from _steps(plan, decoder, model, lengths)


def _steps(plan: Plan, decoder: Decoder, model: PreTrainedModel, lengths: tuple[int, ...]) -> Iterator[Row]:
    generator = torch.Generator().manual_seed(plan.seed)
    query = torch.randint(decoder.vocabulary, (12,), generator=generator).tolist()
    documents = [
        torch.randint(decoder.vocabulary, (length - len(query),), generator=generator).tolist() for length in lengths
    ]
    fed = torch.randint(decoder.vocabulary, (plan.tokens,), generator=generator).tolist()
    for _ in range(plan.rounds):
        rows, _first = decoder.open(documents, query, plan.tokens + 1)
        other = Plain(model, [document + query for document in documents], plan.tokens)
        for number, token in enumerate(fed):
            started = time.thread_time()
            ours = decoder.step(rows, [token])
            middle = time.thread_time()
            theirs = other.step(token)
            slab, plain = 1e3 * (middle - started), 1e3 * (time.thread_time() - middle)
            difference = float((ours - theirs[:, : decoder.vocabulary]).abs().max())
            if number:  # the first step of either touches fresh memory
                setting = {"lengths": "/".join(map(str, lengths)), "slab": slab, "plain": plain}
                yield setting | {"ratio": slab / plain, "difference": difference}
