"""Serializers of the activity API (specification 2.13, 4.5).

Amounts are numbers with every digit. Must never reach for the database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

import msgspec
from rest_framework import serializers

from apps.kernel.rest.serializers import CamelSerializer, ChoiceField, QueryIntegerField, TextField, camel
from apps.logs.activity import KEPT_DAYS, ActivityTotals
from apps.logs.rollup import SUMS

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
    org_id = TextField(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields; `from` cannot be written as one of a class."""
        return {"from": CalendarDay(required=False), **super().get_fields()}

    def to_internal_value(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the query; `days` is not looked at when both ends are given. Raises ValidationError."""
        if "from" in data and "to" in data:
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
