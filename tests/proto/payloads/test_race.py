"""The race payload: round trips, bounds, and every malformed byte string refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codes import RaceEntries, decode_race, encode_race
from proto.errors import ProtocolError
from proto.framing import encode, wire_size
from proto.messages import Draft

VOCABULARY = 151_936


def entries(ids: list[int], codes: list[int] | None = None) -> RaceEntries:
    return RaceEntries(np.array(ids, np.uint32), np.array(codes or [60_000] * len(ids), np.uint16))


def refusal(data: bytes, vocabulary: int = VOCABULARY, limit: int = 32) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_race(data, vocabulary, limit)
    return caught.value.code


@st.composite
def any_entries(draw: st.DrawFn) -> RaceEntries:
    ids = sorted(draw(st.sets(st.integers(0, VOCABULARY - 1), min_size=1, max_size=150)))
    codes = draw(st.lists(st.integers(0, 65_535), min_size=len(ids), max_size=len(ids)))
    return entries(ids, codes)


@given(any_entries())
def test_entries_survive(sent: RaceEntries) -> None:
    received = decode_race(encode_race(sent), VOCABULARY, len(sent.ids))
    assert received.ids.tolist() == sent.ids.tolist()
    assert received.codes.tolist() == sent.codes.tolist()
    assert (received.ids.dtype.name, received.codes.dtype.name) == ("uint32", "uint16")


def test_ids_beyond_16_bits_survive() -> None:
    ids = [0, 62_767, 62_768, 65_535, 65_536, 151_935]
    assert decode_race(encode_race(entries(ids)), VOCABULARY, 32).ids.tolist() == ids


def test_bounds_of_the_session() -> None:
    data = encode_race(entries(list(range(100, 132))))
    assert refusal(data, limit=31) == "too-large"
    assert refusal(data, vocabulary=131) == "malformed"
    assert decode_race(data, 132, 32).ids[-1] == 131


def test_every_truncation_and_extension_is_refused() -> None:
    data = encode_race(entries([5, 200, 70_000], [1, 2, 3]))
    assert [refusal(data[:length]) for length in range(len(data))] == ["malformed"] * len(data)
    assert refusal(data + b"\0") == "malformed"
    assert refusal(data + data) == "malformed"


@given(any_entries(), st.data())
def test_flipped_bits_give_entries_or_a_refusal(sent: RaceEntries, data: st.DataObject) -> None:
    flipped = bytearray(encode_race(sent))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        received = decode_race(bytes(flipped), VOCABULARY, 150)
    except ProtocolError:
        return
    assert encode_race(received) == bytes(flipped)


@given(st.binary(max_size=60))
def test_noise_gives_entries_or_a_refusal(data: bytes) -> None:
    try:
        received = decode_race(data, VOCABULARY, 32)
    except ProtocolError:
        return
    assert encode_race(received) == data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "malformed"),
        (b"\x01\x01\xff\xff\x07", "malformed"),  # format 1
        (b"\x80\x01\xff\xff\x07", "malformed"),  # compressed
        (b"\x00\x00", "malformed"),  # no entry
        (b"\x00\xff\xff\xff\x7f", "too-large"),  # 2**28 entries claimed
        (b"\x00\xff\xff\xff\xff\x7f", "malformed"),
        (b"\x00\x81\x00\xff\xff\x07", "malformed"),  # over-long count
    ],
)
def test_breaks_of_the_format(data: bytes, code: str) -> None:
    assert refusal(data) == code


@pytest.mark.parametrize("sent", [entries([]), entries([3, 3]), entries([4, 3]), entries([1, 2], [5])])
def test_entries_that_cannot_be_sent(sent: Any) -> None:
    with pytest.raises(ProtocolError):
        encode_race(sent)


@pytest.mark.parametrize("vocabulary", [2048, 50_000, VOCABULARY])
def test_draft_of_32_entries_is_small(vocabulary: int) -> None:
    random = np.random.default_rng(vocabulary)
    for _ in range(20):
        ids = np.sort(random.choice(vocabulary, 32, replace=False)).astype(np.uint32)
        payload = encode_race(RaceEntries(ids, random.integers(1, 65_536, 32).astype(np.uint16)))
        draft = Draft(2**32 - 1, 1000, 60_000, 2**61 - 1, float(np.float32(-7.1)), 2**32 - 1, payload)
        assert wire_size(encode(draft)) <= 200
