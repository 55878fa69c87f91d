"""Secret detection: keys, tokens, passwords, private keys."""

from __future__ import annotations

from apps.guardrails.findings.scan_types import ANSWER, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.pattern_search import PatternSearch
from apps.guardrails.regex.re2_patterns import compile_re2
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
# Embedded pictures, sounds and fonts, in full lines: so much base64 has the form of some key by chance.
_MEDIA = compile_re2(
    r"data:(?:image|audio|video|font)/[\w.+-]{1,40};base64,\s{0,8}(?:[0-9A-Za-z+/]{60,}\s{1,8})*[0-9A-Za-z+/]*={0,2}"
)


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return every secret in a text, by place, none overlapping another."""
    spans = _SEARCH.find(text.ascii_folded)
    if not spans or ";base64," not in text.raw:
        return spans
    media = [match.span() for match in _MEDIA.finditer(text.raw)]
    return [span for span in spans if not any(start <= span.start and span.end <= end for start, end in media)]
