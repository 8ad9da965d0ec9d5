"""Sizes of the suite `rapid`."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of questions and lengths, in tokens."""

    contexts: tuple[int, ...]  # of the model with random weights
    retrieved: tuple[int, ...]  # that its drafter reads
    tokens: int  # of an answer
    drafted: tuple[int, ...]  # of a proposal
    needles: tuple[tuple[int, float], ...]  # documents with a needle: length, and the share of it before the needle
    related: int  # of such a document that the drafter reads
    answer: int  # tokens
    etas: tuple[float, ...]
    seed: int = 21


DEFAULT = Sizes(
    contexts=(1024, 4096, 16_384),
    retrieved=(256, 1024),
    tokens=32,
    drafted=(4, 10),
    needles=((1024, 0.2), (1024, 0.8), (3072, 0.5)),
    related=256,
    answer=16,
    etas=(0.0, 5.0, 10.0, 20.0, 40.0),
)
LONG = replace(
    DEFAULT,
    retrieved=(256, 1024, 4096),
    tokens=128,
    needles=tuple(
        (tokens, depth) for tokens in (1024, 4096, 7680) for depth in (0.1, 0.3, 0.5, 0.7, 0.9) for _ in range(4)
    ),
    answer=32,
)
SHORT = replace(
    DEFAULT, contexts=(128,), retrieved=(32,), tokens=8, drafted=(3,), needles=((256, 0.5),), related=64, answer=6
)
