"""Messages to ZeroMQ frames and back.

A message is a MessagePack header `[tag, version, field, ...]`, then its payload if its type has one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgpack

from proto.errors import ProtocolError, malformed, too_large
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Closed,
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
from proto.schema import pack, schema_of, unpack

PROTOCOL_VERSION: Final = 2

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
}
_KINDS: Final[dict[int, type[Message]]] = {tag: kind for kind, tag in TAGS.items()}

_SINGLE = struct.Struct("<f")


def encode(message: Message, payload_limit: int = LARGEST_PAYLOAD) -> list[bytes]:
    """The frames of `message`: its header, and its payload when its type has one (empty ones included).

    Raises `ProtocolError` for a field out of bounds ("malformed") or a frame over its limit ("too-large").
    """
    kind = type(message)
    schema = schema_of(kind)
    values = pack(message)
    payload = values.pop() if schema.has_payload else None
    header: bytes = msgpack.packb([TAGS[kind], PROTOCOL_VERSION, *values], use_single_float=_fits_single(values))
    frames = [header] if payload is None else [header, payload]
    _check_sizes(frames, payload_limit)
    return frames


def decode(frames: Sequence[bytes], payload_limit: int = PAYLOAD_LIMIT) -> Message:
    """The message in `frames`.

    Raises `ProtocolError` with code "too-large" (a frame over its limit), "version" (the peer speaks another
    one), "unknown-message" (no such tag) or "malformed" (anything else).
    """
    if not 1 <= len(frames) <= 2:
        raise malformed("a message must be one or two frames")
    _check_sizes(frames, payload_limit)
    tag, version, *values = _header(frames[0])
    # An Error reads the same in every version, so that a refusal of the version can be shown to the user.
    if version != PROTOCOL_VERSION and tag != TAGS[Error]:
        raise ProtocolError(
            "version",
            f"this side speaks protocol version {PROTOCOL_VERSION}, the peer {version}; update the older one",
        )
    kind = _KINDS.get(tag)
    if kind is None:
        raise ProtocolError("unknown-message", f"protocol version {PROTOCOL_VERSION} has no tag {tag}")
    if schema_of(kind).has_payload != (len(frames) == 2):
        raise malformed(f"{kind.__name__} must be {1 + schema_of(kind).has_payload} frames")
    return unpack(kind, [*values, *frames[1:]])


def wire_size(frames: Sequence[bytes]) -> int:
    """Bytes that `frames` take on a ZMTP 3 connection: 2 of framing for up to 255 bytes, 9 beyond."""
    return sum(len(frame) + (2 if len(frame) < 256 else 9) for frame in frames)


def _check_sizes(frames: Sequence[bytes], payload_limit: int) -> None:
    if payload_limit > LARGEST_PAYLOAD:
        raise ValueError(f"payload_limit must be at most {LARGEST_PAYLOAD}")
    if len(frames[0]) > HEADER_LIMIT:
        raise too_large(f"a header frame must be at most {HEADER_LIMIT} bytes")
    if len(frames) == 2 and len(frames[1]) > payload_limit:
        raise too_large(f"a payload frame must be at most {payload_limit} bytes")


def _header(frame: bytes) -> list[Any]:
    """The header's array, with an integer tag and version in front."""
    try:
        # msgpack allocates an array when it reads its claimed length, so nested claims could cost gigabytes.
        # Skipping allocates nothing, and succeeds only if every claimed element is there.
        walker = msgpack.Unpacker(None, max_buffer_size=HEADER_LIMIT)
        walker.feed(frame)
        walker.skip()
        values = msgpack.unpackb(
            frame,
            raw=False,
            strict_map_key=True,
            max_array_len=HEADER_LIMIT,
            max_str_len=HEADER_LIMIT,
            max_bin_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
    except (ValueError, msgpack.UnpackException):
        raise malformed("a header must be one MessagePack array, without maps and extensions") from None
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
