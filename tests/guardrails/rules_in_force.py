"""Guardrails for tests: a few rules compiled, and texts held against them."""

from __future__ import annotations

from typing import Any

from apps.guardrails.findings.scan_types import Segment, Verdict
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import CompiledGuardrails, EngineConfig, RuleSource, SystemRuleState
from apps.guardrails.text.scanned_text import ScannedText


def custom(name: str, config: dict[str, Any], **said: Any) -> RuleSource:
    """Return a custom rule; its type is what its configuration looks like."""
    kind = "custom_regex" if "pattern" in config else "blocked_terms" if "terms" in config else "topic_restriction"
    return RuleSource(id=name, name=f"rule {name}", type=kind, config=config, **said)


def term(name: str, *terms: str, **said: Any) -> RuleSource:
    """Return a rule of blocked terms."""
    return custom(name, {"terms": list(terms)}, **said)


def compiled(*rules: RuleSource, system: dict[str, SystemRuleState] | None = None, **said: Any) -> CompiledGuardrails:
    """Return these custom rules in force, and of the system rules only those that are named."""
    states = {name: SystemRuleState(enabled=False) for name in system_rules()} | (system or {})
    return engine.compile_guardrails(EngineConfig(system_rules=states, custom_rules=rules, **said))


def screened(rules: CompiledGuardrails, *texts: str, role: str = "user") -> Verdict:
    """Return the verdict on texts, each a message."""
    segments = [Segment(ScannedText(text), role, f"messages[{index}].content") for index, text in enumerate(texts)]
    return engine.screen(rules, segments)
