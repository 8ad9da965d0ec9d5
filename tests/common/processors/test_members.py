"""Objects of schemas that don't say whether there are other members than theirs, and what schemas only tell people."""

from __future__ import annotations

from typing import Any

import pytest

from common.processors.calls import closed, lean

NAMED: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
CLOSED = NAMED | {"additionalProperties": False}
OF_BOTH: dict[str, Any] = {"allOf": [{"$ref": "#/$defs/b"}, {"properties": {"c": True}}]}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (NAMED, CLOSED),
        ({"type": "object"}, {"type": "object"}),
        (NAMED | {"additionalProperties": True}, NAMED | {"additionalProperties": True}),
        (NAMED | {"patternProperties": {"b": True}}, NAMED | {"patternProperties": {"b": True}}),
        ({"properties": {"b": NAMED}}, {"properties": {"b": CLOSED}, "additionalProperties": False}),
        ({"items": NAMED, "prefixItems": [NAMED]}, {"items": CLOSED, "prefixItems": [CLOSED]}),
        ({"$ref": "#/$defs/b", "$defs": {"b": NAMED}}, {"$ref": "#/$defs/b", "$defs": {"b": CLOSED}}),
        ({"anyOf": [NAMED, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"allOf": [NAMED, {"required": ["b"]}]}, {"allOf": [NAMED, {"required": ["b"]}]}),
        (
            {"allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": NAMED}},
            {"allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": CLOSED}},
        ),
        (OF_BOTH | {"$defs": {"b": NAMED}}, OF_BOTH | {"$defs": {"b": NAMED}}),
        ({"items": OF_BOTH, "$defs": {"b": NAMED}}, {"items": OF_BOTH, "$defs": {"b": NAMED}}),
        (
            {"properties": {"b": OF_BOTH, "d": NAMED}, "$defs": {"b": NAMED}},
            {"properties": {"b": OF_BOTH, "d": CLOSED}, "$defs": {"b": NAMED}, "additionalProperties": False},
        ),
        (NAMED | {"oneOf": [NAMED]}, NAMED | {"oneOf": [NAMED]}),
        (NAMED | {"oneOf": [NAMED], "$defs": {"b": NAMED}}, NAMED | {"oneOf": [NAMED], "$defs": {"b": CLOSED}}),
        (
            {"properties": {"b": NAMED}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
            {"properties": {"b": CLOSED}, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]},
        ),
        (NAMED | {"required": ["a", "b"]}, NAMED | {"required": ["a", "b"]}),
        (NAMED | {"required": ["a", []]}, CLOSED | {"required": ["a", []]}),
        ({"properties": {"properties": True}}, {"properties": {"properties": True}, "additionalProperties": False}),
        ({"enum": [NAMED]}, {"enum": [NAMED]}),
        ({"items": True, "properties": 1}, {"items": True, "properties": 1}),
    ],
)
def test_they_have_none_unless_the_schema_says_so(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert closed(schema) == expected


def test_only_what_binds_is_kept() -> None:
    schema = {
        "title": "Where",
        "description": "Of a place.",
        "properties": {"title": {"type": "string", "description": "x"}, "kind": {"const": {"title": "y"}}},
        "dependentRequired": {"title": ["kind"]},
        "$defs": {"description": {"title": "z", "enum": ["title"]}},
        "anyOf": [{"description": "a", "required": ["title"]}, True],
    }
    assert lean(schema) == {
        "properties": {"title": {"type": "string"}, "kind": {"const": {"title": "y"}}},
        "dependentRequired": {"title": ["kind"]},
        "$defs": {"description": {"enum": ["title"]}},
        "anyOf": [{"required": ["title"]}, True],
    }
