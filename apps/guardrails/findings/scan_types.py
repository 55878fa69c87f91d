"""Types of scans: segments, files and tool calls in; rules in force; spans, findings, marks and a verdict out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from apps.guardrails.text.scanned_text import ScannedText

RuleAction = Literal["block", "neutralize", "redact", "warn", "allow"]
# From the mildest to the strictest.
STRICTNESS: tuple[RuleAction, ...] = ("allow", "warn", "redact", "neutralize", "block")
# Actions that replace a match with a placeholder.
MASKING_ACTIONS = frozenset({"redact", "neutralize"})
# The priority of system rules, and of custom rules that name none.
DEFAULT_PRIORITY = 100
# The spans of one rule in one text; what comes after the last counts as one more.
MAX_SPANS = 1000
# `Span.pattern` of a stretch that could not be looked through within the time there is: taken for a match, to be safe.
UNFINISHED = "unfinished"


# Roles of texts that neither the client's program nor its user wrote: results of tools, files and pages.
TOOL_RESULT, DOCUMENT = "tool_result", "document"
EXTERNAL_ROLES = frozenset({TOOL_RESULT, DOCUMENT})


# Roles of the client program's operator: its instructions, and the descriptions of its tools.
INSTRUCTING_ROLES = frozenset({"system", "developer"})
OPERATOR_ROLES = INSTRUCTING_ROLES | {"tool"}

# Kinds of texts that a rule may have an action of its own for. `USER` also has every text that is of no other kind.
USER, SYSTEM, ANSWER = "user", "system", "assistant"
SPEAKERS = (USER, SYSTEM, ANSWER, TOOL_RESULT, DOCUMENT)
# The action for what would be blocked, in turns that an answer of the model follows.
EARLIER_TURN = "earlier_turn"


def speaker_of(role: str, *, is_earlier: bool) -> str:
    """Return the one of `SPEAKERS` that texts of a role belong to."""
    if role in OPERATOR_ROLES:
        return SYSTEM
    if role in EXTERNAL_ROLES or (role == ANSWER and is_earlier):
        return role
    return USER


class RuleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a configuration that system rules read, and who says the text they look at (`Segment.role`).

    `kept` is what the instructions of the same request tell the model to keep (`SystemRule.read_operator`).
    """

    max_file_bytes: int = 10_000_000
    allowed_file_types: frozenset[str] = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
    role: str = "user"
    kept: frozenset[str] = frozenset()


class Span(msgspec.Struct, frozen=True):
    """A match of a rule in a text: `raw[start:end]`, never empty.

    `pattern` is the short, stable name of what matched ("credit_card"); `label` the word of the placeholder that takes
    its place ("EMAIL" gives `[EMAIL_1]`, or `[EMAIL_REDACTED]` where nothing is restored; an empty one gives
    `[REDACTED_1]` or `[REDACTED]`).
    """

    start: int
    end: int
    pattern: str
    label: str = ""


class Segment(msgspec.Struct, frozen=True):
    """One text that a model will read. `place` is the client's name of it, "messages[3].content[1].text".

    `role` says who speaks: a role of a chat, "tool" for what tools are described as, or one of `EXTERNAL_ROLES`.
    `is_earlier` is set for conversation turns that an answer of the model follows. `parts_of` returns the parts of
    the text that a match is in and that may be cut out with it; None: the whole text.
    """

    text: ScannedText
    role: str = "user"
    place: str = ""
    is_earlier: bool = False
    parts_of: Callable[[int, int], list[tuple[int, int]]] | None = None

    @property
    def speaker(self) -> str:
        """The one of `SPEAKERS` whose actions apply. An answer that is not an earlier one counts as a user's text."""
        return speaker_of(self.role, is_earlier=self.is_earlier)


class ScannedFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file that a model will see. `data` is None where only an address is known; `size` in bytes, 0 if unknown.

    `unread` says why the text of a document could not be read; empty where it was, or where there is none to read.
    """

    name: str = ""
    declared_type: str = ""
    data: bytes | None = None
    size: int = 0
    address: str | None = None
    place: str = ""
    unread: str = ""
    role: str = "user"
    is_earlier: bool = False

    @property
    def speaker(self) -> str:
        """The one of `SPEAKERS` whose actions apply."""
        return speaker_of(self.role, is_earlier=self.is_earlier)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding of one rule in one segment or file, with its action.

    `rule_id` is `system:<name>` or a custom rule's id. Exactly one of `segment` and `file` (indexes into the
    screened ones) is set. `spans` is empty for a file; `reason` then states the fault. If `observed`, `action` was not
    taken. `restore` says whether masked values come back in the answer.
    """

    rule_id: str
    rule_name: str
    category: str
    action: RuleAction
    spans: tuple[Span, ...] = ()
    segment: int | None = None
    file: int | None = None
    reason: str = ""
    observed: bool = False
    restore: bool = True


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a request: refused if `blocked`, else sent with `redactions` in place of their segments.

    `findings` holds everything that was found and not overridden by an `allow`, in the order of checking;
    `redactions` maps a segment's index to its masked text.
    """

    blocked: Finding | None = None
    findings: tuple[Finding, ...] = ()
    redactions: dict[int, str] = {}


class ActiveRule(NamedTuple):
    """One rule in force. Rules compare by their order: the smaller `rank` is checked first."""

    rank: tuple[int, int, int]
    id: str
    name: str
    category: str
    action: RuleAction
    observed: bool
    restore: bool = True

    def is_overridden_by(self, other: ActiveRule) -> bool:
        """Tell whether a matching rule with `allow` keeps this one from acting."""
        return other.rank[:2] < self.rank[:2]


# `stated`: by the client's program or its user; `model`: texts and arguments of earlier answers; `tool_result`:
# results of tools, which may be an attacker's words.
Origin = Literal["stated", "model", "tool_result"]


class ConversationText(NamedTuple):
    """One text of a conversation; `tool` is the tool whose result it is, empty for other texts."""

    origin: Origin
    text: str
    tool: str = ""


class ToolCallRequest(NamedTuple):
    """A tool call of an answer; `arguments` is its JSON value.

    `has_effects` is the tool's own statement (annotations of MCP); None where it states nothing.
    """

    tool: str
    arguments: Any
    has_effects: bool | None = None


class ArgumentMark(NamedTuple):
    """A value in a call's arguments whose only origin is the result of the tool `source`.

    `argument` is its path, such as `recipients[0]`; `kind` the kind of value. `value` is never stored.
    """

    tool: str
    argument: str
    kind: str
    source: str
    value: str
