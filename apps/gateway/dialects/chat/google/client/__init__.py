"""Google generateContent, client side: reads requests, writes answers and errors.

Here are errors as clients of this format look for them, field names (lowerCamelCase, read in either spelling as
protojson does), and other makers' signed thinking, carried in a `thoughtSignature` and back: clients keep one opaque
value with a call or a text and send it back, which is Gemini's own signature or, where another maker answered, a
carrier of all its blocks of thinking. A client's value is not trusted: a carrier is as trustworthy as the maker's
signatures inside.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64decode
from binascii import Error
from collections.abc import Sequence
from typing import Any

import msgspec

from apps.gateway.canonical.chat import Reasoning
from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.chat.google.wire import encode
from apps.gateway.dialects.reading.answers import google_message
from apps.gateway.dialects.reading.fields import BOUNDS, Record
from apps.kernel.errors import ApiError, NotFound
from apps.kernel.json_bounds import OutOfBounds, check
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


# A multiple of three bytes, so that all carriers begin with the same characters, which both alphabets have.
_MARK = b"model-gateway/thinking/1"
_PREFIX = b64encode(_MARK).decode()
# Bytes of thinking that are carried; no model has ever thought as much before one call.
MAX_BYTES = 512 * 1024


class _Block(msgspec.Struct, omit_defaults=True):
    """A block of thinking, as `Reasoning` has it."""

    text: str = ""
    summary: bool = False
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    format: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Block]).decode


def is_carrier(signature: str) -> bool:
    """Return whether a `thoughtSignature` is one that the gateway made of another maker's thinking."""
    return signature.startswith(_PREFIX)


def write_carrier(blocks: Sequence[ReasoningDelta]) -> str | None:
    """Return the `thoughtSignature` that carries whole blocks of thinking; None for none, and for more than is carried.

    It is base64 of the standard alphabet: some clients decode it and encode it again in the other one.
    """
    carried = [
        _Block(block.text, block.summary, block.signature, block.data, block.id, block.format)
        for block in blocks
        if block.format is not None
    ]
    if not carried:
        return None
    content = _encode(carried)
    return b64encode(_MARK + content).decode() if len(content) <= MAX_BYTES else None


def read_carrier(signature: str) -> list[Reasoning] | None:
    """Return the blocks of thinking in a carrier; None for a signature that is no carrier, or a changed one."""
    if not is_carrier(signature) or len(signature) > 2 * MAX_BYTES:
        return None
    plain = signature.replace("+", "-").replace("/", "_")
    try:
        content = urlsafe_b64decode(plain + "=" * (-len(plain) % 4)).removeprefix(_MARK)
        check(content, BOUNDS)
        blocks = _decode(content)
    except (Error, ValueError, OutOfBounds, msgspec.MsgspecError):
        return None
    return [
        Reasoning(
            text=block.text,
            summary=block.summary,
            signature=block.signature,
            data=block.data,
            id=block.id,
            format=block.format,
        )
        for block in blocks
    ]
