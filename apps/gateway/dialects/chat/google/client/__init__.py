"""Google generateContent, client side: reads requests, writes answers and errors.

Here are errors as clients of this format look for them, and field names: lowerCamelCase, read in either spelling as
protojson does.
"""

from __future__ import annotations

import re
from typing import Any

from apps.gateway.dialects.chat.google.wire import encode
from apps.gateway.dialects.reading.answers import google_message
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import ApiError, NotFound
from apps.kernel.rest.envelopes import Family


def error_for_clients(error: ApiError) -> ApiError:
    """Return an error with the status that Google has for it: a model that does not exist is not found."""
    if error.code == "model_not_found" and error.status == 400:
        return NotFound(error.message, code=error.code, param=error.param)
    return error


def write_error(error: ApiError) -> bytes:
    """Return an error's body."""
    return encode({"error": write_error_object(error)})


def write_error_object(error: ApiError) -> Record:
    """Return what clients of this format look for in an error: the reason, the field at fault, when to come back."""
    status: Record = Family.GOOGLE.body_of(error)["error"]
    return status | {"message": google_message(error)}


_UNDERSCORED = re.compile(rb'"[a-z][a-z0-9]*_[a-z0-9_]*"\s*:')
_SNAKE = re.compile("[a-z][a-z0-9]*(_[a-z0-9]+)+")
# Fields with data of the client's in them: arguments, results, JSON schemas, labels.
_DATA = frozenset(
    {
        "args",
        "response",
        "partMetadata",
        "parametersJsonSchema",
        "responseJsonSchema",
        "labels",
        "default",
        "example",
        "enum",
    }
)
# Fields with messages in them under names of the client's.
_NAMED = frozenset({"properties", "defs"})


def camel_cased(wire: Record, body: bytes) -> Record:
    """Return a request with the names that Google's reference uses; the very same one where it has these already."""
    return _record(wire) if _UNDERSCORED.search(body) else wire


def _record(wire: Record) -> Record:
    renamed: Record = {}
    for given, value in wire.items():
        name = _camel(given)
        if name in _NAMED and isinstance(value, dict):
            renamed[name] = {key: _value(inner) for key, inner in value.items()}
        else:
            renamed[name] = value if name in _DATA else _value(value)
    return wire if renamed == wire else renamed


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return _record(value)
    return list(map(_value, value)) if isinstance(value, list) else value


def _camel(name: str) -> str:
    if "_" not in name or not _SNAKE.fullmatch(name):
        return name
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
