"""Serializers of an API key's limits (specification 2.1)."""

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
from apps.keys.origins import MAX_LENGTH, MAX_ORIGINS, WRITTEN_AS, is_origin


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


class PeriodLimitShape(CamelSerializer):
    """Maximum spending of an API key in a calendar hour, day, week (from Monday) or month, in UTC."""

    amount = DecimalTextField()
    period = ChoiceField(ApiKey.Period.choices)


class OriginField(TextField):
    """An origin of web pages, such as `https://app.example.com`: scheme, host, and optionally a port."""

    def __init__(self, **options: Any) -> None:
        super().__init__(max_length=MAX_LENGTH, **options)

    def to_internal_value(self, data: Any) -> str:
        """Return the origin in lower case. Raises ValidationError."""
        origin = super().to_internal_value(data).lower()
        if not is_origin(origin):
            raise serializers.ValidationError(WRITTEN_AS)
        return origin


class LimitsShape(CamelSerializer):
    """Expiry, spending limit per period, request rate and allowed origins of a key."""

    expires_at = FutureMoment(required=False, allow_null=True)
    period_limit = PeriodLimitShape(required=False, allow_null=True)
    requests_per_minute = IntegerField(low=1, high=1_000_000, required=False, allow_null=True)
    allowed_origins = serializers.ListField(
        child=OriginField(),
        max_length=MAX_ORIGINS,
        required=False,
        help_text="Origins of web pages that may use the key from a browser; empty: those that the deployment allows",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the columns."""
        if "period_limit" in attrs:
            given = attrs["period_limit"]
            attrs["period_limit"], attrs["period"] = (given["amount"], given["period"]) if given else (None, "")
        return attrs
