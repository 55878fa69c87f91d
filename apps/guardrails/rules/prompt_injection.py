"""The rule against prompt injection: orders that would put a model's own orders aside, or draw them out.

Knows what such orders look like (the table beside this file). Must never know where a text comes from: what a document
or a tool says is read like what a user says.
"""

from __future__ import annotations

from pathlib import Path

from apps.guardrails.findings.scan_types import RuleAction, RuleSettings, Span
from apps.guardrails.matching.attack_signals import load_signal_table
from apps.guardrails.text.scanned_text import ScannedText

ID = "prompt_injection"
NAME = "Prompt injection"
CATEGORY = "injection"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"

_SIGNALS = load_signal_table(Path(__file__).with_suffix(".toml"))


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the attacks in a text as it stands and in whatever is encoded in it."""
    return _SIGNALS.spans(text)
