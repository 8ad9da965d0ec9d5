"""Adjusted sides mix to the adjusted mixture, and what is cut off is cut off."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.processors.processor import Adjustment, _kept_by_accelerator, _kept_by_processor, adjust
from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.rejection import Warp
from tests.common.sampling.mixtures import MASSES, SIZES, sorted_nucleus
from tests.common.sampling.mixtures import mixture as various

VOCABULARY = 24


def mixture(seed: int, spread: float) -> torch.Tensor:
    logits = np.random.default_rng(seed).normal(scale=spread, size=VOCABULARY)
    return torch.softmax(torch.from_numpy(logits), dim=0).to(torch.float32)


def alone(weights: torch.Tensor, ids: np.ndarray) -> torch.Tensor:
    """Weights [vocab] of the tokens `ids` only, renormalised."""
    others = torch.ones(len(weights), dtype=torch.bool)
    others[ids] = False
    left = weights.masked_fill(others, 0.0)
    return left / left.sum()


def adjustment(biases: dict[int, float], allowed: torch.Tensor | None = None, top_p: float = 1.0) -> Adjustment:
    ids = np.fromiter(biases.keys(), np.int64)
    return Adjustment(ids, np.fromiter(biases.values(), np.float64), allowed, top_p)


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.3, 1.0, 1.8]),
    st.integers(0, VOCABULARY),
    st.sampled_from([0.05, 0.5, 0.9, 1.0]),
)
def test_a_cut_leaves_what_the_warp_keeps(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    """Their probabilities are those before the temperature, which the race counts by itself."""
    warp, before = Warp(temperature, top_k, top_p), mixture(seed, 2.0)
    nothing = adjustment({})
    found, gained = adjust(before, replace(nothing, cut=warp))
    ids = warp(before).ids
    assert found.nonzero()[:, 0].tolist() == ids.tolist()
    assert gained == pytest.approx(0.0, abs=1e-6)
    assert found[ids].tolist() == pytest.approx((before[ids] / before[ids].sum()).tolist(), rel=1e-5)


class TestTheLaw:
    @given(
        st.integers(0, 2**32),
        st.floats(0.1, 5.0),
        st.floats(-4.0, 4.0),
        st.dictionaries(st.integers(0, VOCABULARY - 1), st.floats(-8.0, 8.0), max_size=VOCABULARY),
        st.sets(st.integers(0, VOCABULARY - 1), min_size=1),
    )
    @example(322707, 3.5, 3.640625, {}, {0, 10, 19})
    @settings(max_examples=200, deadline=None)
    def test_both_sides_adjusted_by_themselves_are_the_adjusted_mixture_of_both(
        self, seed: int, spread: float, evidence: float, biases: dict[int, float], kept: set[int]
    ) -> None:
        sides = mixture(seed, spread), mixture(seed + 1, spread)
        allowed = torch.zeros(VOCABULARY, dtype=torch.bool)
        allowed[list(kept)] = True
        each = [adjust(side, adjustment(biases, allowed)) for side in sides]

        eta = eta_fixed(evidence, 0.0) / WHOLE
        both = (eta * sides[0] + (1 - eta) * sides[1]).double().numpy()
        factors = np.exp([biases.get(token, -0.0) for token in range(VOCABULARY)]) * allowed.numpy()
        wanted = both * factors / (both * factors).sum()

        adjusted_eta = eta_fixed(evidence + each[0][1], each[1][1]) / WHOLE
        found = (adjusted_eta * each[0][0] + (1 - adjusted_eta) * each[1][0]).double().numpy()
        # eta is rounded to 1/WHOLE, before and after. Where one side has nearly all weight, and the other nearly all
        # that is allowed, its error before counts up to 1 / (4 eta (1 - eta)) times as much afterwards.
        assert np.abs(found - wanted).max() < (2 + 1 / (8 * eta * (1 - eta))) / WHOLE

    def test_a_side_that_has_no_use_for_the_bias_loses_weight_by_it(self) -> None:
        believes, doubts = torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9])
        gained = [adjust(side, adjustment({0: 3.0}))[1] for side in (believes, doubts)]
        assert gained[0] == pytest.approx(math.log(0.9 * math.e**3 + 0.1))
        assert gained[0] > gained[1] + 1

    def test_the_highest_bias_wins_over_everything_and_the_lowest_over_nothing(self) -> None:
        side = torch.tensor([1e-30, 0.4, 0.6])
        forced, _ = adjust(side, adjustment({0: 100.0}))
        banned, _ = adjust(side, adjustment({2: -100.0}))
        assert forced[0] > 0.999
        assert banned[2] < 1e-40 and banned[1] == pytest.approx(1.0)

    def test_the_only_allowed_tokens_may_have_underflowed(self) -> None:
        side = torch.tensor([1.0, 0.0, 0.0])
        adjusted, gained = adjust(side, adjustment({}, torch.tensor([False, True, True])))
        assert adjusted.tolist() == [0.0, 0.5, 0.5]
        assert gained == pytest.approx(math.log(2 * 2.0**-126))

    def test_nothing_allowed_is_an_error_and_not_a_division_by_zero(self) -> None:
        with pytest.raises(ValueError, match="allow no next token"):
            adjust(torch.tensor([0.5, 0.5]), adjustment({}, torch.tensor([False, False])))

    def test_the_mixture_itself_stays_as_it_was(self) -> None:
        side = torch.tensor([0.5, 0.5], dtype=torch.float64)
        adjust(side, adjustment({0: 1.0}))
        assert side.tolist() == [0.5, 0.5]


class TestTruncation:
    @given(st.integers(0, 2**32), st.floats(0.1, 5.0), st.floats(0.01, 0.999))
    @settings(max_examples=200, deadline=None)
    def test_the_fewest_tokens_that_hold_the_mass_are_kept(self, seed: int, spread: float, top_p: float) -> None:
        side = mixture(seed, spread)
        cut, gained = adjust(side, adjustment({}, top_p=top_p))
        kept = side[cut > 0].double()
        assert gained == pytest.approx(0.0, abs=1e-6)  # truncation is no evidence
        assert kept.sum() >= top_p - 1e-6
        assert kept.sum() - kept.min() < top_p + 1e-6
        assert float(cut.sum()) == pytest.approx(1.0, abs=1e-6)
        ratios = cut[cut > 0].double() / kept
        assert float(ratios.max() - ratios.min()) < 1e-5  # proportions stay

    def test_of_equal_tokens_at_the_edge_the_lowest_ids_stay(self) -> None:
        cut, _ = adjust(torch.full((4,), 0.25), adjustment({}, top_p=0.5))
        assert cut.tolist() == [0.5, 0.5, 0.0, 0.0]

    @pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.9999])
    @pytest.mark.parametrize("spread", [0.0, 0.2, 6.0])
    def test_a_large_vocabulary_with_ties_is_cut_as_a_sorted_one(self, spread: float, top_p: float) -> None:
        ranks = np.random.default_rng(4).integers(0, 40, 5000)  # few different probabilities
        side = torch.softmax(torch.from_numpy(spread * ranks / 10.0), 0).float()
        ordered, ids = torch.sort(side.double() / side.double().sum(), descending=True, stable=True)
        expected = ids[ordered.cumsum(0) - ordered < top_p].tolist()
        cut, _ = adjust(side, adjustment({}, top_p=top_p))
        found = set(cut.nonzero().flatten().tolist())
        assert len(found ^ set(expected)) <= 1  # sums in another order may cut at the next token

    @given(st.integers(0, 2**32), SIZES, st.integers(0, 4), MASSES, st.sampled_from([None, Warp(0.7, 5, 0.8)]))
    @example(1, 49_152, 0, 0.9, None)
    @example(2, 151_936, 1, 0.9, None)
    @example(3, 151_936, 2, 0.3, Warp(1.0, 0, 0.9))
    def test_it_has_the_bits_of_a_sorted_vocabulary(
        self, seed: int, size: int, kind: int, top_p: float, cut: Warp | None
    ) -> None:
        side = various(seed, size, kind)
        weights = side.double() / float(side.double().sum())
        if top_p < 1:
            weights = alone(weights, sorted_nucleus(weights.numpy(), top_p))
        if cut is not None:
            weights = alone(weights, cut(weights.float()).ids)
        found, gained = adjust(side, replace(adjustment({}, top_p=top_p), cut=cut))
        assert found.numpy().tobytes() == weights.float().numpy().tobytes()
        assert gained == math.log(float(side.double().sum()))

    @given(st.integers(0, 2**32), SIZES, st.integers(0, 4), MASSES)
    def test_an_accelerator_keeps_the_tokens_that_a_processor_does(
        self, seed: int, size: int, kind: int, top_p: float
    ) -> None:
        weights = various(seed, size, kind).double()
        found = [kept(weights, top_p).sort().values.tolist() for kept in (_kept_by_processor, _kept_by_accelerator)]
        assert found[0] == found[1]

    def test_biases_count_before_it(self) -> None:
        cut, _ = adjust(torch.tensor([0.6, 0.4]), adjustment({0: -5.0}, top_p=0.5))
        assert cut.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("penalty", [-2.0, 2.0])
@pytest.mark.parametrize("alone", [True, False])
def test_penalties_of_a_long_answer_are_no_larger_than_numbers(penalty: float, alone: bool) -> None:
    """A token that an answer has a thousand times, with all others or as the only one that a format allows."""
    before, bias = mixture(5, 1.0), -1000 * penalty
    allowed = torch.zeros(VOCABULARY, dtype=torch.bool)
    allowed[3] = True
    found, gained = adjust(before, adjustment({3: bias}, allowed if alone else None))
    if alone or bias > 0:
        assert found[3] == 1.0 and gained == pytest.approx(bias + math.log(before[3]), rel=1e-6)
    else:
        rest = before.double()
        rest[3] = 0.0
        assert found.tolist() == pytest.approx((rest / rest.sum()).tolist(), rel=1e-6)
        assert gained == pytest.approx(math.log(rest.sum()), abs=1e-6)


@pytest.mark.parametrize("bias", [-600.0, -700.0, -740.0, -744.0, -745.0, -800.0])
def test_a_common_bias_changes_nothing_but_the_evidence(bias: float) -> None:
    """Factors near the smallest numbers have few digits left, or one."""
    before = torch.tensor([0.7, 0.2, 0.1])
    allowed = torch.tensor([True, True, False])
    found, gained = adjust(before, adjustment({0: bias, 1: bias}, allowed))
    assert found.tolist() == pytest.approx([7 / 9, 2 / 9, 0.0], rel=1e-6)
    assert gained == pytest.approx(bias + math.log(0.9), rel=1e-6)


def test_numbers_as_factors_and_as_logarithms_are_the_same_law() -> None:
    before, biases = mixture(6, 2.0), {1: 700.0, 2: 690.0, 3: -700.0}
    found, gained = adjust(before, adjustment(biases))
    more, gained_more = adjust(before, adjustment({token: bias + 50.0 for token, bias in biases.items()}))
    assert more[1:3].tolist() == pytest.approx(found[1:3].tolist(), rel=1e-6)
    assert gained_more == pytest.approx(gained + 50.0)
