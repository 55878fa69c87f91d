"""The file of an organization's configuration: its shape, checked before anything is sent, and its JSON schema.

A field that is left out is left as it is at the gateway, or at the gateway's default where something is created. A
section that is left out is not managed. Bounds are those of the management API, which checks again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway_project.config_as_code.yaml_file import ConfigError, read_yaml

VERSION: Final = 1
# Secrets of guards of others, in the configuration of a guardrail rule.
GUARD_SECRETS: Final = frozenset(
    {"apiKey", "accessKeyId", "secretAccessKey", "sessionToken", "serviceAccount", "secret"}
)
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_REFERENCE_PATTERN: Final = r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"
_NO_SECRETS: Final = "Must name an environment variable, as ${NAME}: secrets do not belong in the file"

_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Label = Annotated[str, Meta(min_length=1, max_length=100)]
_TeamName = Annotated[_Label, Meta(description="The name of a team")]
_Short = Annotated[str, Meta(min_length=1, max_length=40)]
_Url = Annotated[str, Meta(min_length=1, max_length=500)]
_AMOUNT_PATTERN: Final = r"^(0|[1-9][0-9]{0,11})(\.[0-9]{1,12})?$"
Amount: TypeAlias = (
    Annotated[str, Meta(pattern=_AMOUNT_PATTERN, description='USD, in quotes: "12.50"')]
    | Annotated[int, Meta(ge=0, lt=10**12, description="USD")]
)
Secret = Annotated[
    str,
    Meta(
        pattern=_REFERENCE_PATTERN,
        description="The environment variable that has the secret, as ${NAME}. Sent when the entry is created.",
    ),
]
Status: TypeAlias = Literal["active", "inactive"]
_Action: TypeAlias = Literal["block", "neutralize", "redact", "warn", "allow"]
_Moment = Annotated[str, Meta(max_length=40, description="ISO 8601; a date alone means its end, in UTC")]


class _Entry(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """An object of the file."""


class OrganizationEntry(_Entry):
    """The organization itself. A management key can change its name; the policies need an owner's session."""

    name: _Name | UnsetType = UNSET
    retention_level: Literal["none", "metadata", "retain"] | UnsetType = UNSET
    outage_policy: Literal["open", "closed"] | UnsetType = UNSET


class TeamMemberEntry(_Entry):
    """A member of a team, by the address of a member of the organization."""

    email: Annotated[str, Meta(min_length=3, max_length=254)]
    is_lead: bool | UnsetType = UNSET


class TeamEntry(_Entry):
    """A team, by its name. `parent` is the team that it is part of."""

    name: _Label
    parent: _TeamName | UnsetType | None = UNSET
    members: list[TeamMemberEntry] | UnsetType = UNSET


class ServiceAccountEntry(_Entry):
    """A service account, by its name. The leads of its team create keys for it."""

    name: _Label
    team: _TeamName | UnsetType | None = UNSET


class AccessRuleEntry(_Entry):
    """An access rule of an API key. Rules have no names: they are matched by type and value."""

    rule_type: Literal[
        "allow_models",
        "deny_models",
        "allow_pricing",
        "deny_pricing",
        "allow_providers",
        "deny_providers",
        "allow_mcp_servers",
        "deny_mcp_servers",
    ]
    rule_value: dict[str, Any]
    status: Status | UnsetType = UNSET


class PeriodLimitEntry(_Entry):
    """The most that a key may spend in a calendar hour, day, week or month (UTC)."""

    amount: Amount
    period: Literal["hour", "day", "week", "month"]


class ApiKeyEntry(_Entry):
    """An API key without its token, by its description. A new key's token is shown once."""

    description: _Name
    status: Status | UnsetType = UNSET
    team: _TeamName | UnsetType | None = UNSET
    service_account: Annotated[_Label, Meta(description="Whose it is; stays")] | UnsetType | None = UNSET
    usage_limit: Amount | UnsetType | None = UNSET
    period_limit: PeriodLimitEntry | UnsetType | None = UNSET
    requests_per_minute: Annotated[int, Meta(ge=1, le=1000000)] | UnsetType | None = UNSET
    allowed_origins: list[str] | UnsetType = UNSET
    expires_at: _Moment | UnsetType | None = UNSET
    access_rules: list[AccessRuleEntry] | UnsetType = UNSET


class ProjectEntry(_Entry):
    """A project with its API keys, by its name."""

    name: _Name
    status: Literal["active", "archived"] | UnsetType = UNSET
    team: _TeamName | UnsetType | None = UNSET
    mode: Literal["api-keys", "credits", "hybrid"] | UnsetType = UNSET
    caching_enabled: bool | UnsetType = UNSET
    cache_duration_seconds: Annotated[int, Meta(ge=10, le=31_536_000)] | UnsetType = UNSET
    hedging_enabled: bool | UnsetType = UNSET
    keys: list[ApiKeyEntry] | UnsetType = UNSET


class LimitEntry(_Entry, kw_only=True):
    """A limit on usage, by its name. Its amount, action and models can be changed; the rest stays."""

    name: _Label
    scope: Literal["organization", "team", "project", "member", "key", "end_user", "model", "provider"]
    of: (
        Annotated[
            str,
            Meta(
                min_length=1,
                description="Whose requests count: the name of a team, project or service account, the address of a "
                "member, or the project and the description of a key, as `project/description`",
            ),
        ]
        | UnsetType
    ) = UNSET
    end_user: Annotated[str, Meta(min_length=1, max_length=256)] | UnsetType = UNSET
    model: _Name | UnsetType = UNSET
    provider: _Name | UnsetType = UNSET
    counts: Literal["usd", "requests", "tokens", "input_tokens", "output_tokens"]
    window: Literal["minute", "hour", "day", "week", "month", "lifetime"]
    rolling: Annotated[int, Meta(ge=2, le=31)] | UnsetType = UNSET
    starts_on: Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$")] | UnsetType = UNSET
    time_zone: _Label | UnsetType = UNSET
    amount: Amount
    action: Literal["refuse", "warn", "reroute"] | UnsetType = UNSET
    reroute_models: list[_Name] | UnsetType = UNSET


class OwnModelEntry(_Entry):
    """Alias, context, prices and capabilities of a model of a custom provider. Prices are USD per million tokens, both
    or none; or USD for an hour that so many tokens share."""

    model: Annotated[str, Meta(min_length=1, max_length=200)]
    alias: Annotated[str, Meta(min_length=1, max_length=100)] | UnsetType | None = UNSET
    context_length: Annotated[int, Meta(ge=1, le=100000000)] | UnsetType | None = UNSET
    input_price: Amount | UnsetType | None = UNSET
    output_price: Amount | UnsetType | None = UNSET
    hourly_price: Amount | UnsetType | None = UNSET
    tokens_per_hour: Annotated[int, Meta(ge=1, le=1000000000000)] | UnsetType | None = UNSET
    overrides: dict[str, bool] | UnsetType | None = UNSET


class ProviderKeyEntry(_Entry):
    """The organization's own credential at a provider, by provider and `providerName`. Its addresses stay."""

    provider: _Short
    provider_name: Annotated[str, Meta(pattern="^[a-z0-9-]{1,40}$")] | UnsetType = UNSET
    base_url: _Url | UnsetType = UNSET
    server: _Short | UnsetType = UNSET
    replicas: Annotated[list[_Url], Meta(max_length=15)] | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    token: Secret | UnsetType = UNSET
    models: list[OwnModelEntry] | UnsetType = UNSET


class McpServerEntry(_Entry):
    """An MCP server, by its name. Its address stays. Null tools or projects are all."""

    name: Annotated[str, Meta(pattern="^[a-z0-9-]{1,40}$")]
    url: _Url
    status: Status | UnsetType = UNSET
    timeout_seconds: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    allowed_tools: list[str] | UnsetType | None = UNSET
    projects: Annotated[list[_Name], Meta(description="Names of projects")] | UnsetType | None = UNSET
    token: Secret | UnsetType = UNSET
    headers: (
        Annotated[dict[str, str], Meta(description="Credentials by the header's name, each as ${NAME}")] | UnsetType
    ) = UNSET


class LogSinkEntry(_Entry):
    """A log sink, by its name. Its kind, address and options stay."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    kind: Literal["webhook", "s3", "otlp"]
    url: _Url
    status: Status | UnsetType = UNSET
    include_content: bool | UnsetType = UNSET
    format: str | UnsetType = UNSET
    bucket: str | UnsetType = UNSET
    region: str | UnsetType = UNSET
    prefix: str | UnsetType = UNSET
    secret: Secret | UnsetType = UNSET
    access_key_id: Secret | UnsetType = UNSET
    secret_access_key: Secret | UnsetType = UNSET
    public_key: Secret | UnsetType = UNSET
    secret_key: Secret | UnsetType = UNSET


class AlertDestinationEntry(_Entry):
    """An alert destination, by its name. Its kind and address stay; those of Slack and Teams are secrets."""

    name: _Label
    kind: Literal["webhook", "slack", "teams", "pagerduty"]
    url: (
        Annotated[str, Meta(max_length=500, description="The address of a webhook, or PagerDuty's for other regions")]
        | UnsetType
    ) = UNSET
    status: Status | UnsetType = UNSET
    webhook_url: Annotated[Secret, Meta(description="The address of an incoming webhook: Slack, Teams")] | UnsetType = (
        UNSET
    )
    secret: Secret | UnsetType = UNSET
    routing_key: Secret | UnsetType = UNSET


class AlertRuleEntry(_Entry):
    """An alert rule, by its kind and parameters: with other parameters it is another rule."""

    kind: Literal[
        "balance_low",
        "balance_runway",
        "limit_share",
        "daily_spend",
        "error_rate",
        "latency",
        "key_unused",
        "model_retirement",
        "price_change",
        "integration_off",
        "payment_failed",
    ]
    amount: Amount | UnsetType = UNSET
    days: Annotated[int, Meta(ge=1, le=365)] | UnsetType = UNSET
    percent: Annotated[int, Meta(ge=1, le=100)] | UnsetType = UNSET
    factor: Annotated[int, Meta(ge=2, le=1_000)] | UnsetType = UNSET
    floor: Amount | UnsetType = UNSET
    milliseconds: Annotated[int, Meta(ge=1, le=3_600_000)] | UnsetType = UNSET
    aspect: Literal["model", "provider"] | UnsetType = UNSET
    name: Annotated[str, Meta(max_length=255, description="One model or provider; empty: each of them")] | UnsetType = (
        UNSET
    )
    min_requests: Annotated[int, Meta(ge=1, le=5_000)] | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    destinations: (
        Annotated[
            list[_Label],
            Meta(description="Names of the alert destinations that get its alerts beside e-mail; null: each of them"),
        ]
        | UnsetType
        | None
    ) = UNSET


class GuardrailConfigEntry(_Entry):
    """The guardrail configuration. Rules and fields of rules that are left out stay."""

    enabled: bool | UnsetType = UNSET
    system_rules: dict[str, dict[str, Any]] | UnsetType = UNSET
    max_file_size_mb: float | UnsetType = UNSET
    allowed_file_types: list[str] | UnsetType = UNSET
    pii_action: _Action | UnsetType | None = UNSET
    scan_output: bool | UnsetType = UNSET


class GuardrailRuleEntry(_Entry):
    """A custom guardrail rule, by its name. Its type stays; secrets in `config` are written as ${NAME}."""

    name: _Name
    type: Literal[
        "blocked_terms",
        "custom_regex",
        "topic_restriction",
        "webhook",
        "presidio",
        "bedrock_guardrail",
        "azure_content_safety",
        "model_armor",
        "lakera",
        "openai_moderation",
        "model",
    ]
    config: dict[str, Any]
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    action: _Action | UnsetType = UNSET
    observe: bool | UnsetType = UNSET
    restore: bool | UnsetType = UNSET


class GuardrailsEntry(_Entry):
    """Guardrails: the configuration and custom rules."""

    config: GuardrailConfigEntry | UnsetType = UNSET
    rules: list[GuardrailRuleEntry] | UnsetType = UNSET


class ConfigDocument(_Entry):
    """The configuration of an organization. Sections that are left out are not managed."""

    version: Literal[1]
    organization: OrganizationEntry | UnsetType = UNSET
    teams: list[TeamEntry] | UnsetType = UNSET
    service_accounts: list[ServiceAccountEntry] | UnsetType = UNSET
    projects: list[ProjectEntry] | UnsetType = UNSET
    provider_keys: list[ProviderKeyEntry] | UnsetType = UNSET
    limits: list[LimitEntry] | UnsetType = UNSET
    mcp_servers: list[McpServerEntry] | UnsetType = UNSET
    log_sinks: list[LogSinkEntry] | UnsetType = UNSET
    alert_destinations: list[AlertDestinationEntry] | UnsetType = UNSET
    alert_rules: list[AlertRuleEntry] | UnsetType = UNSET
    guardrails: GuardrailsEntry | UnsetType = UNSET


SECTIONS: Final = (
    *("organization", "teams", "serviceAccounts", "projects", "providerKeys", "limits", "mcpServers", "logSinks"),
    *("alertDestinations", "alertRules", "guardrails"),
)

_PLACE: Final = re.compile(r"^(?P<message>.*?)(?: - at `(?:key in )?\$\.?(?P<place>[^`]*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def read_document(data: bytes) -> dict[str, Any]:
    """Return the configuration in a file, by the names of the API. Raises ConfigError with the path of a problem."""
    return check_document(read_yaml(data))


def check_document(given: Any) -> dict[str, Any]:
    """Return data as a configuration. Raises ConfigError with the path of a problem."""
    if not isinstance(given, dict):
        raise ConfigError("", f"The file must be an object that begins with `version: {VERSION}`")
    try:
        document: dict[str, Any] = msgspec.to_builtins(msgspec.convert(given, ConfigDocument))
    except msgspec.ValidationError as error:
        raise _located(str(error)) from error
    for index, server in enumerate(document.get("mcpServers", ())):
        _require_references(server.get("headers", {}), f"mcpServers[{index}].headers")
    for index, rule in enumerate(document.get("guardrails", {}).get("rules", ())):
        secrets = {name: value for name, value in rule["config"].items() if name in GUARD_SECRETS}
        _require_references(secrets, f"guardrails.rules[{index}].config")
    _complete(document)
    return document


def _complete(document: dict[str, Any]) -> None:
    """Write values as the API does: amounts as texts, addresses in lower case, an alert rule with its defaults."""
    for limit in document.get("limits", ()):
        _write_amounts(limit)
    for rule in document.get("alertRules", ()):
        _write_amounts(rule)
        rule.update(with_defaults(rule))
    for team in document.get("teams", ()):
        for member in team.get("members", ()):
            member["email"] = member["email"].lower()
    for project in document.get("projects", ()):
        for key in project.get("keys", ()):
            _write_amounts(key)
            _write_amounts(key.get("periodLimit") or {})
    for provider_key in document.get("providerKeys", ()):
        for model in provider_key.get("models", ()):
            _write_amounts(model)


def variable_of(value: Any) -> str | None:
    """Return the environment variable that a value refers to as `${NAME}`; None for another value."""
    matched = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return matched[1] if matched else None


def with_defaults(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return an alert rule with the parameters that the gateway adds to its kind, which are part of its name."""
    optional = {"name": "", "minRequests": 20} if rule["kind"] in ("error_rate", "latency") else {}
    return {**optional, **rule}


def _require_references(secrets: Mapping[str, Any], place: str) -> None:
    for name, value in secrets.items():
        if variable_of(value) is None:
            raise ConfigError(f"{place}.{name}", _NO_SECRETS)


def _write_amounts(values: dict[str, Any]) -> None:
    """Write amounts as texts, as the API does."""
    for name in ("usageLimit", "amount", "floor", "inputPrice", "outputPrice", "hourlyPrice"):
        if values.get(name) is not None:
            values[name] = f"{Decimal(values[name]).normalize():f}"


def schema() -> str:
    """Return the JSON schema of a file, for editors."""
    described = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(ConfigDocument)}
    return json.dumps(described, indent=2) + "\n"


def _located(text: str) -> ConfigError:
    """Return msgspec's error with its path in front, and unknown and missing fields as parts of the path."""
    matched = _PLACE.match(text)
    message, place = (matched["message"], matched["place"] or "") if matched else (text, "")
    for pattern, words in ((_UNKNOWN, "Unknown field"), (_MISSING, "Required")):
        if named := pattern.fullmatch(message):
            return ConfigError(f"{place}.{named[1]}".lstrip("."), words)
    if repr(_AMOUNT_PATTERN) in message or "Expected `int | str" in message:
        message = 'Must be an amount in quotes such as "12.50", at least 0'
    if repr(_REFERENCE_PATTERN) in message:
        message = _NO_SECRETS
    return ConfigError(place, message)
