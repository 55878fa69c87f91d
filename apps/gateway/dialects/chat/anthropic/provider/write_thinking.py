"""Anthropic Messages, provider side: writes reasoning as a thinking budget (older models) or an effort.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Chat, Effort, Target
from apps.gateway.dialects.adapting.reasoning_efforts import effort_of, nearest_known_effort
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.anthropic.provider.flavor import flavor_of
from apps.gateway.dialects.chat.anthropic.provider.write_sampling import fit_to_thinking

Record = dict[str, Any]

# The least that is accepted.
_LEAST = 1_024
# What share of the answer's limit an effort may think.
_SHARES: dict[Effort, float] = {"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.95, "max": 0.95}
_FORCED = frozenset({"any", "tool"})


def write_thinking(wire: Record, chat: Chat, target: Target) -> None:
    """Add what a chat asks for. Where the client set no limit on the answer, thinking fits below the model's.

    Thinking is a wish: where the rest of the request rules it out, it is left out with a note.
    """
    asked = chat.reasoning
    effort = asked.effort if asked is not None and asked.effort is not None else chat.effort
    budget = asked.max_tokens if asked is not None else None
    if effort == "none" and budget is None:
        if flavor_of(target).reasoning_budget is None:
            wire["thinking"] = {"type": "disabled"}
        return
    if effort is None and budget is None:
        return
    field = "reasoning_effort" if budget is None else "reasoning.max_tokens"
    if obstacle := obstacle_of(wire):
        note_dropped(chat, target, field, f"no thinking beside {obstacle}")
    elif flavor_of(target).reasoning_budget is not None or (budget is not None and _knows_no_efforts(target)):
        _write_budget(wire, chat, target, effort, budget)
    else:
        _write_effort(wire, chat, target, effort, budget)
    if "thinking" in wire:
        fit_to_thinking(wire, chat, target)


def _knows_no_efforts(target: Target) -> bool:
    """Return whether nothing tells that the model is one of those that decide for themselves how much they think."""
    flavor = flavor_of(target)
    return flavor.reasoning_efforts is None and flavor.temperature


def obstacle_of(wire: Record) -> str | None:
    """Return what a request says that is refused beside thinking, None when there is nothing."""
    if wire.get("tool_choice", {}).get("type") in _FORCED:
        return "a call that the model is made to make"
    messages = wire["messages"]
    return "an answer that is begun" if messages and messages[-1]["role"] == "assistant" else None


def _write_budget(wire: Record, chat: Chat, target: Target, effort: Effort | None, budget: int | None) -> None:
    """State a budget, or an effort as one, within what is accepted; with no room for one there is no thinking."""
    limit: int = wire["max_tokens"]
    if budget is not None and chat.max_tokens is None:
        limit = wire["max_tokens"] = min(max(limit, budget + _LEAST), target.max_output or budget + _LEAST)
    field = "reasoning_effort" if budget is None else "reasoning.max_tokens"
    if limit <= _LEAST:
        note_dropped(chat, target, field, f"an answer of {limit} tokens leaves no room for thinking")
        return
    wanted = int(limit * _SHARES[effort or "medium"]) if budget is None else budget
    tokens = min(max(wanted, _LEAST), limit - 1)
    if budget is not None and tokens != budget:
        note_dropped(chat, target, field, f"sent as {tokens}, as near as this model's provider takes")
    wire["thinking"] = {"type": "enabled", "budget_tokens": tokens}


def _write_effort(wire: Record, chat: Chat, target: Target, effort: Effort | None, budget: int | None) -> None:
    """State an effort, or a budget as one: the model decides how much it thinks."""
    if budget is not None:
        wanted = effort_of(budget)
        note_dropped(chat, target, "reasoning.max_tokens", f"the model takes no budget: sent as the effort {wanted}")
    else:
        wanted = effort or "medium"
    if wanted == "minimal" and not flavor_of(target).reasoning_efforts:
        note_dropped(chat, target, "reasoning_effort", "the model does not know minimal: sent as low")
        wanted = "low"
    wire["thinking"] = {"type": "adaptive"}
    wire["output_config"] = {"effort": nearest_known_effort(wanted, chat, target)}
