"""Serializer fields: camelCase names, strict strings, money as decimal strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
from django.utils import timezone
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer

from apps.kernel.money import MoneyField, plain
from apps.kernel.rest.envelopes import camel
from apps.kernel.rest.pages import read_cursor

_AMOUNT = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?")


class CamelSerializer(serializers.Serializer[Any]):
    """A serializer without a model."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields by their API names."""
        return _renamed(super().get_fields())


class Nothing(CamelSerializer):
    """An empty JSON object: the body of a POST without parameters."""


def _renamed(
    fields: dict[str, serializers.Field[Any, Any, Any, Any]],
) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
    """Rename the fields; values still belong to the columns that they were named after."""
    for name, field in fields.items():
        if field.source is None and camel(name) != name:
            field.source = name
    return {camel(name): field for name, field in fields.items()}


_DIGITS = re.compile(r"[0-9]{1,9}")
# Blank after trimming counts as empty. NUL is never allowed.
_WORDS, _ANYTHING = r"^[^\x00]*[^\s\x00][^\x00]*$", r"^[^\x00]*$"
# Control characters, and the marks that force a direction on the text behind them: with those a name can show itself
# and its neighbors in another order than they are stored. Marks that letters of some scripts need are allowed.
_NOT_IN_NAMES = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_NAME, _NAME_OR_NOTHING = rf"^[^{_NOT_IN_NAMES}]*[^\s{_NOT_IN_NAMES}][^{_NOT_IN_NAMES}]*$", rf"^[^{_NOT_IN_NAMES}]*$"
# Null characters have words of their own.
_find_not_in_names = re.compile(rf"(?!\x00)[{_NOT_IN_NAMES}]").search


class TextField(serializers.CharField):
    """A string; numbers and booleans are refused."""

    def to_internal_value(self, data: Any) -> str:
        """Return the text. Raises ValidationError."""
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)

    @property
    def pattern(self) -> str:
        """The pattern of accepted texts."""
        return _ANYTHING if self.allow_blank else _WORDS


class NameField(TextField):
    """A name that other people read: one line, without control characters and marks that force a text direction."""

    default_error_messages = {
        "unreadable": "Must be one line without control characters and without marks that change the text direction"
    }

    def to_internal_value(self, data: Any) -> str:
        """Return the name. Raises ValidationError."""
        name = super().to_internal_value(data)
        if _find_not_in_names(name):
            self.fail("unreadable")
        return name

    @property
    def pattern(self) -> str:
        """The pattern of accepted names."""
        return _NAME_OR_NOTHING if self.allow_blank else _NAME


class CursorField(TextField):
    """A page's cursor: the `nextCursor` of an earlier answer, as an id."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the id. Raises InvalidFields."""
        return read_cursor(super().to_internal_value(data))


class EmailField(TextField, serializers.EmailField):
    """An e-mail address."""


class BooleanField(serializers.Field[bool, Any, bool, Any]):
    """True or false; strings and numbers are refused."""

    default_error_messages = {"invalid": "Must be true or false"}

    def to_internal_value(self, data: Any) -> bool:
        """Return the value. Raises ValidationError."""
        if not isinstance(data, bool):
            self.fail("invalid")
        return data

    def to_representation(self, value: bool) -> bool:
        """Return the value."""
        return value


class QueryBooleanField(serializers.Field[bool, Any, bool, Any]):
    """`true` or `false` in a query."""

    default_error_messages = {"invalid": "Must be true or false"}

    def to_internal_value(self, data: Any) -> bool:
        """Return the value. Raises ValidationError."""
        if data not in ("true", "false"):
            self.fail("invalid")
        return bool(data == "true")

    def to_representation(self, value: bool) -> bool:
        """Return the value."""
        return value


class IntegerField(serializers.Field[int, Any, int, Any]):
    """A whole number within bounds; `5.0` is one, `"5"` and true are not."""

    default_error_messages = {
        "invalid": "Must be a whole number",
        "low": "Must be at least {low}",
        "high": "Must be at most {high}",
    }

    def __init__(self, *, low: int, high: int, **options: Any) -> None:
        super().__init__(**options)
        self.low, self.high = low, high

    def to_internal_value(self, data: Any) -> int:
        """Return the number. Raises ValidationError."""
        is_whole = (isinstance(data, int) and not isinstance(data, bool)) or (
            isinstance(data, float) and data.is_integer()
        )
        if not is_whole:
            self.fail("invalid")
        if data < self.low:
            self.fail("low", low=self.low)
        if data > self.high:
            self.fail("high", high=self.high)
        return int(data)

    def to_representation(self, value: int) -> int:
        """Return the number."""
        return value


class QueryIntegerField(IntegerField):
    """A whole number in a query, in plain digits."""

    def to_internal_value(self, data: Any) -> int:
        """Return the number. Raises ValidationError."""
        if not (_DIGITS.fullmatch(data) and self.low <= int(data) <= self.high):
            raise serializers.ValidationError(f"Must be a whole number from {self.low} to {self.high}")
        return int(data)


class ChoiceField(serializers.ChoiceField):
    """One of several words, spelled exactly."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the word. Raises ValidationError."""
        if not isinstance(data, str) or data not in self.choices:
            raise serializers.ValidationError(f"Must be one of: {', '.join(map(str, self.choices))}")
        return super().to_internal_value(data)


class DecimalTextField(serializers.Field[Decimal, Any, str, Any]):
    """USD as a decimal string: not negative, below a trillion, at most twelve digits after the point."""

    default_error_messages = {"invalid": 'Must be an amount such as "12.50", at least 0'}

    def __init__(self, *, max_digits: int | None = None, decimal_places: int | None = None, **options: Any) -> None:
        # All amounts have the bounds of the columns.
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> Decimal:
        """Return the exact amount. Raises ValidationError."""
        if not (isinstance(data, str) and _AMOUNT.fullmatch(data)):
            self.fail("invalid")
        return Decimal(data)

    def to_representation(self, value: Decimal) -> str:
        """Return the shortest exact text."""
        return plain(value)


class ExactNumberField(serializers.FloatField):
    """USD as a JSON number with all of its digits and no exponent, where `ExactJSONRenderer` writes it."""

    def to_representation(self, value: Any) -> Any:
        """Return the number."""
        return msgspec.Raw(plain(value).encode())


class ExactJSONRenderer(JSONRenderer):
    """JSON in which amounts are numbers that never were floats."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the data as JSON; empty for none."""
        return b"" if data is None else msgspec.json.encode(data, enc_hook=str)


class DateTimeField(serializers.Field[datetime, str, str, Any]):
    """An ISO 8601 date or time; UTC by default. A date alone is its first moment, or its last."""

    default_error_messages = {"invalid": "Must be an ISO 8601 date or time"}

    def __init__(self, *, of_a_day: time = time.min, **options: Any) -> None:
        super().__init__(**options)
        self._of_a_day = of_a_day

    def to_internal_value(self, data: Any) -> datetime:
        """Return the moment. Raises ValidationError."""
        try:
            moment = self._read(data)
            return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            self.fail("invalid")

    def to_representation(self, value: datetime) -> str:
        """Return the moment in UTC, in the format of the API."""
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")

    def _read(self, text: str) -> datetime:
        try:
            return datetime.combine(date.fromisoformat(text), self._of_a_day)
        except ValueError:
            return datetime.fromisoformat(text)


class FutureMoment(DateTimeField):
    """A moment in the future; a date alone means its end (UTC)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(of_a_day=time.max, **options)

    def to_internal_value(self, data: Any) -> datetime:
        """Return the moment. Raises ValidationError."""
        moment = super().to_internal_value(data)
        if moment <= timezone.now():
            raise serializers.ValidationError("Must be in the future")
        return moment


class PeriodQuery(CamelSerializer):
    """Query parameters of a period, both ends included."""

    start_date = DateTimeField(required=False)
    end_date = DateTimeField(required=False, of_a_day=time.max)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the query. Raises ValidationError if the end is before the start."""
        if "start_date" in attrs and "end_date" in attrs and attrs["start_date"] > attrs["end_date"]:
            raise serializers.ValidationError({"startDate": "Must not be after the end"})
        return attrs


class CamelModelSerializer(serializers.ModelSerializer[Any]):
    """A serializer for the model columns in `Meta.fields`."""

    serializer_field_mapping = {**serializers.ModelSerializer.serializer_field_mapping, MoneyField: DecimalTextField}

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields by their API names."""
        return _renamed(super().get_fields())
