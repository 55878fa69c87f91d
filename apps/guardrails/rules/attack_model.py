"""Attack model: finds users' texts that read like attacks, with a small linear model of words.

It finds attacks in words that no table has, but cannot say why. It is off by default, and observes when an organization
switches it on. Where the system prompt keeps a secret, its thresholds are lower, and texts that name the answer of an
access check are found too. The weights take 12 MB and are read when the
rule is first compiled for an organization.
"""

from __future__ import annotations

from apps.guardrails.attacks import guarded_secrets
from apps.guardrails.attacks.word_model import attack_finder, windows_of
from apps.guardrails.findings.scan_types import RuleAction, RuleSettings, Span
from apps.guardrails.text.scanned_text import ScannedText

ID = "attack_model"
NAME = "Attack model"
SUMMARY = "Users' texts that read like attacks on the model, found by a model of words"
CATEGORY = "injection"
DEFAULT_ENABLED = False
DEFAULT_ACTION: RuleAction = "block"
DEFAULT_OBSERVE = True
ROLES = frozenset({"user"})


def load() -> None:
    """Read the weights."""
    attack_finder()


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the windows of a text that read like an attack, and the guarded answers that it names."""
    finder = attack_finder()
    guarded = bool(settings.kept)
    spans = [
        Span(*text.origin(start, end), "attack_words")
        for start, end in windows_of(len(text.normalized))
        if finder.is_attack(text.normalized[start:end], guarded=guarded)
    ]
    return spans + guarded_secrets.find_named(text, settings.kept)
