"""Indirect prompt injection: orders to a model in what tools, files and pages say.

The tables beside this file and of prompt injection have the patterns. It reads only texts that neither the client's
program nor its user wrote, and more strictly: they have no reason to give a model orders.
"""

from __future__ import annotations

from pathlib import Path

from apps.guardrails.findings.scan_types import DOCUMENT, EXTERNAL_ROLES, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.attack_signals import load_signal_table
from apps.guardrails.text.scanned_text import ScannedText

ID = "indirect_injection"
NAME = "Indirect prompt injection"
SUMMARY = "Orders to the model in pages, files and results of tools"
CATEGORY = "injection"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
ROLES = EXTERNAL_ROLES
# A rule beside the specification's changes no result of a tool by default. A blocked file would come back with every
# turn of the session.
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "warn", DOCUMENT: "neutralize"}

_HERE = Path(__file__)
_SIGNALS = load_signal_table(_HERE.with_suffix(".toml"), _HERE.with_name("prompt_injection.toml"))
# How much an order weighs by standing where no order belongs.
_MISPLACED = 0.3


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the orders in a text as it stands and in whatever is encoded in it."""
    return _SIGNALS.spans(text, bonus=_MISPLACED, external=True)
