"""Logs on the wire (specification 2.12, 4.4): what may be asked, and what a log entry looks like.

Entries are written straight from rows: costs with every digit, stored JSON as it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from rest_framework import serializers

from apps.kernel.money import plain
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.rest.pages import read_cursor
from apps.kernel.rest.serializers import CamelSerializer, camel
from apps.logs.access import Named
from apps.logs.models import find_time
from apps.logs.search import COLUMNS, JSON_COLUMNS, Filters, Row

# Token counts are strings on the wire; other whole numbers are numbers.
_COUNTS = {
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


class Moment(serializers.Field[datetime, str, str, Any]):
    """An ISO 8601 date or time; UTC unless it says otherwise. A date alone is its first moment, or its last."""

    default_error_messages = {"invalid": "Must be an ISO 8601 date or time"}

    def __init__(self, *, of_a_day: time = time.min, **options: Any) -> None:
        super().__init__(**options)
        self._of_a_day = of_a_day

    def to_internal_value(self, data: str) -> datetime:
        """Return the moment. Raises ValidationError."""
        try:
            moment = self._read(data)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            self.fail("invalid")

    def _read(self, text: str) -> datetime:
        try:
            return datetime.combine(date.fromisoformat(text), self._of_a_day)
        except ValueError:
            return datetime.fromisoformat(text)


class LogsQuery(CamelSerializer):
    """The query of `GET /logs`."""

    api_key_id = serializers.CharField(required=False)
    provider_key_id = serializers.CharField(required=False)
    project_id = serializers.CharField(required=False)
    org_id = serializers.CharField(required=False)
    start_date = Moment(required=False)
    end_date = Moment(required=False, of_a_day=time.max)
    model = serializers.CharField(required=False)
    provider = serializers.CharField(required=False)
    finish_reason = serializers.CharField(required=False)
    unified_finish_reason = serializers.CharField(required=False)
    source = serializers.CharField(required=False)  # type: ignore[assignment]  # fields leave the class
    custom_header_key = serializers.CharField(required=False)
    custom_header_value = serializers.CharField(required=False)
    cursor = serializers.CharField(required=False)
    limit = serializers.CharField(required=False)
    order_by = serializers.ChoiceField(["createdAt_asc", "createdAt_desc"], default="createdAt_desc")


class UsedQuery(CamelSerializer):
    """The query of `GET /logs/unique-models`."""

    project_id = serializers.CharField(required=False)
    org_id = serializers.CharField(required=False)


def named_of(query: Mapping[str, Any]) -> Named:
    """Return the ids that a query names."""
    return Named(
        organization_id=query.get("org_id"),
        project_id=query.get("project_id"),
        api_key_id=query.get("api_key_id"),
        provider_key_id=query.get("provider_key_id"),
    )


def filters_of(query: Mapping[str, Any]) -> Filters:
    """Return what a query asks rows to be like."""
    return Filters(
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


def place_of(query: Mapping[str, Any]) -> UUID | None:
    """Return the id after which a query goes on. Raises InvalidFields for a cursor that no answer has given."""
    text = query.get("cursor")
    if text is None:
        return None
    identifier = read_cursor(text)
    if find_time(identifier) is None:
        raise InvalidFields([Issue("cursor", "Must be the nextCursor of an earlier answer")])
    return identifier


def encode(answer: dict[str, Any]) -> bytes:
    """Return an answer with log entries in it as JSON."""
    return _ENCODER.encode(answer)


def entry_of(row: Row) -> dict[str, Any]:
    """Return a row as a log entry."""
    return {wire_name: None if (value := row[column]) is None else write(value) for column, wire_name, write in _WIRE}


def _as_it_is(value: Any) -> Any:
    return value


def _number(amount: Decimal) -> msgspec.Raw:
    return msgspec.Raw(plain(amount).encode())


def _stored_json(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _writer_of(column: str) -> Callable[[Any], Any]:
    if column in _COUNTS:
        return str
    if column in JSON_COLUMNS:
        return _stored_json
    return _number if column.endswith("cost") or column == "discount_savings" else _as_it_is


_WIRE = tuple((column, camel(column), _writer_of(column)) for column in COLUMNS)
