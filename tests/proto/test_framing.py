"""Frames: round trips, and that nothing a peer sends does more than raise `ProtocolError`."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields
from typing import Any, cast

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proto import framing
from proto.errors import ProtocolError
from proto.framing import (
    HEADER_LIMIT,
    LARGEST_PAYLOAD,
    PAYLOAD_LIMIT,
    PROTOCOL_VERSION,
    TAGS,
    decode,
    encode,
    wire_size,
)
from proto.messages import Cancel, Draft, Error, Message, Open, Probe, Sync, Target
from tests.proto.strategies import message, messages

DRAFT = Draft(0xDEADBEEF, 2, 300, 2**60, -3.25, 20_000, b"payload")
TARGET = Target(0xDEADBEEF, 1, 300, (151_935, 7), "cloud")


def code_of(frame: bytes, payload_limit: int = PAYLOAD_LIMIT) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode(frame, payload_limit)
    return caught.value.code


def header(*values: Any) -> bytes:
    packed: bytes = msgpack.packb(list(values))
    return packed


def header_of(sent: Message) -> bytes:
    frame = encode(sent)
    return frame[: len(frame) - len(getattr(sent, "payload", b""))]


@given(messages())
def test_any_message_survives(sent: Message) -> None:
    frame = encode(sent)
    assert decode(frame) == sent
    assert encode(decode(frame)) == frame


@given(message(Draft))
def test_float_is_never_rounded_on_the_way(sent: Draft) -> None:
    received = decode(encode(sent))
    assert isinstance(received, Draft)
    assert received.evidence == sent.evidence


@pytest.mark.parametrize("sent", [DRAFT, TARGET], ids=["Draft", "Target"])
def test_every_truncation_is_malformed(sent: Message) -> None:
    first = header_of(sent)
    for length in range(len(first)):
        assert code_of(first[:length]) == "malformed"


def test_bytes_behind_a_message_without_payload_are_malformed() -> None:
    for extra in (b"\0", b"\xc0", encode(TARGET)):
        assert code_of(encode(TARGET) + extra) == "malformed"


@given(messages(), st.data())
@settings(max_examples=200)
def test_flipped_bits_give_a_message_or_a_refusal(sent: Message, data: st.DataObject) -> None:
    flipped = bytearray(encode(sent))
    for _ in range(data.draw(st.integers(1, 3))):
        flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        received = decode(bytes(flipped))
    except ProtocolError:
        return
    assert decode(encode(received)) == received


@given(st.binary(max_size=192))
def test_noise_is_refused(frame: bytes) -> None:
    assert code_of(frame) in ("malformed", "unknown-message", "version")


@given(
    st.sampled_from(list(TAGS.values())),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=12,
    ),
)
def test_well_formed_header_gives_a_message_or_a_refusal(tag: int, content: Any) -> None:
    values = content if isinstance(content, list) else [content]
    for payload in (b"", b"\x05"):
        try:
            received = decode(header(tag, PROTOCOL_VERSION, *values) + payload)
        except ProtocolError:
            continue
        assert TAGS[type(received)] == tag


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc0",
        b"\x90",
        b"\x91\x0c",
        b"\xc1",
        msgpack.packb({12: PROTOCOL_VERSION}),
        msgpack.packb(["12", PROTOCOL_VERSION, 5]),
        msgpack.packb([True, PROTOCOL_VERSION, 5]),
        msgpack.packb([12, float(PROTOCOL_VERSION), 5]),
        msgpack.packb([12, PROTOCOL_VERSION, 5, 5]),
        msgpack.packb([12, PROTOCOL_VERSION]),
        msgpack.packb([12, PROTOCOL_VERSION, {}]),
        msgpack.packb([12, PROTOCOL_VERSION, [5]]),
        msgpack.packb([12, PROTOCOL_VERSION, b"5"]),
        msgpack.packb([12, PROTOCOL_VERSION, msgpack.ExtType(5, b"")]),
        msgpack.packb([12, PROTOCOL_VERSION, msgpack.ExtType(5, b"five")]),
        msgpack.packb([12, PROTOCOL_VERSION, msgpack.Timestamp(5)]),
        msgpack.packb([12, PROTOCOL_VERSION, -5]),
        b"\x94\x10\x05\x00\xa1\xff",  # text that is not UTF-8
        b"\xdd\xff\xff\xff\xff\x0c\x05\x05",  # 2**32 - 1 fields claimed
        b"\x93\x0c\x05\xdb\xff\xff\xff\xff",  # as many characters
        b"\x93\x0c\x05\xc6\xff\xff\xff\xff",  # as many bytes
        b"\x93\x0c\x05\xc9\xff\xff\xff\xff\x05",  # an extension of them
        b"\x93\x0c\x05\xdf\xff\xff\xff\xff",  # as many pairs
        b"\x93\x0c\x05" + b"\x91" * 60_000 + b"\x05",  # depth
    ],
)
def test_header_that_is_no_message_is_malformed(frame: bytes) -> None:
    assert code_of(frame) == "malformed"
    assert decode(b"\x93\x0c\x05\x05") == Cancel(5)


def test_nested_claims_allocate_nothing() -> None:
    """Reading 1,000 nested claims of 65,535 items would allocate 500 MiB for 3 KiB received."""
    frame = b"\x93\x09\x05" + b"\xdc\xff\xff" * 1000
    tracemalloc.start()
    try:
        assert code_of(frame) == "malformed"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20


def test_version_mismatch_says_both_versions_and_precedes_everything_else() -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(header(200, PROTOCOL_VERSION + 1, "anything"))
    assert caught.value.code == "version"
    assert f"version {PROTOCOL_VERSION}" in caught.value.text
    assert f"peer {PROTOCOL_VERSION + 1}" in caught.value.text


def test_error_is_read_whatever_its_version() -> None:
    frame = header(TAGS[Error], PROTOCOL_VERSION + 7, 0, "version", "update the device")
    assert decode(frame) == Error(0, "version", "update the device")


@pytest.mark.parametrize("tag", [0, -1, max(TAGS.values()) + 1, 127, 2**63])
def test_unknown_tag_has_its_own_code(tag: int) -> None:
    assert code_of(header(tag, PROTOCOL_VERSION, 5)) == "unknown-message"


def test_payload_is_what_follows_the_header() -> None:
    values = [TAGS[Draft], PROTOCOL_VERSION, 5, 0, 0, 0, 0.0, 0]
    for payload in (b"", b"\x05", header(*values), bytes(1000)):
        received = decode(header(*values) + payload)
        assert isinstance(received, Draft) and received.payload == payload
    assert code_of(header(*values, b"")) == "malformed"
    assert code_of(header(*values, b"") + b"\x05") == "malformed"


def test_parts_over_their_limit_are_refused_by_their_size() -> None:
    first = header_of(DRAFT)
    assert isinstance(decode(first + bytes(PAYLOAD_LIMIT)), Draft)
    assert code_of(first + bytes(PAYLOAD_LIMIT + 1)) == "too-large"
    assert isinstance(decode(first + bytes(LARGEST_PAYLOAD), LARGEST_PAYLOAD), Draft)
    assert code_of(first + bytes(LARGEST_PAYLOAD + 1), LARGEST_PAYLOAD) == "too-large"
    assert code_of(header(TAGS[Cancel], PROTOCOL_VERSION, "x" * HEADER_LIMIT)) == "too-large"
    assert code_of(bytes(HEADER_LIMIT + PAYLOAD_LIMIT + 1)) == "too-large"
    with pytest.raises(ValueError, match="payload_limit"):
        decode(first, LARGEST_PAYLOAD + 1)


def test_sender_refuses_what_the_receiver_would(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = Sync(1, 0, (2**24 - 1,) * (2**16 - 1), "device", False)
    assert decode(encode(longest)) == longest
    monkeypatch.setattr(framing, "HEADER_LIMIT", 2**16)
    for sent, limit in ((longest, LARGEST_PAYLOAD), (DRAFT, 6)):
        with pytest.raises(ProtocolError) as caught:
            encode(sent, limit)
        assert caught.value.code == "too-large"


@given(message(Open))
def test_longest_question_fits_into_a_header(request: Open) -> None:
    values = {field.name: getattr(request, field.name) for field in fields(request)}
    values |= {"question": "q" * 2**14, "prompt": "p" * 2**18, "documents_at": 2**18}
    longest = Open(**values)
    assert decode(encode(longest)) == longest


def test_wire_size_counts_zmtp_framing() -> None:
    assert wire_size(bytes(255)) == 257
    assert wire_size(bytes(256)) == 265


@pytest.mark.parametrize("kind", [each for each in TAGS if "session" in {field.name for field in fields(each)}])
def test_only_an_error_may_be_about_the_link_itself(kind: type[Message]) -> None:
    """No session has its number, 0."""
    with pytest.raises(ProtocolError) as refusal:
        encode(cast(Any, kind)(*[0 for _ in fields(kind)]))
    assert ("session" in str(refusal.value)) == (kind is not Error)


@given(st.integers(1, 2**32 - 1), st.integers(0, 127), st.integers(0, 65_535), st.integers(0, 2**24 - 1))
def test_target_of_one_token_is_small(session: int, epoch: int, position: int, token: int) -> None:
    assert wire_size(encode(Target(session, epoch, position, (token,), "cloud"))) <= 24


def test_probe_keeps_microseconds_of_any_clock() -> None:
    assert decode(encode(Probe(2**32 - 1, 2**63 - 1))) == Probe(2**32 - 1, 2**63 - 1)
