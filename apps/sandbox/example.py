"""An example of a JSON Schema: one value, always the same, that the schema accepts. Pure; knows nothing but schemas.

Honored: type (the first that is not null, where several are listed), enum, const, properties, required, items,
prefixItems, minItems, maxItems, minProperties over declared properties, minLength, maxLength, the usual formats, the
numeric bounds and multipleOf, anyOf and oneOf (the first branch), allOf (merged), $ref into the same document,
recursion included. Not honored: not, if, dependencies, contains, and patterns beyond the texts in _TEXTS.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from apps.sandbox.conversation import Schema
from apps.sandbox.scenario import SandboxRefusal

FULL_DEPTH = 4
"""Down to this depth optional properties are filled in; below it only required ones, so that recursion ends."""
MAX_DEPTH = 32

_FORMATS = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_TEXTS = ("a", "A", "0", "1", "aa", "AA", "00", "abc", "ABC", "123", "a1", "A1", "1234", "12345", *_FORMATS.values())


def example_of(schema: Schema, name: str = "text", texts: Sequence[str] = ()) -> Any:
    """Return a value that `schema` accepts. A text that may be anything is the next of `texts`, while there are any;
    others are made from the name of their property, here `name`.

    Raises Refusal (400) when a reference leads nowhere or no finite value exists.
    """
    try:
        return _Example(schema, texts).value(schema, name, depth=0)
    except (AttributeError, TypeError, ValueError, re.error) as error:
        # A schema of the wrong shape fails wherever it is first read; what exactly failed is of no use to the client.
        raise SandboxRefusal(400, "Invalid schema: not a JSON Schema.", code="invalid_json_schema") from error


class _Example:
    def __init__(self, document: Schema, texts: Sequence[str]) -> None:
        self._document = document
        self._texts = list(texts)

    def value(self, schema: Schema, name: str, *, depth: int, number: int = 0) -> Any:
        """Return the `number`-th value for this place; different numbers give different values where there are any."""
        if isinstance(schema, bool):
            return name
        schema = self._resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if choices := schema.get("enum"):
            return choices[number % len(choices)]
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, name, depth)
            case "string":
                return self._texts.pop(0) if self._texts and _is_free(schema) else _text(schema, name, number)
            case "integer":
                return int(_number(schema, number, whole=True))
            case "number":
                return _number(schema, number, whole=False)
            case "boolean":
                return number % 2 == 0
            case "null":
                return None
            case _:
                return name

    def _resolved(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        """Return the schema with its references, unions and intersections replaced by what they stand for."""
        for _ in range(depth, MAX_DEPTH):
            if "$ref" in schema:
                schema = _merged(self._referred(schema["$ref"]), _without(schema, "$ref"))
            elif branches := schema.get("anyOf") or schema.get("oneOf"):
                schema = _merged(_without(schema, "anyOf", "oneOf"), _branch(branches, depth))
            elif parts := schema.get("allOf"):
                schema = _without(schema, "allOf")
                for part in parts:
                    schema = _merged(schema, self._resolved(part, depth + 1))
            else:
                return schema
        raise SandboxRefusal(400, "Invalid schema: it has no finite example.", code="invalid_json_schema")

    def _referred(self, reference: str) -> dict[str, Any]:
        place: Any = self._document
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            place = place.get(step) if isinstance(place, dict) else None
        if not reference.startswith("#") or not isinstance(place, dict):
            raise SandboxRefusal(400, f"Invalid schema: cannot resolve {reference!r}.", code="invalid_json_schema")
        return place

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties: dict[str, Schema] = schema.get("properties", {})
        required = schema.get("required", [])
        wanted = [name for name in properties if depth < FULL_DEPTH or name in required]
        wanted += [name for name in required if name not in properties]
        return {name: self.value(properties.get(name, True), name, depth=depth + 1) for name in wanted}

    def _array(self, schema: dict[str, Any], name: str, depth: int) -> list[Any]:
        first = schema.get("prefixItems", [])
        length = max(schema.get("minItems", 0), len(first), 1 if depth < FULL_DEPTH and "items" in schema else 0)
        length = min(length, schema.get("maxItems", length))
        items = [*first, *[schema.get("items", True)] * (length - len(first))][:length]
        return [self.value(item, name, depth=depth + 1, number=number) for number, item in enumerate(items)]


def _type_of(schema: dict[str, Any]) -> str | None:
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return next((kind for kind in kinds if kind != "null"), "null")
    if kinds is None and "properties" in schema:
        return "object"
    return kinds


def _branch(branches: list[Schema], depth: int) -> Schema:
    """The first branch; deep down the first that ends at once, if one does."""
    if depth < FULL_DEPTH:
        return branches[0]
    return next((branch for branch in branches if isinstance(branch, bool) or "$ref" not in branch), branches[0])


def _without(schema: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in names}


def _merged(one: dict[str, Any], other: Schema) -> dict[str, Any]:
    if isinstance(other, bool):
        return one
    merged = one | other
    if "properties" in one and "properties" in other:
        merged["properties"] = one["properties"] | other["properties"]
    if "required" in one and "required" in other:
        merged["required"] = [*one["required"], *other["required"]]
    return merged


def _is_free(schema: dict[str, Any]) -> bool:
    return not {"format", "pattern", "minLength", "maxLength"} & schema.keys()


def _text(schema: dict[str, Any], name: str, number: int) -> str:
    if known := _FORMATS.get(schema.get("format", "")):
        return known
    if pattern := schema.get("pattern"):
        fitting = (text for text in (name, *_TEXTS) if re.search(pattern, text))
        name = next(fitting, name)
    text = name if number == 0 else f"{name}{number + 1}"
    if "pattern" not in schema:
        text = text.ljust(schema.get("minLength", 0), "x")
    return text[: schema.get("maxLength")]


def _number(schema: dict[str, Any], number: int, *, whole: bool) -> float:
    """The `number`-th step from the first of a few candidates that is within the bounds: 1, 0, or one at a bound."""
    step: float = schema.get("multipleOf", 1)
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    above, below = schema.get("exclusiveMinimum", -math.inf), schema.get("exclusiveMaximum", math.inf)

    def fits(value: float) -> bool:
        on_step = not (whole or "multipleOf" in schema) or math.isclose(value / step, round(value / step), abs_tol=1e-9)
        return low <= value <= high and above < value < below and on_step

    ends = [end for end in (max(low, above), min(high, below)) if math.isfinite(end)]
    around = [math.floor(end / step + nudge) * step for end in ends for nudge in (0, 1, -1)]
    candidates: list[float] = [1, 0, step, *around, sum(ends) / 2]
    return next(filter(fits, candidates), 1) + number * step
