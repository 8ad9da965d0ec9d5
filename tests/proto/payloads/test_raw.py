"""The raw payload: a whole distribution survives, and nothing that is none is read."""

from __future__ import annotations

import struct
from typing import Any

import lz4.block
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codes import COMPRESSED, RawEntries, decode_raw, encode_raw
from proto.errors import ProtocolError
from proto.framing import LARGEST_PAYLOAD


def entries(probabilities: list[float], token: int = 0) -> RawEntries:
    return RawEntries(np.array(probabilities, np.float32), token)


def refusal(data: bytes, vocabulary: int) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_raw(data, vocabulary)
    return caught.value.code


def body(probabilities: list[float], token: int = 0) -> bytes:
    return bytes((0, token)) + struct.pack(f"<{len(probabilities)}f", *probabilities)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=300), st.data())
def test_entries_survive(weights: list[float], data: st.DataObject) -> None:
    probabilities = (np.array(weights) / np.sum(weights)).astype(np.float32)
    sent = RawEntries(probabilities, data.draw(st.integers(0, len(weights) - 1)))
    received = decode_raw(encode_raw(sent), len(weights))
    assert received.token == sent.token
    assert received.probabilities.tolist() == probabilities.tolist()
    assert received.probabilities.dtype == np.float32


@pytest.mark.parametrize("concentration", [0.01, 10.0])
def test_large_vocabulary_survives_and_fits(concentration: float) -> None:
    """Peaked distributions have zeros, which compress; flat ones have none, and must not grow."""
    vocabulary = 151_936
    random = np.random.default_rng(2)
    probabilities = random.dirichlet(np.full(vocabulary, concentration)).astype(np.float32)
    token = int(probabilities.argmax())
    data = encode_raw(RawEntries(probabilities, token))
    assert bool(data[0] & COMPRESSED) == (concentration < 1)
    assert len(data) <= 1 + 3 + 4 * vocabulary < LARGEST_PAYLOAD
    received = decode_raw(data, vocabulary)
    assert (received.probabilities == probabilities).all()
    assert received.token == token


@pytest.mark.parametrize(
    "probabilities",
    [
        [0.5, float("nan")],
        [0.5, float("inf")],
        [float("inf"), float("-inf")],
        [1.5, -0.5],
        [0.5, 0.4985],
        [0.5, 0.5015],
        [3e38, 3e38],
    ],
)
def test_what_is_no_distribution_is_refused(probabilities: list[float]) -> None:
    assert refusal(body(probabilities), 2) == "malformed"
    with pytest.raises(ProtocolError):
        encode_raw(entries(probabilities))


def test_sum_may_be_off_by_rounding() -> None:
    for second in (0.4995, 0.5005):
        assert decode_raw(body([0.5, second]), 2).token == 0


@pytest.mark.parametrize("token", [1, 2, 200])
def test_token_must_be_possible(token: int) -> None:
    assert refusal(body([1.0, 0.0], token), 2) == "malformed"
    with pytest.raises(ProtocolError):
        encode_raw(entries([1.0, 0.0], token))


def test_every_truncation_and_extension_is_refused() -> None:
    data = encode_raw(entries([0.5, 0.25, 0.25]))
    assert [refusal(data[:length], 3) for length in range(len(data))] == ["malformed"] * len(data)
    assert [refusal(data + bytes(extra), 3) for extra in (1, 2, 3)] == ["malformed"] * 3
    assert refusal(data + bytes(4), 3) == "too-large"
    assert refusal(data, 2) in ("malformed", "too-large")
    assert refusal(data, 4) == "malformed"


@given(st.integers(0, 255), st.binary(max_size=30))
def test_noise_gives_entries_or_a_refusal(form: int, data: bytes) -> None:
    try:
        received = decode_raw(bytes((form,)) + data, 4)
    except ProtocolError:
        return
    assert abs(received.probabilities.sum() - 1) < 0.0011


def test_bomb_is_refused_before_it_expands(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = lz4.block.compress(bytes(2**22), store_size=False)

    def expand(*_: Any, **__: Any) -> bytes:
        raise AssertionError("a bomb was expanded")

    monkeypatch.setattr(lz4.block, "decompress", expand)
    assert refusal(bytes((COMPRESSED,)) + struct.pack("<I", 2**22) + bomb, 1000) == "too-large"
