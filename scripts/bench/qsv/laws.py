"""The exact law of a token, and the probability of a whole answer, of drafts that are rounded before or after they are
drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.sampling.lattice import quantise

Law = NDArray[np.float64]  # [vocab], sum 1


@dataclass(frozen=True, slots=True, eq=False)
class Drafting:
    """One position: p of the target, what the token is drawn from, and what the verifier takes this for."""

    target: Law
    drawn: Law
    told: Law

    @classmethod
    def exact(cls, target: Law, drafter: Law, resolution: int) -> Drafting:
        """Quantise, then sample."""
        rounded = _rounded(drafter, resolution)
        return cls(target, rounded, rounded)

    @classmethod
    def inexact(cls, target: Law, drafter: Law, resolution: int) -> Drafting:
        """Sample, then quantise."""
        return cls(target, drafter, _rounded(drafter, resolution))

    def accepted(self) -> Law:
        """Probability that each token is drawn and accepted; what is drawn though it is told to be impossible counts
        as nearly so, and is accepted wherever the target allows for it."""
        possible = self.told > 0
        ratio = np.divide(self.target, self.told, out=np.ones_like(self.told), where=possible)
        return self.drawn * np.where(possible, np.minimum(1.0, ratio), self.target > 0)

    def replaced(self) -> Law:
        """Probability that each token takes the place of a rejected one."""
        residual = np.maximum(0.0, self.target - self.told)
        total = float(residual.sum())
        law: Law = (1.0 - self.accepted().sum()) * (residual / total if total else self.target)
        return law

    def law(self) -> Law:
        """The law that a drafted token follows in the end."""
        return self.accepted() + self.replaced()


def probability(tokens: Sequence[int], positions: Sequence[Drafting], length: int) -> float:
    """That an answer is `tokens`, with proposals of `length` tokens and one of the target's own behind each whole one.

    `positions` are those behind the beginnings of `tokens`. State: how many tokens of the round hold so far.
    """
    held = np.zeros(length + 1)
    held[0] = 1.0
    for token, position in zip(tokens, positions, strict=True):
        accepted, replaced = float(position.accepted()[token]), float(position.replaced()[token])
        following = np.zeros_like(held)
        following[1:] = accepted * held[:-1]
        following[0] = replaced * held[:-1].sum() + float(position.target[token]) * held[-1]
        held = following
    return float(held.sum())


def distance(one: Law, other: Law) -> float:
    """Total variation."""
    return 0.5 * float(np.abs(one - other).sum())


def entropy(law: Law) -> float:
    """Nats."""
    positive = law[law > 0]
    return -float((positive * np.log(positive)).sum())


def _rounded(drafter: Law, resolution: int) -> Law:
    law: Law = quantise(drafter, resolution) / resolution
    return law
