"""Statement frames shared by all relations: a relation's nouns go into them."""

from __future__ import annotations

from functools import cache

from scripts.demo_model.world.relations import (
    PRIVATE_FRAMES,
    PRIVATE_FRAMES_HELD_OUT,
    PUBLIC_FRAMES,
    PUBLIC_FRAMES_HELD_OUT,
)
from scripts.demo_model.world.schema import HELD_OUT_VERBS, Relation


@cache
def statements(relation: Relation, held_out: bool) -> tuple[str, ...]:
    """The statement templates of a relation: those of training, or those kept for the test of unseen ones."""
    public = "{s}" in relation.verbs[0]
    frames: tuple[str, ...]
    if held_out:
        frames = PUBLIC_FRAMES_HELD_OUT if public else PRIVATE_FRAMES_HELD_OUT
        verbs = relation.verbs[-HELD_OUT_VERBS:]
    else:
        frames = PUBLIC_FRAMES if public else PRIVATE_FRAMES
        verbs = relation.verbs[:-HELD_OUT_VERBS]
    return verbs + tuple(frame.replace("{n}", noun) for frame in frames for noun in relation.nouns)


def canonical(relation: Relation) -> str:
    """The statement in the words of the answer: "Your bike is made by" becomes "My bike is made by"."""
    words = relation.answer.split()
    first = {"Your": "My", "your": "my", "You": "I", "you": "I"}
    text = " ".join(first.get(word, word) for word in words)
    return text + "."
