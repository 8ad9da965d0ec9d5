"""JSON schemas as they bind answers: closed to members that nobody named, and without what they only tell people."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, Final

_IN_PLACE: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})  # schemas of the very value, not of what it has
# Where one of these stands beside an object's members, they are not all, or it is said already which others there are.
_OTHERS: Final = _IN_PLACE | {"additionalProperties", "unevaluatedProperties", "patternProperties", "minProperties"}
_DEFINED: Final = ("$defs", "definitions")
_NAMED: Final = ("properties", *_DEFINED)  # schemas by name
_ANNOTATIONS: Final = ("title", "description", "$comment")
_VALUES: Final = ("enum", "const", "default", "examples", "required", "dependentRequired")  # which are no schemas
_BY_NAME: Final = (*_NAMED, "patternProperties", "dependentSchemas")
_PARTS: Final = ("items", "anyOf", "oneOf", "prefixItems")  # a schema, or several of which no two hold together
_CONTENTS: Final = frozenset({"properties", "patternProperties", "items", "prefixItems"})


def closed(schema: Any) -> Any:
    """The schema, whose objects have no members beyond those that are named, unless it says so itself: small models
    invent some without end. Schemas that hold together for an object stay as they are, as the members of one are not
    all; so do definitions where one of such schemas is a reference to one.
    """
    return _closed(schema, {reference.removeprefix("#/").partition("/")[0] for reference in _references(schema, False)})


def _closed(schema: Any, kept: Set[str]) -> Any:
    """As `closed`; what stands under the keywords `kept` stays as it is."""
    if isinstance(schema, list):
        return [_closed(each, kept) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made, together = dict(schema), _hold_together(schema)
    for name in schema.keys() & set(_DEFINED if together else _NAMED) - kept:
        if isinstance(schema[name], dict):
            made[name] = {key: _closed(each, kept) for key, each in schema[name].items()}
    for name in schema.keys() & set(() if together else _PARTS) - kept:
        made[name] = _closed(schema[name], kept)
    if isinstance(schema.get("properties"), dict) and not schema.keys() & _OTHERS and _names_what_it_requires(schema):
        made["additionalProperties"] = False
    return made


def _references(schema: Any, together: bool) -> Iterator[str]:
    """The references to schemas that hold together with another one; all that there are if `together`."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each, together)
    elif isinstance(schema, dict):
        together = together or _hold_together(schema)
        if together and isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for keyword, each in schema.items():
            yield from _references(each, together and keyword not in _DEFINED)


def _hold_together(schema: dict[str, Any]) -> bool:
    """Whether several parts of the schema say what one object or array has; of a choice, its alternatives are one."""
    own = any(schema.get(keyword) for keyword in (*_CONTENTS, "required"))
    choices = sum(any(map(_speaks, _listed(schema, keyword))) for keyword in ("anyOf", "oneOf"))
    return own + ("$ref" in schema) + choices + len(_listed(schema, "allOf")) > 1


def _speaks(part: Any) -> bool:
    """Whether a part says more of it than which members it must have."""
    return isinstance(part, dict) and bool(part.keys() & (_CONTENTS | _IN_PLACE))


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    parts = schema.get(keyword)
    return parts if isinstance(parts, list) else []


def _names_what_it_requires(schema: dict[str, Any]) -> bool:
    required = {name for name in _listed(schema, "required") if isinstance(name, str)}
    return required.issubset(schema["properties"])


def lean(schema: Any) -> Any:
    """The schema without what it only tells people, which would take room on the way to the cloud."""
    if isinstance(schema, list):
        return [lean(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, dict):
            kept[keyword] = {name: lean(each) for name, each in value.items()}
        elif keyword not in _ANNOTATIONS:
            kept[keyword] = value if keyword in _VALUES else lean(value)
    return kept
