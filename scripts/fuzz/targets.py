"""Targets of the fuzzer: a decoder, the error it may raise, and what must hold for the input that it takes.

A decoder may refuse with `ProtocolError`. What it takes must survive encoding and decoding: a value out of bounds,
or one that the sender would refuse, shows there.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from common.methods.coupled.scheme import decode_tokens, encode_tokens
from common.methods.drafted.payloads import FORMATS, decode_lattice, decode_sparse, encode_lattice, encode_sparse
from proto.codes import (
    decode_ids,
    decode_number,
    decode_race,
    decode_raw,
    decode_top_p,
    encode_ids,
    encode_number,
    encode_race,
    encode_raw,
    encode_top_p,
)
from proto.errors import ProtocolError, malformed
from proto.framing import decode, encode
from proto.payloads.kv import KvShape, decode_kv, encode_kv
from proto.payloads.trace import decode_spans, encode_spans

Target = Callable[[bytes], None]

VOCABULARIES: Final = (1, 4, 8, 2048, 50_257, 151_936, 2**24 - 1)
SHAPES: Final = ((KvShape(1, 2, 3),), (KvShape(2, 4, 4), KvShape(2, 4, 4)))  # the first: of the golden bytes
MOST_TOKENS: Final = 64
MOST_POSITIONS: Final = 8
_GOLDEN: Final = Path(__file__).resolve().parents[2] / "docs" / "golden.txt"


def frame(data: bytes) -> None:
    """A whole message."""
    message = decode(data)
    assert same(decode(encode(message)), message)


def entries(taking: Callable[..., Any], giving: Callable[[Any], bytes], *limits: int) -> Target:
    """Distributions, which survive encoding and decoding."""

    def target(data: bytes) -> None:
        vocabulary, body = _vocabulary(data)
        found = taking(body, vocabulary, *limits)
        assert same(taking(giving(found), vocabulary, *limits), found)

    return target


def lattice(data: bytes) -> None:
    """Quantised distributions. Every stream of bits stands for one list of them: it must come back as it was."""
    vocabulary, body = _vocabulary(data)
    taken = False
    for code, without in itertools.product(FORMATS, (0, 1, MOST_POSITIONS)):
        try:
            positions = decode_lattice(body, code, vocabulary, MOST_POSITIONS, without)
        except ProtocolError:
            continue
        taken = True
        assert encode_lattice(positions, code, vocabulary) == body
        assert [token for _, token in positions].count(None) == min(without, len(positions))
    if not taken:
        raise malformed("taken in no format")


def tokens(data: bytes) -> None:
    """Token ids. Every stream of bits stands for one list of them."""
    vocabulary, body = _vocabulary(data)
    assert encode_tokens(decode_tokens(body, vocabulary, MOST_TOKENS), vocabulary) == body


def kv(data: bytes) -> None:
    """A document's keys and values."""
    vocabulary, body = _vocabulary(data)
    taken = False
    for shapes in SHAPES:
        try:
            entries = decode_kv(body, shapes, vocabulary, MOST_TOKENS)
        except ProtocolError:
            continue
        taken = True
        assert same(decode_kv(encode_kv(entries), shapes, vocabulary, MOST_TOKENS), entries)
    if not taken:
        raise malformed("taken in no shape")


def trace(data: bytes) -> None:
    """Spans of a trace."""
    spans = decode_spans(data)
    assert same(decode_spans(encode_spans(spans)), spans)


def ids(data: bytes) -> None:
    """Sorted ids; the first two bytes say of what vocabulary and how many."""
    vocabulary, body = _vocabulary(data)
    count, body = (body[0] if body else 0), body[1:]
    found = decode_ids(body, count, vocabulary)
    assert encode_ids(found) == body and (np.diff(found.astype(np.int64)) > 0).all()


def number(data: bytes) -> None:
    """One varint."""
    value, end = decode_number(data, 0)
    assert encode_number(value) == data[:end]


TARGETS: Final[dict[str, Target]] = {
    "frame": frame,
    "race": entries(decode_race, encode_race, 4096),
    "top-p": entries(decode_top_p, encode_top_p),
    "raw": entries(decode_raw, encode_raw),
    "sparse": entries(decode_sparse, encode_sparse, MOST_POSITIONS),
    "lattice": lattice,
    "tokens": tokens,
    "kv": kv,
    "trace": trace,
    "ids": ids,
    "number": number,
}


def probe(target: Target, data: bytes) -> bool:
    """Run `target`; returns whether it took the input. A refusal is no finding."""
    try:
        target(data)
    except ProtocolError:
        return False
    return True


def seeds() -> list[bytes]:
    """Golden bytes of the protocol's document and some lists of ids, alone and behind a byte for the vocabulary."""
    lines = re.findall(r"^frame ?([0-9a-f ]*)$", _GOLDEN.read_text("utf-8"), re.MULTILINE)
    golden = [bytes.fromhex(line) for line in lines]
    listed = [np.arange(0, 3 * count, 3, dtype=np.uint32) for count in (1, 5, 97, 200)]
    golden += [bytes((len(each),)) + encode_ids(each) for each in listed]
    return [*golden, *(bytes((index,)) + each for each in golden for index in range(len(VOCABULARIES)))]


def same(one: Any, other: Any) -> bool:
    """Whether two decoded values are equal, arrays and NaNs within them by their bits."""
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if dataclasses.is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, field.name), getattr(other, field.name)) for field in dataclasses.fields(one)
        )
    return bool(one == other) or (one != one and other != other)


def _vocabulary(data: bytes) -> tuple[int, bytes]:
    """The vocabulary that the first byte chooses, and the rest."""
    first = data[0] if data else 0
    return VOCABULARIES[first % len(VOCABULARIES)], data[1:]
