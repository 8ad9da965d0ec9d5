"""Encodes and decodes messages: one message is one ZeroMQ frame.

A frame is a MessagePack header `[tag, version, field, ...]`, then the payload if the message's type has one. The
header's encoding shows its end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgpack

from proto.errors import ProtocolError, malformed, too_large
from proto.messages import (
    Busy,
    Bytes,
    Cancel,
    Close,
    Closed,
    Contributions,
    Count,
    Decided,
    Defer,
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
    Propose,
    Ready,
    Real,
    Resolve,
    Resolved,
    Spans,
    Sync,
    Target,
    Text,
    Verdict,
    Welcome,
)

# --- schema
# Converts messages to and from MessagePack's plain values, by their annotations.
#
# A message is a frozen dataclass. Its fields are `bool`, bounded `int`, `float`, `str` and `bytes`, a `Literal` of
# names, a bounded `tuple[item, ...]`, or another such dataclass. A `Literal` travels as its index. Both directions use
# the same annotations, so everything sendable is receivable.

Convert = Callable[[Any], Any]
M = TypeVar("M")

_schemas: dict[type, Schema] = {}


@dataclass(frozen=True, slots=True)
class Converters:
    """Conversions of one field. Both raise `ProtocolError` for a value out of bounds."""

    to_wire: Convert
    from_wire: Convert


@dataclass(frozen=True, slots=True)
class Schema:
    """A compiled message type."""

    names: tuple[str, ...]
    to_wire: tuple[Convert, ...]
    from_wire: tuple[Convert, ...]
    has_payload: bool  # the last field is bytes
    least: int  # fields, without the payload, that are always sent


def pack(message: object) -> list[Any]:
    """Returns the field values of `message` for MessagePack, then the payload if any.

    Omits empty arrays at the end of the fields. Raises `ProtocolError`.
    """
    schema = schema_of(type(message))
    values = [convert(getattr(message, name)) for name, convert in zip(schema.names, schema.to_wire, strict=True)]
    payload = [values.pop()] if schema.has_payload else []
    while len(values) > schema.least and not values[-1]:
        values.pop()
    return values + payload


def unpack(kind: type[M], values: list[Any]) -> M:
    """Returns the message of type `kind` from `pack`'s values. Raises `ProtocolError`."""
    schema = schema_of(kind)
    count, given = len(schema.names) - schema.has_payload, values[: len(values) - schema.has_payload]
    if not schema.least <= len(given) <= count or (len(given) > schema.least and given[-1] == []):
        raise malformed(f"{kind.__name__} must have {count} fields, without empty arrays at their end")
    left_out: list[Any] = [[] for _ in range(count - len(given))]
    whole = given + left_out + values[len(given) :]
    return kind(*[convert(value) for convert, value in zip(schema.from_wire, whole, strict=True)])


def schema_of(kind: type) -> Schema:
    """Returns a message type's schema, compiled once. Raises `TypeError` for an unbounded field."""
    schema = _schemas.get(kind)
    if schema is None:
        schema = _schemas[kind] = _compile_message(kind)
    return schema


def _compile_message(kind: type) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    names = tuple(field.name for field in fields(kind))
    converters = [_compile(f"{kind.__name__}.{name}", hints[name]) for name in names]
    has_payload = _split(hints[names[-1]])[0] is bytes
    least = len(names) - has_payload
    while least and get_origin(_split(hints[names[least - 1]])[0]) is tuple:
        least -= 1
    return Schema(
        names=names,
        to_wire=tuple(converter.to_wire for converter in converters),
        from_wire=tuple(converter.from_wire for converter in converters),
        has_payload=has_payload,
        least=least,
    )


def _split(annotation: Any) -> tuple[Any, object]:
    """The bare type of an annotation and its bound, None without one."""
    if get_origin(annotation) is Annotated:
        base, *bounds = get_args(annotation)
        if len(bounds) != 1:
            raise TypeError(f"{annotation} must have exactly one bound")
        return base, bounds[0]
    return annotation, None


def _compile(path: str, annotation: Any) -> Converters:
    base, bound = _split(annotation)
    if base is bool:
        return _same(_boolean(path))
    if base is int and isinstance(bound, Count):
        return _same(_integer(path, bound))
    if base is float and isinstance(bound, Real):
        return _real(path, bound)
    if base is str and isinstance(bound, Text):
        return _same(_text(path, bound.limit))
    if base is bytes and isinstance(bound, Bytes):
        return _same(_bytes(path, bound.limit))
    if get_origin(base) is Literal:
        return _choice(path, get_args(base))
    if get_origin(base) is tuple and isinstance(bound, Count):
        item, _ = get_args(base)
        return _array(path, _compile(f"{path}[]", item), bound)
    if isinstance(base, type) and is_dataclass(base):
        return _nested(path, base)
    raise TypeError(f"{path}: {annotation} can't be sent, or lacks its bound")


def _same(check: Convert) -> Converters:
    return Converters(to_wire=check, from_wire=check)


def _boolean(path: str) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is not bool:
            raise malformed(f"{path} must be a boolean")
        return value

    return check


def _integer(path: str, bound: Count) -> Convert:
    least, limit = bound.least, bound.limit

    def check(value: Any) -> Any:
        # the exact type, as bool is a subclass of int
        if type(value) is not int or not least <= value < limit:
            raise malformed(f"{path} must be an integer from {least} to {limit - 1}")
        return value

    return check


def _real(path: str, bound: Real) -> Converters:
    def refused() -> Exception:
        zero = "0 or " if bound.or_zero else ""
        return malformed(f"{path} must be {zero}a finite number from {bound.low:g} to {bound.high:g}")

    def to_wire(value: Any) -> float:
        # Python accepts an int for a float
        if not isinstance(value, float | int) or isinstance(value, bool) or not bound.allows(value):
            raise refused()
        return float(value)

    def from_wire(value: Any) -> Any:
        if type(value) is not float or not bound.allows(value):
            raise refused()
        return value

    return Converters(to_wire, from_wire)


def _text(path: str, limit: int) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is not str or _utf8_length(value, limit) > limit:
            raise malformed(f"{path} must be UTF-8 text of at most {limit} bytes")
        return value

    return check


def _utf8_length(text: str, limit: int) -> int:
    """Bytes of `text` in UTF-8, above `limit` if not encodable (lone surrogates)."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return limit + 1


def _bytes(path: str, limit: int) -> Convert:
    def check(value: Any) -> Any:
        if type(value) is not bytes or len(value) > limit:
            raise malformed(f"{path} must be at most {limit} bytes")
        return value

    return check


def _choice(path: str, names: tuple[str, ...]) -> Converters:
    codes = {name: code for code, name in enumerate(names)}

    def to_wire(value: Any) -> int:
        if type(value) is not str or value not in codes:
            raise malformed(f"{path} must be one of {', '.join(names)}")
        return codes[value]

    def from_wire(value: Any) -> str:
        if type(value) is not int or not 0 <= value < len(names):
            raise malformed(f"{path} must be an index from 0 to {len(names) - 1}, of {', '.join(names)}")
        return names[value]

    return Converters(to_wire, from_wire)


def _array(path: str, item: Converters, bound: Count) -> Converters:
    least, limit = bound.least, bound.limit

    def refused() -> Exception:
        allowed = f"{least} to" if least else "at most"
        return malformed(f"{path} must be an array of {allowed} {limit - 1} items")

    def to_wire(value: Any) -> list[Any]:
        if type(value) is not tuple or not least <= len(value) < limit:
            raise refused()
        return [item.to_wire(element) for element in value]

    def from_wire(value: Any) -> tuple[Any, ...]:
        if type(value) is not list or not least <= len(value) < limit:
            raise refused()
        return tuple([item.from_wire(element) for element in value])

    return Converters(to_wire, from_wire)


def _nested(path: str, kind: type) -> Converters:
    def to_wire(value: Any) -> list[Any]:
        if type(value) is not kind:
            raise malformed(f"{path} must be a {kind.__name__}")
        return pack(value)

    def from_wire(value: Any) -> object:
        if type(value) is not list:
            raise malformed(f"{path} must be the array of a {kind.__name__}")
        return unpack(kind, value)

    return Converters(to_wire, from_wire)


# --- framing

PROTOCOL_VERSION: Final = 5

HEADER_LIMIT: Final = 2**19  # bytes; a prompt takes most of it
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
    """Returns the frame of `message`: its header, and its payload if its type has one.

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
    """Returns the message in `frame`.

    Raises `ProtocolError` with code "too-large" (a part over its limit), "version" (of the peer), "unknown-message"
    (tag) or "malformed" (other faults).
    """
    if len(frame) > HEADER_LIMIT + payload_limit:
        raise too_large(f"a message must be at most {HEADER_LIMIT + payload_limit} bytes")
    end = _header_end(frame)
    tag, version, *values = _header(frame[:end])
    # An Error reads the same in every version, so that users can see a refusal of the version.
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
    """Returns the bytes of `frame` on a ZMTP 3 connection: 2 of framing, 9 above 255 bytes."""
    return len(frame) + (2 if len(frame) < 256 else 9)


def _check_payload(size: int, payload_limit: int) -> None:
    if payload_limit > LARGEST_PAYLOAD:
        raise ValueError(f"payload_limit must be at most {LARGEST_PAYLOAD}")
    if size > payload_limit:
        raise too_large(f"a payload must be at most {payload_limit} bytes")


def _header_end(frame: bytes) -> int:
    """Length of the header, which is the offset of the payload.

    msgpack allocates an array of the claimed length, so nested claims could cost gigabytes. Skipping allocates
    nothing, and succeeds only if every claimed element exists.
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
    """The header's array, which starts with an integer tag and version."""
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
    """Whether float32 represents every float in `value`, a packed field or list, exactly."""
    if type(value) is list:
        return all(_fits_single(item) for item in value)
    if type(value) is not float:
        return True
    try:
        return bool(_SINGLE.unpack(_SINGLE.pack(value))[0] == value)
    except OverflowError:
        return False
