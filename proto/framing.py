"""Messages to bytes and back: one message is one ZeroMQ frame.

A frame is a MessagePack header `[tag, version, field, ...]`, then the payload if the message's type has one. The
header says where it ends.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgpack

from proto.errors import ProtocolError, malformed, too_large
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Closed,
    Contributions,
    Draft,
    Error,
    Fetch,
    Fetched,
    Generated,
    Hello,
    Message,
    Open,
    Probe,
    ProbeReply,
    Ready,
    Resolve,
    Resolved,
    Spans,
    Sync,
    Target,
    Welcome,
)
from proto.rounds import Decided, Defer, Propose, Verdict
from proto.schema import pack, schema_of, unpack

PROTOCOL_VERSION: Final = 5

HEADER_LIMIT: Final = 2**16  # bytes
PAYLOAD_LIMIT: Final = 2**16  # bytes, unless the caller allows more
LARGEST_PAYLOAD: Final = 2**21  # bytes; a `raw` draft of a large vocabulary

TAGS: Final[dict[type[Message], int]] = {
    Hello: 1,
    Welcome: 2,
    Open: 3,
    Ready: 4,
    Draft: 5,
    Target: 6,
    Resolve: 7,
    Resolved: 8,
    Sync: 9,
    Close: 10,
    Closed: 11,
    Cancel: 12,
    Probe: 13,
    ProbeReply: 14,
    Busy: 15,
    Error: 16,
    Fetch: 17,
    Fetched: 18,
    Generated: 19,
    Spans: 20,
    Contributions: 21,
    Propose: 22,
    Verdict: 23,
    Decided: 24,
    Defer: 25,
}
_KINDS: Final[dict[int, type[Message]]] = {tag: kind for kind, tag in TAGS.items()}

_SINGLE = struct.Struct("<f")
_ONE_ARRAY: Final = "a message must begin with one MessagePack array, without maps and extensions"


def encode(message: Message, payload_limit: int = LARGEST_PAYLOAD) -> bytes:
    """The frame of `message`: its header, and its payload when its type has one.

    Raises `ProtocolError` for a field out of bounds ("malformed") or a part over its limit ("too-large").
    """
    kind = type(message)
    values = pack(message)
    payload: bytes = values.pop() if schema_of(kind).has_payload else b""
    header: bytes = msgpack.packb([TAGS[kind], PROTOCOL_VERSION, *values], use_single_float=_fits_single(values))
    if len(header) > HEADER_LIMIT:
        raise too_large(f"a header must be at most {HEADER_LIMIT} bytes")
    _check_payload(len(payload), payload_limit)
    return header + payload


def decode(frame: bytes, payload_limit: int = PAYLOAD_LIMIT) -> Message:
    """The message in `frame`.

    Raises `ProtocolError` with code "too-large" (a part over its limit), "version" (the peer speaks another
    one), "unknown-message" (no such tag) or "malformed" (anything else).
    """
    if len(frame) > HEADER_LIMIT + payload_limit:
        raise too_large(f"a message must be at most {HEADER_LIMIT + payload_limit} bytes")
    end = _header_end(frame)
    tag, version, *values = _header(frame[:end])
    # An Error reads the same in every version, so that a refusal of the version can be shown to the user.
    if version != PROTOCOL_VERSION and tag != TAGS[Error]:
        raise ProtocolError(
            "version",
            f"this side speaks protocol version {PROTOCOL_VERSION}, the peer {version}; update the older one",
        )
    kind = _KINDS.get(tag)
    if kind is None:
        raise ProtocolError("unknown-message", f"protocol version {PROTOCOL_VERSION} has no tag {tag}")
    if schema_of(kind).has_payload:
        _check_payload(len(frame) - end, payload_limit)
        values.append(frame[end:])
    elif end < len(frame):
        raise malformed(f"{kind.__name__} has no payload, so nothing may follow its header")
    return unpack(kind, values)


def wire_size(frame: bytes) -> int:
    """Bytes that `frame` takes on a ZMTP 3 connection: 2 of framing for up to 255 bytes, 9 beyond."""
    return len(frame) + (2 if len(frame) < 256 else 9)


def _check_payload(size: int, payload_limit: int) -> None:
    if payload_limit > LARGEST_PAYLOAD:
        raise ValueError(f"payload_limit must be at most {LARGEST_PAYLOAD}")
    if size > payload_limit:
        raise too_large(f"a payload must be at most {payload_limit} bytes")


def _header_end(frame: bytes) -> int:
    """Length of the header, which is the offset of the payload.

    msgpack allocates an array when it reads its claimed length, so nested claims could cost gigabytes. Skipping
    allocates nothing, and succeeds only if every claimed element is there.
    """
    walker = msgpack.Unpacker(None, max_buffer_size=HEADER_LIMIT)
    walker.feed(frame[:HEADER_LIMIT])
    try:
        walker.skip()
    except (ValueError, msgpack.UnpackException):
        if len(frame) > HEADER_LIMIT:
            raise too_large(f"a header must be at most {HEADER_LIMIT} bytes") from None
        raise malformed(_ONE_ARRAY) from None
    end: int = walker.tell()
    return end


def _header(header: bytes) -> list[Any]:
    """The header's array, with an integer tag and version in front."""
    try:
        values = msgpack.unpackb(
            header,
            raw=False,
            strict_map_key=True,
            max_array_len=HEADER_LIMIT,
            max_str_len=HEADER_LIMIT,
            max_bin_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException):
        raise malformed(_ONE_ARRAY) from None
    if type(values) is not list or [type(value) for value in values[:2]] != [int, int]:
        raise malformed("a header must be an array that starts with an integer tag and version")
    return values


def _fits_single(value: Any) -> bool:
    """Whether float32 holds every float in `value`, a packed field or a list of them, exactly."""
    if type(value) is list:
        return all(_fits_single(item) for item in value)
    if type(value) is not float:
        return True
    try:
        return bool(_SINGLE.unpack(_SINGLE.pack(value))[0] == value)
    except OverflowError:
        return False
