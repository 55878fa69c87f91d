"""The shapes of an API key's limits on the wire (specification 2.1).

Knows fields and their bounds. Must never know whose key it is.
"""

from __future__ import annotations

from datetime import datetime, time
from typing import Any

from django.utils import timezone
from rest_framework import serializers

from apps.kernel.rest.serializers import (
    CamelSerializer,
    ChoiceField,
    DateTimeField,
    DecimalTextField,
    IntegerField,
    TextField,
)
from apps.keys.models import ApiKey
from apps.keys.origins import MAX_LENGTH, MOST_ORIGINS, WRITTEN_AS, is_origin


class FutureMoment(DateTimeField):
    """A moment that is still to come; a date alone lasts to its end (UTC)."""

    def __init__(self, **options: Any) -> None:
        super().__init__(of_a_day=time.max, **options)

    def to_internal_value(self, data: Any) -> datetime:
        """Return the moment. Raises ValidationError."""
        moment = super().to_internal_value(data)
        if moment <= timezone.now():
            raise serializers.ValidationError("Must be in the future")
        return moment


class PeriodLimitShape(CamelSerializer):
    """The most that an API key may spend in a calendar hour, day, week (from Monday) or month, in UTC."""

    amount = DecimalTextField()
    period = ChoiceField(ApiKey.Period.choices)


class OriginField(TextField):
    """An origin of web pages, such as `https://app.example.com`: scheme, host, and port if need be."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_LENGTH, **options)

    def to_internal_value(self, data: Any) -> str:
        """Return the origin in lower case. Raises ValidationError."""
        origin = super().to_internal_value(data).lower()
        if not is_origin(origin):
            raise serializers.ValidationError(WRITTEN_AS)
        return origin


class LimitsShape(CamelSerializer):
    """How long a key works, what it may spend in a period, how often it may ask, and at whose pages."""

    expires_at = FutureMoment(required=False, allow_null=True)
    period_limit = PeriodLimitShape(required=False, allow_null=True)
    requests_per_minute = IntegerField(low=1, high=1_000_000, required=False, allow_null=True)
    allowed_origins = serializers.ListField(
        child=OriginField(),
        max_length=MOST_ORIGINS,
        required=False,
        help_text="Origins of web pages that may use the key from a browser; empty: those that the deployment allows",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the columns."""
        if "period_limit" in attrs:
            given = attrs["period_limit"]
            attrs["period_limit"], attrs["period"] = (given["amount"], given["period"]) if given else (None, "")
        return attrs
