"""Changes of an organization's guardrails, each one transaction with its entry in the audit log.

They bound a configuration and the number of rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.db import transaction

from apps.guardrails.access import NO_RULE
from apps.guardrails.configuration.config_validation import (
    find_rule_issues,
    merge_system_rules,
    require_capacity,
    validate_action,
    validate_config,
    validate_secrets,
)
from apps.guardrails.configuration.load_config import system_rule_states
from apps.guardrails.custom import MAX_RULES
from apps.guardrails.models import Action, CustomRule, GuardrailConfig, default_system_rules
from apps.guardrails.outside import outside_types
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.rules import PII_RULE
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.rows import find_row, lock_row
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.secrets.encryption import UnreadableSecretError, decrypt, encrypt
from apps.keys.ssrf_guard import check_url_field
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.journal import audit
from apps.organizations.models import Organization
from apps.organizations.outside_calls import outside_call

# Outside guards of an organization: each may take its time limit of every request.
MAX_OUTSIDE_RULES = 10
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


def check_rule(*, organization: Organization, type: str, config: Mapping[str, Any]) -> None:
    """Check that the address of an outside guard may be called; rules of other types have none.

    Takes as long as the lookup, so never within a transaction. Raises InvalidFields, RateLimited.
    """
    if type in outside_types():
        url = validate_config(type, config).get("url")
        if url is None:
            # A model of this gateway.
            return
        with outside_call(organization.id):
            check_url_field(url, "config.url", organization.id)


@transaction.atomic
def create_rule(*, organization: Organization, type: str, config: Mapping[str, Any], **columns: Any) -> CustomRule:
    """Add a rule of a type to an organization. `columns` are its name and what else is not left at its default.

    Secrets in the configuration of an outside guard are stored encrypted.

    Raises InvalidFields for a configuration that is not of the type, or that is too much beside the other rules,
    InvalidRequest for one rule too many, NotFound when the organization was deleted meanwhile.
    """
    validate_action(type, columns.get("action", Action.BLOCK))
    rule = CustomRule(organization=organization, type=type, **_stored(type, config, {}), **columns)
    lock_row(organization, NO_ORGANIZATION)
    if CustomRule.objects.filter(organization=organization).count() >= MAX_RULES:
        raise InvalidRequest(f"Maximum {MAX_RULES} guardrail rules per organization", code="guardrail_rule_limit")
    _require_room(rule)
    rule.save(force_insert=True)
    _record("guardrail_rule.create", rule, {name: getattr(rule, name) for name in _RULE_COLUMNS})
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
    validate_action(rule.type, given.get("action", rule.action))
    if "config" in given:
        given |= _stored(rule.type, given["config"], rule.config, bytes(rule.encrypted_secrets))
        lock_row(rule.organization, NO_ORGANIZATION)
    row = find_row(CustomRule.objects.select_for_update(), rule.pk, NO_RULE)
    told = {name: value for name, value in given.items() if name != "encrypted_secrets"}
    _record("guardrail_rule.update", row, audit.changes_of(row, told))
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
    rules = CustomRule.objects.filter(organization=rule.organization_id).exclude(pk=rule.pk)
    if rule.type in outside_types() and rules.filter(type__in=outside_types()).count() >= MAX_OUTSIDE_RULES:
        raise InvalidRequest(
            f"Maximum {MAX_OUTSIDE_RULES} guardrail rules per organization that ask a service",
            code="guardrail_rule_limit",
        )
    others = rules.filter(type=rule.type)
    require_capacity(rule.type, [*others.values_list("config", flat=True), rule.config])


def _stored(type: str, given: Mapping[str, Any], old: Mapping[str, Any], encrypted: bytes = b"") -> dict[str, Any]:
    """Return the columns of a configuration. Secrets that are not given stay, as long as the address does.

    Raises InvalidFields.
    """
    config = validate_config(type, given)
    if type not in outside_types():
        return {"config": config}
    kept = _secrets_in(encrypted) if config.get("url") == old.get("url") else {}
    secrets = validate_secrets(type, given, kept)
    columns: dict[str, Any] = {"config": {**config, "secrets": sorted(secrets)}}
    if secrets != kept or not encrypted:
        columns["encrypted_secrets"] = encrypt(msgspec.json.encode(secrets)) if secrets else b""
    return columns


def _secrets_in(encrypted: bytes) -> dict[str, str]:
    """Return stored secrets; none where they cannot be decrypted, so that they have to be entered again."""
    try:
        return msgspec.json.decode(decrypt(encrypted), type=dict[str, str]) if encrypted else {}
    except UnreadableSecretError:
        return {}


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
