"""The top-p payload: round trips in both id formats, LZ4 bounded, every malformed byte string refused."""

from __future__ import annotations

import struct
from typing import Any

import lz4.block
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codes import BITMAP, COMPRESSED, VARINTS, TopPEntries, decode_top_p, encode_ids, encode_top_p
from proto.errors import ProtocolError

VOCABULARY = 151_936


def entries(ids: list[int], weights: list[float] | None = None, choice: int = 0) -> TopPEntries:
    told = weights if weights is not None else [0.5] * len(ids)
    return TopPEntries(np.array(ids, np.uint32), np.array(told, np.float16), choice)


def refusal(data: bytes, vocabulary: int = VOCABULARY) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_top_p(data, vocabulary)
    return caught.value.code


def same(one: TopPEntries, other: TopPEntries) -> bool:
    return (one.ids.tolist(), one.weights.tolist(), one.choice) == (
        other.ids.tolist(),
        other.weights.tolist(),
        other.choice,
    )


@st.composite
def any_entries(draw: st.DrawFn) -> TopPEntries:
    highest = draw(st.sampled_from([20, 300, VOCABULARY - 1]))
    ids = sorted(draw(st.sets(st.integers(0, highest), min_size=1, max_size=200)))
    weight = st.floats(2.0**-24, 1.0, width=16)
    weights = draw(st.one_of(st.just([0.25] * len(ids)), st.lists(weight, min_size=len(ids), max_size=len(ids))))
    return entries(ids, weights, draw(st.integers(0, len(ids) - 1)))


@given(any_entries())
def test_entries_survive(sent: TopPEntries) -> None:
    received = decode_top_p(encode_top_p(sent), VOCABULARY)
    assert same(received, sent)
    assert (received.ids.dtype.name, received.weights.dtype.name) == ("uint32", "float16")


def test_shorter_id_format_is_chosen() -> None:
    random = np.random.default_rng(5)
    weights = random.integers(1, 0x7BFF, 400, np.uint16).view(np.float16)  # any bits, so that LZ4 is no help
    for highest, form in ((VOCABULARY, VARINTS), (2000, BITMAP)):
        ids = np.sort(random.choice(highest, 400, replace=False)).astype(np.uint32)
        data = encode_top_p(TopPEntries(ids, weights, 3))
        assert data[0] == form
        assert len(data) == 1 + 2 + 1 + 800 + min(len(encode_ids(ids)), ids[-1] // 8 + 1)
        assert decode_top_p(data, VOCABULARY).ids.tolist() == ids.tolist()


def test_compressed_only_if_that_is_shorter() -> None:
    equal = entries(list(range(64)), [0.25] * 64)
    data = encode_top_p(equal)
    assert data[0] == BITMAP | COMPRESSED
    assert len(data) < 64
    assert same(decode_top_p(data, 64), equal)
    assert encode_top_p(entries([5]))[0] == VARINTS


def test_ids_must_be_below_the_vocabulary() -> None:
    for ids in ([5, 70_000], list(range(100))):
        data = encode_top_p(entries(ids))
        assert len(decode_top_p(data, ids[-1] + 1).ids) == len(ids)
        assert refusal(data, ids[-1]) == "malformed"


@pytest.mark.parametrize("ids", [[3, 5000, 70_000], list(range(3, 40, 2))])
def test_every_truncation_and_extension_is_refused(ids: list[int]) -> None:
    data = encode_top_p(entries(ids, np.linspace(0.01, 0.5, len(ids)).tolist()))
    assert not data[0] & COMPRESSED
    assert [refusal(data[:length]) for length in range(len(data))] == ["malformed"] * len(data)
    assert refusal(data + b"\0") == "malformed"
    compressed = encode_top_p(entries(list(range(64)), [0.25] * 64))
    assert all(refusal(compressed[:length]) for length in range(len(compressed)))
    assert refusal(compressed + b"\0") == "malformed"


@given(any_entries(), st.data())
def test_flipped_bits_give_entries_or_a_refusal(sent: TopPEntries, data: st.DataObject) -> None:
    flipped = bytearray(encode_top_p(sent))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        received = decode_top_p(bytes(flipped), VOCABULARY)
    except ProtocolError:
        return
    assert same(decode_top_p(encode_top_p(received), VOCABULARY), received)


@given(st.integers(0, 255), st.binary(max_size=60))
def test_noise_gives_entries_or_a_refusal(form: int, data: bytes) -> None:
    try:
        received = decode_top_p(bytes((form,)) + data, VOCABULARY)
    except ProtocolError:
        return
    assert same(decode_top_p(encode_top_p(received), VOCABULARY), received)


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -0.5, 0.0])
def test_weights_must_be_finite_and_positive(weight: float) -> None:
    valid = encode_top_p(entries([5, 9], [0.5, 0.5]))
    broken = valid.replace(struct.pack("<ee", 0.5, 0.5), struct.pack("<ee", 0.5, weight))
    assert broken != valid
    assert refusal(broken) == "malformed"
    with pytest.raises(ProtocolError):
        encode_top_p(entries([5, 9], [0.5, weight]))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x00",  # no entry
        b"\x01\x01\x00\x38\x05",  # the choice is not among the entries
        b"\xff\xff\xff\x7f\x00\x00\x38\x05",  # 2**28 entries claimed
        b"\x02\x00\x00\x38\x00\x38\x05",  # an id is missing
        b"\x01\x00\x00\x38\x05\x05",  # one too many
    ],
)
def test_breaks_of_the_format(body: bytes) -> None:
    assert decode_top_p(b"\0\x01\x00\x00\x38\x05", VOCABULARY).ids.tolist() == [5]
    assert refusal(b"\0" + body) == "malformed"


@pytest.mark.parametrize("bitmap", [b"", b"\0", b"\x20\0", b"\x30", b"\x10\x01", b"\0" * 19_000 + b"\x01"])
def test_bitmap_must_be_shortest_and_of_as_many_ids(bitmap: bytes) -> None:
    start = b"\x01\x01\x00\x00\x38"
    assert decode_top_p(start + b"\x20", VOCABULARY).ids.tolist() == [5]
    assert refusal(start + bitmap) == "malformed"


def test_body_larger_than_the_format_can_need_is_refused_by_its_size() -> None:
    """A bitmap is expanded to a byte per bit, so its size must be bounded before that."""
    start = b"\x01\x01\x00\x00\x38"
    assert refusal(start + b"\xff" * 30, vocabulary=10) == "malformed"
    assert refusal(start + b"\xff" * 40, vocabulary=10) == "too-large"


@pytest.mark.parametrize("form", [2, 3, 0x7F, 2 | COMPRESSED])
def test_unknown_format_is_refused(form: int) -> None:
    assert refusal(bytes((form,)) + b"\x01\x00\x00\x38\x05") == "malformed"


def sealed(size: int, block: bytes) -> bytes:
    return bytes((COMPRESSED,)) + struct.pack("<I", size) + block


def test_bomb_is_refused_before_it_expands(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = lz4.block.compress(bytes(2**24), store_size=False)
    assert len(bomb) < 2**17

    def expand(*_: Any, **__: Any) -> bytes:
        raise AssertionError("a bomb was expanded")

    monkeypatch.setattr(lz4.block, "decompress", expand)
    assert refusal(sealed(2**24, bomb)) == "too-large"
    assert refusal(sealed(2**32 - 1, bomb)) == "too-large"
    # within what the format can need, but more than five bytes can expand to
    assert refusal(sealed(3 * VOCABULARY, bomb[:5])) == "malformed"


def test_size_of_compressed_bytes_must_be_exact() -> None:
    body = encode_top_p(entries([5, 9]))[1:]
    block = lz4.block.compress(body, store_size=False)
    assert decode_top_p(sealed(len(body), block), VOCABULARY).ids.tolist() == [5, 9]
    for size in (0, 1, len(body) - 1, len(body) + 1):
        assert refusal(sealed(size, block)) == "malformed"
    bomb = lz4.block.compress(bytes(2**24), store_size=False)
    assert refusal(sealed(1000, bomb)) == "malformed"
    assert refusal(sealed(len(body), b"")) == "malformed"


@pytest.mark.parametrize(
    "sent",
    [entries([]), entries([3, 3]), entries([4, 3]), entries([1], [0.5, 0.5]), entries([1], choice=1)],
)
def test_entries_that_cannot_be_sent(sent: TopPEntries) -> None:
    with pytest.raises(ProtocolError):
        encode_top_p(sent)
