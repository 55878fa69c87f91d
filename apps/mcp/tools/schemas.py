"""Schemas of tools: one struct defines the arguments or results for parsing and for the JSON schema. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from apps.kernel.errors import InvalidRequest

Shape = TypeVar("Shape", bound=msgspec.Struct)


def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a struct."""
    (reference,), parts = msgspec.json.schema_components([shape])
    name = reference["$ref"].rpartition("/")[2]
    whole: dict[str, Any] = parts.pop(name)
    whole.pop("title", None)
    if parts:
        whole["$defs"] = parts
    return whole


def read_arguments(shape: type[Shape], arguments: dict[str, Any]) -> Shape:
    """Return a tool's arguments. Raises InvalidRequest naming the invalid one."""
    try:
        return msgspec.convert(arguments, shape)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        param = place.removesuffix("`").lstrip(".") or None
        words = f"{param}: {problem}" if param else problem
        raise InvalidRequest(f"Invalid arguments: {words}", code="invalid_parameters", param=param) from None
