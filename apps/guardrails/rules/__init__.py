"""Registry of the system rules: every file of this folder is one rule.

A rule's file holds `ID`, `NAME`, `SUMMARY` (its findings, for people), `CATEGORY`, `DEFAULT_ENABLED`,
`DEFAULT_ACTION`, and at least one of `find(text, settings)`, which returns spans, `find_in_file(file, settings)`,
which returns the fault of a file in words, and `find_in_calls(conversation, calls)`, which returns the marks on the
tool calls of an answer that has ended.
It may hold `DEFAULT_OBSERVE`, `ROLES` (the only roles whose texts it reads), `ROLE_ACTIONS` (milder default actions by
speaker: one of `SPEAKERS`), and `read_operator(text)`, which returns
the secrets that a program's instructions tell a model to keep: `settings.kept` has it when the other texts are scanned.
Rules of `INPUT_ONLY_CATEGORIES` scan requests only. Content that rules of `PRIVATE_CATEGORIES` find is recorded masked.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, ModuleType

import msgspec

from apps.guardrails.findings.scan_types import (
    STRICTNESS,
    ArgumentMark,
    ConversationText,
    RuleAction,
    RuleSettings,
    ScannedFile,
    Span,
    ToolCallRequest,
)
from apps.guardrails.regex.kept_analysis import analysis_kept
from apps.guardrails.text.scanned_text import ScannedText

# Categories of attacks on a model: a mention in an answer is none.
INPUT_ONLY_CATEGORIES = frozenset({"injection", "jailbreak"})
# Categories whose findings are never shown whole.
PRIVATE_CATEGORIES = frozenset({"pii", "secrets"})
# How the names of system rules begin in violations, descriptors and metrics.
SYSTEM = "system:"
# The rule whose action a configuration's `piiAction` sets.
PII_RULE = "pii_detection"
# The rule that a configuration's `tools` tell which tools have effects.
CALLS_RULE = "tool_argument_origin"
FindInText = Callable[[ScannedText, RuleSettings], list[Span]]
FindInFile = Callable[[ScannedFile, RuleSettings], str | None]
FindInCalls = Callable[[Sequence[ConversationText], Sequence[ToolCallRequest]], list[ArgumentMark]]
ReadOperator = Callable[[ScannedText], frozenset[str]]


class SystemRule(msgspec.Struct, frozen=True, kw_only=True):
    """One system rule as its file describes it."""

    id: str
    name: str
    category: str
    default_enabled: bool
    default_action: RuleAction
    summary: str = ""
    find: FindInText | None = None
    find_in_file: FindInFile | None = None
    find_in_calls: FindInCalls | None = None
    # Whether it only observes by default.
    default_observe: bool = False
    # Roles whose texts it reads; None: all.
    roles: frozenset[str] | None = None
    # Default actions by speaker, where they are milder than its action.
    role_actions: Mapping[str, RuleAction] = {}
    # Reads the secrets that a program's instructions tell a model to keep.
    read_operator: ReadOperator | None = None
    # Reads data that only organizations with this rule need.
    load: Callable[[], None] | None = None

    @property
    def rule_id(self) -> str:
        """Its name in violations and descriptors: `system:<id>`."""
        return f"{SYSTEM}{self.id}"

    @property
    def reads_requests(self) -> bool:
        """Whether it looks at texts or files, and so has actions by role."""
        return self.find is not None or self.find_in_file is not None

    @property
    def applies_to_answers(self) -> bool:
        """Whether it looks at what models say as well."""
        return self.category not in INPUT_ONLY_CATEGORIES

    def default_action_for(self, speaker: str, action: RuleAction) -> RuleAction:
        """Return the action on a speaker's texts where the organization states none: never stricter than the rule's."""
        return min(self.role_actions.get(speaker, action), action, key=STRICTNESS.index)

    def reads(self, role: str) -> bool:
        """Whether it scans texts of this role."""
        return self.roles is None or role in self.roles


def rule_ids() -> list[str]:
    """Return the ids of the system rules, in order, without loading the rules: an id is the name of its file."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


@functools.cache
def system_rules() -> MappingProxyType[str, SystemRule]:
    """Return every rule of this folder by its id, in the order of their ids."""
    with analysis_kept():
        return MappingProxyType({name: _rule_of(importlib.import_module(f"{__name__}.{name}")) for name in rule_ids()})


def _rule_of(module: ModuleType) -> SystemRule:
    """Return the rule a file describes."""
    return SystemRule(
        id=module.ID,
        name=module.NAME,
        category=module.CATEGORY,
        summary=getattr(module, "SUMMARY", ""),
        default_enabled=module.DEFAULT_ENABLED,
        default_action=module.DEFAULT_ACTION,
        default_observe=getattr(module, "DEFAULT_OBSERVE", False),
        find=getattr(module, "find", None),
        find_in_file=getattr(module, "find_in_file", None),
        find_in_calls=getattr(module, "find_in_calls", None),
        roles=getattr(module, "ROLES", None),
        role_actions=getattr(module, "ROLE_ACTIONS", {}),
        read_operator=getattr(module, "read_operator", None),
        load=getattr(module, "load", None),
    )
