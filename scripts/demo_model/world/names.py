"""Values: invented names of two tokens, and words of short closed lists."""

from __future__ import annotations

import random
import zlib

from scripts.demo_model.world.relations import CLOSED, NAME, PREFIXES, SUFFIXES

UNKNOWN = "unknown"
"""Said by an answer where a document does not hold the value."""


def held_out(name: str) -> bool:
    """Whether a name is kept for evaluation: one in ten, by a hash of the name."""
    return zlib.crc32(name.encode()) % 10 == 0


class Names:
    """Draws values; ``test`` draws held-out names only, otherwise they never occur.

    ``long_share`` is the share of names with a third piece: they teach copying of longer values.
    """

    def __init__(self, random_: random.Random, test: bool = False, long_share: float = 0.0) -> None:
        self._random = random_
        self._test = test
        self._long_share = long_share

    def name(self) -> str:
        """An invented name."""
        while True:
            name = self._random.choice(PREFIXES) + self._random.choice(SUFFIXES)
            if self._random.random() < self._long_share:
                name += self._random.choice(SUFFIXES)
            if held_out(name) == self._test:
                return name

    def value(self, kind: str) -> str:
        """A value of a type: ``name`` or one of the closed lists."""
        return self.name() if kind == NAME else self._random.choice(CLOSED[kind])
