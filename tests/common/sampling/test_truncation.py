"""Truncation of a distribution by the paper's sampler."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from common.methods.paper.sampler import truncate
from common.sampling.truncation import renormalised
from proto.codes import TopPEntries, decode_top_p, encode_top_p


class TestTruncate:
    def test_keeps_the_token_that_crosses(self) -> None:
        ids, weights = truncate(torch.tensor([0.1, 0.5, 0.15, 0.25]), 0.7)
        assert ids.tolist() == [1, 3]
        assert weights.tolist() == [0.5, 0.25]

    @given(st.integers(1, 3_000), st.floats(0.01, 1.0), st.floats(0.0, 4.0), st.integers(0, 1_000))
    def test_holds_enough_and_not_more(self, size: int, top_p: float, spread: float, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        probabilities = torch.softmax(spread * torch.randn(size, generator=generator), -1)
        ids, _ = truncate(probabilities, top_p)
        kept = probabilities.double()[torch.from_numpy(ids.astype(np.int64))]
        assert kept.sum() >= top_p - 1e-5
        assert kept.sum() - kept.min() < top_p
        assert (np.diff(ids.astype(int)) > 0).all()
        others = probabilities.clone()
        others[torch.from_numpy(ids.astype(np.int64))] = 0.0
        assert others.max() <= kept.min()

    def test_large_vocabulary_and_ids(self) -> None:
        """Ids beyond 62,767 were corrupted by the published program."""
        ids, weights = truncate(torch.full((151_936,), 1 / 151_936), 0.9)
        assert abs(len(ids) - 0.9 * 151_936) < 100
        peaked = torch.zeros(151_936)
        peaked[151_935] = 1.0
        ids, weights = truncate(peaked, 1.0)
        assert ids.tolist() == [151_935]
        assert weights.tolist() == [1.0]

    def test_what_rounds_to_zero_is_not_kept(self) -> None:
        ids, weights = truncate(torch.tensor([1.0 - 2e-8, 1e-8, 1e-8]), 1.0)
        assert ids.tolist() == [0]
        assert (weights > 0).all()


class TestRenormalised:
    def test_is_the_same_after_the_wire(self) -> None:
        probabilities = torch.softmax(torch.randn(5_000, generator=torch.Generator().manual_seed(1)), -1)
        ids, weights = truncate(probabilities, 0.8)
        told = decode_top_p(encode_top_p(TopPEntries(ids, weights, 0)), 5_000)
        here, there = renormalised(ids, weights), renormalised(told.ids, told.weights)
        assert np.array_equal(here.ids, there.ids)
        assert np.array_equal(here.probabilities, there.probabilities)
        assert here.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert len(here.ids) > 1_000

    def test_lookup(self) -> None:
        some = renormalised(np.array([2, 5, 9]), np.array([1.0, 2.0, 1.0]))
        assert some.at(np.arange(11)).tolist() == [0, 0, 0.25, 0, 0, 0.5, 0, 0, 0, 0.25, 0]
        assert [some.of(token) for token in (0, 2, 5, 6, 9, 10)] == [0, 0.25, 0.5, 0, 0.25, 0]

    def test_refuses_nothing(self) -> None:
        with pytest.raises(ValueError, match="positive"):
            renormalised(np.array([1]), np.array([0.0]))
