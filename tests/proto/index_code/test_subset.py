"""Ranks of subsets: a bijection, found without search whatever the rank is."""

from __future__ import annotations

from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.drafted import payloads as subset

BOUNDS = (2048, 50_272, 151_936, 2**24 - 1)


@pytest.mark.parametrize("bound", range(9))
def test_every_subset_has_the_rank_of_its_definition_and_comes_back(bound: int) -> None:
    for size in range(bound + 1):
        ranks = {}
        for members in combinations(range(bound), size):
            rank = subset.subset_rank(members)
            assert rank == sum(comb(member, place) for place, member in enumerate(members, 1))
            assert subset.subset_unrank(rank, size, bound) == list(members)
            ranks[rank] = members
        assert sorted(ranks) == list(range(comb(bound, size)))


@given(st.sampled_from(BOUNDS), st.sets(st.integers(0, 2047), max_size=300), st.integers(1, 2**13), st.booleans())
def test_large_ones_come_back(bound: int, drawn: set[int], spread: int, dense: bool) -> None:
    members = sorted({value if dense else value * spread % bound for value in drawn})
    rank = subset.subset_rank(members)
    assert rank == sum(comb(member, place) for place, member in enumerate(members, 1))
    assert subset.subset_unrank(rank, len(members), bound) == members


@given(st.sampled_from(BOUNDS), st.integers(1, 130), st.data())
def test_any_rank_comes_back(bound: int, size: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, comb(bound, size) - 1))
    members = subset.subset_unrank(number, size, bound)
    assert len(members) == size
    assert subset.subset_rank(members) == number


@pytest.mark.parametrize("size", [2, 3, 8, 64, 128, 511, 1024])
@pytest.mark.parametrize("bound", BOUNDS)
def test_the_first_guess_is_next_to_the_member(bound: int, size: int) -> None:
    """Otherwise a rank could be chosen that takes as many corrections as the vocabulary has tokens.

    The ranks at which the member changes are the hardest: there the guess is rounded either way.
    """
    steps = [0, 1, 2, 7, size // 2, size, 3 * size, bound // 3, bound // 2, bound - size - 2, bound - size - 1]
    for member in (size + step for step in steps if size + step < bound):
        value = comb(member, size)
        middle = (value + comb(member + 1, size)) // 2
        for number, largest in ((value, member), (middle, member), (value - 1, member - 1)):
            if number:
                assert -2 <= subset._estimate(number, size) - largest <= 1
