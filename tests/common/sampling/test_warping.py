"""Distributions after temperature, top-k and top-p: the same bits as those of a whole vocabulary in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from common.sampling.rejection import Warp
from common.sampling.truncation import Distribution, nucleus_places, renormalised
from tests.common.sampling.mixtures import MASSES, SIZES, mixture, sorted_nucleus


def literal(warp: Warp, before: torch.Tensor) -> Distribution:
    """The definition, with every token sorted."""
    probabilities = before.double().numpy()
    order = np.argsort(-probabilities, kind="stable")
    ids = np.sort(order[: warp.top_k or None])
    weights = probabilities[ids]
    if warp.temperature != 1:
        weights = (weights / weights.max()) ** (1.0 / warp.temperature)
    found = renormalised(ids, weights)
    if warp.top_p == 1:
        return found
    kept = sorted_nucleus(found.probabilities, warp.top_p)
    return renormalised(found.ids[kept], found.probabilities[kept])


@given(st.integers(0, 2**32), SIZES, st.integers(0, 4), MASSES, st.integers(0, 70), st.sampled_from([0.3, 1.0, 1.7]))
@example(1, 49_152, 0, 0.9, 0, 1.0)
@example(2, 151_936, 1, 0.9, 0, 0.7)
@example(3, 151_936, 2, 0.5, 0, 1.0)
@example(4, 151_936, 3, 0.999, 50, 1.7)
def test_it_is_its_definition(seed: int, size: int, kind: int, top_p: float, top_k: int, temperature: float) -> None:
    before, warp = mixture(seed, size, kind), Warp(temperature, top_k, top_p)
    found, expected = warp(before), literal(warp, before)
    assert np.array_equal(found.ids, expected.ids)
    assert found.probabilities.tobytes() == expected.probabilities.tobytes()


@given(st.integers(0, 2**32), SIZES, st.integers(0, 4), MASSES)
def test_a_nucleus_is_that_of_a_sorted_vocabulary(seed: int, size: int, kind: int, top_p: float) -> None:
    """All are kept if their sum is a little less than `top_p`."""
    probabilities = mixture(seed, size, kind).double().numpy()
    assert nucleus_places(probabilities, top_p).tolist() == sorted_nucleus(probabilities, top_p).tolist()


def test_few_of_a_large_vocabulary_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_ones, sort = list[int](), np.sort

    def counted(numbers: np.ndarray) -> np.ndarray:
        sorted_ones.append(len(numbers))
        return sort(numbers)

    monkeypatch.setattr(np, "sort", counted)
    logits = 6 * torch.randn(50_000, generator=torch.Generator().manual_seed(2))
    assert len(Warp(1.0, 0, 0.9)(torch.softmax(logits, 0)).ids) < 64
    assert sorted_ones == [64]


@pytest.mark.parametrize("top_p", [0.5, 1.0])
@pytest.mark.parametrize("numbers", [[0.0, 0.0], [torch.nan, torch.nan], [torch.inf, 0.5], [torch.nan]])
def test_refuses_what_is_no_distribution(numbers: list[float], top_p: float) -> None:
    with pytest.raises(ValueError, match="positive probability"), np.errstate(invalid="ignore"):
        Warp(0.5, 0, top_p)(torch.tensor(numbers))
