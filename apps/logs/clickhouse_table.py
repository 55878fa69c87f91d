"""The log's table in ClickHouse (DDL), generated from the model."""

from __future__ import annotations

from typing import Any

from django.db import models

from apps.logs.models import RequestLog

_FIELDS: list[models.Field[Any, Any]] = list(RequestLog._meta.concrete_fields)
# Columns in the order in which rows are added.
TABLE_COLUMNS = tuple(field.name for field in _FIELDS)


def _type_of(field: models.Field[Any, Any]) -> str:
    if field.primary_key:
        return "UInt128"  # Its order is that of time, which ClickHouse's order of UUIDs is not.
    kind = _plain_type_of(field)
    if field.null:
        kind = f"Nullable({kind})"
    few_values = isinstance(field, models.CharField) and field.name != "request_id"
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
    INDEX of_end unified_finish_reason TYPE bloom_filter GRANULARITY 1,
    INDEX of_headers JSONExtractKeys(ifNull(custom_headers, '{{}}')) TYPE bloom_filter GRANULARITY 1
) ENGINE = ReplacingMergeTree(moved_at)
PARTITION BY toYYYYMMDD(created_at)
ORDER BY (organization_id, created_at, id)
"""
# Upgrades a table of an earlier version.
NEW_COLUMNS = f"ALTER TABLE request_log {', '.join(f'ADD COLUMN IF NOT EXISTS {column}' for column in _COLUMNS)}"
