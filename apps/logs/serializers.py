"""Serializers of the APIs of logs and activity (specification 2.12, 4.4).

Entries are written straight from rows: costs with every digit, stored JSON as it is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
from rest_framework import serializers

from apps.kernel.money import plain
from apps.kernel.rest.envelopes import camel
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import (
    CamelSerializer,
    ChoiceField,
    CursorField,
    PeriodQuery,
    QueryIntegerField,
    TextField,
)
from apps.logs.access import RequestedIds
from apps.logs.activity import KEPT_DAYS, ActivityTotals
from apps.logs.answers import choices_of
from apps.logs.query import COLUMNS, JSON_COLUMNS, MAX_TEXT, MONEY_COLUMNS, LogFilters, LogRow
from apps.logs.rollup import SUMS
from apps.logs.sessions import MAX_SUMMED, LogSession, SessionStep

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
    team_id = TextField(required=False, help_text="Keys in this team, of its projects, or of its parts; with a session")
    org_id = TextField(required=False)
    model = TextField(required=False)
    provider = TextField(required=False)
    finish_reason = TextField(required=False)
    unified_finish_reason = TextField(required=False)
    source = TextField(required=False)  # type: ignore[assignment]  # fields leave the class
    session_id = TextField(required=False)
    custom_header_key = TextField(required=False)
    custom_header_value = TextField(required=False)
    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)
    order_by = ChoiceField(["createdAt_asc", "createdAt_desc"], default="createdAt_desc")
    text = TextField(
        required=False,
        max_length=MAX_TEXT,
        help_text='words of kept prompts and answers: `refund`, `"three days"`, `a or b`, `-word`. The newest '
        "first, in one organization. A search ends after 0.25 s: a page may then be short, and `nextCursor` goes on",
    )


class LogsExportQuery(LogsQuery):
    """The query of `GET /logs/export`: that of `GET /logs`, but all of it at once."""

    cursor = None  # type: ignore[assignment]  # the framework's way to leave a field out
    limit = None  # type: ignore[assignment]  # likewise
    text = None  # type: ignore[assignment]  # likewise
    format = ChoiceField(["csv", "jsonl"], default="csv")


class UsedModelsQuery(CamelSerializer):
    """The query of `GET /logs/unique-models`."""

    project_id = TextField(required=False)
    org_id = TextField(required=False)


class SessionsQuery(PeriodQuery):
    """The query of `GET /logs/sessions`."""

    org_id = TextField(required=False)
    project_id = TextField(required=False)
    api_key_id = TextField(required=False)
    team_id = TextField(required=False, help_text="Keys in this team, of its projects, or of its parts; with a session")
    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)


class OneSessionQuery(CamelSerializer):
    """The query of `GET /logs/sessions/{sessionId}`."""

    org_id = TextField(required=False)
    project_id = TextField(required=False)
    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)


class LogSessionShape(CamelSerializer):
    """A session: requests that share a client's session. The cost is in USD."""

    id = serializers.CharField(help_text="the client's own name of the session")
    organization_id = serializers.UUIDField()
    user_agent = serializers.CharField(allow_null=True, help_text="the client's program")
    started_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField()
    duration = serializers.IntegerField(help_text="milliseconds")
    models = serializers.ListField(child=serializers.CharField())
    request_count = serializers.IntegerField(source="requests")
    turn_count = serializers.IntegerField(source="turns", help_text="answers that ended without asking for a tool")
    error_count = serializers.IntegerField(source="errors")
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField(help_text="input tokens read from a provider's prompt cache")
    cost = serializers.FloatField()
    tools = serializers.DictField(child=serializers.IntegerField(), help_text="number of calls by the tool's name")
    is_partial = serializers.BooleanField(help_text=f"whether only the newest {MAX_SUMMED} requests are counted")


class SessionRequestShape(CamelSerializer):
    """A request of a session, without content; `GET /logs/{logId}` has all of it."""

    id = serializers.UUIDField()
    created_at = serializers.DateTimeField()
    route = serializers.CharField()
    duration = serializers.IntegerField(help_text="milliseconds")
    time_to_first_token = serializers.IntegerField(allow_null=True, help_text="milliseconds")
    requested_model = serializers.CharField()
    used_model = serializers.CharField()
    used_provider = serializers.CharField()
    status_code = serializers.IntegerField(allow_null=True)
    unified_finish_reason = serializers.CharField(allow_null=True)
    has_error = serializers.BooleanField(allow_null=True)
    canceled = serializers.BooleanField(allow_null=True)
    cached = serializers.BooleanField(allow_null=True)
    input_tokens = serializers.IntegerField(source="prompt_tokens", allow_null=True)
    output_tokens = serializers.IntegerField(source="completion_tokens", allow_null=True)
    cached_tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True)
    running_cost = serializers.FloatField(help_text="USD of the session up to the end of this request")
    tools = serializers.DictField(
        source="tool_call_counts", allow_null=True, child=serializers.IntegerField(), help_text="called tools"
    )
    marked_arguments = serializers.ListField(
        allow_null=True,
        child=serializers.DictField(child=serializers.CharField()),
        help_text="arguments of called tools that only results of tools contain: `tool`, `argument`, `kind`, `source`",
    )


def session_entry(session: LogSession) -> dict[str, Any]:
    """Return a session as the API answers it."""
    return _exact(LogSessionShape(session).data, cost=session.cost)


def step_entry(step: SessionStep) -> dict[str, Any]:
    """Return a request of a session as the API answers it."""
    return _exact(SessionRequestShape(step).data, cost=step.cost, running_cost=step.running_cost)


def _exact(answer: Mapping[str, Any], **amounts: Decimal | None) -> dict[str, Any]:
    """Return an answer with its amounts as numbers with every digit."""
    written = {camel(name): None if amount is None else _number(amount) for name, amount in amounts.items()}
    return {**answer, **written}


def requested_ids_of(query: Mapping[str, Any]) -> RequestedIds:
    """Return the ids that a query names."""
    return RequestedIds(
        organization_id=query.get("org_id"),
        project_id=query.get("project_id"),
        api_key_id=query.get("api_key_id"),
        provider_key_id=query.get("provider_key_id"),
        team_id=query.get("team_id"),
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
        session_id=query.get("session_id"),
        header_key=query.get("custom_header_key"),
        header_value=query.get("custom_header_value"),
    )


def encode(answer: dict[str, Any]) -> bytes:
    """Return an answer with log entries in it as JSON."""
    return _ENCODER.encode(answer)


def entry_of(row: LogRow) -> dict[str, Any]:
    """Return a row as a log entry."""
    entry = {wire_name: None if (value := row[column]) is None else write(value) for column, wire_name, write in _WIRE}
    if row["choices"] is not None:
        entry["choices"] = msgspec.Raw(_ENCODER.encode(choices_of(row)))
    return entry


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


DEFAULT_DAYS = 7
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NAMES = {name: camel(name) for name in SUMS}
# A day's fields in their order.
DAY_FIELDS = ("date", *_NAMES.values(), "errorRate", "cacheRate", "modelBreakdown")


class CalendarDay(serializers.DateField):
    """A day as YYYY-MM-DD."""

    default_error_messages = {"invalid": "Must be a day as YYYY-MM-DD"}

    def to_internal_value(self, value: Any) -> date:
        """Return the day. Raises ValidationError."""
        if not (isinstance(value, str) and _DAY.fullmatch(value)):
            self.fail("invalid")
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail("invalid")


class ActivityQuery(CamelSerializer):
    """The query of `GET /activity`."""

    days = QueryIntegerField(low=1, high=KEPT_DAYS, default=DEFAULT_DAYS)
    to = CalendarDay(required=False)
    project_id = TextField(required=False)
    api_key_id = TextField(required=False)
    team_id = TextField(required=False, help_text="Keys in this team, of its projects, or of its parts")
    org_id = TextField(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields; `from` cannot be written as one of a class."""
        return {"from": CalendarDay(required=False), **super().get_fields()}

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the query; `days` is not looked at when both ends are given. Raises ValidationError."""
        if isinstance(data, Mapping) and "from" in data and "to" in data:
            data = {name: value for name, value in data.items() if name != "days"}
        return dict(super().to_internal_value(data))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the query. Raises ValidationError when it ends before it begins."""
        if "from" in attrs and "to" in attrs and attrs["from"] > attrs["to"]:
            raise serializers.ValidationError({"from": "Must not be after the end"})
        return attrs


class ModelOfDayShape(CamelSerializer):
    """The requests to one model at one provider on one day."""

    id = serializers.CharField()
    provider = serializers.CharField()
    request_count = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    total_tokens = serializers.IntegerField()
    cost = serializers.FloatField()


class ActivityDayShape(CamelSerializer):
    """The requests of one day (UTC); amounts are in USD."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields: a number for each sum."""
        return {
            "date": serializers.DateField(),
            **{wire: _number_of(name) for name, wire in _NAMES.items()},
            "errorRate": serializers.FloatField(help_text="percent"),
            "cacheRate": serializers.FloatField(help_text="percent"),
            "modelBreakdown": ModelOfDayShape(many=True),
        }


def _number_of(name: str) -> serializers.Field[Any, Any, Any, Any]:
    return serializers.IntegerField() if name.endswith(("count", "tokens")) else serializers.FloatField()


class ActivityExportQuery(ActivityQuery):
    """The query of `GET /activity/export`."""

    format = ChoiceField(["csv", "jsonl"], default="csv")


def day_of(day: ActivityTotals) -> dict[str, Any]:
    """Return a day as the API answers it."""
    requests = int(day.sums["request_count"])
    return {
        "date": day.date.isoformat(),
        **_numbers(day.sums),
        "errorRate": _percent(int(day.sums["error_count"]), requests),
        "cacheRate": _percent(int(day.sums["cache_count"]), requests),
        "modelBreakdown": msgspec.Raw(day.models.encode()),
    }


def _numbers(sums: Mapping[str, str]) -> dict[str, Any]:
    return {_NAMES[name]: msgspec.Raw(text.encode()) for name, text in sums.items()}


def _percent(part: int, whole: int) -> float:
    return part * 100 / whole
