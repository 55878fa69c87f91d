"""Guardrails for tests: a few rules compiled, and applied to texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from apps.guardrails.findings.scan_types import Segment, Verdict
from apps.guardrails.rules import SystemRule, system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import ActiveRule, CompiledGuardrails, EngineConfig, RuleSource, SystemRuleState
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


def with_system_rules(rules: CompiledGuardrails, change: Callable[[SystemRule], SystemRule]) -> CompiledGuardrails:
    """Return the same rules with each system rule changed."""
    changed = {rule.id: change(rule) for _, rule in rules.system}

    def of(system: tuple[tuple[ActiveRule, SystemRule], ...]) -> tuple[tuple[ActiveRule, SystemRule], ...]:
        return tuple((active, changed[rule.id]) for active, rule in system)

    by_speaker = {key: of(system) for key, system in rules.by_speaker.items()}
    return replace(rules, system=of(rules.system), by_speaker=by_speaker)


def screened(rules: CompiledGuardrails, *texts: str, role: str = "user") -> Verdict:
    """Return the verdict on texts, each a message."""
    segments = [Segment(ScannedText(text), role, f"messages[{index}].content") for index, text in enumerate(texts)]
    return engine.screen(rules, segments)
