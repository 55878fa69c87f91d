"""Secret detection: keys, tokens, passwords, private keys."""

from __future__ import annotations

from apps.guardrails.findings.scan_types import ANSWER, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.pattern_search import PatternSearch
from apps.guardrails.secret_formats import (
    assignments,
    encoded_keys,
    keys,
    logins,
    named_values,
    password_hashes,
    passwords,
    urls,
    vendors,
)
from apps.guardrails.text.scanned_text import ScannedText

ID = "secrets"
NAME = "Secrets"
SUMMARY = "API keys, tokens, passwords and private keys"
CATEGORY = "secrets"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
# Agents read settings, logs and sources, which are full of keys, and write them.
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "warn", ANSWER: "warn"}

# If two match the same characters, the first names them.
_SEARCH = PatternSearch(
    (
        *keys.PATTERNS,
        *vendors.PATTERNS,
        *urls.PATTERNS,
        *logins.PATTERNS,
        *password_hashes.PATTERNS,
        *assignments.PATTERNS,
        *named_values.PATTERNS,
        *encoded_keys.PATTERNS,
        *passwords.PATTERNS,
    )
)


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return every secret in a text, by place, none overlapping another."""
    return _SEARCH.find(text.ascii_folded)
