"""Trying an organization's guardrails on a text, before anybody's requests meet them.

Knows configuration and engine. Must never write anything, the text least of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import msgspec

from apps.guardrails.configuration.read_config import config_of, rules_of
from apps.guardrails.findings.finding import Finding, Segment, Verdict
from apps.guardrails.models import GuardrailConfig
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.violations import MOST, shown, taken_of
from apps.guardrails.text.text_view import Text


@dataclass(frozen=True, slots=True)
class TriedFinding:
    """What a rule found. `action` is what it does, or, where it was `observed`, would do."""

    rule_id: str
    rule_name: str
    category: str
    action: str
    matched_pattern: str
    matched_content: str
    observed: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """What would become of a request with this text; it has passed when it would reach a model, masked or not."""

    blocked: bool
    findings: list[TriedFinding]
    rules_checked: int

    @property
    def passed(self) -> bool:
        """Whether a request with this text would go on."""
        return not self.blocked


def try_out(organization_id: UUID, content: str) -> Tried:
    """Return what the organization's rules say of a text, as if they were switched on; the defaults without any."""
    row = GuardrailConfig.objects.filter(organization=organization_id).first() or GuardrailConfig()
    config = config_of(row, rules_of(organization_id))
    compiled = engine.compile(msgspec.structs.replace(config, enabled=True))
    verdict = engine.screen(compiled, [Segment(Text(content), "user", "content")])
    return Tried(verdict.blocked is not None, _findings_of(verdict, content), compiled.rules_checked)


def _findings_of(verdict: Verdict, content: str) -> list[TriedFinding]:
    """Return what would be recorded of a verdict: each content that a rule found once, private ones masked."""
    told: dict[tuple[str, str, str], TriedFinding] = {}
    for finding in verdict.findings:
        if taken_of(finding) is None:
            continue
        for span in finding.spans:
            matched = content[span.start : span.end]
            key = finding.rule_id, span.pattern, matched
            if key not in told and len(told) < MOST:
                told[key] = _tried(finding, span.pattern, shown(finding, matched))
    return list(told.values())


def _tried(finding: Finding, pattern: str, matched: str) -> TriedFinding:
    return TriedFinding(
        rule_id=finding.rule_id,
        rule_name=finding.rule_name,
        category=finding.category,
        action=finding.action,
        matched_pattern=pattern,
        matched_content=matched,
        observed=finding.observed,
    )
