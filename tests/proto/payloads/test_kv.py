"""The kv payload: how much 8 bits change, and what is refused."""

from __future__ import annotations

import struct

import lz4.block
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

from proto.errors import ProtocolError
from proto.payloads.kv import LEVELS, KvEntries, KvShape, decode_kv, encode_kv, largest_kv, quantise_kv

SHAPES = (KvShape(2, 4, 3), KvShape(1, 6, 6))
VOCABULARY = 1000
TOKENS = (5, 999, 0, 17, 300)


def entries(seed: int = 0, spread: float = 3.0) -> KvEntries:
    draw = np.random.default_rng(seed)
    layers = []
    for shape in SHAPES:
        keys = draw.normal(0, spread, (shape.heads, len(TOKENS), shape.key_dim))
        values = draw.normal(0, spread, (shape.heads, len(TOKENS), shape.value_dim))
        layers.append((quantise_kv(keys, 1), quantise_kv(values, 2)))
    return KvEntries(TOKENS, tuple(layers))


def refused(data: bytes, most_tokens: int = 64) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_kv(data, SHAPES, VOCABULARY, most_tokens)
    return caught.value.code


@given(
    drawn.arrays(np.float32, drawn.array_shapes(min_dims=3, max_dims=3, max_side=5),
                 elements=st.floats(-1e6, 1e6, width=32)),
    st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_number_changes_by_half_a_scale(numbers: np.ndarray, axis: int) -> None:
    codes = quantise_kv(numbers, axis)
    assert np.abs(codes.codes.astype(int)).max() <= LEVELS
    scales = codes.scales.astype(np.float64)
    assert (np.abs(codes.numbers() - numbers) <= 0.5000001 * scales).all()
    # and a scale is no coarser than it must be: the largest number of a group has one of the largest codes
    largest = np.abs(numbers).max(axis=axis, keepdims=True).astype(np.float64) / LEVELS
    assert (scales <= largest * 1.001 + 6e-8).all()


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e9])
def test_what_8_bits_cannot_hold_is_not_sent(number: float) -> None:
    with pytest.raises(ValueError, match="finite and below"):
        quantise_kv(np.array([[[1.0, number]]]), 1)


def test_round_trip_and_size() -> None:
    sent = entries()
    data = encode_kv(sent)
    assert len(data) <= largest_kv(SHAPES, len(TOKENS))
    told = decode_kv(data, SHAPES, VOCABULARY, len(TOKENS))
    assert told.tokens == TOKENS
    for ours, theirs in zip(sent.layers, told.layers, strict=True):
        for half in (0, 1):
            assert np.array_equal(ours[half].numbers(), theirs[half].numbers())
            assert ours[half].numbers().shape == theirs[half].numbers().shape


def test_compressed_where_it_shrinks() -> None:
    flat = KvEntries(TOKENS, tuple((quantise_kv(np.ones((s.heads, 5, s.key_dim)), 1),
                                    quantise_kv(np.ones((s.heads, 5, s.value_dim)), 2)) for s in SHAPES))  # fmt: skip
    data = encode_kv(flat)
    assert data[0] == 0x80
    assert decode_kv(data, SHAPES, VOCABULARY, 5).tokens == TOKENS
    assert encode_kv(entries())[0] == 0


@given(st.data())
def test_cut_or_lengthened_is_refused(data: st.DataObject) -> None:
    whole = encode_kv(entries())
    assert refused(whole[: data.draw(st.integers(0, len(whole) - 1))]) == "malformed"
    assert refused(whole + b"\0") in ("malformed", "too-large")


def test_more_tokens_than_allowed() -> None:
    assert refused(encode_kv(entries()), most_tokens=4) in ("too-large", "malformed")


def test_a_bomb_is_refused_before_it_expands() -> None:
    body = bytes(2**24)
    bomb = b"\x80" + struct.pack("<I", len(body)) + lz4.block.compress(body, store_size=False)
    assert refused(bomb) == "too-large"


@pytest.mark.parametrize("scale", [b"\x00\x7e", b"\x00\x7c", b"\x00\xbc"], ids=["nan", "infinite", "negative"])
def test_bad_scales(scale: bytes) -> None:
    data = bytearray(encode_kv(entries()))
    at = 1 + 1 + sum(1 if token < 128 else 2 for token in TOKENS)
    data[at : at + 2] = scale
    assert refused(bytes(data)) == "malformed"


def test_ids_are_of_the_vocabulary() -> None:
    sent = KvEntries((1000, *TOKENS[1:]), entries().layers)
    assert refused(encode_kv(sent)) == "malformed"


def test_layers_of_another_model() -> None:
    with pytest.raises(ProtocolError, match="layers"):
        decode_kv(encode_kv(entries()), SHAPES[:1], VOCABULARY, 64)
