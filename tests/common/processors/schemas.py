"""Schemas that answers follow, and schemas of strangers."""

from __future__ import annotations

from typing import Any

CAR: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8, "pattern": "^[a-z]+$"},
        "electric": {"type": "boolean"},
        "doors": {"enum": [3, 5]},
    },
    "required": ["name", "electric", "doors"],
    "additionalProperties": False,
}

HOSTILE: dict[str, dict[str, Any]] = {
    "no such type": {"type": "car"},
    "unknown keyword": {"type": "object", "patternRequired": ["a"], "propertyNames": {"pattern": "a"}, "not": {}},
    "nothing": {"enum": []},
    "endless reference": {"$ref": "#"},
    "elsewhere": {"$ref": "https://example.com/schema.json"},
    "an intersection": {"type": "string", "allOf": [{"pattern": f".*a.{{{n}}}b.*"} for n in range(30, 60)]},
}

COSTLY: dict[str, dict[str, Any]] = {
    "a wide repetition": {"type": "string", "pattern": "((a|b)*c){1,9000}"},
    "repetitions of repetitions": {"type": "string", "pattern": "(((a{1,99}){1,99}){1,99}){1,99}"},
    "looking back": {"type": "string", "pattern": "^(.|\\n)*a.{300}$"},
    "many alternatives": {"anyOf": [{"type": "array", "items": {"const": "a" * n}} for n in range(400)]},
}
