"""The lattice payload: round trips with both index codes, bounds, and every malformed byte string refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.drafted import payloads as fixed
from common.methods.drafted import payloads as short
from common.methods.drafted.payloads import FORMATS, IndexCode, LatticeEntries, decode_lattice, encode_lattice
from proto.codes import BitWriter, encode_number
from proto.errors import ProtocolError
from proto.messages import MOST_RESOLUTION, MOST_UNITS

VOCABULARY = 50_272
RESOLUTION = 64
Positions = list[tuple[LatticeEntries, int | None]]


def entries(ids: list[int], counts: list[int]) -> LatticeEntries:
    return LatticeEntries(np.array(ids, np.uint32), np.array(counts, np.uint32))


SENT: Positions = [(entries([3, 300, 50_271], [40, 23, 1]), 300), (entries([11], [64]), 11)]
BONUS: Positions = [*SENT, (entries([0, 1], [1, 63]), None)]


def plain(positions: Positions) -> list[tuple[list[int], list[int], int | None]]:
    return [(one.ids.tolist(), one.counts.tolist(), token) for one, token in positions]


def refusal(
    data: bytes,
    code: IndexCode,
    vocabulary: int = VOCABULARY,
    limit: int = 16,
    without: int = 0,
) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_lattice(data, code, vocabulary, limit, without)
    return caught.value.code


@st.composite
def any_positions(draw: st.DrawFn, resolution: int, vocabulary: int, without: int) -> Positions:
    positions: Positions = []
    for _ in range(draw(st.integers(1, 4))):
        ids = sorted(draw(st.sets(st.integers(0, vocabulary - 1), min_size=1, max_size=min(resolution, 20))))
        counts = [1] * len(ids)
        counts[draw(st.integers(0, len(ids) - 1))] += resolution - len(ids)
        positions.append((entries(ids, counts), draw(st.sampled_from(ids))))
    named = max(0, len(positions) - without)
    return positions[:named] + [(each, None) for each, _ in positions[named:]]


@given(
    st.data(),
    st.sampled_from([16, 64, 1024]),
    st.sampled_from([2048, 50_272, 151_936]),
    st.sampled_from(FORMATS),
    st.integers(0, 5),
)
def test_positions_survive(
    data: st.DataObject, resolution: int, vocabulary: int, code: IndexCode, without: int
) -> None:
    sent = data.draw(any_positions(resolution, vocabulary, without))
    if len(sent) * resolution > MOST_UNITS:
        with pytest.raises(ProtocolError, match="units in all"):
            encode_lattice(sent, code, vocabulary)
        return
    payload = encode_lattice(sent, code, vocabulary)
    received = decode_lattice(payload, code, vocabulary, len(sent), without)
    assert plain(received) == plain(sent)
    assert {(one.ids.dtype.name, one.counts.dtype.name) for one, _ in received} == {("uint32", "uint32")}


@pytest.mark.parametrize("code", FORMATS)
def test_size_is_that_of_the_indices_and_places(code: IndexCode) -> None:
    """The place of a token among three takes two bits, among one none: not the 16 of an id."""
    bits = 2 * fixed.width(RESOLUTION, VOCABULARY) + 2
    if code == "short":
        bits = short.short_width(3, RESOLUTION, VOCABULARY) + short.short_width(1, RESOLUTION, VOCABULARY) + 2
    assert len(encode_lattice(SENT, code, VOCABULARY)) == 3 + (bits + 7) // 8


@pytest.mark.parametrize("code", FORMATS)
def test_what_was_agreed_upon_is_needed_to_read_it(code: IndexCode) -> None:
    data = encode_lattice(SENT, code, VOCABULARY)
    other: IndexCode = "short" if code == "fixed" else "fixed"
    assert refusal(data, other) == "malformed"
    assert refusal(data, code, limit=1) == "too-large"
    with_bonus = encode_lattice(BONUS, code, VOCABULARY)
    assert plain(decode_lattice(with_bonus, code, VOCABULARY, 3, 1)) == plain(BONUS)


@pytest.mark.parametrize("code", FORMATS)
def test_positions_may_all_be_without_a_token(code: IndexCode) -> None:
    """The receiver need not know how many there are, as each is named elsewhere."""
    unnamed: Positions = [(each, None) for each, _ in BONUS]
    data = encode_lattice(unnamed, code, VOCABULARY)
    for without in (3, 4, 64):
        assert plain(decode_lattice(data, code, VOCABULARY, 8, without)) == plain(unnamed)


@pytest.mark.parametrize("code", FORMATS)
@pytest.mark.parametrize("resolution", [0, MOST_RESOLUTION + 1, 2**27])
def test_a_resolution_out_of_bounds_is_refused_before_anything_is_read(code: IndexCode, resolution: int) -> None:
    """2**27 units of 2**24 ids would take a number of gigabytes."""
    data = bytes((FORMATS.index(code),)) + encode_number(resolution) + b"\1" + bytes(64)
    assert refusal(data, code, vocabulary=2**24 - 1) == "malformed"
    with pytest.raises(ProtocolError, match="resolution"):
        encode_lattice([(entries([1], [resolution]), 1)], code, VOCABULARY)


@pytest.mark.parametrize("code", FORMATS)
@pytest.mark.parametrize("resolution", [1, MOST_RESOLUTION])
def test_the_least_and_the_finest_resolution(code: IndexCode, resolution: int) -> None:
    sent: Positions = [(entries([VOCABULARY - 1], [resolution]), VOCABULARY - 1)]
    assert plain(decode_lattice(encode_lattice(sent, code, VOCABULARY), code, VOCABULARY, 1, 0)) == plain(sent)


@pytest.mark.parametrize("code", FORMATS)
@pytest.mark.parametrize("positions", [SENT, BONUS], ids=["tokens", "bonus"])
def test_every_truncation_and_extension_is_refused(code: IndexCode, positions: Positions) -> None:
    data = encode_lattice(positions, code, VOCABULARY)
    without = 1 if positions is BONUS else 0
    assert [refusal(data[:end], code, without=without) for end in range(len(data))] == ["malformed"] * len(data)
    assert refusal(data + b"\0", code, without=without) == "malformed"
    assert refusal(data + data, code, without=without) == "malformed"


@given(st.sampled_from(FORMATS), st.integers(0, 3), st.integers(0, 3), st.binary(max_size=40))
def test_noise_gives_positions_or_a_refusal(code: IndexCode, without: int, count: int, noise: bytes) -> None:
    """Every stream of bits that is taken is the one that its value is sent as."""
    for resolution, vocabulary in ((1, 1), (4, 3), (5, 40), (64, 2)):
        data = bytes((FORMATS.index(code), resolution, count)) + noise
        try:
            received = decode_lattice(data, code, vocabulary, 2, without)
        except ProtocolError:
            continue
        assert encode_lattice(received, code, vocabulary) == data


@given(st.data(), st.sampled_from(FORMATS))
def test_flipped_bits_give_positions_or_a_refusal(data: st.DataObject, code: IndexCode) -> None:
    flipped = bytearray(encode_lattice(SENT, code, VOCABULARY))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        received = decode_lattice(bytes(flipped), code, VOCABULARY, 8, 0)
    except ProtocolError:
        return
    assert encode_lattice(received, code, VOCABULARY) == bytes(flipped)
    assert plain(received) != plain(SENT)


def test_every_rank_beyond_the_last_distribution_is_refused() -> None:
    """Ten ways to share three units among three tokens, in four bits; a place among one token takes none."""
    taken = []
    for index in range(16):
        bits = BitWriter()
        bits.write(index, 4)
        data = b"\0\3\1" + bits.data()
        if index < 10:
            taken += plain(decode_lattice(data, "fixed", 3, 1, without=1))
        else:
            assert refusal(data, "fixed", 3, without=1) == "malformed"
    assert len({(*ids, *counts) for ids, counts, _ in taken}) == 10


@pytest.mark.parametrize("place", range(4))
def test_a_place_must_be_one_of_the_support(place: int) -> None:
    bits = BitWriter()
    short.short_write(bits, [2, 5, 7], [1, 1, 62], 8)
    bits.write(place, 2)
    data = b"\1\x40\1" + bits.data()
    if place < 3:
        assert decode_lattice(data, "short", 8, 1, without=0)[0][1] == (2, 5, 7)[place]
    else:
        assert refusal(data, "short", vocabulary=8) == "malformed"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "malformed"),
        (b"\x00", "malformed"),
        (b"\x00\x40", "malformed"),
        (b"\x02\x40\x01\0\0\0\0", "malformed"),  # format 2
        (b"\x80\x40\x01\0\0\0\0", "malformed"),  # compressed
        (b"\x00\x40\x00", "malformed"),  # no position
        (b"\x00\x40\xff\xff\xff\x7f", "too-large"),  # 2**28 positions claimed
        (b"\x00\x40\xff\xff\xff\xff\x7f", "malformed"),
        (b"\x00\x40\x81\x00\0\0\0\0", "malformed"),  # over-long count
        (b"\x00\xc0\x00\x01\0\0\0\0", "malformed"),  # over-long resolution
    ],
)
def test_breaks_of_the_format(data: bytes, code: str) -> None:
    assert refusal(data, "fixed") == code


def test_positions_that_take_no_bits_are_counted() -> None:
    """One token: nothing to tell. The limit alone bounds what such a payload makes the receiver allocate."""
    one = (entries([0], [RESOLUTION]), 0)
    assert encode_lattice([one] * 5, "fixed", 1) == b"\0\x40\5"
    assert refusal(b"\0\x40\5", "fixed", vocabulary=1, limit=4) == "too-large"
    assert len(decode_lattice(b"\0\x40\5", "fixed", 1, 5, 0)) == 5


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [(entries([], []), None)],
        [(entries([1], [64, 0]), 1)],
        [(entries([1, 2], [64, 0]), 1)],
        [(entries([3], [64]), 3), (entries([1, 2], [60, 3]), 1)],  # another resolution
        [(entries([3], [64]), 3), (entries([1, 2], [1, 3]), None)],
        [(entries([2, 1], [60, 4]), 1)],
        [(entries([1, 1], [60, 4]), 1)],
        [(entries([1, VOCABULARY], [60, 4]), 1)],
        [(entries([1, 3], [60, 4]), 2)],
        [(entries([1, 3], [60, 4]), None), (entries([1, 3], [60, 4]), 1)],
    ],
)
@pytest.mark.parametrize("code", FORMATS)
def test_what_cannot_be_sent(sent: Any, code: IndexCode) -> None:
    with pytest.raises(ProtocolError):
        encode_lattice(sent, code, VOCABULARY)


@pytest.mark.parametrize("code", FORMATS)
def test_the_vocabulary_bounds_the_ids(code: IndexCode) -> None:
    """The largest rank is that of the last id, which a smaller vocabulary does not have."""
    last: Positions = [(entries([1023], [16]), 1023)]
    data = encode_lattice(last, code, 1024)
    assert plain(decode_lattice(data, code, 1024, 1, 0)) == plain(last)
    assert refusal(data, code, 1023) == "malformed"


@pytest.mark.parametrize("code", FORMATS)
def test_more_units_than_may_be_read_are_refused_before_any_is(code: IndexCode) -> None:
    head = bytes((FORMATS.index(code),)) + encode_number(1024) + encode_number(5)
    with pytest.raises(ProtocolError, match="units in all"):
        decode_lattice(head, code, 151_936, 64, 0)
