"""The tables of guardrails: configuration, custom rules, violations."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone

from apps.kernel.ids import new_id
from apps.organizations.models import Organization
from apps.organizations.policy_source import PolicySource


class Action(models.TextChoices):
    """The action on content that a rule finds."""

    BLOCK = "block"
    NEUTRALIZE = "neutralize"
    REDACT = "redact"
    WARN = "warn"
    ALLOW = "allow"


def default_system_rules() -> dict[str, dict[str, Any]]:
    """Return the system rules as a configuration starts out: with each rule's defaults."""
    # Here and not above: most processes have the tables and scan nothing.
    from apps.guardrails.rule_thread import loaded_rules

    return {
        name: {
            "enabled": rule.default_enabled,
            "action": rule.default_action,
            **({"observe": True} if rule.default_observe else {}),
        }
        for name, rule in loaded_rules().items()
    }


def default_file_types() -> list[str]:
    """Return the MIME types that a configuration starts out with: files that agents send to models."""
    return [
        *("image/jpeg", "image/png", "image/gif", "image/webp"),
        *("audio/wav", "audio/mpeg", "audio/mp4", "audio/ogg", "audio/webm", "audio/flac"),
        "application/pdf",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.oasis.opendocument.spreadsheet",
        "application/vnd.oasis.opendocument.presentation",
        *("text/plain", "text/html", "application/json", "application/xml"),
    ]


class GuardrailConfig(PolicySource):
    """One per organization; absent means that no system rule is in force, and custom rules are."""

    organization_path = "organization_id"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.OneToOneField(Organization, models.CASCADE, related_name="guardrail_config")
    enabled = models.BooleanField(default=True)
    # `blank`: no rule that is not as it came, and no type that is allowed, are choices as well.
    system_rules = models.JSONField(default=default_system_rules, blank=True)
    max_file_size_mb = models.DecimalField(max_digits=8, decimal_places=2, default=10, help_text="megabytes")
    allowed_file_types = models.JSONField(default=default_file_types, blank=True)
    pii_action = models.CharField(max_length=12, choices=Action.choices, null=True, blank=True, default=Action.REDACT)
    scan_output = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"guardrails of {self.organization_id}"


class CustomRule(PolicySource):
    """A rule an organization wrote for itself; higher priority is checked first."""

    organization_path = "organization_id"

    class Type(models.TextChoices):
        """The type of `config`."""

        BLOCKED_TERMS = "blocked_terms"
        CUSTOM_REGEX = "custom_regex"
        TOPIC_RESTRICTION = "topic_restriction"
        # Outside guards (`apps/guardrails/outside`).
        WEBHOOK = "webhook", "Webhook"
        PRESIDIO = "presidio", "Presidio"
        BEDROCK_GUARDRAIL = "bedrock_guardrail", "Amazon Bedrock Guardrails"
        AZURE_CONTENT_SAFETY = "azure_content_safety", "Azure AI Content Safety"
        MODEL_ARMOR = "model_armor", "Google Model Armor"
        LAKERA = "lakera", "Lakera Guard"
        OPENAI_MODERATION = "openai_moderation", "OpenAI moderation"
        MODEL = "model", "Guard model of this gateway"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="custom_rules")
    name = models.CharField(max_length=255)
    type = models.CharField(max_length=20, choices=Type.choices)
    config = models.JSONField()
    # Secrets of an outside guard, JSON by their names in its configuration; empty for other types.
    encrypted_secrets = models.BinaryField(editable=False, default=b"", db_default=b"")
    priority = models.IntegerField(default=100)
    enabled = models.BooleanField(default=True)
    observe_only = models.BooleanField(default=False, help_text="Record what it would have done, and do nothing")
    action = models.CharField(max_length=12, choices=Action.choices, default=Action.BLOCK)
    # `db_default`: the release before this one inserts rows without it.
    restore = models.BooleanField(
        default=True, db_default=True, help_text="Put masked values back into the model's answer"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        # The order in which rules are looked at, and listed.
        indexes = [models.Index(fields=["organization", "-priority", "created_at", "id"], name="custom_rule_order")]

    def __str__(self) -> str:
        return self.name


class Violation(models.Model):
    """A finding of a rule in a request; plain ids, so that retention deletes freely."""

    class ActionTaken(models.TextChoices):
        """The action that was taken."""

        BLOCKED = "blocked"
        NEUTRALIZED = "neutralized"
        REDACTED = "redacted"
        WARNED = "warned"
        # Nothing: the rule only observes, and would have acted.
        OBSERVED = "observed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization_id = models.UUIDField()
    log_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    # A custom rule's id, or `system:<rule_name>`.
    rule_id = models.CharField(max_length=60)
    rule_name = models.CharField(max_length=255)
    category = models.CharField(max_length=40)
    action_taken = models.CharField(max_length=12, choices=ActionTaken.choices)
    matched_pattern = models.TextField(blank=True)
    matched_content = models.TextField(blank=True)
    content_hash = models.CharField(max_length=64)
    model = models.CharField(max_length=255)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        # Read backwards, newest first. The action always leads: pages of several actions merge several walks.
        indexes = [
            models.Index(fields=["organization_id", "action_taken", "created_at", "id"], name="violation_action"),
            models.Index(
                fields=["organization_id", "rule_id", "action_taken", "created_at", "id"], name="violation_rule"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule_name} {self.action_taken}"
