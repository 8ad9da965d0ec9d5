"""docs/protocol.md and the code say the same: tables, limits and codes; docs/golden.txt in both directions."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from common.methods.coupled.scheme import decode_tokens, encode_tokens
from common.methods.drafted import payloads as fixed
from common.methods.drafted import payloads as short
from common.methods.drafted.payloads import (
    LatticeEntries,
    SparseEntries,
    decode_lattice,
    decode_sparse,
    encode_lattice,
    encode_sparse,
)
from proto import codes as digest
from proto import codes as logcode
from proto.codes import (
    RaceEntries,
    RawEntries,
    TopPEntries,
    decode_race,
    decode_raw,
    decode_top_p,
    encode_race,
    encode_raw,
    encode_top_p,
)
from proto.errors import Refusal
from proto.framing import TAGS, decode, encode, wire_size
from proto.messages import MOST_RESOLUTION
from proto.payloads.kv import Codes, KvEntries, KvShape, decode_kv, encode_kv
from proto.payloads.trace import Span, decode_spans, encode_spans
from scripts.protocol_tables import BLOCK, KINDS, PAGE, SHARED, meanings, with_tables

DOCUMENT = PAGE.read_text("utf-8")
GOLDEN = PAGE.with_name("golden.txt")
DTYPES = {"ids": np.uint32, "codes": np.uint16, "weights": np.float16, "probabilities": np.float32}
ENTRIES: dict[str, type] = {"race": RaceEntries, "top-p": TopPEntries, "raw": RawEntries}


@dataclass(frozen=True)
class Golden:
    """A block of docs/golden.txt: a line that says what it is, its value as JSON, and its bytes."""

    kind: str
    value: Any
    frames: list[bytes]


def goldens() -> list[Golden]:
    found = []
    for block in GOLDEN.read_text("utf-8").strip().split("\n\n")[1:]:  # the first one is about the file
        kind, value, *frames = block.splitlines()
        assert value.startswith("value "), block
        assert all(line.startswith("frame") for line in frames), block
        sent = [bytes.fromhex(line.removeprefix("frame")) for line in frames]
        found.append(Golden(kind, json.loads(value.removeprefix("value ")), sent))
    return found


GOLDENS = goldens()
NAMES = [f"{index} {golden.kind}" for index, golden in enumerate(GOLDENS)]


def built(annotation: Any, value: Any) -> Any:
    """A field's value from JSON: bytes are written in hexadecimal."""
    base = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    if is_dataclass(base) and isinstance(base, type):
        hints = get_type_hints(base, include_extras=True)
        assert list(value) == list(hints), f"{base.__name__} must list its fields in order"
        return base(**{name: built(hints[name], item) for name, item in value.items()})
    if base is bytes:
        return bytes.fromhex(value)
    if isinstance(value, list):
        return tuple(built(get_args(base)[0], item) for item in value)
    return value


def test_the_tables_are_the_schemas() -> None:
    assert with_tables(DOCUMENT) == DOCUMENT, "python -m scripts.protocol_tables"


def test_a_table_that_is_wrong_is_written_again() -> None:
    wrong = DOCUMENT.replace("| `closest` | float[-2,2] |", "| `nearest` | float[-1,1] |")
    wrong = re.sub(r"^\| `prompt_tokens` .*\n", "", wrong, flags=re.MULTILINE)
    written = with_tables(wrong)
    assert "`nearest`" not in written and "| `closest` | float[-2,2] | ? |" in written
    assert "| `prompt_tokens` | uint<2^24 | ? |" in written


def test_every_message_has_a_section_with_its_table_and_every_field_a_meaning() -> None:
    sections = re.findall(r"^### (\d+) (\w+)\n(.*?)(?=^##)", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert [(int(tag), name) for tag, name, _ in sections] == [(tag, kind.__name__) for kind, tag in TAGS.items()]
    without = set()
    for _, name, text in sections:
        rows = "".join(block["rows"] for block in BLOCK.finditer(text) if block["name"] == name)
        named = [field.name for field in fields(KINDS[name])]
        if named[0] == SHARED:
            named.pop(0)
        else:
            without.add(f"`{name}`")
        meant = meanings(rows)
        assert list(meant) == named
        assert "?" not in meant.values(), name
    (said,) = re.findall(rf"^Every message but (.*) begins with the field `{SHARED}`", DOCUMENT, re.MULTILINE)
    assert set(re.findall(r"`\w+`", said)) == without
    assert {"constants", "spans"} <= {block["name"] for block in BLOCK.finditer(DOCUMENT)}


def test_every_refusal_is_documented() -> None:
    for code in get_args(Refusal):
        assert f"| `{code}` |" in DOCUMENT


def test_every_message_and_payload_has_golden_bytes() -> None:
    kinds = {golden.kind.split()[0] for golden in GOLDENS}
    assert kinds >= {*KINDS, *ENTRIES, "sparse", "tokens", "lattice", "kv", "digest", "logcode", "trace"}


@pytest.mark.parametrize("golden", GOLDENS, ids=NAMES)
def test_golden_bytes_encode_and_decode(golden: Golden) -> None:
    name, *options = golden.kind.split()
    if name in KINDS:
        message = built(KINDS[name], golden.value)
        [frame] = golden.frames
        assert encode(message).hex(" ") == frame.hex(" ")
        assert decode(frame) == message
    elif name in ENTRIES:
        check_payload(name, golden, options)
    elif name == "sparse":
        check_sparse(golden, int(options[0].removeprefix("vocabulary=")))
    elif name == "lattice":
        check_lattice(golden, dict(option.split("=") for option in options))
    elif name == "tokens":
        vocabulary, (data,) = int(options[0].removeprefix("vocabulary=")), golden.frames
        assert encode_tokens(golden.value, vocabulary).hex(" ") == data.hex(" ")
        assert decode_tokens(data, vocabulary, len(golden.value)) == golden.value
    elif name == "kv":
        check_kv(golden, int(options[0].removeprefix("vocabulary=")))
    elif name == "trace":
        rows: list[list[Any]] = [
            [tuple(part) if isinstance(part, list) else part for part in row] for row in golden.value
        ]
        spans = [Span(*row) for row in rows]
        assert decode_spans(golden.frames[0]) == decode_spans(encode_spans(spans)) == spans
    elif name == "digest":
        assert digest.digest(golden.value).to_bytes(8, "big").hex(" ") == golden.frames[0].hex(" ")
    else:
        assert name == "logcode"
        (probability,) = struct.unpack(">d", golden.frames[0])
        assert logcode.TABLE[golden.value] == probability
        assert logcode.encode_probabilities(np.array([probability])) == [golden.value]


def check_sparse(golden: Golden, vocabulary: int) -> None:
    meant = [SparseEntries(np.array(one["ids"], np.uint32), np.array(one["codes"], np.uint16)) for one in golden.value]
    (data,) = golden.frames
    assert encode_sparse(meant).hex(" ") == data.hex(" ")
    told = decode_sparse(data, vocabulary, len(meant))
    assert [{"ids": one.ids.tolist(), "codes": one.codes.tolist()} for one in told] == golden.value


def check_lattice(golden: Golden, options: dict[str, str]) -> None:
    vocabulary = int(options["vocabulary"])
    code: Any = options["code"]
    meant = [
        (LatticeEntries(np.array(one["ids"], np.uint32), np.array(one["counts"], np.uint32)), one["token"])
        for one in golden.value
    ]
    (data,) = golden.frames
    assert encode_lattice(meant, code, vocabulary).hex(" ") == data.hex(" ")
    without = [token for _, token in meant].count(None)
    told = decode_lattice(data, code, vocabulary, len(meant), without)
    assert [
        {"ids": one.ids.tolist(), "counts": one.counts.tolist(), "token": token} for one, token in told
    ] == golden.value


def check_kv(golden: Golden, vocabulary: int) -> None:
    """A layer is written as key codes, key scales, value codes, value scales."""
    layers = tuple(
        tuple(Codes(np.array(layer[at], np.int8), np.array(layer[at + 1], np.float16)) for at in (0, 2))
        for layer in golden.value["layers"]
    )
    entries = KvEntries(tuple(golden.value["tokens"]), layers)  # type: ignore[arg-type]  # two of each
    (data,) = golden.frames
    assert encode_kv(entries).hex(" ") == data.hex(" ")
    shapes = [KvShape(keys.codes.shape[0], keys.codes.shape[2], values.codes.shape[2]) for keys, values in layers]
    decoded = decode_kv(data, shapes, vocabulary, len(entries.tokens))
    assert decoded.tokens == entries.tokens
    for told, meant in zip(decoded.layers, layers, strict=True):
        for half in (0, 1):
            assert np.array_equal(told[half].codes, meant[half].codes)
            assert np.array_equal(told[half].scales, meant[half].scales)


def check_payload(name: str, golden: Golden, options: list[str]) -> None:
    vocabulary = int(options[0].removeprefix("vocabulary="))
    converted = {key: np.array(value, DTYPES[key]) if key in DTYPES else value for key, value in golden.value.items()}
    entries, (data,) = ENTRIES[name](**converted), golden.frames
    decoded: Any
    match entries:
        case RaceEntries():
            decoded, encoded = decode_race(data, vocabulary, len(entries.ids)), encode_race(entries)
        case TopPEntries():
            decoded, encoded = decode_top_p(data, vocabulary), encode_top_p(entries)
        case _:
            decoded, encoded = decode_raw(data, vocabulary), encode_raw(entries)
    for field in fields(ENTRIES[name]):
        told, meant = getattr(decoded, field.name), getattr(entries, field.name)
        assert np.array_equal(told, meant), field.name
        assert np.asarray(told).dtype == np.asarray(meant).dtype, field.name
    # LZ4 leaves the choice of matches to the compressor, so only the meaning of compressed bytes is fixed.
    if "decode-only" not in options:
        assert encoded.hex(" ") == data.hex(" ")


def test_documented_bits_of_an_index_hold() -> None:
    section = DOCUMENT[DOCUMENT.index("| fixed index") :]
    heads, _, *rows = section[: section.index("\n\n")].splitlines()
    vocabularies = [int(found.replace(",", "")) for found in re.findall(r"V = ([\d,]+)", heads)]
    assert len(rows) == len(vocabularies) == 3
    for row in rows:
        resolution, *bits = map(int, re.findall(r"\d+", row))
        assert bits == [fixed.width(resolution, vocabulary) for vocabulary in vocabularies]
    heads, _, row = section[section.index("| short index") :].splitlines()[:3]
    vocabulary, resolution, *bits = (int(found.replace(",", "")) for found in re.findall(r"[\d,]*\d", row))
    kinds = [int(found) for found in re.findall(r"K = (\d+)", heads)]
    assert len(bits) == 5
    assert bits == [short.short_width(tokens, resolution, vocabulary) for tokens in kinds]
    assert f", 1 to {MOST_RESOLUTION:,}: K tokens share" in DOCUMENT


def test_documented_sizes_hold() -> None:
    (size,) = re.findall(r"A `Target` of one token takes (\d+) bytes", DOCUMENT)
    target = next(golden for golden in GOLDENS if golden.kind == "Target")
    assert wire_size(target.frames[0]) == int(size) <= 24
