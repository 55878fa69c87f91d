"""PII detection: personal data recognized by its form, such as addresses, cards, accounts, identity numbers.

If two kinds match the same characters, the first in `_SEARCH` wins.
Names of people and postal addresses have no form that tells them from other words, so they are not looked for.
"""

from __future__ import annotations

from apps.guardrails.findings.scan_types import SYSTEM, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.pattern_search import PatternSearch
from apps.guardrails.pii import birth, card, email, iban, ip, numbers, phone, wallet
from apps.guardrails.text.scanned_text import ScannedText

ID = "pii_detection"
NAME = "PII detection"
SUMMARY = "Personal data: e-mail addresses, telephone numbers, cards, accounts, identity numbers"
CATEGORY = "pii"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "redact"
# Names and addresses of authors are in nearly every history, log and instruction that an agent reads.
ROLE_ACTIONS: dict[str, RuleAction] = {SYSTEM: "allow", TOOL_RESULT: "allow"}

_SEARCH = PatternSearch(
    [kind for module in (email, card, iban, numbers, wallet, birth, phone, ip) for kind in module.PATTERNS]
)


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return every piece of personal data in a text, by place, none overlapping another."""
    return _SEARCH.find(text.ascii_folded)
