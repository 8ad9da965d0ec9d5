"""Words for how far a model's numbers repeat. Needs no torch."""

from __future__ import annotations

from typing import Final

from proto.fields import Exactness

_MEANING: Final[dict[Exactness, str]] = {
    "bit-exact": "the same bits alone, among neighbours, in chunks, in a tree and from stored keys and values",
    "rounded": "float32 differs in the last bits between passes; probabilities are rounded before they are used",
    "near": "numbers differ between passes, so that a repeated question may get another answer; use float32",
}


def sentence(exactness: Exactness) -> str:
    """One line for people."""
    return f"{exactness}: {_MEANING[exactness]}"
