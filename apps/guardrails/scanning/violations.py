"""Violation drafts: the recorded fields of findings, with private content masked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from apps.guardrails.findings.redaction import merge_spans
from apps.guardrails.findings.scan_types import Finding, RuleSettings, ScannedFile, Segment, Span, Verdict
from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.guardrails.rules import PRIVATE_CATEGORIES, system_rules
from apps.guardrails.text.scanned_text import ScannedText

# Violations stored for one request: more add nothing.
MAX_VIOLATIONS: Final = 50
# Characters of the content that is kept.
MAX_CONTENT_LENGTH: Final = 200
_TAKEN: Final = {"block": "blocked", "neutralize": "neutralized", "redact": "redacted", "warn": "warned"}
_OBSERVED: Final = "observed"
ACTIONS_TAKEN: Final = (*_TAKEN.values(), _OBSERVED)
# Characters that are shown at either end of a private content of at least so many.
_SHOWN, _SHORTEST_SHOWN = 2, 8


def draft_violations(
    verdict: Verdict,
    segments: Sequence[Segment],
    files: Sequence[ScannedFile],
    digest: Callable[[str], str],
    *,
    with_content: bool,
) -> list[ViolationDraft]:
    """Return the violations of a verdict: one for each content that a rule found, the gravest first.

    At most `MAX_VIOLATIONS`.
    """
    found: dict[tuple[str, str, str], ViolationDraft] = {}
    first = [] if verdict.blocked is None else [verdict.blocked]
    for finding in [*first, *(one for one in verdict.findings if one is not verdict.blocked)]:
        for pattern, content in _matches(finding, segments, files):
            key = finding.rule_id, pattern, content
            if key in found or (taken := action_taken_of(finding)) is None:
                continue
            found[key] = ViolationDraft(
                rule_id=finding.rule_id,
                rule_name=_storable(finding.rule_name),
                category=finding.category,
                action_taken=taken,
                matched_pattern=_storable(pattern)[:MAX_CONTENT_LENGTH],
                matched_content=mask_private_content(finding, content) if with_content else "",
                content_hash=digest(content),
            )
            if len(found) == MAX_VIOLATIONS:
                return list(found.values())
    return list(found.values())


def action_taken_of(finding: Finding) -> str | None:
    """Return the action taken on a finding, None if it was allowed."""
    return _OBSERVED if finding.observed else _TAKEN.get(finding.action)


def mask_private_content(finding: Finding, content: str) -> str:
    """Return the displayable content of a finding: secrets and personal data masked, whichever rule found it.

    At most `MAX_CONTENT_LENGTH` characters.
    """
    if finding.category in PRIVATE_CATEGORIES:
        return mask_middle(content)
    pieces, at = [], 0
    for span in merge_spans(_private_spans(ScannedText(content))):
        pieces += [content[at : span.start], mask_middle(content[span.start : span.end])]
        at = span.end
    return _storable("".join([*pieces, content[at:]]))[:MAX_CONTENT_LENGTH]


def mask_middle(content: str) -> str:
    """Return a private content with no more than its ends to be seen."""
    if len(content) < _SHORTEST_SHOWN:
        return "***"
    return _storable(f"{content[:_SHOWN]}***{content[-_SHOWN:]}")


def _private_spans(text: ScannedText) -> Iterator[Span]:
    for rule in system_rules().values():
        if rule.category in PRIVATE_CATEGORIES and rule.find is not None:
            yield from rule.find(text, RuleSettings())


def _matches(finding: Finding, segments: Sequence[Segment], files: Sequence[ScannedFile]) -> Iterator[tuple[str, str]]:
    """Yield what matched, and the content; of a file what is wrong with it, and its bytes' stand-in, its name."""
    if finding.segment is not None:
        raw = segments[finding.segment].text.raw
        for span in finding.spans:
            yield span.pattern, raw[span.start : span.end]
    elif finding.file is not None:
        file = files[finding.file]
        yield finding.reason, file.name or file.declared_type


def _storable(text: str) -> str:
    """Return text as the database takes it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
