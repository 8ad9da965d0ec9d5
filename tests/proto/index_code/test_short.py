"""The short index: every stream of bits that it takes is one distribution, and every distribution one stream."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.drafted import payloads as short
from proto.codes import BitReader, BitWriter
from proto.errors import ProtocolError


def stream(ids: list[int], counts: list[int], vocabulary: int) -> bytes:
    bits = BitWriter()
    short.short_write(bits, ids, counts, vocabulary)
    return bits.data()


def written(*numbers: tuple[int, int]) -> BitReader:
    """A reader of numbers and their widths."""
    bits = BitWriter()
    for value, width in numbers:
        bits.write(value, width)
    return BitReader(bits.data())


SMALL = [(resolution, vocabulary) for resolution in range(1, 6) for vocabulary in range(1, 7)]


@pytest.mark.parametrize(("resolution", "vocabulary"), SMALL)
def test_it_is_a_bijection(resolution: int, vocabulary: int) -> None:
    expected = {counts for counts in product(range(resolution + 1), repeat=vocabulary) if sum(counts) == resolution}
    streams = set()
    for counts in expected:
        ids = [token for token, count in enumerate(counts) if count]
        told = ids, [counts[token] for token in ids]
        streams.add(sent := stream(*told, vocabulary))
        bits = BitReader(sent)
        assert short.short_read(bits, resolution, vocabulary) == told
        bits.finish()
    assert len(streams) == len(expected)

    most = max(
        short.short_width(tokens, resolution, vocabulary) for tokens in range(1, min(resolution, vocabulary) + 1)
    )
    taken = set()
    for number in range(2**most):
        bits = written((number, most))
        try:
            ids, shares = short.short_read(bits, resolution, vocabulary)
        except ProtocolError:
            continue
        assert short.short_width(len(ids), resolution, vocabulary) <= most
        taken.add(tuple(shares[ids.index(token)] if token in ids else 0 for token in range(vocabulary)))
    assert taken == expected


def test_golden_widths() -> None:
    assert [short.short_width(tokens, 64, 50_272) for tokens in (1, 3, 8, 32, 64)] == [22, 62, 146, 449, 710]


@given(st.sampled_from([2048, 50_272, 151_936]), st.integers(16, 1024), st.data())
def test_large_ones_come_back(vocabulary: int, resolution: int, data: st.DataObject) -> None:
    ids = sorted(data.draw(st.sets(st.integers(0, vocabulary - 1), min_size=1, max_size=min(resolution, 60))))
    counts = [1] * len(ids)
    for place in data.draw(st.lists(st.integers(0, len(ids) - 1), max_size=20)):
        counts[place] += min(7, resolution - sum(counts))
    counts[-1] += resolution - sum(counts)
    sent = stream(ids, counts, vocabulary)
    assert len(sent) == (short.short_width(len(ids), resolution, vocabulary) + 7) // 8
    assert short.short_read(BitReader(sent), resolution, vocabulary) == (ids, counts)


@pytest.mark.parametrize("tokens", [512, 1024])
def test_as_many_tokens_as_units(tokens: int) -> None:
    ids, counts = list(range(0, 148 * tokens, 148)), [1] * (tokens - 1) + [1025 - tokens]
    assert short.short_read(BitReader(stream(ids, counts, 151_936)), 1024, 151_936) == (ids, counts)


def test_more_tokens_than_units_or_vocabulary() -> None:
    assert short.short_read(written((2, 3), (9, 4), (3, 3)), 5, 5) == ([2, 3, 4], [1, 3, 1])
    for resolution, vocabulary in ((5, 5), (8, 3)):  # six of five units, six of three tokens
        with pytest.raises(ProtocolError, match="more tokens than"):
            short.short_read(written((5, 3), (0, 60)), resolution, vocabulary)


@pytest.mark.parametrize("numbers", [((2, 3), (10, 4), (0, 3)), ((2, 3), (0, 4), (6, 3))])
def test_parts_beyond_their_number(numbers: tuple[tuple[int, int], ...]) -> None:
    """Of five tokens and five units: C(5, 3) = 10 supports of three, C(4, 2) = 6 ways to share."""
    with pytest.raises(ProtocolError, match="below the number of its subsets"):
        short.short_read(written(*numbers), 5, 5)
