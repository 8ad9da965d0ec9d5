"""Bit streams: golden bytes, round trips, and padding that carries nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.codes import BitReader, BitWriter
from proto.errors import ProtocolError

fields = st.integers(0, 90).flatmap(lambda width: st.tuples(st.integers(0, 2**width - 1), st.just(width)))


def test_the_most_significant_bit_is_first() -> None:
    bits = BitWriter()
    for value, width in ((1, 1), (0, 0), (2, 3), (0x3FF, 10), (5, 4)):
        bits.write(value, width)
    assert bits.data() == bytes((0b1010_1111, 0b1111_1101, 0b0100_0000))


@given(st.lists(fields, max_size=20))
def test_numbers_come_back(numbers: list[tuple[int, int]]) -> None:
    bits = BitWriter()
    for value, width in numbers:
        bits.write(value, width)
    data = bits.data()
    assert len(data) == (sum(width for _, width in numbers) + 7) // 8
    reader = BitReader(data)
    assert [(reader.read(width), width) for _, width in numbers] == numbers
    reader.finish()
    with pytest.raises(ProtocolError, match="truncated"):
        reader.read(1)


@pytest.mark.parametrize(("value", "width"), [(1, 0), (8, 3), (-1, 3)])
def test_a_number_must_fit(value: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"fit into {width} bits"):
        BitWriter().write(value, width)


def test_what_is_left_must_be_padding() -> None:
    for data, width, value in ((b"\xa0", 3, 5), (b"\xa0\x00", 9, 0x140), (b"\xa1", 8, 0xA1)):
        reader = BitReader(data)
        assert reader.read(width) == value
        reader.finish()
    for data in (b"\xa1", b"\xb0", b"\xa0\x00"):
        reader = BitReader(data)
        assert reader.read(3) == 5
        with pytest.raises(ProtocolError, match="padded with zeros"):
            reader.finish()
