"""Origin of tool arguments: values in a model's tool calls that only an earlier tool result contains.

A page or a mail may order a model to send money or data to an address of its own. The rule reads the calls of tools
with effects, and marks each address, host, account, phone number, amount, path or recipient that a result of a tool
contains first, and no text of the program or its user. A user who says "pay the bill in bill.txt" gets such a
mark as well: it is an observation. Answers have ended when they are read, so the rule never blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from apps.guardrails.attacks.argument_values import (
    MAX_VALUES,
    ArgumentValue,
    SearchedText,
    find_values,
    word_set,
    words_of,
)
from apps.guardrails.findings.scan_types import ArgumentMark, ConversationText, ToolCallRequest

ID = "tool_argument_origin"
NAME = "Origin of tool arguments"
SUMMARY = "Addresses, accounts and amounts in tool calls that only an earlier tool result contains"
CATEGORY = "tool_calls"
DEFAULT_ENABLED = True
DEFAULT_ACTION = "warn"
DEFAULT_OBSERVE = True

# Characters of a conversation; the calls of a longer one are not checked.
MAX_CHARACTERS: Final = 2_000_000
MAX_MARKS: Final = 50
# Verbs in the names of tools with effects.
_EFFECTS: Final = word_set(
    "add append apply approve assign book buy cancel change comment commit create delete deploy drop edit erase exec "
    "execute forward grant insert invite merge modify move notify patch pay post publish purchase push put refund "
    "register remove rename reply reserve run schedule send set share shell bash submit subscribe transfer unsubscribe "
    "update upload withdraw write"
)
# A name that begins so reads, whatever follows: `get_scheduled_transactions`.
_READS: Final = word_set("check count describe fetch find get list look lookup query read search show view")
# Kinds of values that guardrails may have masked for good in what the user said.
_MASKED_KINDS: Final = frozenset({"email", "account", "phone"})
# Kinds that are marked only beside another: alone they are wrong more often than right (docs/guardrails.md).
_SUPPORTING: Final = frozenset({"amount", "recipient"})
_UNKNOWN_TOOL: Final = "an unknown tool"


def find_in_calls(conversation: Sequence[ConversationText], calls: Sequence[ToolCallRequest]) -> list[ArgumentMark]:
    """Return the marks on the calls of an answer to this conversation; at most `MAX_MARKS`."""
    if not any(said.origin == "tool_result" for said in conversation):
        return []
    if sum(len(said.text) for said in conversation) > MAX_CHARACTERS:
        return []
    return list(islice(_marks(conversation, [call for call in calls if has_effects(call)]), MAX_MARKS))


def has_effects(call: ToolCallRequest) -> bool:
    """Return whether a tool changes something: as it states itself, else by the verbs in its name."""
    if call.has_effects is not None:
        return call.has_effects
    words = words_of(call.tool)
    own = words_of(call.tool.replace(".", "__").rpartition("__")[2])
    return not _READS.intersection(own[:1]) and not _EFFECTS.isdisjoint(words)


def _marks(conversation: Sequence[ConversationText], calls: Sequence[ToolCallRequest]) -> Iterator[ArgumentMark]:
    values, left = [], MAX_VALUES
    for call in calls:
        values.append(list(islice(find_values(call.arguments), left)))
        left -= len(values[-1])
    if left == MAX_VALUES:
        return
    stated = SearchedText("\n".join(said.text for said in conversation if said.origin == "stated"))
    others = [(said, SearchedText(said.text)) for said in conversation if said.origin != "stated"]
    for call, own in zip(calls, values, strict=True):
        sources = [(value, _source_of(value, stated, others)) for value in own]
        if any(source is not None and value.kind not in _SUPPORTING for value, source in sources):
            for value, source in sources:
                if source is not None:
                    yield ArgumentMark(call.tool, value.argument, value.kind, source, value.text)


def _source_of(
    value: ArgumentValue, stated: SearchedText, others: Sequence[tuple[ConversationText, SearchedText]]
) -> str | None:
    """Return the tool whose result has a value first; None where program, user or, before it, the model said it."""
    if stated.makes_known(value) or (value.kind in _MASKED_KINDS and stated.has_removed_values):
        return None
    for said, text in others:
        if said.origin == "tool_result":
            if text.has(value):
                return said.tool or _UNKNOWN_TOOL
        elif text.makes_known(value):
            return None
    return None
