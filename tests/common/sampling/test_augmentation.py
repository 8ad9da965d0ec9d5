"""The verifier's distribution moved towards the drafter's, and the exact law of a token by either residual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.sampling.compiled import Draws
from common.sampling.rejection import LEAST, accepts, augmented, likeliest, paper_replacement, propose, replacement
from common.sampling.truncation import Distribution, renormalised
from tests.support.enumeration import EXACT, law_of

VOCABULARY = 6
P, Q = np.asarray([0.5, 0.3, 0.2]), np.asarray([0.2, 0.3, 0.5])
GOLDEN = {  # eta: p̂, and the law of the paper's residual
    2.0: ((0.292285, 0.319547, 0.388168), (0.311832, 0.300000, 0.388168)),
    5.0: ((0.085301, 0.229375, 0.685324), (0.243656, 0.256344, 0.500000)),
}
WEIGHTS = st.lists(st.floats(0.0, 1.0), min_size=VOCABULARY, max_size=VOCABULARY).filter(lambda each: sum(each) > 0.01)
STRENGTHS = st.floats(0.0, 1000.0)


def whole(weights: NDArray[np.float64] | list[float]) -> Distribution:
    return renormalised(np.arange(len(weights)), np.asarray(weights, np.float64))


def law(p: Distribution, q: Distribution, eta: float, paper: bool) -> NDArray[np.float64]:
    """Of one token that is proposed by q and decided by p̂."""
    target = augmented(p, q, eta)

    def token(draws: Draws) -> int:
        drafted = propose(q, draws)
        if accepts(drafted, q.of(drafted), target, draws):
            return drafted
        return paper_replacement(p, target, q, draws) if paper else replacement(target, q, draws)

    found = law_of(token)
    return np.asarray([found.get(each, 0.0) for each in range(VOCABULARY)])


def reference(p: NDArray[np.float64], q: NDArray[np.float64], eta: float) -> NDArray[np.float64]:
    """Eq. 6 with logits, as the authors' program has it."""
    with np.errstate(divide="ignore"):
        logits = np.log(p) + np.where(q >= LEAST * q.max(), eta * (q - p), 0.0)
    weights = np.exp(logits - logits.max())
    shown: NDArray[np.float64] = weights / weights.sum()
    return shown


@pytest.mark.parametrize("eta", GOLDEN)
def test_golden(eta: float) -> None:
    p, q = whole(P), whole(Q)
    target, paper = GOLDEN[eta]
    assert augmented(p, q, eta).probabilities == pytest.approx(target, abs=1e-6)
    assert law(p, q, eta, paper=False)[:3] == pytest.approx(target, abs=1e-6)
    assert law(p, q, eta, paper=True)[:3] == pytest.approx(paper, abs=1e-6)


@given(WEIGHTS, WEIGHTS, STRENGTHS)
def test_is_the_softmax_of_the_shifted_logits(p: list[float], q: list[float], eta: float) -> None:
    found = augmented(whole(p), whole(q), eta)
    expected = reference(whole(p).at(np.arange(VOCABULARY)), whole(q).at(np.arange(VOCABULARY)), eta)
    assert found.at(np.arange(VOCABULARY)) == pytest.approx(expected, abs=1e-9)
    assert found.probabilities.sum() == pytest.approx(1.0, abs=EXACT)


@given(WEIGHTS, WEIGHTS, STRENGTHS)
def test_the_law_is_that_of_the_target(p: list[float], q: list[float], eta: float) -> None:
    target = augmented(whole(p), whole(q), eta).at(np.arange(VOCABULARY))
    assert np.abs(law(whole(p), whole(q), eta, paper=False) - target).max() < EXACT


def test_the_papers_residual_follows_neither() -> None:
    p, q = whole(P), whole(Q)
    found = law(p, q, 2.0, paper=True)[:3]
    assert np.abs(found - P).sum() > 0.3
    assert np.abs(found - augmented(p, q, 2.0).probabilities).sum() > 0.03


@given(WEIGHTS, WEIGHTS)
def test_without_strength_nothing_changes(p: list[float], q: list[float]) -> None:
    verifier = whole(p)
    assert augmented(verifier, whole(q), 0.0) is verifier


def test_only_what_the_drafter_trusts_moves() -> None:
    p = whole([0.4, 0.3, 0.2, 0.1])
    q = whole([0.0, 0.9, 0.05, 0.05])
    found = augmented(p, q, 3.0)
    assert found.probabilities[[0, 2, 3]] / found.probabilities[0] == pytest.approx([1.0, 0.5, 0.25])
    assert found.of(1) > p.of(1)


def test_what_the_verifier_has_cut_stays_away() -> None:
    p, q = Distribution(np.asarray([1, 4]), np.asarray([0.5, 0.5])), whole([0.2, 0.2, 0.2, 0.2, 0.1, 0.1])
    assert augmented(p, q, 50.0).ids.tolist() == [1, 4]


@pytest.mark.parametrize("change", [likeliest, lambda each: augmented(each, whole(Q), 1000.0)])
def test_stays_a_distribution(change: Callable[[Distribution], Distribution]) -> None:
    found = change(whole([1e-300, 0.5, 0.5]))
    assert found.probabilities.sum() == pytest.approx(1.0)
    assert (found.probabilities > 0).all()


def test_the_lowest_of_equals() -> None:
    assert likeliest(whole([0.2, 0.4, 0.4])).ids.tolist() == [1]
