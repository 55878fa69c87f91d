"""Types of log queries: columns, rows and filters that every log store shares, and readers of JSON columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import JSONField

from apps.kernel.money import MoneyField
from apps.logs.models import RequestLog

# Characters of a search for text.
MAX_TEXT = 200

# A row by column; JSON columns stay text and are passed on unparsed.
LogRow = dict[str, Any]

# Columns that no page of the log has: `media_data` is read for one row at a time.
_UNLISTED = {"swept", "retention_level", "media_data"}
_FIELDS = [field for field in RequestLog._meta.concrete_fields if field.name not in _UNLISTED]
COLUMNS = tuple(field.name for field in _FIELDS)
JSON_COLUMNS = frozenset(field.name for field in _FIELDS if isinstance(field, JSONField))
MONEY_COLUMNS = frozenset(field.name for field in _FIELDS if isinstance(field, MoneyField))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilters:
    """Conditions on log rows; None means no condition. `start` and `end` are inclusive.

    `model` is a model's id, or `provider/model`; `header_key` a custom header's name without its prefix.
    """

    start: datetime | None = None
    end: datetime | None = None
    model: str | None = None
    provider: str | None = None
    finish_reason: str | None = None
    unified_finish_reason: str | None = None
    source: str | None = None
    session_id: str | None = None
    header_key: str | None = None
    header_value: str | None = None


def read_json(column: Any) -> Any:
    """Return the value of a JSON column, which rows carry as text; None for an empty one."""
    return json.loads(column) if isinstance(column, str) else column


def read_object(column: Any) -> Mapping[str, Any]:
    """Return the object in a JSON column; an empty one where the column holds none."""
    value = read_json(column)
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; none where the value is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
