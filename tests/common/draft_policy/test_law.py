"""The law of one position, enumerated: a decision may read a confidence, and not the drawn token's probability."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from common.draft_policy.policy import ConfidenceAcceptance, Goodput
from common.draft_policy.times import RoundTimes, TokenSizes
from tests.common.draft_policy.rounds_of import outcome

P = (0.5, 0.3, 0.2)  # the verifier's distribution
Q = (0.2, 0.3, 0.5)  # the drafter's


def law(proposes: Callable[[int], bool]) -> list[float]:
    """The law of the position's token if x ~ q is proposed where `proposes(x)`, and the verifier draws it otherwise."""
    found = [0.0, 0.0, 0.0]
    residual = [max(0.0, p - q) for p, q in zip(P, Q, strict=True)]
    for token, (p, q) in enumerate(zip(P, Q, strict=True)):
        accepted = min(1.0, p / q) if proposes(token) else 0.0
        found[token] += q * accepted
        instead = [one / sum(residual) for one in residual] if proposes(token) else P
        for other, share in enumerate(instead):
            found[other] += q * (1.0 - accepted) * share
    return found


def policy() -> Goodput:
    """One that has learnt that positions of 30 % are not worth it, and that those of 50 % are."""
    learnt = Goodput(TokenSizes({None: 2.0}), confidence=ConfidenceAcceptance())
    for _ in range(100):
        learnt.observe(outcome(2, 1, confidences=(0.5, 0.3)))
        learnt.observe(outcome(2, 1, confidences=(0.5, 0.2)))
    learnt.plan([], RoundTimes(draft=0.005, verify=0.032, verify_token=0.009))
    learnt.extension(0.5, 0)
    return learnt


def test_a_confidence_leaves_the_law_as_it_is() -> None:
    proposed = policy().extension(max(Q), 1) != "none"
    assert proposed
    assert law(lambda token: proposed) == pytest.approx(P, abs=1e-12)
    assert law(lambda token: False) == pytest.approx(P, abs=1e-12)


def test_the_drawn_token_s_probability_would_change_it() -> None:
    decisions = [policy().extension(Q[token], 1) != "none" for token in range(3)]
    assert decisions == [False, False, True]
    found = law(lambda token: decisions[token])
    assert sum(found) == pytest.approx(1.0)
    assert found != pytest.approx(P, abs=0.02)
