"""The schemas of system rules, from the registry of guardrail rules: one property for each rule."""

from __future__ import annotations

from typing import Any

from apps.guardrails.rule_thread import loaded_rules

Record = dict[str, Any]


def add_system_rules(schemas: Record) -> None:
    """Name every system rule in the hand-kept schemas of the guardrail configuration and of its changes."""
    names = list(loaded_rules())
    schemas["SystemRuleStates"]["required"] = names
    change = {"$ref": "#/components/schemas/SystemRuleChanges"}
    schemas["GuardrailChangesRequest"]["properties"]["systemRules"]["properties"] = dict.fromkeys(names, change)
