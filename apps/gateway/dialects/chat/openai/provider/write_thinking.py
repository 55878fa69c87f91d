"""OpenAI Chat Completions, provider side: writes reasoning in the field that a provider has for it.

Knows facts. An effort that a model has no word for becomes the nearest that it has, and that is noted. Must never know
a model by name.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.chat import Chat, Effort, ReasoningRequest, Target
from apps.gateway.dialects.adapting.reasoning_efforts import effort_of, field_of
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.openai.provider.flavor import Flavor
from apps.gateway.dialects.chat.openai.shared.wire import EFFORTS

Record = dict[str, Any]

# Tokens of thinking for an effort, where a model takes a budget; from `high` on it thinks as long as it likes.
_BUDGETS: dict[Effort, int] = {"minimal": 512, "low": 2_048, "medium": 8_192}
_PARAM = "reasoning_effort"
_FORCED = frozenset({"required", "named"})


def say_thinking(wire: Record, chat: Chat, flavor: Flavor, target: Target) -> None:
    """Add what a chat asks for. A provider that takes `reasoning` as we have it was told by that."""
    asked = chat.reasoning
    if flavor.forced_choice_unthinking and chat.tool_choice is not None and chat.tool_choice.mode in _FORCED:
        _say_unthinking(wire, chat, target)
        return
    if asked is None or "reasoning" in flavor.takes:
        return
    if asked.summary is not None and asked.effort is None and asked.max_tokens is None:
        # It says how the reasoning is told, not whether the model reasons.
        return
    if flavor.thinking_switch == "enable_thinking":
        word = None
        _say_switch(wire, asked, flavor)
    else:
        if asked.max_tokens is not None:
            note_dropped(chat, target, "reasoning", "this model's provider takes no number of tokens to think")
        if flavor.thinking_switch == "thinking":
            word = _say_kind(wire, chat, asked, flavor, target)
        else:
            effort = asked.effort or (effort_of(asked.max_tokens) if asked.max_tokens is not None else None)
            word = effort and _word(effort, chat, flavor, target)
    if word is not None:
        wire[_PARAM] = word
    else:
        wire.pop(_PARAM, None)


def _say_unthinking(wire: Record, chat: Chat, target: Target) -> None:
    """Switch thinking off for a model that has to call a tool."""
    wire["thinking"] = {"type": "disabled"}
    wire.pop(_PARAM, None)
    asked = chat.reasoning
    if asked is not None and (asked.max_tokens is not None or asked.effort not in (None, "none")):
        note_dropped(chat, target, _PARAM, "this model does not think where it has to call a tool")


def _say_switch(wire: Record, asked: ReasoningRequest, flavor: Flavor) -> None:
    """Switch thinking on or off, with the tokens that it may take."""
    if asked.effort is None and asked.max_tokens is None:
        return
    wire["enable_thinking"] = asked.effort != "none" or asked.max_tokens is not None
    tokens = asked.max_tokens if asked.max_tokens is not None else _budget(asked.effort, flavor)
    if tokens is not None:
        wire["thinking_budget"] = tokens


def _say_kind(wire: Record, chat: Chat, asked: ReasoningRequest, flavor: Flavor, target: Target) -> str | None:
    """Switch thinking on or off; return the word for how much, where the model knows any."""
    if asked.effort is None and asked.max_tokens is None:
        return None
    off = asked.effort == "none" and asked.max_tokens is None
    wire["thinking"] = {**_fields_of(wire.get("thinking")), "type": "disabled" if off else "enabled"}
    if asked.effort is None or asked.effort == "none":
        return None
    if not flavor.reasoning_efforts:
        note_dropped(chat, target, _PARAM, "this model thinks or does not: it knows no efforts")
        return None
    return _word(asked.effort, chat, flavor, target)


def _budget(effort: Effort | None, flavor: Flavor) -> int | None:
    """Return the tokens that an effort stands for, within the bounds of the model."""
    tokens = _BUDGETS.get(effort) if effort is not None else None
    bounds = flavor.reasoning_budget
    if tokens is None or bounds is None:
        return None
    return max(min(tokens, bounds.get("max", tokens)), bounds.get("min", 1))


def _word(effort: Effort, chat: Chat, flavor: Flavor, target: Target) -> str | None:
    """Return the model's word for an effort, the nearest one where it has no such word; None where it has none at all.
    A model whose words are not known gets the effort as it is; but it is not told to think not at all, which hardly any
    knows, by clients whose format says so as a matter of course."""
    known = flavor.reasoning_efforts
    if not known and effort == "none" and not flavor.same_dialect:
        note_dropped(chat, target, _PARAM, "it is not known whether this model can do without thinking")
        return None
    if not known or effort in known:
        return effort
    words = [word for word in EFFORTS if word in known and word != "none"]
    if effort == "none" or not (words or "default" in known):
        note_dropped(chat, target, field_of(effort, chat), f"this model has no reasoning effort {effort}")
        return None
    place = EFFORTS.index(effort)
    word: str = min(words, key=lambda it: (abs(EFFORTS.index(it) - place), -EFFORTS.index(it)), default="default")
    why = f"this model has no reasoning effort {effort}: it was asked for {word}"
    note_dropped(chat, target, field_of(effort, chat), why)
    return word


def _fields_of(value: Any) -> Record:
    """Return what the client itself says of thinking, which may be its bytes."""
    if isinstance(value, msgspec.Raw):
        try:
            return dict(msgspec.json.decode(value, type=dict[str, msgspec.Raw]))
        except msgspec.MsgspecError:
            return {}
    return dict(value) if isinstance(value, dict) else {}
