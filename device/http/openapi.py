"""`GET /openapi.json`, from the endpoints and the bodies' validating schemas."""

from __future__ import annotations

import re
from typing import Any

from pydantic.json_schema import models_json_schema

from common.methods.catalog import METHODS
from common.process.version import VERSION
from device.http.endpoints import ENDPOINTS, Endpoint
from device.http.fields import REFUSED
from device.http.library import MOST_DIGITS, MOST_HITS, USUAL_HITS
from device.http.schema import OPTIONS, GenerationBody

# Numbers in an address.
_NUMBERS = {
    "chunk": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**MOST_DIGITS},
    "document": {"type": "integer", "minimum": 0, "exclusiveMaximum": 10**MOST_DIGITS},
    "count": {"type": "integer", "minimum": 1, "maximum": MOST_HITS, "default": USUAL_HITS},
}
_TYPES = {"application/json": "object", "text/plain": "string"}  # by media type
_PLACE = "#/components/schemas/{model}"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document() -> dict[str, Any]:
    bodies = [endpoint.body for endpoint in ENDPOINTS if endpoint.body is not None]
    methods = [method.request for method in METHODS.values()]
    _, made = models_json_schema([(kind, "validation") for kind in (*bodies, *methods)], ref_template=_PLACE)
    schemas: dict[str, Any] = made["$defs"]
    options: dict[str, Any] = {}
    for kind in methods:
        options |= {name: value for name, value in schemas[kind.__name__]["properties"].items() if name in OPTIONS}
    options["max_tokens"] = {"type": "integer", "minimum": 1, "description": "Longest answer; clamped to the device's"}
    options["seed"] = {"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**64 - 1}
    for body in bodies:
        if issubclass(body, GenerationBody):
            properties = schemas[body.__name__]["properties"]
            schemas[body.__name__]["properties"] = options | _refused() | properties
    for body in bodies:
        made_of = schemas[body.__name__]
        wanted = made_of.get("required", ())
        made_of["properties"] = {
            name: value if name in wanted else _or_null(value) for name, value in made_of["properties"].items()
        }
    for kind in methods:
        schemas.pop(kind.__name__, None)
    schemas["Error"] = _ERROR
    return {
        "openapi": "3.1.0",
        "info": {"title": "dragon", "version": VERSION},
        "paths": _paths(),
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return paths


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": endpoint.handler,
        "summary": endpoint.summary,
        "security": [{}] if endpoint.public else [{}, {"key": []}],
        "responses": {
            f"{endpoint.status}": {
                "description": "Done",
                "content": {endpoint.media: {"schema": {"type": _TYPES[endpoint.media]}}},
            },
            "default": {
                "description": "Refused or failed",
                "content": {"application/json": {"schema": {"$ref": _PLACE.format(model="Error")}}},
            },
        },
    }
    parameters = [
        {"name": name, "in": place, "required": name != "count", "schema": _NUMBERS.get(name, {"type": "string"})}
        for place, names in (("path", re.findall(r"{(\w+)}", endpoint.path)), ("query", endpoint.query))
        for name in names
    ]
    if parameters:
        made["parameters"] = parameters
    if endpoint.handler == "library_upload":
        made["requestBody"] = {"required": True, "content": {"application/octet-stream": {}}}
    if endpoint.body is not None:
        schema = {"$ref": _PLACE.format(model=endpoint.body.__name__)}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        if issubclass(endpoint.body, GenerationBody):
            made["responses"][f"{endpoint.status}"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return made


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allows null, which omits a field."""
    return schema if None in schema.get("enum", ()) else {"anyOf": [schema, {"type": "null"}]}


def _refused() -> dict[str, Any]:
    return {name: {"enum": [None, *values]} for name, values in REFUSED.items()}
