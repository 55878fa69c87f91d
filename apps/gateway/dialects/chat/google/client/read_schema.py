"""Google generateContent, client side: converts Google's `Schema` (of OpenAPI 3.0) to JSON Schema.

Knows the fields of a `Schema`: types in capitals, `nullable`, whole numbers as strings. What is JSON Schema already
stays as it is. Must never know what a schema is for.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.dialects.reading.fields import Record

_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
_RENAMED = {"ref": "$ref", "defs": "$defs"}
_NAMED_PARTS = frozenset({"properties", "defs", "$defs", "definitions", "patternProperties"})
_PARTS = frozenset({"items", "additionalProperties"})
_LISTED_PARTS = frozenset({"anyOf", "prefixItems"})
_ORDER = "propertyOrdering"
# What only orders fields, or says nothing.
_LEFT_OUT = frozenset({"nullable", _ORDER})
# Values, in which nothing is a keyword.
_VALUES = frozenset({"enum", "const", "default", "example", "examples"})


def json_schema_of(schema: Record) -> Record:
    """Return a schema as JSON Schema; models write fields in the order of `propertyOrdering`."""
    wire: Record = {}
    for name, value in schema.items():
        if value is None or name in _LEFT_OUT:
            continue
        said = _said(name, value)
        if said is not None:
            wire[_RENAMED.get(name, name)] = said
    _put_in_order(wire, schema.get(_ORDER))
    return _nullable(wire) if schema.get("nullable") is True else wire


def ordered(schema: Record) -> Record:
    """Return a JSON Schema with fields in the order of `propertyOrdering`, and without that keyword of Google's:
    other providers refuse schemas with keywords that they do not know."""
    wire = {name: _ordered(name, value) for name, value in schema.items() if name != _ORDER}
    _put_in_order(wire, schema.get(_ORDER))
    return wire


def _ordered(name: str, value: Any) -> Any:
    if name in _VALUES:
        return value
    if isinstance(value, list):
        return [ordered(part) if isinstance(part, dict) else part for part in value]
    if not isinstance(value, dict):
        return value
    if name in _NAMED_PARTS:
        return {key: ordered(part) if isinstance(part, dict) else part for key, part in value.items()}
    return ordered(value)


def _put_in_order(wire: Record, order: Any) -> None:
    properties = wire.get("properties")
    if isinstance(order, list) and isinstance(properties, dict):
        first = {name: properties[name] for name in order if isinstance(name, str) and name in properties}
        wire["properties"] = {**first, **properties}


def _said(name: str, value: Any) -> Any:
    """Return the value of a keyword; None for one that says nothing in JSON Schema."""
    if name == "type" and isinstance(value, str):
        return None if value == "TYPE_UNSPECIFIED" else value.lower()
    if name in _COUNTS and isinstance(value, str) and value.isdecimal():
        return int(value[:18])
    if name in _NAMED_PARTS and isinstance(value, dict):
        return {key: _part(inner) for key, inner in value.items()}
    if name in _PARTS:
        return _part(value)
    if name in _LISTED_PARTS and isinstance(value, list):
        return [_part(inner) for inner in value]
    # OpenAPI's word for a text that is one of `enum`.
    return None if name == "format" and value == "enum" else value


def _part(value: Any) -> Any:
    return json_schema_of(value) if isinstance(value, dict) else value


def _nullable(wire: Record) -> Record:
    kind = wire.get("type")
    if isinstance(kind, str):
        allowed: Record = {"type": [kind, "null"]}
        if isinstance(values := wire.get("enum"), list) and None not in values:
            allowed["enum"] = [*values, None]
        return {**wire, **allowed}
    if isinstance(variants := wire.get("anyOf"), list):
        return {**wire, "anyOf": [*variants, {"type": "null"}]}
    return wire
