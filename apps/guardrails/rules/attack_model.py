"""Attack model: what users say that reads like an attack, by a small model of words.

Knows a model that was trained on texts of others. Finds attacks in words that no table has, and cannot say why: so it
only observes, until an organization has seen what it would block. Where the program that asks keeps something from its
users, less is needed: what reads a little like an attack is likelier to be one there, and so is what names the answer
to whoever may be let in.
"""

from __future__ import annotations

from apps.guardrails.attacks import guarded_secrets
from apps.guardrails.attacks.word_model import attack_finder, windows_of
from apps.guardrails.findings.scan_types import RuleAction, RuleSettings, Span
from apps.guardrails.text.scanned_text import ScannedText

ID = "attack_model"
NAME = "Attack model"
SUMMARY = "What users write that reads like an attack on the model, in words that no other rule knows"
CATEGORY = "injection"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
DEFAULT_OBSERVE = True
ROLES = frozenset({"user"})

_FINDER = attack_finder()


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return the windows of a text that read like an attack, and answers it names that let somebody in."""
    guarded = bool(settings.kept)
    spans = [
        Span(*text.origin(start, end), "attack_words")
        for start, end in windows_of(len(text.normalized))
        if _FINDER.is_attack(text.normalized[start:end], guarded=guarded)
    ]
    return spans + guarded_secrets.find_named(text, settings.kept)
