"""The schema of a log entry, from the columns it is written from."""

from __future__ import annotations

from typing import Any

from django.db import models

from apps.kernel.rest.serializers import camel
from apps.logs.models import RequestLog
from apps.logs.query import COLUMNS, JSON_COLUMNS
from apps.logs.serializers import COUNTS

Record = dict[str, Any]


def log_schemas() -> Record:
    """Return the schemas of a log entry and of what holds some."""
    entry = {"$ref": "#/components/schemas/LogEntry"}
    texts = {"type": "array", "items": {"type": "string"}}
    return {
        "LogEntry": _object({camel(name): _schema_of(name) for name in COLUMNS}),
        "LogPage": _object(
            {"logs": {"type": "array", "items": entry}, "pagination": {"$ref": "#/components/schemas/Pagination"}}
        ),
        "OneLog": _object({"log": entry}),
        "UsedModels": _object({"models": texts, "providers": texts}),
    }


def _object(properties: Record) -> Record:
    return {"type": "object", "required": list(properties), "properties": properties}


def _schema_of(column: str) -> Record:
    field: models.Field[Any, Any] = RequestLog._meta.get_field(column)  # type: ignore[assignment]  # no relation
    if column in JSON_COLUMNS:
        return {"description": "The value as JSON, as it was sent or received"}
    schema: Record = {"type": [_type_of(column, field), "null"] if field.null else _type_of(column, field)}
    if isinstance(field, models.UUIDField):
        schema["format"] = "uuid"
    elif isinstance(field, models.DateTimeField):
        schema["format"] = "date-time"
    if field.help_text:
        schema["description"] = str(field.help_text)
    return schema


def _type_of(column: str, field: models.Field[Any, Any]) -> str:
    match field:
        case _ if column in COUNTS:
            return "string"
        case models.BooleanField():
            return "boolean"
        case models.DecimalField() | models.FloatField():
            return "number"
        case models.IntegerField():
            return "integer"
    return "string"
