"""Changes of an organization's guardrails, each one transaction with its entry in the audit log.

They bound a configuration and the number of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.guardrails.access import NO_RULE
from apps.guardrails.configuration.config_validation import find_rule_issues, merge_system_rules
from apps.guardrails.configuration.custom_rule_validation import require_capacity, validate_config
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.custom import MAX_RULES
from apps.guardrails.models import CustomRule, GuardrailConfig, default_system_rules
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.row_lookup import find_row, lock_row
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.journal import audit
from apps.organizations.models import Organization

# The columns of a configuration that people choose; a reset gives each its default.
_CHOSEN = ("enabled", "system_rules", "max_file_size_mb", "allowed_file_types", "pii_action", "scan_output")

# The columns of a rule that its creation records.
_RULE_COLUMNS = ("name", "type", "config", "priority", "enabled", "action", "observe_only", "restore")


@transaction.atomic
def change_config(*, organization: Organization, changes: Mapping[str, Any]) -> GuardrailConfig:
    """Set columns of the configuration, which is created when there is none. `system_rules` names the changes.

    `piiAction` is the action on personal data: when only the rule's own action is given, it follows. Raises
    InvalidFields for rules and fields that there are not, NotFound when the organization was deleted meanwhile.
    """
    given = dict(changes)
    rules = given.pop("system_rules", {})
    if issues := find_rule_issues(rules, loaded_rules()):
        raise InvalidFields(issues)
    lock_row(organization, NO_ORGANIZATION)
    row = _find_or_build(organization)
    if rules:
        given["system_rules"] = merge_system_rules(system_rule_states(row), rules, default_system_rules())
        pii_action = rules.get(PII_RULE, {}).get("action")
        if pii_action is not None and row.pii_action is not None:
            given.setdefault("pii_action", pii_action)
    return _save_config(row, "create" if row._state.adding else "update", given)


@transaction.atomic
def reset_config(*, organization: Organization) -> GuardrailConfig:
    """Return the configuration to its defaults; one is created when there is none. Custom rules stay as they are.

    Raises NotFound when the organization was deleted meanwhile.
    """
    lock_row(organization, NO_ORGANIZATION)
    row = _find_or_build(organization)
    defaults = GuardrailConfig()
    return _save_config(row, "reset", {name: getattr(defaults, name) for name in _CHOSEN})


@transaction.atomic
def create_rule(*, organization: Organization, type: str, config: Mapping[str, Any], **columns: Any) -> CustomRule:
    """Add a rule of a type to an organization. `columns` are its name and what else is not left at its default.

    Raises InvalidFields for a configuration that is not of the type, or that is too much beside the other rules,
    InvalidRequest for one rule too many, NotFound when the organization was deleted meanwhile.
    """
    rule = CustomRule(organization=organization, type=type, config=validate_config(type, config), **columns)
    lock_row(organization, NO_ORGANIZATION)
    if CustomRule.objects.filter(organization=organization).count() >= MAX_RULES:
        raise InvalidRequest(f"Maximum {MAX_RULES} guardrail rules per organization", code="guardrail_rule_limit")
    _require_room(rule)
    rule.save(force_insert=True)
    _record("guardrail_rule.create", rule, _brief({name: getattr(rule, name) for name in _RULE_COLUMNS}))
    return rule


@transaction.atomic
def change_rule(*, rule: CustomRule, changes: Mapping[str, Any]) -> CustomRule:
    """Set columns of a rule; its type is for good.

    Raises InvalidFields for another type, or a configuration that is not of its own or is too much beside the other
    rules; NotFound when it is gone.
    """
    given = dict(changes)
    if given.pop("type", rule.type) != rule.type:
        raise InvalidFields([Issue("type", "Cannot be changed; create another rule")])
    if "config" in given:
        given["config"] = validate_config(rule.type, given["config"])
        lock_row(rule.organization, NO_ORGANIZATION)
    row = find_row(CustomRule.objects.select_for_update(), rule.pk, NO_RULE)
    before, after = ({name: getattr(row, name) for name in given}, given)
    _record("guardrail_rule.update", row, _changes(before, after))
    for name, value in given.items():
        setattr(row, name, value)
    if "config" in given:
        _require_room(row)
    row.save(update_fields=[*given, "updated_at"])
    return row


@transaction.atomic
def delete_rule(*, rule: CustomRule) -> None:
    """Remove a rule; what it found stays. Raises NotFound when it is gone."""
    row = find_row(CustomRule.objects.select_for_update(), rule.pk, NO_RULE)
    _record("guardrail_rule.delete", row, {"name": row.name, "type": row.type})
    row.delete()


def _require_room(rule: CustomRule) -> None:
    """Hold a rule to what can be looked for together; one that is switched off counts, for it may be switched on."""
    others = CustomRule.objects.filter(organization=rule.organization_id, type=rule.type).exclude(pk=rule.pk)
    require_capacity(rule.type, [*others.values_list("config", flat=True), rule.config])


def _find_or_build(organization: Organization) -> GuardrailConfig:
    row = GuardrailConfig.objects.filter(organization=organization).first()
    return row or GuardrailConfig(organization=organization)


def _save_config(row: GuardrailConfig, verb: str, columns: Mapping[str, Any]) -> GuardrailConfig:
    changes = audit.changes_of(row, columns)
    for name, value in columns.items():
        setattr(row, name, value)
    row.save()
    _record(f"guardrail_config.{verb}", row, changes)
    return row


def _record(action: str, row: GuardrailConfig | CustomRule, details: Mapping[str, Any]) -> None:
    audit.record(action, organization_id=row.organization_id, resource=row, details=details)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes for the audit log, with long lists and texts cut."""
    old, new = _brief(before), _brief(after)
    return {"changes": {name: {"from": old[name], "to": new[name]} for name in after if before[name] != after[name]}}


def _brief(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns with long values of a rule's configuration cut."""
    return {
        name: {inner: audit.audit_value(one) for inner, one in value.items()}
        if isinstance(value, dict)
        else audit.audit_value(value)
        for name, value in columns.items()
    }
