"""Jailbreak detection: frames in which a model would be free of its limits and is asked for harm.

The table beside this file has the patterns. The client program's own texts count less.
"""

from __future__ import annotations

from pathlib import Path

from apps.guardrails.findings.scan_types import DOCUMENT, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.attack_signals import find_by_speaker, load_signal_table
from apps.guardrails.text.scanned_text import ScannedText

ID = "jailbreak"
NAME = "Jailbreak"
SUMMARY = "Requests to leave limits aside, by role play or a made-up mode"
CATEGORY = "jailbreak"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
# A blocked request would come back with every turn of the session.
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "neutralize", DOCUMENT: "neutralize"}

_SIGNALS = load_signal_table(Path(__file__).with_suffix(".toml"))


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the attacks in a text as it stands and in whatever is encoded in it."""
    return find_by_speaker(_SIGNALS, text, settings.role)
