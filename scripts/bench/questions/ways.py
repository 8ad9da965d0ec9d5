"""Ways of reading documents that the suite `questions` compares: a line of its table each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EQUAL: Final = {"scorer": "static", "scorer_scale": 0.0}  # weights of the two sides


@dataclass(frozen=True, slots=True)
class Way:
    """A method's name, the fields that its requests have, and what its daemons, both of them, are set to."""

    name: str
    fields: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)


# The first is what the others are compared with.
WAYS: Final[tuple[Way, ...]] = (
    Way("a row per document"),
    Way("device alone", {"sources": "device"}),
    Way("cloud alone", {"sources": "cloud"}),
    Way("all texts in one context", {"method": "fetch-text", "aggregation": "context"}),
    Way("a row per side, read in one go", {"aggregation": "context"}),
    Way("a row per side, of blocks", {"aggregation": "blocks"}),
    Way("a row per side, of blocks, equal weights", {"aggregation": "blocks"}, EQUAL),
)
SHORT: Final[tuple[Way, ...]] = (WAYS[0], WAYS[3])
