"""The log archive in ClickHouse, with the same filters, rows and order as PostgreSQL. Needs the extra `clickhouse`.

The table is generated from the model.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

import clickhouse_connect
import structlog
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from django.db import models

from apps.kernel.errors import Overloaded
from apps.kernel.ids import time_of
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.query import COLUMNS, LogFilters, LogRow

_FIELDS: list[models.Field[Any, Any]] = list(RequestLog._meta.concrete_fields)
# Columns in the order in which rows are added.
TABLE_COLUMNS = tuple(field.name for field in _FIELDS)


def _type_of(field: models.Field[Any, Any]) -> str:
    if field.primary_key:
        return "UInt128"  # Its order is that of time, which ClickHouse's order of UUIDs is not.
    kind = _plain_type_of(field)
    if field.null:
        kind = f"Nullable({kind})"
    few_values = isinstance(field, models.CharField) and field.name not in {"request_id", "session_id"}
    return f"LowCardinality({kind})" if few_values else kind


def _plain_type_of(field: models.Field[Any, Any]) -> str:
    match field:
        case models.UUIDField():
            return "UUID"
        case models.DateTimeField():
            return "DateTime64(3, 'UTC')"
        case models.DecimalField():
            return f"Decimal({field.max_digits}, {field.decimal_places})"
        case models.BooleanField():
            return "Bool"
        case models.FloatField():
            return "Float64"
        case models.BigIntegerField():
            return "Int64"
        case models.IntegerField():
            return "Int32"
        case _:
            return "String"  # JSON too: it goes out as the text it came as.


_COLUMNS = [f"{field.name} {_type_of(field)}" for field in _FIELDS]
# One partition a day, as in PostgreSQL. A row added again has the same key: the latest version is read.
TABLE = f"""
CREATE TABLE IF NOT EXISTS request_log (
    {", ".join(_COLUMNS)},
    moved_at DateTime64(6, 'UTC') DEFAULT now64(6),
    INDEX of_project project_id TYPE bloom_filter GRANULARITY 1,
    INDEX of_key api_key_id TYPE bloom_filter GRANULARITY 1,
    INDEX of_model used_model TYPE bloom_filter GRANULARITY 1,
    INDEX of_provider used_provider TYPE bloom_filter GRANULARITY 1,
    INDEX of_source source TYPE bloom_filter GRANULARITY 1,
    INDEX of_session session_id TYPE bloom_filter GRANULARITY 1,
    INDEX of_end unified_finish_reason TYPE bloom_filter GRANULARITY 1,
    INDEX of_headers JSONExtractKeys(ifNull(custom_headers, '{{}}')) TYPE bloom_filter GRANULARITY 1
) ENGINE = ReplacingMergeTree(moved_at)
PARTITION BY toYYYYMMDD(created_at)
ORDER BY (organization_id, created_at, id)
"""
# Upgrades a table of an earlier version.
NEW_COLUMNS = f"ALTER TABLE request_log {', '.join(f'ADD COLUMN IF NOT EXISTS {column}' for column in _COLUMNS)}"


log = structlog.get_logger(__name__)

# Timeouts in seconds: to connect, for a query, for a bulk change.
_CONNECT, _ANSWER, _CHANGE = 5, 30, 1800
# Read only the latest version of each row; rows of different days are independent.
_READING = {
    "final": 1,
    "do_not_merge_across_partitions_select_final": 1,
    "use_skip_indexes_if_final": 1,
    "max_execution_time": _ANSWER,
}
_NAMES = ", ".join(COLUMNS)
_DAYS = """
    SELECT DISTINCT partition FROM system.parts
    WHERE active AND database = currentDatabase() AND table = 'request_log'
"""
_MOMENT = "DateTime64(6, 'UTC')"
_HEADERS = "ifNull(custom_headers, '{}')"
# JSON without one of its fields.
_WITHOUT_MESSAGE = (
    "if(error_details IS NULL, NULL, concat('{', arrayStringConcat("
    "arrayMap(pair -> concat(toJSONString(pair.1), ': ', pair.2), "
    "arrayFilter(pair -> pair.1 != 'message', JSONExtractKeysAndValuesRaw(ifNull(error_details, '{}')))"
    "), ', '), '}'))"
)


class _Question:
    """A condition under construction, with its parameters."""

    def __init__(self) -> None:
        self._conditions: list[str] = []
        self.parameters: dict[str, Any] = {}

    def bind(self, value: Any, kind: str) -> str:
        """Return the placeholder of a value."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"{{{name}:{kind}}}"

    def ask(self, condition: str) -> None:
        """Add a condition."""
        self._conditions.append(condition)

    @property
    def text(self) -> str:
        """The whole condition."""
        return " AND ".join(f"({condition})" for condition in self._conditions)


class ClickHouse:
    """One ClickHouse database. If it is down, reads raise Overloaded, and changes its own errors."""

    def __init__(self, url: str) -> None:
        """Store the address: `http(s)://user:password@host:port/database`, or another `dsn` of `get_client`."""
        self._url = url
        self._clients: dict[int, Client] = {}

    def find_page(
        self,
        scope: LogScope,
        filters: LogFilters,
        *,
        low: datetime,
        high: datetime,
        after: UUID | None,
        count: int,
        ascending: bool,
    ) -> list[LogRow]:
        """Return at most `count` rows from `low` to `high` in order."""
        if low > high or not scope.since:
            return []
        question = _within(scope)
        question.ask(f"created_at >= {question.bind(low, _MOMENT)} AND created_at <= {question.bind(high, _MOMENT)}")
        if after is not None:
            question.ask(f"id {'>' if ascending else '<'} {question.bind(after.int, 'UInt128')}")
        _ask_filters(question, filters)
        order = "created_at, id" if ascending else "created_at DESC, id DESC"
        # Find keys in narrow columns first, then read the wide ones.
        key = "organization_id, created_at, id"
        which = f"SELECT {key} FROM request_log WHERE {question.text} ORDER BY {order} LIMIT {count:d}"  # noqa: S608 - bound
        return self._rows(f"SELECT {_NAMES} FROM request_log WHERE ({key}) IN ({which}) ORDER BY {order}", question)  # noqa: S608 - bound

    def find_row(self, scope: LogScope, identifier: UUID) -> LogRow | None:
        """Return a row by its id, or None."""
        if not scope.since:
            return None
        question = _is_row(scope, identifier)
        rows = self._rows(f"SELECT {_NAMES} FROM request_log WHERE {question.text}", question)  # noqa: S608 - bound
        return rows[0] if rows else None

    def find_media_data(self, scope: LogScope, identifier: UUID) -> str | None:
        """Return the encrypted images and audio of a row, None without any."""
        question = _is_row(scope, identifier)
        text = f"SELECT media_data FROM request_log WHERE {question.text}"  # noqa: S608 - bound
        return next((data for (data,) in self._read(text, question.parameters)), None)

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows in the order of `TABLE_COLUMNS`."""
        place = TABLE_COLUMNS.index("id")
        written = [[*row[:place], row[place].int, *row[place + 1 :]] for row in rows]
        self._client(_CHANGE).insert("request_log", written, column_names=TABLE_COLUMNS)

    def oldest(self) -> dict[UUID, datetime]:
        """Return the time of the oldest row of each organization with rows."""
        return dict(self._read("SELECT organization_id, min(created_at) FROM request_log GROUP BY organization_id", {}))

    def levels(self) -> set[tuple[UUID, str]]:
        """Return organizations and retention levels of rows above the lowest level."""
        text = "SELECT DISTINCT organization_id, retention_level FROM request_log WHERE retention_level != 'none'"
        return {(organization_id, level) for organization_id, level in self._read(text, {})}

    def delete(self, organizations: Collection[UUID], before: datetime | None = None) -> None:
        """Delete organizations' rows before a moment, or all."""
        question = _Question()
        question.ask(f"organization_id IN {question.bind(list(organizations), 'Array(UUID)')}")
        if before is not None:
            question.ask(f"created_at < {question.bind(before, _MOMENT)}")
        self._change(f"DELETE FROM request_log WHERE {question.text}", question, lightweight_deletes_sync=2)  # noqa: S608 - bound

    def drop_before(self, day: date) -> None:
        """Drop earlier days entirely."""
        for (name,) in self._client(_ANSWER).query(_DAYS).result_rows:
            if name < f"{day:%Y%m%d}":
                self._client(_CHANGE).command(f"ALTER TABLE request_log DROP PARTITION {int(name)}")

    def blank(self, organization_id: UUID, level: str, allowed: str, columns: Sequence[str]) -> None:
        """Clear columns of an organization's rows at a level, and set their level to `allowed`."""
        question = _Question()
        changes = [f"retention_level = {question.bind(allowed, 'String')}", f"error_details = {_WITHOUT_MESSAGE}"]
        changes += [f"{name} = NULL" for name in columns]
        question.ask(f"organization_id = {question.bind(organization_id, 'UUID')}")
        question.ask(f"retention_level = {question.bind(level, 'String')}")
        text = f"ALTER TABLE request_log UPDATE {', '.join(changes)} WHERE {question.text}"
        self._change(text, question, mutations_sync=2)

    def _rows(self, text: str, question: _Question) -> list[LogRow]:
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in self._read(text, question.parameters)]
        for row in rows:
            row["id"] = UUID(int=row["id"])
        return rows

    def _read(self, text: str, parameters: dict[str, Any]) -> Sequence[Any]:
        """Return the rows of a query. Raises Overloaded if the server does not answer."""
        try:
            rows: Sequence[Any] = (
                self._client(_ANSWER).query(text, parameters=parameters, settings=_READING).result_rows
            )
        except ClickHouseError as error:
            log.error("clickhouse.no_answer", reason=type(error).__name__)
            raise Overloaded("Logs of older days cannot be read right now") from error
        return rows

    def _change(self, text: str, question: _Question, **settings: int) -> None:
        self._client(_CHANGE).command(text, parameters=question.parameters, settings=settings)

    def _client(self, patience: int) -> Client:
        """Return this process's shared client; creates it and the table on first use."""
        if patience not in self._clients:
            client = clickhouse_connect.get_client(
                dsn=self._url,
                interface="https" if self._url.startswith("https:") else None,
                tz_mode="aware",
                connect_timeout=_CONNECT,
                send_receive_timeout=patience,
                autogenerate_session_id=False,  # Sessions take no two questions at once.
            )
            client.command(TABLE)
            client.command(NEW_COLUMNS)
            self._clients[patience] = client
        return self._clients[patience]


def _is_row(scope: LogScope, identifier: UUID) -> _Question:
    question = _within(scope)
    question.ask(f"created_at = {question.bind(time_of(identifier), _MOMENT)}")
    question.ask(f"id = {question.bind(identifier.int, 'UInt128')}")
    return question


def _within(scope: LogScope) -> _Question:
    """Return the condition for all rows in a scope."""
    question = _Question()
    parts = []
    for organization_id, moment in scope.since.items():
        owner = question.bind(organization_id, "UUID")
        parts.append(f"organization_id = {owner} AND created_at >= {question.bind(moment, _MOMENT)}")
    question.ask(" OR ".join(f"({part})" for part in parts))
    narrowed = {
        "project_id": scope.project_id,
        "api_key_id": scope.api_key_id,
        "provider_key_id": scope.provider_key_id,
    }
    for column, value in narrowed.items():
        if value is not None:
            question.ask(f"{column} = {question.bind(value, 'UUID')}")
    if scope.key_ids is not None:
        question.ask(f"has({question.bind(sorted(scope.key_ids), 'Array(UUID)')}, api_key_id)")
    return question


def _ask_filters(question: _Question, filters: LogFilters) -> None:
    equal = {
        "used_provider": filters.provider,
        "finish_reason": filters.finish_reason,
        "unified_finish_reason": filters.unified_finish_reason,
        "source": filters.source,
        "session_id": filters.session_id,
    }
    for column, value in equal.items():
        if value is not None:
            question.ask(f"{column} = {question.bind(value, 'String')}")
    if filters.model is not None:
        question.ask(_is_model(question, filters.model))
    if filters.header_key is not None:
        key = question.bind(filters.header_key.lower(), "String")
        question.ask(f"has(JSONExtractKeys({_HEADERS}), {key})")
        if filters.header_value is not None:
            question.ask(f"JSONExtractString({_HEADERS}, {key}) = {question.bind(filters.header_value, 'String')}")
    elif filters.header_value is not None:
        values = f"arrayMap(pair -> pair.2, JSONExtractKeysAndValues({_HEADERS}, 'String'))"
        question.ask(f"has({values}, {question.bind(filters.header_value, 'String')})")


def _is_model(question: _Question, name: str) -> str:
    provider, slash, model = name.partition("/")
    is_model = f"used_model = {question.bind(name, 'String')}"
    if not slash:
        return is_model
    provider, model = question.bind(provider, "String"), question.bind(model, "String")
    return f"{is_model} OR used_provider = {provider} AND used_model = {model}"
