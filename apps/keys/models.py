"""API keys, access rules and provider credentials: columns and constraints.

Secrets are never stored in clear: API keys as digests, provider credentials encrypted.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Value

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField
from apps.keys.origins import validate_origins
from apps.organizations.models import Organization, Project, Team, User
from apps.organizations.policy_source import PolicySource


class ApiKey(PolicySource):
    """A secret that calls models on behalf of a project. `usage` is the sum of its ledger entries."""

    organization_path = "project.organization_id"
    ledger_columns = frozenset({"usage", "usage_version"})

    class Status(models.TextChoices):
        """`deleted` is soft and final."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        DELETED = "deleted"

    class Period(models.TextChoices):
        """The period after which `period_limit` resets."""

        HOUR = "hour"
        DAY = "day"
        WEEK = "week"
        MONTH = "month"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    project = models.ForeignKey(Project, models.CASCADE, related_name="api_keys")
    created_by = models.ForeignKey(User, models.PROTECT, related_name="api_keys")
    # The team that its requests count for, beside that of its project.
    team = models.ForeignKey(Team, models.SET_NULL, null=True, blank=True, related_name="api_keys")
    description = models.CharField(max_length=255)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    prefix = models.CharField(max_length=16, editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    usage_limit = MoneyField(null=True, blank=True)
    usage = MoneyField(default=0)
    # Counts the ledger's changes of `usage`, as `Organization.credits_version` does for credits.
    usage_version = models.BigIntegerField(default=0)
    period = models.CharField(max_length=8, choices=Period.choices, blank=True)
    period_limit = MoneyField(null=True, blank=True)
    requests_per_minute = models.PositiveIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    # Web pages that may use it; empty: the deployment's allowed origins.
    allowed_origins = models.JSONField(
        default=list, db_default=Value([], models.JSONField()), blank=True, validators=[validate_origins]
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [
            models.Index(fields=["project", "status"]),
            models.Index(fields=["last_four"], name="key_last_four"),
            models.Index(fields=["status"], name="key_with_origins", condition=~models.Q(allowed_origins=[])),
        ]

    def __str__(self) -> str:
        return f"{self.masked_token} {self.description}"

    @property
    def masked_token(self) -> str:
        """The masked token: prefix, `...`, the last four characters."""
        return f"{self.prefix}...{self.last_four}"


class IamRule(PolicySource):
    """An access rule of a key; `iam.py` defines how rules combine."""

    organization_path = "api_key.project.organization_id"

    class Type(models.TextChoices):
        """Allow or deny, by model, price class or provider; and by MCP server, for tools."""

        ALLOW_MODELS = "allow_models"
        DENY_MODELS = "deny_models"
        ALLOW_PRICING = "allow_pricing"
        DENY_PRICING = "deny_pricing"
        ALLOW_PROVIDERS = "allow_providers"
        DENY_PROVIDERS = "deny_providers"
        ALLOW_MCP_SERVERS = "allow_mcp_servers", "Allow MCP Servers"
        DENY_MCP_SERVERS = "deny_mcp_servers", "Deny MCP Servers"

    class Status(models.TextChoices):
        """An inactive rule is not applied."""

        ACTIVE = "active"
        INACTIVE = "inactive"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    api_key = models.ForeignKey(ApiKey, models.CASCADE, related_name="iam_rules")
    rule_type = models.CharField(max_length=20, choices=Type.choices)
    rule_value = models.JSONField()
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["api_key", "status"])]

    def __str__(self) -> str:
        return f"{self.rule_type} of {self.api_key_id}"


class ProviderKey(PolicySource):
    """An organization's own credential at a provider, encrypted; `custom` ones bring their own address."""

    organization_path = "organization_id"

    class Status(models.TextChoices):
        """`deleted` is soft; the credential itself is erased."""

        ACTIVE = "active"
        INACTIVE = "inactive"
        DELETED = "deleted"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="provider_keys")
    provider = models.CharField(max_length=40)
    provider_name = models.CharField(max_length=40, blank=True)
    base_url = models.URLField(max_length=500, blank=True)
    # Columns of a custom one: the kind of server (`model_discovery.SERVERS`), its models, their use and its replicas
    # (`own_models`), when it was last asked for models, and what went wrong then.
    server = models.CharField(max_length=16, default="openai", db_default="openai", editable=False)
    found_models = models.JSONField(default=list, db_default=[], editable=False, blank=True)
    model_settings = models.JSONField(default=dict, db_default={}, editable=False, blank=True)
    model_probes = models.JSONField(default=dict, db_default={}, editable=False, blank=True)
    observed_use = models.JSONField(default=dict, db_default={}, editable=False, blank=True)
    replicas = models.JSONField(default=list, db_default=[], editable=False, blank=True)
    models_asked_at = models.DateTimeField(null=True, editable=False)
    models_problem = models.CharField(max_length=300, default="", db_default="", editable=False, blank=True)
    encrypted_token = models.BinaryField(editable=False)
    last_four = models.CharField(max_length=4, editable=False)
    status = models.CharField(max_length=16, choices=Status.choices, default=Status.ACTIVE)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["organization", "status"])]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "provider_name"],
                condition=models.Q(provider="custom") & ~models.Q(status="deleted"),
                name="custom_provider_name_unique",
            )
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.provider_name}".strip()

    @property
    def masked_token(self) -> str:
        """The masked credential."""
        return f"...{self.last_four}"
