"""Conversion between messages and the plain values that MessagePack carries, derived from the annotations.

A message is a frozen dataclass whose fields are `bool`, bounded `int`, `float`, `str` and `bytes`, a
`Literal` of names, a bounded `tuple[item, ...]`, or another such dataclass. A `Literal` travels as its index.
The same annotations serve both directions, so what can be sent is what can be received.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from proto.bounds import Bytes, Count, Real, Text
from proto.errors import malformed

Convert = Callable[[Any], Any]
M = TypeVar("M")

_schemas: dict[type, Schema] = {}


@dataclass(frozen=True, slots=True)
class Converters:
    """Conversions of one field: `to_wire` and `from_wire` raise `ProtocolError` for a value out of bounds."""

    to_wire: Convert
    from_wire: Convert


@dataclass(frozen=True, slots=True)
class Schema:
    """A message type, compiled."""

    names: tuple[str, ...]
    to_wire: tuple[Convert, ...]
    from_wire: tuple[Convert, ...]
    has_payload: bool  # the last field is bytes
    least: int  # fields, beside it, that are not left out when they are empty


def pack(message: object) -> list[Any]:
    """The field values of `message` in order, as MessagePack can carry them, and the payload, if its type has one.

    Empty arrays at the end of the others are left out. Raises `ProtocolError`.
    """
    schema = schema_of(type(message))
    values = [convert(getattr(message, name)) for name, convert in zip(schema.names, schema.to_wire, strict=True)]
    payload = [values.pop()] if schema.has_payload else []
    while len(values) > schema.least and not values[-1]:
        values.pop()
    return values + payload


def unpack(kind: type[M], values: list[Any]) -> M:
    """The message of type `kind` whose fields are `values`, as `pack` makes them. Raises `ProtocolError`."""
    schema = schema_of(kind)
    count, given = len(schema.names) - schema.has_payload, values[: len(values) - schema.has_payload]
    if not schema.least <= len(given) <= count or (len(given) > schema.least and given[-1] == []):
        raise malformed(f"{kind.__name__} must have {count} fields, without empty arrays at their end")
    left_out: list[Any] = [[] for _ in range(count - len(given))]
    whole = given + left_out + values[len(given) :]
    return kind(*[convert(value) for convert, value in zip(schema.from_wire, whole, strict=True)])


def schema_of(kind: type) -> Schema:
    """The schema of a message type, compiled once. Raises `TypeError` for a field without a bound."""
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
        # the exact type, because bool is a subclass of int
        if type(value) is not int or not least <= value < limit:
            raise malformed(f"{path} must be an integer from {least} to {limit - 1}")
        return value

    return check


def _real(path: str, bound: Real) -> Converters:
    def refused() -> Exception:
        zero = "0 or " if bound.or_zero else ""
        return malformed(f"{path} must be {zero}a finite number from {bound.low:g} to {bound.high:g}")

    def to_wire(value: Any) -> float:
        # an int stands for a float in Python
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
    """Bytes of `text` in UTF-8; more than `limit` when it has none (lone surrogates)."""
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
