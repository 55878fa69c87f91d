"""Secret detection: keys, tokens, passwords, private keys.

Knows the families of forms and which wins where two see the same characters. Must never know what becomes of a
finding.
"""

from __future__ import annotations

from apps.guardrails.findings.scan_types import RuleSettings, Span
from apps.guardrails.matching.pattern_search import PatternSearch
from apps.guardrails.secret_formats import (
    assignments,
    chosen_passwords,
    encoded_keys,
    encoded_settings,
    keys,
    keys_as_arguments,
    keys_in_programs,
    login_pairs,
    logins,
    named_values,
    password_hashes,
    passwords_as_arguments,
    passwords_by_form,
    passwords_by_place,
    passwords_in_calls,
    passwords_in_commands,
    passwords_in_notes,
    passwords_of_signs,
    short_keys,
    urls,
    vendors,
    vendors_by_field,
    vendors_by_prefix,
    vendors_further,
    vendors_stated,
    words_as_keys,
)
from apps.guardrails.text.scanned_text import ScannedText

ID = "secrets"
NAME = "Secrets"
SUMMARY = "API keys, tokens, passwords and private keys"
CATEGORY = "secrets"
DEFAULT_ENABLED = True
DEFAULT_ACTION = "block"

_SEARCH = PatternSearch(
    (
        *keys.PATTERNS,
        *vendors.PATTERNS,
        *vendors_by_field.PATTERNS,
        *vendors_further.PATTERNS,
        *vendors_stated.PATTERNS,
        *vendors_by_prefix.PATTERNS,
        *urls.PATTERNS,
        *passwords_in_commands.PATTERNS,
        *logins.PATTERNS,
        *password_hashes.PATTERNS,
        *passwords_of_signs.PATTERNS,
        *assignments.PATTERNS,
        *named_values.PATTERNS,
        *encoded_keys.PATTERNS,
        *encoded_settings.PATTERNS,
        *chosen_passwords.PATTERNS,
        *login_pairs.PATTERNS,
        *passwords_by_place.PATTERNS,
        *passwords_by_form.PATTERNS,
        *passwords_in_calls.PATTERNS,
        *passwords_as_arguments.PATTERNS,
        *keys_as_arguments.PATTERNS,
        *keys_in_programs.PATTERNS,
        *words_as_keys.PATTERNS,
        *short_keys.PATTERNS,
        *passwords_in_notes.PATTERNS,
    )
)


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return every secret in a text, by place, none overlapping another."""
    return _SEARCH.find(text.ascii_folded)
