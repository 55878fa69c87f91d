"""Serializers of limits: fields and bounds of the management API."""

from __future__ import annotations

import re
from typing import Any, cast

from rest_framework import serializers

from apps.kernel.rest.serializers import (
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    DateTimeField,
    DecimalTextField,
    FutureMoment,
    IntegerField,
    NameField,
    TextField,
)
from apps.limits.actions import MAX_REROUTE_MODELS, MAX_ROLLING, scope_id_of
from apps.limits.models import Limit
from apps.limits.preview import LimitPreview
from apps.limits.state import LimitState
from apps.limits.windows import known_time_zones
from apps.logs.serializers import CalendarDay

# Texts around `*`: few, so that a pattern is matched at once.
_PATTERN = re.compile(r"[^\s?\[\]*]*(\*[^\s?\[\]*]*){0,3}")


class _RaiseShape(CamelSerializer):
    """A temporary raise: another amount until a moment, and why."""

    raised_amount = DecimalTextField(required=False, allow_null=True, help_text="In force until `raisedUntil`")
    raised_until = FutureMoment(required=False, allow_null=True)
    raise_reason = NameField(max_length=200, required=False, allow_blank=True)


class _ModelsField(serializers.ListField):
    """Ids of models, each once."""

    def __init__(self, **options: Any) -> None:
        super().__init__(child=TextField(max_length=120), max_length=MAX_REROUTE_MODELS, **options)

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return them in their order. Raises ValidationError."""
        return list(dict.fromkeys(super().to_internal_value(data)))


class NewLimitShape(_RaiseShape):
    """Body of `POST /limits`."""

    organization_id = TextField(max_length=100)
    name = NameField(max_length=100)
    scope = ChoiceField(Limit.Scope.values)
    scope_id = TextField(
        max_length=100,
        required=False,
        help_text="The id of the team, project, member or key; for `end_user` the project's",
    )
    end_user = TextField(max_length=256, required=False, help_text="One end user's id: its own limit instead")
    model = TextField(max_length=255, required=False, help_text="A model's id, or a pattern with `*`")
    provider = TextField(
        max_length=255, required=False, help_text="A provider's id, such as `openai`, or `custom:` and your own's name"
    )
    counts = ChoiceField(Limit.Counts.values)
    window = ChoiceField(Limit.Window.values)
    time_zone = TextField(max_length=64, default="UTC", help_text="For days, weeks and months, such as `Europe/Berlin`")
    rolling = IntegerField(
        low=2,
        high=MAX_ROLLING,
        required=False,
        help_text="With `hour` or `day`: the last so many of them, the present one included",
    )
    starts_on = CalendarDay(
        required=False, help_text="With `week` or `month`: each begins on this date's weekday, or day of the month"
    )
    amount = DecimalTextField(help_text="USD, or a whole number")
    action = ChoiceField(Limit.Action.values, default=Limit.Action.REFUSE)
    reroute_models = _ModelsField(
        required=False, help_text="With the action `reroute`: ids of models; the first that can answers instead"
    )

    def validate_model(self, value: str) -> str:
        """Check the pattern. Raises ValidationError."""
        if not _PATTERN.fullmatch(value):
            raise serializers.ValidationError("Must be a model's id, or a pattern with at most three `*`")
        return value

    def validate_timeZone(self, value: str) -> str:  # noqa: N802 - named after the field
        """Check the name of the time zone. Raises ValidationError."""
        if value != "UTC" and value not in known_time_zones():
            raise serializers.ValidationError("Must be a time zone such as Europe/Berlin")
        return value


class LimitDraftShape(NewLimitShape):
    """Body of `POST /limits/preview`: a limit, which needs no name."""

    name = NameField(max_length=100, default="draft")


class _RefusedUseShape(CamelSerializer):
    """Requests and USD in all, and those that would have been refused."""

    requests = serializers.IntegerField()
    cost = DecimalTextField()
    refused_requests = serializers.IntegerField()
    refused_cost = DecimalTextField()


class _RefusedDayShape(_RefusedUseShape):
    """A day (UTC) of it."""

    date = serializers.DateField()


class _RefusedOwnerShape(_RefusedUseShape):
    """A key or a member of it."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class LimitPreviewShape(CamelSerializer):
    """The requests that a draft would have refused."""

    first = serializers.DateField(help_text="The first day of the replay (UTC)")
    last = serializers.DateField()
    granularity = serializers.CharField(help_text="`day`: from daily totals; `request`: request by request")
    is_cut = serializers.BooleanField(help_text="Whether there were more requests than are read, so that it is shorter")
    total = _RefusedUseShape()
    days = _RefusedDayShape(many=True, help_text="Days with requests, oldest first")
    keys = _RefusedOwnerShape(many=True, help_text="Those of which most would have been refused")
    members = _RefusedOwnerShape(many=True, help_text="Those whose keys would have been refused most")


def shown_preview(found: LimitPreview) -> dict[str, Any]:
    """Return a preview as `LimitPreviewShape` writes it."""
    days = [{"date": day, **vars(use)} for day, use in sorted(found.days.items())]
    keys = [{"id": key.pk, "name": key.description, **vars(use)} for key, use in found.keys]
    members = [{"id": member.pk, "name": member.email, **vars(use)} for member, use in found.members]
    return {**vars(found), "days": days, "keys": keys, "members": members}


class LimitChangesShape(_RaiseShape):
    """Body of `PATCH /limits/{id}`."""

    name = NameField(max_length=100, required=False)
    amount = DecimalTextField(required=False)
    action = ChoiceField(Limit.Action.values, required=False)
    reroute_models = _ModelsField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the amount if nothing else changes. Raises ValidationError."""
        if not attrs:
            raise serializers.ValidationError({"amount": ["Required"]})
        return attrs


class LimitStateShape(CamelSerializer):
    """Used, held and remaining amount of a limit in its present window."""

    amount = serializers.CharField(help_text="The amount in force: the raised one while it holds")
    used = serializers.CharField()
    held = serializers.CharField(allow_null=True, help_text="Held by requests in progress; null: unknown")
    left = serializers.CharField()
    starts_at = DateTimeField(allow_null=True)
    resets_at = DateTimeField(allow_null=True)


class LimitElsewhereShape(CamelSerializer):
    """A limit that is set elsewhere: of an API key, or of the plan."""

    kind = serializers.CharField(
        help_text="`usageLimit`, `periodLimit`, `requestsPerMinute`, `concurrency`; set by operators for the plan: "
        "`planDefault`, whose place an own limit takes, and `planLimit`"
    )
    scope = serializers.CharField()
    scope_id = serializers.CharField()
    name = serializers.CharField(help_text="The key's description, `Plan`, or the name of the plan's limit")
    model = serializers.CharField(help_text="A model's id or pattern, for a limit of the plan on some; else empty")
    provider = serializers.CharField(help_text="A provider's id, for a limit of the plan on one; else empty")
    counts = serializers.CharField()
    window = serializers.CharField()
    amount = serializers.CharField()
    page = serializers.CharField(help_text="The console's page where it is set; empty: an operator sets it")
    state = LimitStateShape(allow_null=True)


class LimitShape(CamelModelSerializer):
    """A limit with its state, which the view adds as `state` (null for a limit of each end user)."""

    scope_id = serializers.SerializerMethodField("scope_id_of")
    reroute_models = serializers.ListField(child=serializers.CharField(), read_only=True)
    state = serializers.SerializerMethodField("state_of")

    class Meta:
        model = Limit
        fields = read_only_fields = [
            *("id", "organization_id", "name", "scope", "scope_id", "end_user", "model", "provider"),
            *("counts", "window", "rolling", "starts_on", "time_zone", "amount", "action", "reroute_models"),
            *("raised_amount", "raised_until", "raise_reason", "state", "created_at", "updated_at"),
        ]

    def scope_id_of(self, limit: Limit) -> str | None:
        """The id of the team, project, member or key that it is for."""
        found = scope_id_of(limit)
        return None if found is None else str(found)

    def state_of(self, limit: Limit) -> LimitStateShape | None:
        """Return its state in the present window."""
        state: LimitState | None = self.context["states"].get(limit)
        return None if state is None else cast(LimitStateShape, LimitStateShape(state).data)
