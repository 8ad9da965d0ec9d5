"""The part of a tree that holds, given the tokens that the verifier drew behind its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common.answer.values import ROOT
from common.methods.trees.machine.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Match:
    """Outcome of a verification."""

    nodes: tuple[int, ...]  # that hold, from the root
    token: int | None  # that follows them; None behind an end of the sequence
    whole: int  # N_all: the length of the branch that matched longest, the longest of several

    @property
    def correct(self) -> int:
        """N_correct: tokens of that branch that hold."""
        return len(self.nodes)


def match(tree: DraftTree, drawn: Mapping[int, int]) -> Match:
    """Descend from the root while the token that was drawn behind a node is one of its children.

    `drawn` has the token behind the ROOT and behind every node but ends of the sequence. Each was drawn from the
    verifier's distribution there, without regard to the tree: so the outcome follows it, whatever was drafted.
    """
    node, token = ROOT, drawn[ROOT]
    nodes: list[int] = []
    while (child := tree.child(node, token)) is not None:
        nodes.append(child)
        if tree.ends(child):
            return Match(tuple(nodes), None, tree.reach(child))
        node, token = child, drawn[child]
    return Match(tuple(nodes), token, tree.reach(node))
