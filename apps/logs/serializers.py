"""Serializers of the logs API (specification 2.12, 4.4).

Entries are written straight from rows: costs with every digit, stored JSON as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from apps.kernel.money import plain
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import (
    CamelSerializer,
    ChoiceField,
    CursorField,
    PeriodQuery,
    QueryIntegerField,
    TextField,
    camel,
)
from apps.logs.access import RequestedIds
from apps.logs.query import COLUMNS, JSON_COLUMNS, MONEY_COLUMNS, LogFilters, LogRow

# Token counts are strings on the wire; other whole numbers are numbers.
COUNTS = {
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "reasoning_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "image_input_tokens",
    "image_output_tokens",
}
_ENCODER = msgspec.json.Encoder(uuid_format="canonical")


class LogsQuery(PeriodQuery):
    """The query of `GET /logs`."""

    api_key_id = TextField(required=False)
    provider_key_id = TextField(required=False)
    project_id = TextField(required=False)
    org_id = TextField(required=False)
    model = TextField(required=False)
    provider = TextField(required=False)
    finish_reason = TextField(required=False)
    unified_finish_reason = TextField(required=False)
    source = TextField(required=False)  # type: ignore[assignment]  # fields leave the class
    custom_header_key = TextField(required=False)
    custom_header_value = TextField(required=False)
    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)
    order_by = ChoiceField(["createdAt_asc", "createdAt_desc"], default="createdAt_desc")


class LogsExportQuery(LogsQuery):
    """The query of `GET /logs/export`: that of `GET /logs`, but all of it at once."""

    cursor = None  # type: ignore[assignment]  # the framework's way to leave a field out
    limit = None  # type: ignore[assignment]  # likewise
    format = ChoiceField(["csv", "jsonl"], default="csv")


class UsedModelsQuery(CamelSerializer):
    """The query of `GET /logs/unique-models`."""

    project_id = TextField(required=False)
    org_id = TextField(required=False)


def requested_ids_of(query: Mapping[str, Any]) -> RequestedIds:
    """Return the ids that a query names."""
    return RequestedIds(
        organization_id=query.get("org_id"),
        project_id=query.get("project_id"),
        api_key_id=query.get("api_key_id"),
        provider_key_id=query.get("provider_key_id"),
    )


def filters_of(query: Mapping[str, Any]) -> LogFilters:
    """Return what a query asks rows to be like."""
    return LogFilters(
        start=query.get("start_date"),
        end=query.get("end_date"),
        model=query.get("model"),
        provider=query.get("provider"),
        finish_reason=query.get("finish_reason"),
        unified_finish_reason=query.get("unified_finish_reason"),
        source=query.get("source"),
        header_key=query.get("custom_header_key"),
        header_value=query.get("custom_header_value"),
    )


def encode(answer: dict[str, Any]) -> bytes:
    """Return an answer with log entries in it as JSON."""
    return _ENCODER.encode(answer)


def entry_of(row: LogRow) -> dict[str, Any]:
    """Return a row as a log entry."""
    return {wire_name: None if (value := row[column]) is None else write(value) for column, wire_name, write in _WIRE}


def _as_it_is(value: Any) -> Any:
    return value


def _number(amount: Decimal) -> msgspec.Raw:
    return msgspec.Raw(plain(amount).encode())


def _stored_json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _writer_of(column: str) -> Callable[[Any], Any]:
    if column in COUNTS:
        return str
    if column in JSON_COLUMNS:
        return _stored_json
    return _number if column in MONEY_COLUMNS else _as_it_is


LOG_FIELDS = tuple(camel(column) for column in COLUMNS)
_WIRE = tuple((column, camel(column), _writer_of(column)) for column in COLUMNS)
