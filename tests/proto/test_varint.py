"""Sorted ids as gap varints: both implementations agree, and only the canonical bytes are read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from proto import codes as varint
from proto.codes import FEW, decode_ids, decode_number, encode_ids, encode_number
from proto.errors import ProtocolError

VOCABULARY = 2**24 - 1


def array(ids: list[int]) -> NDArray[np.uint32]:
    return np.array(ids, dtype=np.uint32)


def refused(data: bytes, count: int, vocabulary: int = VOCABULARY) -> bool:
    with pytest.raises(ProtocolError) as caught:
        decode_ids(data, count, vocabulary)
    return caught.value.code == "malformed"


sorted_ids = st.one_of(
    st.sets(st.integers(0, VOCABULARY - 1), max_size=300),
    st.sets(st.integers(0, 400), max_size=300),  # dense
).map(sorted)


@given(sorted_ids)
def test_ids_survive(ids: list[int]) -> None:
    data = encode_ids(array(ids))
    decoded = decode_ids(data, len(ids), VOCABULARY)
    assert decoded.tolist() == ids
    assert decoded.dtype == np.uint32


@given(sorted_ids.filter(bool))
def test_loop_and_vectorised_agree(ids: list[int]) -> None:
    data = varint._encode_few(ids)
    assert varint._encode_many(array(ids)) == data
    assert varint._decode_many(np.frombuffer(data, np.uint8)).tolist() == varint._decode_few(data).tolist() == ids


@given(st.binary(min_size=1, max_size=3 * FEW))
def test_loop_and_vectorised_refuse_the_same(data: bytes) -> None:
    results = []
    for read in (varint._decode_few, lambda raw: varint._decode_many(np.frombuffer(raw, np.uint8))):
        try:
            results.append(read(data).tolist())
        except ProtocolError as error:
            results.append(error.code)
    assert results[0] == results[1]


@given(st.binary(max_size=40), st.integers(0, 40))
def test_only_canonical_bytes_are_read(data: bytes, count: int) -> None:
    try:
        ids = decode_ids(data, count, VOCABULARY)
    except ProtocolError:
        return
    assert encode_ids(ids) == data
    assert len(ids) == count
    assert (np.diff(ids.astype(np.int64)) > 0).all()


@pytest.mark.parametrize("count", [3, FEW + 3])
def test_breaks_of_the_format(count: int) -> None:
    ids = array(list(range(1000, 1000 + 300 * count, 300)))
    data = encode_ids(ids)
    assert decode_ids(data, count, int(ids[-1]) + 1).tolist() == ids.tolist()
    assert refused(data, count, int(ids[-1]))
    assert refused(data, count - 1)
    assert refused(data, count + 1)
    assert all(refused(data[:length], count) for length in range(len(data)))
    assert refused(data + b"\0", count)
    assert refused(data[:-2] + b"\x80\x00", count)  # zero in two bytes
    assert refused(data[:-2] + b"\x81\x80\x80\x80\x01", count)  # five bytes
    assert refused(data[:-1] + b"\x80", count)  # never ends


@pytest.mark.parametrize("count", [3, FEW + 3])
@pytest.mark.parametrize("swap", [(0, 1), (1, 1)])
def test_unsorted_or_repeated_ids_are_not_encoded(count: int, swap: tuple[int, int]) -> None:
    ids = list(range(10, 10 + count))
    ids[0], ids[1] = ids[swap[1]], ids[swap[0]]
    with pytest.raises(ProtocolError):
        encode_ids(array(ids))


@given(st.integers(0, 2**28 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_number_survives_wherever_it_stands(value: int, before: bytes, after: bytes) -> None:
    data = encode_number(value)
    assert decode_number(before + data + after, len(before)) == (value, len(before) + len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff", b"\x80\x00", b"\x81\x80\x80\x80\x01"])
def test_number_that_is_truncated_or_over_long_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_number(data, 0)


def test_size_of_a_race_list() -> None:
    """32 random ids of a large vocabulary take little more than two bytes each."""
    random = np.random.default_rng(3)
    ids = np.sort(random.choice(151_936, 32, replace=False)).astype(np.uint32)
    assert len(encode_ids(ids)) <= 72
