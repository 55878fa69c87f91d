"""Prompt injection detection: orders that would override a model's own orders, or extract them.

The table beside this file has the patterns. Texts of documents and tools are read like a user's; the client program's
own texts count less. If they keep a secret, a user's question for it is an attack as well.
"""

from __future__ import annotations

from pathlib import Path

from apps.guardrails.attacks import guarded_secrets
from apps.guardrails.findings.scan_types import DOCUMENT, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.attack_signals import find_by_speaker, load_signal_table
from apps.guardrails.text.scanned_text import ScannedText

ID = "prompt_injection"
NAME = "Prompt injection"
SUMMARY = "Requests to ignore, replace or reveal the model's instructions"
CATEGORY = "injection"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
# A blocked request would come back with every turn of the session.
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "neutralize", DOCUMENT: "neutralize"}

_SIGNALS = load_signal_table(Path(__file__).with_suffix(".toml"))


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the attacks in a text as it stands and in whatever is encoded in it."""
    spans = find_by_speaker(_SIGNALS, text, settings.role)
    if settings.kept and settings.role == "user":
        spans += guarded_secrets.find_asked(text, settings.kept)
    return spans


def read_operator(text: ScannedText) -> frozenset[str]:
    """Return what a program's instructions tell a model to keep."""
    return guarded_secrets.read_operator(text)
