"""Serializers of API keys, access rules and provider keys (specification 2.1, 2.2, 2.5)."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.kernel.money import plain
from apps.kernel.rest.serializers import (
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    DecimalTextField,
    FutureMoment,
    IntegerField,
    NameField,
    TextField,
)
from apps.keys.actions import CreatedKey
from apps.keys.model_discovery import ANY_SERVER, SERVERS
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.keys.origins import MAX_LENGTH, MAX_ORIGINS, WRITTEN_AS, is_origin
from apps.keys.own_models import (
    CAPABILITIES,
    MAX_ALIAS,
    MAX_CONTEXT,
    MAX_MODEL_NAME,
    MAX_PRICE,
    MAX_REPLICAS,
    MAX_TOKENS_PER_HOUR,
    OwnModel,
)
from apps.keys.provider_keys import CUSTOM
from apps.organizations.models import Plan, User


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


REQUIRED = "Required"
_PROVIDER_NAME = re.compile(r"[a-z0-9-]{1,40}")
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class NewKeyShape(LimitsShape):
    """Body of `POST /keys/api`."""

    description = NameField(max_length=255)
    project_id = TextField(max_length=100)
    team_id = TextField(
        max_length=100, required=False, allow_null=True, help_text="A team that its requests count for; you are in it"
    )
    service_account_id = TextField(
        max_length=100, required=False, allow_null=True, help_text="The service account that it belongs to, not you"
    )
    usage_limit = DecimalTextField(required=False, allow_null=True)


class KeysQuery(CamelSerializer):
    """The query of `GET /keys/api`."""

    project_id = TextField(max_length=100, required=False)
    team_id = TextField(max_length=100, required=False, help_text="Keys in this team, of its projects, or of its parts")
    filter = ChoiceField(["mine", "all"], default="mine")


class KeyChangesShape(LimitsShape):
    """Body of `PATCH /keys/api/{id}`; fields that are absent keep their values."""

    status = ChoiceField([ApiKey.Status.ACTIVE, ApiKey.Status.INACTIVE], required=False)
    description = NameField(max_length=255, required=False)
    team_id = TextField(max_length=100, required=False, allow_null=True, help_text="null: no team of its own")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Require the status if nothing else changes. Raises ValidationError."""
        if not attrs:
            raise serializers.ValidationError({"status": [REQUIRED]})
        return super().validate(attrs)


class KeyLimitShape(CamelSerializer):
    """Body of `PATCH /keys/api/limit/{id}`."""

    usage_limit = DecimalTextField(allow_null=True)


# Hours that a key may stay valid beside its replacement: a week.
MAX_OVERLAP = 168


class RotationShape(CamelSerializer):
    """Body of `POST /keys/api/{id}/rotate`."""

    overlap_hours = IntegerField(low=0, high=MAX_OVERLAP, default=0)


class NewRuleShape(CamelSerializer):
    """Body of `POST /keys/api/{id}/iam`."""

    rule_type = ChoiceField(IamRule.Type.choices)
    rule_value = serializers.DictField()
    status = ChoiceField(IamRule.Status.choices, default=IamRule.Status.ACTIVE)


class RuleChangesShape(CamelSerializer):
    """Body of `PATCH /keys/api/{id}/iam/{ruleId}`; fields that are absent keep their values."""

    rule_type = ChoiceField(IamRule.Type.choices, required=False)
    rule_value = serializers.DictField(required=False)
    status = ChoiceField(IamRule.Status.choices, required=False)


class NewProviderKeyShape(CamelSerializer):
    """Body of `POST /keys/provider`; only a custom provider has a name, an address and a kind of server, and may be
    without a token."""

    provider = TextField(max_length=40)
    token = TextField(max_length=10_000, required=False, allow_null=True, allow_blank=True)
    organization_id = TextField(max_length=100)
    provider_name = TextField(max_length=40, required=False, allow_null=True, allow_blank=True)
    base_url = TextField(max_length=500, required=False, allow_null=True, allow_blank=True)
    server = ChoiceField(list(SERVERS), required=False, allow_null=True)
    replicas = serializers.ListField(child=TextField(max_length=500), max_length=MAX_REPLICAS - 1, required=False)

    def validate_token(self, value: str | None) -> str:
        """Refuse characters that a header cannot hold. Raises ValidationError."""
        if value and not (value.isascii() and value.isprintable()):
            raise serializers.ValidationError("Must be printable ASCII characters")
        return value or ""

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Check name, address and token against the type of provider. Raises ValidationError."""
        name = attrs["provider_name"] = attrs.get("provider_name") or ""
        base_url = attrs["base_url"] = attrs.get("base_url") or ""
        token = attrs["token"] = attrs.get("token") or ""
        server = attrs.get("server")
        attrs["server"] = server or ANY_SERVER
        attrs["replicas"] = tuple(attrs.get("replicas") or ())
        if attrs["provider"] != CUSTOM:
            given = {"providerName": name, "baseUrl": base_url, "server": server, "replicas": attrs["replicas"]}
            findings = {field: ["Only for the provider custom"] for field, value in given.items() if value}
            if not token:
                findings["token"] = [REQUIRED]
        else:
            findings = {} if base_url else {"baseUrl": [REQUIRED]}
            if not _PROVIDER_NAME.fullmatch(name):
                findings["providerName"] = ["Must be 1 to 40 of a-z, 0-9 and -" if name else REQUIRED]
        if findings:
            raise serializers.ValidationError(findings)
        return attrs


class ProviderKeyChangesShape(CamelSerializer):
    """Body of `PATCH /keys/provider/{id}`."""

    status = ChoiceField([ProviderKey.Status.ACTIVE, ProviderKey.Status.INACTIVE])


class ProviderKeyShape(CamelModelSerializer):
    """A provider key, masked; `providerName`, `baseUrl`, `server` and `replicas`, its further addresses, are null for
    providers of the catalog."""

    provider_name = serializers.SerializerMethodField("name_of")
    base_url = serializers.SerializerMethodField("address_of")
    server = serializers.SerializerMethodField("server_of")
    replicas = serializers.SerializerMethodField("replicas_of")

    class Meta:
        model = ProviderKey
        fields = read_only_fields = [
            "id",
            "provider",
            "provider_name",
            "base_url",
            "server",
            "replicas",
            "status",
            "organization_id",
            "masked_token",
            "created_at",
            "updated_at",
        ]

    def name_of(self, key: ProviderKey) -> str | None:
        """The name of a custom provider; null for providers of the catalog."""
        return key.provider_name or None

    def address_of(self, key: ProviderKey) -> str | None:
        """The base URL of a custom provider, whether it is drained or not; null for providers of the catalog."""
        return (key.replicas[0]["baseUrl"] if key.replicas else key.base_url) or None

    def server_of(self, key: ProviderKey) -> str | None:
        """The kind of a custom provider's server; null for providers of the catalog."""
        return key.server if key.provider == CUSTOM else None

    def replicas_of(self, key: ProviderKey) -> list[str] | None:
        """The addresses of a custom provider beside `baseUrl`; null without any."""
        return [one["baseUrl"] for one in key.replicas[1:]] or None


class ProbeShape(CamelSerializer):
    """The findings of small requests to a model; capabilities that no answer decided are missing, `notes` says why."""

    at = serializers.CharField()
    results = serializers.DictField(child=serializers.BooleanField())
    thinking_field = serializers.CharField(allow_null=True)
    reports_usage = serializers.BooleanField(allow_null=True)
    notes = serializers.DictField(child=serializers.CharField())


class OwnModelShape(CamelSerializer):
    """A model of a custom provider. `model` is its name there, prices are USD per million tokens, `hourlyPrice` is USD
    for an hour that `tokensPerHour` share, null is unknown. Without `tokensPerHour`, `observedTokensPerHour` share it:
    the mean of the last seven days, null before there is one.

    `capabilities` are those that `overrides` set, a probe showed or the server states. `goneAt` is when the server was
    first seen without it.
    """

    model = serializers.CharField(source="name")
    alias = serializers.SerializerMethodField("alias_of")
    context_length = serializers.IntegerField(allow_null=True)
    input_price = DecimalTextField(allow_null=True)
    output_price = DecimalTextField(allow_null=True)
    hourly_price = DecimalTextField(allow_null=True)
    tokens_per_hour = serializers.IntegerField(allow_null=True)
    observed_tokens_per_hour = serializers.IntegerField(allow_null=True)
    capabilities = serializers.ListField(child=serializers.CharField(), allow_null=True)
    overrides = serializers.DictField(child=serializers.BooleanField(), source="set_capabilities", allow_null=True)
    probe = ProbeShape(allow_null=True)
    listed = serializers.BooleanField(source="is_found")
    gone_at = serializers.CharField(allow_null=True)

    def alias_of(self, model: OwnModel) -> str | None:
        """The id that requests may use in place of `custom:<providerName>/<model>`; null without one."""
        return model.alias or None


class OwnModelChangesShape(CamelSerializer):
    """Body of `PATCH /keys/provider/{id}/models`; fields that are absent keep their values, null is unknown."""

    model = TextField(max_length=MAX_MODEL_NAME)
    alias = TextField(max_length=MAX_ALIAS, required=False, allow_null=True)
    context_length = IntegerField(low=1, high=MAX_CONTEXT, required=False, allow_null=True)
    input_price = DecimalTextField(required=False, allow_null=True)
    output_price = DecimalTextField(required=False, allow_null=True)
    hourly_price = DecimalTextField(required=False, allow_null=True)
    tokens_per_hour = IntegerField(low=1, high=MAX_TOKENS_PER_HOUR, required=False, allow_null=True)
    overrides = serializers.DictField(child=serializers.BooleanField(), required=False, allow_null=True)

    def validate_alias(self, value: str | None) -> str | None:
        """Refuse the separators of names of models. Raises ValidationError."""
        if value is not None and not _ALIAS.fullmatch(value):
            raise serializers.ValidationError("Must begin with a letter or digit, and have a-z, A-Z, 0-9, . _ - only")
        return value

    def validate_overrides(self, value: dict[str, bool] | None) -> dict[str, bool] | None:
        """Refuse names that are no capability. Raises ValidationError."""
        if unknown := sorted(set(value or ()) - set(CAPABILITIES)):
            named = ", ".join(sorted(CAPABILITIES))
            raise serializers.ValidationError(f"{unknown[0][:40]} is no capability; these are: {named}")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Bound the prices. Raises ValidationError."""
        given = {"inputPrice": attrs.get("input_price"), "outputPrice": attrs.get("output_price")}
        too_high = [f"Must be at most {MAX_PRICE} USD per million tokens"]
        findings = {name: too_high for name, price in given.items() if price is not None and price > MAX_PRICE}
        if (hourly := attrs.get("hourly_price")) is not None and hourly > MAX_PRICE:
            findings["hourlyPrice"] = [f"Must be at most {MAX_PRICE} USD"]
        if findings:
            raise serializers.ValidationError(findings)
        return attrs


class ProbedModelShape(CamelSerializer):
    """Body of `POST /keys/provider/{id}/models/probe`."""

    model = TextField(max_length=MAX_MODEL_NAME)


class ReplicaShape(CamelSerializer):
    """An address of a custom provider. `inFlight` are the gateway's own requests, `running` and `waiting` what the
    server's metrics say; null where it offers none."""

    name = serializers.CharField()
    base_url = serializers.CharField()
    draining = serializers.BooleanField()
    state = serializers.ChoiceField(["up", "down", "draining", "unknown"])
    in_flight = serializers.IntegerField(min_value=0)
    running = serializers.IntegerField(min_value=0, allow_null=True)
    waiting = serializers.IntegerField(min_value=0, allow_null=True)


class WantedReplicaShape(CamelSerializer):
    """An address to set."""

    name = TextField(max_length=40, required=False)
    base_url = TextField(max_length=500)
    draining = serializers.BooleanField(required=False)

    def validate_name(self, value: str) -> str:
        """Refuse other characters than those of names of providers. Raises ValidationError."""
        if not _PROVIDER_NAME.fullmatch(value):
            raise serializers.ValidationError("Must be 1 to 40 of a-z, 0-9 and -")
        return value


class WantedReplicasShape(CamelSerializer):
    """Body of `PUT /keys/provider/{id}/replicas`: all addresses; `token` where one is new."""

    replicas = WantedReplicaShape(many=True, allow_empty=False, max_length=MAX_REPLICAS)  # type: ignore[call-arg]  # of lists
    token = TextField(max_length=10_000, required=False, allow_blank=True)


class ReplicaChangesShape(CamelSerializer):
    """Body of `PATCH /keys/provider/{id}/replicas`."""

    name = TextField(max_length=40)
    draining = serializers.BooleanField()


class CreatorShape(CamelModelSerializer):
    """The user who created the API key."""

    class Meta:
        model = User
        fields = read_only_fields = ["id", "name", "email"]


class IamRuleShape(CamelModelSerializer):
    """An access rule of an API key."""

    class Meta:
        model = IamRule
        fields = read_only_fields = [
            "id",
            "api_key_id",
            "rule_type",
            "rule_value",
            "status",
            "created_at",
            "updated_at",
        ]


class ApiKeyShape(CamelModelSerializer):
    """An API key, without its token."""

    creator = CreatorShape(source="created_by", read_only=True)
    iam_rules = IamRuleShape(many=True, read_only=True)
    created_by = serializers.ReadOnlyField(source="created_by_id")
    period_limit = serializers.SerializerMethodField("period_limit_of")
    allowed_origins = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ApiKey
        fields = read_only_fields = [
            "id",
            "masked_token",
            "description",
            "status",
            "usage_limit",
            "usage",
            "period_limit",
            "requests_per_minute",
            "allowed_origins",
            "expires_at",
            "project_id",
            "team_id",
            "created_by",
            "created_at",
            "updated_at",
            "creator",
            "iam_rules",
        ]

    @extend_schema_field(PeriodLimitShape(allow_null=True))
    def period_limit_of(self, key: ApiKey) -> dict[str, str] | None:
        """Return the key's spending limit and its period, None without one."""
        return None if key.period_limit is None else {"amount": plain(key.period_limit), "period": key.period}


class NewApiKeyShape(ApiKeyShape):
    """A new API key, with its token, which is shown only once."""

    token = serializers.CharField(read_only=True)

    class Meta(ApiKeyShape.Meta):
        fields = read_only_fields = ["token", *(name for name in ApiKeyShape.Meta.fields if name != "masked_token")]


class PlanLimitsShape(CamelSerializer):
    """How many API keys the project has and may have; null means unlimited."""

    current_count = serializers.IntegerField(min_value=0)
    max_keys = serializers.IntegerField(min_value=1, allow_null=True)
    plan = serializers.ChoiceField(Plan.choices)


def shape_of_new(created: CreatedKey) -> dict[str, Any]:
    """Return a new key as it is shown once, with its token."""
    shown = ApiKeyShape(created.key).data
    return {"token": created.token, **{name: value for name, value in shown.items() if name != "maskedToken"}}
