"""Row encoding: from an entry to values that PostgreSQL accepts, for any data of clients and providers.

Removes NUL and lone surrogates from text, limits numbers to their columns, and cleans JSON for `jsonb`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
from django.db import models

from apps.kernel.ids import time_of
from apps.kernel.money import storable
from apps.logs.entry import Entry
from apps.logs.models import RequestLog

ColumnValues = tuple[Any, ...]

_FIELDS: list[models.Field[Any, Any]] = list(RequestLog._meta.concrete_fields)
COLUMNS = tuple(field.name for field in _FIELDS)
# Columns that can be large or malformed, and that billing does not need.
_CONTENT = tuple(field.name for field in _FIELDS if isinstance(field, (models.JSONField, models.TextField)))
_ENCODER = msgspec.json.Encoder(uuid_format="canonical")
# Maximum nesting of JSON, and the replacement for deeper values.
_DEEPEST, _TOO_DEEP = 200, "[nested too deep]"


def encode_row(entry: Entry) -> ColumnValues:
    """Return the entry's row in the order of `COLUMNS`. Never raises: a row that cannot be encoded loses its
    content."""
    try:
        return _row_of(entry)
    except (TypeError, ValueError, RecursionError, ArithmeticError) as error:
        return encode_row_without_content(entry, type(error).__name__)


def encode_row_without_content(entry: Entry, reason: str) -> ColumnValues:
    """Return an entry's row without content: identifiers, tokens, costs, times and status stay."""
    bare = msgspec.structs.replace(entry, **dict.fromkeys(_CONTENT))
    bare.error_details = {"code": "content_not_stored", "reason": reason}
    return _row_of(bare)


def _row_of(entry: Entry) -> ColumnValues:
    return tuple(
        [
            value if (value := getattr(entry, name)) is None or convert is None else convert(value)
            for name, convert in _CONVERTERS
        ]
    )


def _text(value: str, longest: int | None = None) -> str:
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode()
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")[:longest]


def _json(value: Any) -> str:
    try:
        text = _ENCODER.encode(value)
    except (ValueError, RecursionError):
        text = _ENCODER.encode(_clean(value))
    if b"\\u0000" in text:
        text = _ENCODER.encode(_clean(value))
    return text.decode()


def _clean(value: Any, depth: int = 0) -> Any:
    """Return JSON that PostgreSQL accepts, with as much of `value` as possible."""
    if depth > _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, dict):
        return {_text(str(name)): _clean(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(inner, depth + 1) for inner in value]
    if isinstance(value, int) and value.bit_length() > 1024:
        return float("inf") if value > 0 else float("-inf")  # Which JSON writes as null.
    return value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _whole(bits: int, lowest: int | None = None) -> Callable[[int], int]:
    highest = 2 ** (bits - 1) - 1
    lowest = -highest - 1 if lowest is None else lowest
    return lambda value: min(max(value, lowest), highest)


def _converter_of(field: models.Field[Any, Any]) -> Callable[[Any], Any] | None:
    """Return the conversion to a column's format; None if all values fit."""
    match field:
        case models.CharField():
            longest = field.max_length
            return lambda value: _text(value, longest)
        case models.TextField():
            return _text
        case models.JSONField():
            return _json
        case models.DecimalField():
            return storable
        case models.FloatField():
            return _finite
        case models.PositiveSmallIntegerField():
            return _whole(16, 0)
        case models.BigIntegerField():
            return _whole(64)
        case models.IntegerField():
            return _whole(32)
        case _:
            return None


# By column: the entry's attribute and its conversion. The row's time is the id's.
_CONVERTERS = tuple(
    ("id", time_of) if field.name == "created_at" else (field.name, _converter_of(field)) for field in _FIELDS
)
