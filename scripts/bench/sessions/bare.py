"""The bare model's batch curve: plain Transformers forward passes, which is what any server of it starts from."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from scripts.bench.engine.decode_step import Plain

WARM = 2  # passes before those that count: the first ones touch fresh memory


class BareBatch:
    """A model in float32, with `rows` rows of `prompt` tokens in one preallocated cache.

    The cache has places for `room` tokens more, and every pass reads all of its columns, whatever they hold.
    """

    def __init__(self, model: Path, rows: int, prompt: int, room: int) -> None:
        maker: Any = AutoModelForCausalLM
        self._model = maker.from_pretrained(model, dtype=torch.float32).eval()
        self.parameters: int = self._model.num_parameters()
        generator = torch.Generator().manual_seed(rows)
        vocabulary = self._model.config.vocab_size
        self._rows = torch.randint(2, vocabulary, (rows, prompt), generator=generator).tolist()
        self._room = room
        self._left = 0
        self._plain: Plain | None = None

    def seconds(self, passes: int) -> float:
        """Seconds of a pass, the mean of `passes` of them; they must fit into the room with two more."""
        if WARM + passes > self._room:
            raise ValueError(f"there is room for {self._room} passes, not for {WARM + passes}")
        if self._plain is None or self._left < WARM + passes:
            self._plain, self._left = Plain(self._model, self._rows, self._room), self._room
        self._left -= WARM + passes
        for token in range(2, 2 + WARM):
            self._plain.step(token)
        started = time.perf_counter()
        for token in range(2, 2 + passes):
            self._plain.step(token)
        return (time.perf_counter() - started) / passes
