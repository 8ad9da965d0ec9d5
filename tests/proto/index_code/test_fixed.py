"""The fixed index: every rank is one distribution, every distribution one rank."""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.drafted import payloads as fixed
from common.methods.drafted import payloads as subset
from proto.codes import BitReader, BitWriter
from proto.errors import ProtocolError

SMALL = [(resolution, vocabulary) for resolution in range(1, 6) for vocabulary in range(1, 7)]


@pytest.mark.parametrize(("resolution", "vocabulary"), SMALL)
def test_it_is_a_bijection(resolution: int, vocabulary: int) -> None:
    number = comb(resolution + vocabulary - 1, resolution)
    found = set()
    for index in range(number):
        ids, counts = fixed.unrank(index, resolution, vocabulary)
        assert fixed.rank(ids, counts) == index
        units = tuple(token for token, count in zip(ids, counts, strict=True) for _ in range(count))
        assert index == sum(comb(token + place - 1, place) for place, token in enumerate(units, 1))
        found.add(units)
    assert found == set(combinations_with_replacement(range(vocabulary), resolution))
    for index in (number, number + 1, -1):
        with pytest.raises(ProtocolError, match="below the number"):
            fixed.unrank(index, resolution, vocabulary)


def test_ids_from_1_on_would_be_none() -> None:
    """The mutant: of three tokens that share two units, some would get the ranks of others or none at all."""
    ranks = [subset.subset_rank([one + 1, other + 2]) for one, other in combinations_with_replacement(range(3), 2)]
    assert sorted(ranks) != list(range(6))
    assert max(ranks) >= comb(4, 2)


@pytest.mark.parametrize(
    ("resolution", "bits"), [(16, [132, 206, 232]), (64, [410, 704, 806]), (128, [698, 1284, 1488])]
)
def test_golden_widths(resolution: int, bits: list[int]) -> None:
    assert [fixed.width(resolution, vocabulary) for vocabulary in (2048, 50_272, 151_936)] == bits


def test_a_single_token_needs_no_bit() -> None:
    bits = BitWriter()
    fixed.fixed_write(bits, [0], [7], 1)
    assert bits.data() == b""
    assert fixed.fixed_read(BitReader(b""), 7, 1) == ([0], [7])


@given(st.sampled_from([2048, 50_272, 151_936]), st.sampled_from([16, 64, 128, 1024]), st.data())
def test_large_ones_come_back(vocabulary: int, resolution: int, data: st.DataObject) -> None:
    units = data.draw(st.lists(st.integers(0, vocabulary - 1), min_size=1, max_size=40))
    counts = {token: units.count(token) for token in sorted(units)}
    counts[units[0]] += resolution - len(units) if resolution > len(units) else 0
    told = (list(counts), list(counts.values()))
    bits = BitWriter()
    fixed.fixed_write(bits, *told, vocabulary)
    stream = bits.data()
    assert len(stream) == (fixed.width(sum(told[1]), vocabulary) + 7) // 8
    assert fixed.fixed_read(BitReader(stream), sum(told[1]), vocabulary) == told


@given(st.sampled_from([2048, 50_272, 151_936]), st.sampled_from([16, 64, 128]), st.data())
def test_every_rank_is_a_distribution(vocabulary: int, resolution: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, comb(resolution + vocabulary - 1, resolution) - 1))
    ids, counts = fixed.unrank(index, resolution, vocabulary)
    assert sorted(set(ids)) == ids and ids[-1] < vocabulary
    assert min(counts) >= 1 and sum(counts) == resolution
    assert fixed.rank(ids, counts) == index
