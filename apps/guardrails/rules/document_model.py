"""Document model: orders to the model that reads it in what tools, files and pages say, by a small model of passages.

Knows a model that was trained on texts of others and of the project. Finds orders in words that no table has, in many
languages, and cannot say why: so it only observes, until an organization has seen what it would block. Weights are read
when it is first needed.
"""

from __future__ import annotations

from apps.guardrails.attacks.document_model import order_finder
from apps.guardrails.findings.scan_types import EXTERNAL_ROLES, RuleAction, RuleSettings, Span
from apps.guardrails.text.scanned_text import ScannedText

ID = "document_model"
NAME = "Model of orders in documents"
SUMMARY = "Orders to the model in pages, files and results of tools, in words that no other rule knows"
CATEGORY = "injection"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
DEFAULT_OBSERVE = True
ROLES = EXTERNAL_ROLES

# Characters that are read at the beginning of a text and at its end: what stands between them is not.
LONGEST = 8000


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the passages of a text that read like orders."""
    return [
        Span(*text.origin(start + at, end + at), "order_words")
        for at, part in parts_of(text.normalized)
        for start, end in order_finder().orders(part)
    ]


def parts_of(normalized: str) -> list[tuple[int, str]]:
    """Return what is read of a normalized text, each part with its place."""
    if len(normalized) <= 2 * LONGEST:
        return [(0, normalized)]
    return [(0, normalized[:LONGEST]), (len(normalized) - LONGEST, normalized[-LONGEST:])]
