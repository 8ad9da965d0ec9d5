"""Ways of reading documents that the suite `questions` compares: a row of its table each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

EQUAL: Final = {"scorer": "static", "scorer_scale": 0.0}  # weights of the two sides


@dataclass(frozen=True, slots=True)
class Row:
    """A method's name, the fields that its requests have, and what its daemons, both of them, are set to."""

    name: str
    fields: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)


# The first is what the others are compared with.
ROWS: Final[tuple[Row, ...]] = (
    Row("a row per document"),
    Row("device alone", {"sources": "device"}),
    Row("cloud alone", {"sources": "cloud"}),
    Row("all texts in one context", {"method": "fetch-text", "aggregation": "context"}),
    Row("a row per side, read in one go", {"aggregation": "context"}),
    Row("a row per side, of blocks", {"aggregation": "blocks"}),
    Row("a row per side, of blocks, equal weights", {"aggregation": "blocks"}, EQUAL),
)
SHORT: Final[tuple[Row, ...]] = (ROWS[0], ROWS[3])
