"""Hypothesis strategies for every message, derived from its annotations; bounds are drawn often."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from proto.framing import TAGS
from proto.messages import Bytes, Count, Message, Real, Text

LONGEST_DRAWN = 40  # items, characters or bytes; the bounds of long fields have tests of their own


def messages(kinds: tuple[type[Message], ...] = tuple(TAGS)) -> st.SearchStrategy[Any]:
    """Any valid message of the given types."""
    return st.one_of([message(kind) for kind in kinds])


def message(kind: type) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, *[value(hints[field.name]) for field in fields(kind)])


def value(annotation: Any) -> st.SearchStrategy[Any]:
    base, bound = annotation, None
    if get_origin(annotation) is Annotated:
        base, bound = get_args(annotation)
    if get_origin(base) is Literal:
        return st.sampled_from(get_args(base))
    if isinstance(base, type) and is_dataclass(base):
        return message(base)
    match bound:
        case Count(limit, least) if base is int:
            return st.one_of(st.integers(least, limit - 1), st.sampled_from([least, limit - 1]))
        case Count(limit, least):
            longest = min(limit - 1, LONGEST_DRAWN)
            return st.lists(value(get_args(base)[0]), min_size=least, max_size=longest).map(tuple)
        case Real(low, high, or_zero):
            return st.one_of(st.floats(low, high), *([st.just(0.0)] if or_zero else []))
        case Text(limit):
            return st.text(max_size=min(limit // 4, LONGEST_DRAWN))
        case Bytes():
            return st.binary(max_size=LONGEST_DRAWN)
    assert base is bool, annotation
    return st.booleans()
