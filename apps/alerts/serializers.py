"""Serializers of alerts: fields and limits of the management API, and the requirements of each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import time
from typing import Any, Final

from rest_framework import serializers

from apps.alerts.actions import MAX_DESTINATIONS, NewDestination
from apps.alerts.kind_names import PARAMETERS, KindName
from apps.alerts.messages import Credentials, IncomingWebhook, RoutingKey
from apps.alerts.models import Alert, AlertDestination, AlertReader, AlertRule
from apps.destinations.credentials import MAX_KEY, WebhookSecret, WebhookSecretField
from apps.kernel.money import plain
from apps.kernel.rest.envelopes import InvalidFields, Issue, camel
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import (
    BooleanField,
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    CursorField,
    DecimalTextField,
    IntegerField,
    NameField,
    QueryIntegerField,
    TextField,
)
from apps.limits.windows import known_time_zones

# PagerDuty's address of events, for accounts without one of their own region.
PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
_HOUR: Final = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")
_ASPECTS: Final = ("model", "provider")
# The fields with credentials, by the kind of a destination: required for a new one.
_CREDENTIALS: Final[Mapping[str, str]] = {
    AlertDestination.Kind.WEBHOOK: "secret",
    AlertDestination.Kind.PAGERDUTY: "routing_key",
}
_PARAMETER_NAMES: Final = tuple(dict.fromkeys(name for kind in PARAMETERS.values() for name in kind.names))


class AlertsQuery(CamelSerializer):
    """Query of `GET /alerts`."""

    organization_id = TextField(max_length=100)
    status = ChoiceField(["open", "resolved"], required=False, help_text="Only alerts that are open, or resolved")
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)
    cursor = CursorField(required=False)


class AlertShape(CamelModelSerializer):
    """An alert; `resolvedAt` is null while it is open, and always for alerts of events."""

    figures = serializers.DictField(read_only=True)

    class Meta:
        model = Alert
        fields = read_only_fields = [
            *("id", "organization_id", "rule_id", "kind", "subject", "title", "text", "page", "figures"),
            *("fired_at", "resolved_at"),
        ]


class AlertsReadShape(CamelSerializer):
    """Body of `POST /alerts/read`."""

    organization_id = TextField(max_length=100)
    alert_id = TextField(
        max_length=100, required=False, help_text="The newest alert that was read; absent: all alerts so far"
    )


class QuietHour(serializers.Field[time, Any, str, Any]):
    """A time of day as `HH:MM`."""

    def to_internal_value(self, data: Any) -> time:
        """Return the time. Raises ValidationError."""
        if not (isinstance(data, str) and _HOUR.fullmatch(data)):
            raise serializers.ValidationError("Must be a time such as 22:00")
        return time.fromisoformat(data)

    def to_representation(self, value: time) -> str:
        """Return the text."""
        return f"{value:%H:%M}"


class AlertPreferencesShape(CamelSerializer):
    """Body of `PATCH /alerts/preferences`; absent fields keep their values."""

    organization_id = TextField(max_length=100)
    by_email = BooleanField(required=False)
    quiet_from = QuietHour(
        required=False, allow_null=True, help_text="When e-mails begin to wait: `22:00`; null: never"
    )
    quiet_until = QuietHour(required=False, allow_null=True, help_text="When those that waited are sent as one")
    time_zone = TextField(max_length=64, required=False, help_text="Such as `Europe/Berlin`")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check that something changes, and the quiet hours. Raises ValidationError."""
        if len(attrs) == 1:
            raise serializers.ValidationError({"byEmail": ["Required"]})
        if ("quiet_from" in attrs) != ("quiet_until" in attrs):
            raise serializers.ValidationError({"quietUntil" if "quiet_from" in attrs else "quietFrom": ["Required"]})
        begin, end = attrs.get("quiet_from"), attrs.get("quiet_until")
        if (begin is None) != (end is None) or (begin is not None and begin == end):
            raise serializers.ValidationError({"quietUntil": ["Must be another time than quietFrom; both or none"]})
        if attrs.get("time_zone", "UTC") not in known_time_zones() | {"UTC"}:
            raise serializers.ValidationError({"timeZone": ["Must be a time zone such as Europe/Berlin"]})
        return attrs


class AlertReaderShape(CamelModelSerializer):
    """A member's own choices."""

    quiet_from = QuietHour(read_only=True, allow_null=True)
    quiet_until = QuietHour(read_only=True, allow_null=True)

    class Meta:
        model = AlertReader
        fields = read_only_fields = ["by_email", "quiet_from", "quiet_until", "time_zone", "read_until"]


class _DestinationsField(serializers.ListField):
    """Ids of alert destinations."""

    def __init__(self, **options: Any) -> None:
        words = "The destinations that get its alerts beside e-mail; null: each of them"
        super().__init__(child=TextField(max_length=100), max_length=MAX_DESTINATIONS, help_text=words, **options)


class NewAlertRuleShape(CamelSerializer):
    """Body of `POST /alerts/rules`; the kind determines which other fields are required."""

    organization_id = TextField(max_length=100)
    kind = ChoiceField(KindName.values)
    amount = DecimalTextField(required=False, help_text="For balance_low: USD")
    days = IntegerField(low=1, high=365, required=False, help_text="For balance_runway, key_unused, model_retirement")
    percent = IntegerField(low=1, high=100, required=False, help_text="For limit_share and error_rate")
    factor = IntegerField(low=2, high=1_000, required=False, help_text="For daily_spend: times the usual spending")
    floor = DecimalTextField(required=False, help_text="For daily_spend: USD that a day must exceed besides")
    milliseconds = IntegerField(low=1, high=3_600_000, required=False, help_text="For latency: the p95")
    aspect = ChoiceField(_ASPECTS, required=False, help_text="For error_rate and latency: each model, or each provider")
    name = NameField(
        max_length=255,
        required=False,
        allow_blank=True,
        help_text="For error_rate and latency: one model or provider; empty: each of them",
    )
    min_requests = IntegerField(
        low=1, high=5_000, required=False, help_text="For error_rate and latency: requests in 15 minutes; 20 by default"
    )
    destination_ids = _DestinationsField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the fields against the kind. Raises ValidationError."""
        kind = PARAMETERS[KindName(attrs["kind"])]
        wrong = {camel(name): ["Required"] for name in kind.required if name not in attrs}
        wrong |= {
            camel(name): [f"Not a field of the kind {attrs['kind']}"]
            for name in _PARAMETER_NAMES
            if name in attrs and name not in kind.names
        }
        if attrs.get("amount") == 0:
            wrong["amount"] = ["Must be more than 0"]
        if wrong:
            raise serializers.ValidationError(wrong)
        return attrs


class AlertRuleChangesShape(CamelSerializer):
    """Body of `PATCH /alerts/rules/{id}`; absent fields keep their values."""

    status = ChoiceField([AlertRule.Status.ACTIVE, AlertRule.Status.INACTIVE], required=False)
    destination_ids = _DestinationsField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the status if nothing else changes. Raises ValidationError."""
        if not attrs:
            raise serializers.ValidationError({"status": ["Required"]})
        return attrs


class _ParametersField(serializers.DictField):
    """The parameters of a rule, under the names that a request has for them."""

    def to_representation(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters by their API names."""
        return {camel(name): one for name, one in super().to_representation(value).items()}


class AlertRuleShape(CamelModelSerializer):
    """A rule; `summary` is it in a few words."""

    parameters = _ParametersField(read_only=True)
    destination_ids = serializers.ListField(child=serializers.CharField(), read_only=True, allow_null=True)
    summary = serializers.CharField(read_only=True)

    class Meta:
        model = AlertRule
        fields = read_only_fields = [
            *("id", "organization_id", "kind", "parameters", "summary", "destination_ids", "status"),
            *("created_at", "updated_at"),
        ]


class _RoutingKeyField(TextField):
    """An integration key of PagerDuty: letters and digits."""

    def to_internal_value(self, data: Any) -> str:
        """Return the key. Raises ValidationError."""
        text = super().to_internal_value(data)
        if not (text.isascii() and text.isalnum()):
            raise serializers.ValidationError("Must be letters and digits")
        return text


class _CredentialsShape(CamelSerializer):
    """The credentials of every kind; each kind accepts only its own."""

    secret = WebhookSecretField()
    routing_key = _RoutingKeyField(max_length=MAX_KEY, required=False, help_text="For PagerDuty: the integration key")


class NewAlertDestinationShape(_CredentialsShape):
    """Body of `POST /alerts/destinations`; the kind determines which other fields are required."""

    organization_id = TextField(max_length=100)
    name = NameField(max_length=100)
    kind = ChoiceField(AlertDestination.Kind.values)
    url = TextField(max_length=500, required=False, help_text=f"The address; for PagerDuty {PAGERDUTY_URL} by default")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check the fields against the kind. Raises ValidationError."""
        kind = attrs["kind"]
        needed = _CREDENTIALS.get(kind)
        if kind == AlertDestination.Kind.PAGERDUTY:
            attrs.setdefault("url", PAGERDUTY_URL)
        wrong = {camel(name): ["Required"] for name in (needed, "url") if name and name not in attrs}
        wrong |= {
            camel(name): [f"Not a field of the kind {kind}"]
            for name in _CREDENTIALS.values()
            if name in attrs and name != needed
        }
        if wrong:
            raise serializers.ValidationError(wrong)
        return attrs


class AlertDestinationChangesShape(_CredentialsShape):
    """Body of `PATCH /alerts/destinations/{id}`; absent fields keep their values."""

    name = NameField(max_length=100, required=False)
    status = ChoiceField([AlertDestination.Status.ACTIVE, AlertDestination.Status.INACTIVE], required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the status if nothing else changes. Raises ValidationError."""
        if not attrs:
            raise serializers.ValidationError({"status": ["Required"]})
        return attrs


class AlertDestinationShape(CamelModelSerializer):
    """A destination with masked credentials and delivery state."""

    class Meta:
        model = AlertDestination
        fields = read_only_fields = [
            *("id", "organization_id", "name", "kind", "url", "masked_credentials", "status", "created_at"),
            *("updated_at", "failures", "failing_since", "last_error", "last_error_at", "next_attempt_at"),
            "last_delivered_at",
        ]


def parameters_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in a body of `NewAlertRuleShape`, as a rule stores them."""
    kind = PARAMETERS[KindName(fields["kind"])]
    values = {**(kind.optional or {}), **{name: fields[name] for name in kind.names if name in fields}}
    return {name: value if isinstance(value, int | str) else plain(value) for name, value in values.items()}


def new_destination(fields: Mapping[str, Any]) -> NewDestination:
    """Return the destination that a body of `NewAlertDestinationShape` describes."""
    return NewDestination(
        name=fields["name"], kind=fields["kind"], url=fields["url"], credentials=_credentials_of(fields["kind"], fields)
    )


def destination_changes(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes in a body of `AlertDestinationChangesShape`, for a kind. Raises InvalidFields."""
    own = _CREDENTIALS.get(kind)
    given = [name for name in _CREDENTIALS.values() if name in fields]
    if issues := [Issue(camel(name), f"Not a field of the kind {kind}") for name in given if name != own]:
        raise InvalidFields(issues)
    changes = {name: value for name, value in fields.items() if name not in given}
    return {**changes, "credentials": _credentials_of(kind, fields)} if given else changes


def rule_fields_of_others(kind: str) -> set[str]:
    """Return the API names of the parameters that rules of a kind do not have."""
    own = PARAMETERS[KindName(kind)].names if kind in KindName.values else ()
    return {camel(name) for name in _PARAMETER_NAMES if name not in own}


def destination_fields_of_others(kind: str) -> set[str]:
    """Return the API names of the credentials that destinations of a kind do not have."""
    return {camel(name) for name in _CREDENTIALS.values() if name != _CREDENTIALS.get(kind)}


def _credentials_of(kind: str, fields: Mapping[str, Any]) -> Credentials:
    if kind == AlertDestination.Kind.WEBHOOK:
        return WebhookSecret(fields["secret"])
    if kind == AlertDestination.Kind.PAGERDUTY:
        return RoutingKey(fields["routing_key"])
    return IncomingWebhook(fields["url"])
