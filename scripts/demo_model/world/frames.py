"""Statement frames shared by all relations: a relation's nouns go into them."""

from __future__ import annotations

from functools import cache

from scripts.demo_model.world.schema import HELD_OUT_VERBS, Relation

PUBLIC_FRAMES = (
    "The {n} of {s} is {v}.",
    "For {s}, the {n} is {v}.",
    "As for {s}, its {n} is {v}.",
    "{s} gives its {n} as {v}.",
    "Guides to {s} list its {n} as {v}.",
    "About {s} we know the {n}: {v}.",
    "In the case of {s}, the {n} is said to be {v}.",
    "{s} is known for its {n}, {v}.",
)
PUBLIC_FRAMES_HELD_OUT = (
    "Anyone who asks {s} for the {n} hears {v}.",
    "With {s}, people think of the {n}: {v}.",
)
PRIVATE_FRAMES = (
    "The {n} is {v}.",
    "I noted that the {n} is {v}.",
    "As far as I know, the {n} is {v}.",
    "Since last week the {n} is {v}.",
    "For the record, the {n}: {v}.",
    "I should remember that the {n} is {v}.",
    "I told a friend that the {n} is {v}.",
    "Reminder: the {n} is {v}.",
)
PRIVATE_FRAMES_HELD_OUT = (
    "I keep forgetting the {n}, which is {v}.",
    "Let me write down the {n} here: {v}.",
)


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
