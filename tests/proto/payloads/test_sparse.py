"""The sparse payload: round trips with both forms of ids, sizes, and every malformed byte string refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.drafted.payloads import SparseEntries, decode_sparse, encode_sparse
from proto import codes as logcode
from proto.codes import encode_ids
from proto.errors import ProtocolError
from proto.framing import LARGEST_PAYLOAD

VOCABULARY = 151_936


def entries(ids: list[int], codes: list[int] | None = None) -> SparseEntries:
    return SparseEntries(np.array(ids, np.uint32), np.array(codes or [60_000] * len(ids), np.uint16))


def plain(positions: list[SparseEntries]) -> list[tuple[list[int], list[int]]]:
    return [(one.ids.tolist(), one.codes.tolist()) for one in positions]


def refusal(data: bytes, vocabulary: int = VOCABULARY, limit: int = 8) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_sparse(data, vocabulary, limit)
    return caught.value.code


@st.composite
def any_entries(draw: st.DrawFn) -> SparseEntries:
    highest = draw(st.sampled_from([20, 300, VOCABULARY - 1]))
    ids = sorted(draw(st.sets(st.integers(0, highest), min_size=1, max_size=150)))
    return entries(ids, draw(st.lists(st.integers(1, 65_535), min_size=len(ids), max_size=len(ids))))


@given(st.lists(any_entries(), min_size=1, max_size=4))
def test_positions_survive(sent: list[SparseEntries]) -> None:
    received = decode_sparse(encode_sparse(sent), VOCABULARY, len(sent))
    assert plain(received) == plain(sent)
    assert {(one.ids.dtype.name, one.codes.dtype.name) for one in received} == {("uint32", "uint16")}


def test_the_shorter_form_of_ids_is_chosen() -> None:
    random = np.random.default_rng(5)
    for highest, bitmap in ((VOCABULARY, 0), (2000, 1)):
        ids = np.sort(random.choice(highest, 400, replace=False)).astype(np.uint32)
        data = encode_sparse([SparseEntries(ids, np.full(400, 9, np.uint16))])
        block = min(len(encode_ids(ids)), ids[-1] // 8 + 1)
        assert data[2] & 1 == bitmap
        assert len(data) == 2 + 2 + 800 + 2 + block
        assert decode_sparse(data, VOCABULARY, 1)[0].ids.tolist() == ids.tolist()


@pytest.mark.parametrize("left_out", [0, 1000])
def test_nearly_all_of_a_vocabulary_takes_two_bytes_and_a_bit(left_out: int) -> None:
    random = np.random.default_rng(7)
    ids = np.sort(random.choice(VOCABULARY, VOCABULARY - left_out, replace=False)).astype(np.uint32)
    codes = logcode.encode_probabilities(random.dirichlet(np.ones(len(ids))))
    data = encode_sparse([SparseEntries(ids, np.maximum(codes, 1))])
    assert len(data) / len(ids) == pytest.approx(2.125, abs=0.002)
    assert len(data) < LARGEST_PAYLOAD
    assert plain(decode_sparse(data, VOCABULARY, 1)) == [(ids.tolist(), np.maximum(codes, 1).tolist())]


def test_bounds_are_the_receivers() -> None:
    data = encode_sparse([entries([5, 70_000]), entries(list(range(100)))])
    assert refusal(data, limit=1) == "too-large"
    assert refusal(data, vocabulary=70_000) == "malformed"
    assert len(decode_sparse(data, 70_001, 2)) == 2
    assert refusal(encode_sparse([entries(list(range(100)))]), vocabulary=99) == "malformed"


@pytest.mark.parametrize("ids", [[3, 5000, 70_000], list(range(3, 40, 2))])
def test_every_truncation_and_extension_is_refused(ids: list[int]) -> None:
    data = encode_sparse([entries(ids), entries(ids)])
    assert [refusal(data[:length]) for length in range(len(data))] == ["malformed"] * len(data)
    assert refusal(data + b"\0") == "malformed"
    assert refusal(data + data) == "malformed"


@given(st.lists(any_entries(), min_size=1, max_size=2), st.data())
def test_flipped_bits_give_positions_or_a_refusal(sent: list[SparseEntries], data: st.DataObject) -> None:
    flipped = bytearray(encode_sparse(sent))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        received = decode_sparse(bytes(flipped), VOCABULARY, 8)
    except ProtocolError:
        return
    assert plain(decode_sparse(encode_sparse(received), VOCABULARY, 8)) == plain(received)


@given(st.integers(0, 3), st.binary(max_size=60))
def test_noise_gives_positions_or_a_refusal(count: int, noise: bytes) -> None:
    try:
        received = decode_sparse(bytes((0, count)) + noise, 40, 8)
    except ProtocolError:
        return
    assert len(received) == count
    assert all(one.codes.all() and one.ids[-1] < 40 for one in received)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "malformed"),
        (b"\x01\x01\x02\xff\xff\x01\x07", "malformed"),  # format 1
        (b"\x80\x01\x02\xff\xff\x01\x07", "malformed"),  # compressed
        (b"\x00\x00", "malformed"),  # no position
        (b"\x00\xff\xff\xff\x7f", "too-large"),  # 2**28 positions claimed
        (b"\x00\x01\x00\x00", "malformed"),  # no entry
        (b"\x00\x01\x01\x00", "malformed"),  # no entry of a bitmap
        (b"\x00\x01\xff\xff\xff\x7f\xff\xff", "malformed"),  # 2**27 entries claimed
        (b"\x00\x01\x02\x00\x00\x01\x07", "malformed"),  # code 0
        (b"\x00\x01\x02\xff\xff\xff\xff\xff\x7f\x07", "malformed"),  # 2**28 bytes of ids claimed
        (b"\x00\x01\x02\xff\xff\x02\x07\x07", "malformed"),  # one id too many
        (b"\x00\x01\x02\xff\xff\x00", "malformed"),  # none
        (b"\x00\x01\x03\xff\xff\x00", "malformed"),  # an empty bitmap
        (b"\x00\x01\x03\xff\xff\x02\x20\x00", "malformed"),  # a bitmap with an empty end
        (b"\x00\x01\x03\xff\xff\x01\x30", "malformed"),  # two bits for one entry
        (b"\x00\x01\x05\xff\xff\xff\xff\x01\x20", "malformed"),  # one bit for two entries
    ],
)
def test_breaks_of_the_format(data: bytes, code: str) -> None:
    assert plain(decode_sparse(b"\x00\x01\x02\xff\xff\x01\x07", 8, 1)) == [([7], [65_535])]
    assert plain(decode_sparse(b"\x00\x01\x03\xff\xff\x01\x20", 8, 1)) == [([5], [65_535])]
    assert refusal(data) == code


def test_a_long_bitmap_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(*_: Any, **__: Any) -> Any:
        raise AssertionError("a bitmap beyond the vocabulary was unpacked")

    monkeypatch.setattr(np, "unpackbits", unpack)
    assert refusal(b"\x00\x01\x03\xff\xff\x03\0\0\1", vocabulary=16) == "malformed"


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [entries([])],
        [entries([3, 3])],
        [entries([4, 3])],
        [entries([*range(100), 50])],  # dense, so that a bitmap is tried
        [entries([1, 2], [5])],
        [entries([1, 2], [5, 0])],
    ],
)
def test_what_cannot_be_sent(sent: list[SparseEntries]) -> None:
    with pytest.raises(ProtocolError):
        encode_sparse(sent)
