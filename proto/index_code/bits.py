"""A stream of bits: numbers of given widths, the most significant bit first, padded with zeros to whole bytes."""

from __future__ import annotations

from proto.errors import malformed


class BitWriter:
    """Collects numbers; `data` is the stream so far."""

    __slots__ = ("_bits", "_rest", "_whole")

    def __init__(self) -> None:
        self._whole = bytearray()
        self._rest, self._bits = 0, 0  # what does not fill a byte yet

    def write(self, value: int, width: int) -> None:
        """Append `value` in `width` bits. Raises `ValueError` if it does not fit."""
        if value < 0 or value.bit_length() > width:
            raise ValueError(f"a number does not fit into {width} bits")
        stream = self._rest << width | value
        full, self._bits = divmod(self._bits + width, 8)
        self._whole += (stream >> self._bits).to_bytes(full)
        self._rest = stream & (1 << self._bits) - 1

    def data(self) -> bytes:
        """The bytes, the last one padded with zeros."""
        return bytes(self._whole) + (bytes((self._rest << 8 - self._bits,)) if self._bits else b"")


class BitReader:
    """Takes numbers from a stream, in the order in which they were written."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, width: int) -> int:
        """The next `width` bits. Raises `ProtocolError` if there are not as many."""
        start, end = self._at, self._at + width
        if end > 8 * len(self._data):
            raise malformed("a bit stream must not be truncated")
        self._at = end
        # Only the bytes of this number: a stream may be far longer than what is of use in it.
        whole = int.from_bytes(self._data[start // 8 : (end + 7) // 8])
        return whole >> -end % 8 & (1 << width) - 1

    def finish(self) -> None:
        """Raises `ProtocolError` unless nothing but the padding is left, and that is zero."""
        rest = 8 * len(self._data) - self._at
        if rest > 7 or self.read(rest):
            raise malformed("a bit stream must end with its last number, padded with zeros to a whole byte")
