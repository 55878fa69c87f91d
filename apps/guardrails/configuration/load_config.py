"""Loader of an organization's guardrails: from database rows to the engine's configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from uuid import UUID

from apps.guardrails.findings.scan_types import RuleAction
from apps.guardrails.models import CustomRule, GuardrailConfig, default_system_rules
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE
from apps.guardrails.scanning.engine import EngineConfig, RuleSource, SystemRuleState

BYTES_PER_MEGABYTE = 1_000_000


def load_engine_config(organization_id: UUID) -> EngineConfig | None:
    """Return what an organization has configured, None when it never did. Its plan is not asked about.

    Custom rules are in force without a configuration, too; no system rule is.
    """
    row = GuardrailConfig.objects.filter(organization=organization_id).first()
    rules = list_custom_rules(organization_id)
    if row is not None:
        return to_engine_config(row, rules)
    off = {name: SystemRuleState(enabled=False) for name in loaded_rules()}
    return EngineConfig(system_rules=off, custom_rules=tuple(map(_source_of, rules))) if rules else None


def list_custom_rules(organization_id: UUID) -> list[CustomRule]:
    """Return an organization's own rules in the order in which they are looked at."""
    rules = CustomRule.objects.filter(organization=organization_id)
    return list(rules.order_by("-priority", "created_at", "id"))


def to_engine_config(row: GuardrailConfig, rules: Iterable[CustomRule]) -> EngineConfig:
    """Return rows as the engine takes them."""
    return EngineConfig(
        enabled=row.enabled,
        system_rules={name: _state_of(name, rule, row.pii_action) for name, rule in system_rule_states(row).items()},
        pii_action=_action(row.pii_action),
        max_file_bytes=int(row.max_file_size_mb * BYTES_PER_MEGABYTE),
        allowed_file_types=tuple(row.allowed_file_types),
        scan_output=row.scan_output,
        custom_rules=tuple(_source_of(rule) for rule in rules),
    )


def system_rule_states(row: GuardrailConfig) -> dict[str, dict[str, Any]]:
    """Return every system rule as it stands: as the organization wants it, else as the rule itself says."""
    return {name: {**default, **row.system_rules.get(name, {})} for name, default in default_system_rules().items()}


def _state_of(name: str, rule: dict[str, Any], pii_action: str | None) -> SystemRuleState:
    # `piiAction` is the last word on personal data, unless it is null.
    action = pii_action if name == PII_RULE and pii_action is not None else rule["action"]
    return SystemRuleState(
        enabled=rule["enabled"],
        action=_action(action),
        observe=rule.get("observe", False),
        restore=rule.get("restore", True),
        roles=rule.get("roles", {}),
        tools=rule.get("tools", {}),
    )


def _source_of(rule: CustomRule) -> RuleSource:
    return RuleSource(
        id=str(rule.id),
        name=rule.name,
        type=rule.type,
        config=rule.config,
        priority=rule.priority,
        action=cast(RuleAction, rule.action),
        observe_only=rule.observe_only,
        restore=rule.restore,
        enabled=rule.enabled,
        encrypted_secrets=bytes(rule.encrypted_secrets or b""),
    )


def _action(word: str | None) -> RuleAction | None:
    return cast("RuleAction | None", word)
