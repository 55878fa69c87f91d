"""Stored findings: the content of private categories only masked, whichever rule found it."""

from __future__ import annotations

import pytest

from apps.guardrails.findings.scan_types import Finding, Segment, Span, Verdict
from apps.guardrails.scanning.violations import draft_violations
from apps.guardrails.text.scanned_text import ScannedText

CONTENT = "PASSPORT C01X00T47"


def noted_content(category: str) -> str:
    """Return the stored part of the content that a rule of this category found."""
    finding = Finding(
        rule_id="system:new_rule",
        rule_name="New",
        category=category,
        action="warn",
        spans=(Span(9, 18, "new"),),
        segment=0,
    )
    [noted] = draft_violations(
        Verdict(findings=(finding,)), [Segment(ScannedText(CONTENT))], [], str.upper, with_content=True
    )
    return noted.matched_content


@pytest.mark.parametrize("category", ["pii", "secrets"])
def test_a_new_rule_of_a_private_category_never_shows_what_it_found(category: str) -> None:
    assert noted_content(category) == "C0***47"


def test_what_other_rules_found_is_shown() -> None:
    assert noted_content("jailbreak") == "C01X00T47"
