"""Dry run of guardrails: what the rules of an organization would do with a text; nothing is recorded.

Nothing is written, the text least of all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from apps.guardrails.configuration.load_config import list_custom_rules, to_engine_config
from apps.guardrails.findings.scan_types import Segment, Verdict
from apps.guardrails.models import GuardrailConfig
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import EngineConfig
from apps.guardrails.scanning.violations import MAX_VIOLATIONS, action_taken_of, mask_private_content
from apps.guardrails.text.scanned_text import ScannedText
from apps.kernel.concurrency.fairness import FairShare
from apps.kernel.concurrency.native_thread_pool import NativeThreadPool
from apps.kernel.postgres import database

# One text at a time, so that clients' requests go on, and the seconds that another waits for its turn.
_THREAD: Final = NativeThreadPool(1)
_PATIENCE: Final = 10.0
# Texts that wait or are looked through at a time, and of one organization.
_TRIED: Final[FairShare[UUID]] = FairShare(50, 2, "texts that are tried")


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """A finding of a rule. `action` is its action, or, if `observed`, the action that it would take."""

    rule_id: str
    rule_name: str
    category: str
    action: str
    matched_pattern: str
    matched_content: str
    observed: bool


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The verdict on a request with this text; it passes if it would reach a model, masked or not."""

    blocked: bool
    findings: list[TrialFinding]
    rules_checked: int
    # Where in the text the findings are: begin and end, in order, none within another.
    places: list[tuple[int, int]] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether a request with this text would go on."""
        return not self.blocked


def try_guardrails(organization_id: UUID, content: str) -> TrialResult:
    """Return what the organization's rules say of a text, as if they were switched on; the defaults without any.

    Raises RateLimited when the organization tries too many texts at once, Overloaded when all together do.
    """
    _TRIED.take(organization_id)
    try:
        return _try(organization_id, content)
    finally:
        _TRIED.give_back(organization_id)


def _try(organization_id: UUID, content: str) -> TrialResult:
    row = GuardrailConfig.objects.filter(organization=organization_id).first() or GuardrailConfig()
    config = to_engine_config(row, list_custom_rules(organization_id))
    # Others need the connection while a million characters are looked through.
    database.release_connection()
    work = partial(_try_config, msgspec.structs.replace(config, enabled=True), content)
    return _THREAD.run(work, patience=_PATIENCE, refusal="Too many texts are being tried; try again shortly")


def _try_config(config: EngineConfig, content: str) -> TrialResult:
    compiled = engine.compile_guardrails(config)
    verdict = engine.screen(compiled, [Segment(ScannedText(content), "user", "content")])
    return TrialResult(
        verdict.blocked is not None, _findings_of(verdict, content), compiled.rules_checked, _places_of(verdict)
    )


def _places_of(verdict: Verdict) -> list[tuple[int, int]]:
    """Return where the findings are, those that touch as one."""
    spans = sorted(
        (span.start, span.end)
        for finding in verdict.findings
        if action_taken_of(finding) is not None
        for span in finding.spans
    )
    places: list[tuple[int, int]] = []
    for start, end in spans:
        if places and start <= places[-1][1]:
            places[-1] = places[-1][0], max(end, places[-1][1])
        else:
            places.append((start, end))
    return places


def _findings_of(verdict: Verdict, content: str) -> list[TrialFinding]:
    """Return what would be recorded of a verdict: each content that a rule found once, private ones masked."""
    found: dict[tuple[str, str, str], TrialFinding] = {}
    for finding in verdict.findings:
        if action_taken_of(finding) is None:
            continue
        for span in finding.spans:
            matched = content[span.start : span.end]
            key = finding.rule_id, span.pattern, matched
            if key not in found and len(found) < MAX_VIOLATIONS:
                found[key] = TrialFinding(
                    rule_id=finding.rule_id,
                    rule_name=finding.rule_name,
                    category=finding.category,
                    action=finding.action,
                    matched_pattern=span.pattern,
                    matched_content=mask_private_content(finding, matched),
                    observed=finding.observed,
                )
    return list(found.values())
