"""Offline measurement of decode steps over growing context (DRAGON §5.2). `common/estimates` fits it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from common.engine.model.decoder import Decoder
from common.engine.model.errors import ContextError
from common.engine.model.packed import Feed

_WARM_UP = 3  # first steps include memory and kernel selection
_AT_ONCE = 64  # tokens per row between two looks at the clock
_DUMMY_TOKEN = 0  # a step's time does not depend on the tokens


@dataclass(frozen=True, slots=True)
class DecodeProfile:
    """Measured decode steps, both arrays `[measurements]`, in order of context."""

    contexts: NDArray[np.int64]  # tokens in every row before the step
    seconds: NDArray[np.float64]


def profile_decode(
    decoder: Decoder,
    rows: int,
    contexts: Sequence[int],
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    reached: Callable[[int], object] = lambda context: None,
    seconds: float = math.inf,
) -> DecodeProfile:
    """As `measuring`, without a pause."""
    steps = measuring(decoder, rows, contexts, repeats, clock, reached, seconds)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            measured: DecodeProfile = done.value
            return measured


def measuring(
    decoder: Decoder,
    rows: int,
    contexts: Sequence[int],
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
    reached: Callable[[int], object] = lambda context: None,
    seconds: float = math.inf,
) -> Generator[None, None, DecodeProfile]:
    """Times `repeats` one-token steps of `rows` dummy documents at every context length.

    `reached` gets each finished length, in tokens. After `seconds`, only one more step follows: a busy or slow machine
    measures less, not longer. Yields between two passes. Closing frees the memory. The document cache stays unchanged.
    Raises `ContextError` if a length doesn't fit the model, `ValueError` for lengths below 1 or not increasing.
    """
    lengths = list(contexts)
    if not lengths or lengths[0] < 1 or any(b <= a for a, b in pairwise(lengths)):
        raise ValueError(f"context lengths must be increasing and at least 1, got {lengths}")
    if rows < 1 or repeats < 1:
        raise ValueError(f"rows and repeats must be at least 1, got {rows} and {repeats}")
    if lengths[-1] >= decoder.max_context:
        raise ContextError(
            f"can't measure at {lengths[-1]} tokens: the model's context has {decoder.max_context}",
            needed=lengths[-1] + 1,
            limit=decoder.max_context,
        )
    # Dummy rows are all query: query tokens never enter the document cache.
    end = clock() + seconds
    first = min(lengths[0], _AT_ONCE)
    held = decoder.take_rows([[]] * rows, [_DUMMY_TOKEN] * first, lengths[-1] - first + 1)

    def timed_step() -> float:
        start = clock()
        # Reading a number waits for a GPU to finish.
        decoder.step(held, [_DUMMY_TOKEN])[0, 0].item()
        taken = clock() - start
        held.crop(held.answer - 1)
        return taken

    measured: list[tuple[int, float]] = []
    try:
        decoder.forward([Feed(held, [_DUMMY_TOKEN] * first)])
        yield
        for _ in range(_WARM_UP):
            if clock() < end:
                timed_step()
                yield
        for length in lengths:
            while length > held.context and clock() < end:
                decoder.step(held, [_DUMMY_TOKEN] * min(length - held.context, _AT_ONCE))
                yield
            measured.append((held.context, timed_step()))
            yield
            while len(measured) % repeats and clock() < end:
                measured.append((held.context, timed_step()))
                yield
            if clock() >= end:
                break
            reached(length)
    finally:
        decoder.memory.give_back(held)
    return DecodeProfile(
        np.array([context for context, _ in measured], dtype=np.int64),
        np.array([seconds for _, seconds in measured], dtype=np.float64),
    )
