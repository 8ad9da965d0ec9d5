"""JSON schemas as they bind answers: closed to members that nobody named, and without what they only tell people."""

from __future__ import annotations

from typing import Any, Final

# Where one of these stands beside an object's members, they are not all, or it is said already which others there are.
_OTHERS: Final = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf"}
)
_NAMED: Final = ("properties", "$defs", "definitions")  # schemas by name
_ANNOTATIONS: Final = ("title", "description", "$comment")
_VALUES: Final = ("enum", "const", "default", "examples", "required", "dependentRequired")  # which are no schemas
_BY_NAME: Final = (*_NAMED, "patternProperties", "dependentSchemas")
_PARTS: Final = ("items", "anyOf", "oneOf", "prefixItems")  # a schema, or several of which no two hold together


def closed(schema: Any) -> Any:
    """The schema, whose objects have no members beyond those that are named, unless it says so itself: small models
    invent some without end. A part of an `allOf` stays as it is, as its members are not all.
    """
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for name in schema.keys() & set(_NAMED):
        if isinstance(schema[name], dict):
            made[name] = {key: closed(each) for key, each in schema[name].items()}
    for name in schema.keys() & set(_PARTS):
        made[name] = closed(schema[name])
    if isinstance(schema.get("properties"), dict) and not schema.keys() & _OTHERS:
        made["additionalProperties"] = False
    return made


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
