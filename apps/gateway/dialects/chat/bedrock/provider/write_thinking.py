"""Bedrock Converse, provider side: writes reasoning in the fields of the model's maker
(`additionalModelRequestFields`).

Knows the forms that makers have for it. Must never know a model by name.
"""

from __future__ import annotations

from apps.gateway.canonical.chat import Chat, Effort, Target
from apps.gateway.dialects.adapting.reasoning_efforts import effort_of, nearest_known_effort
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.anthropic.provider import write_thinking as anthropic
from apps.gateway.dialects.chat.anthropic.provider.thinking_signatures import drop_thinking
from apps.gateway.dialects.chat.anthropic.shared import wire as anthropic_wire
from apps.gateway.dialects.chat.bedrock.provider.flavor import Flavor
from apps.gateway.dialects.chat.bedrock.shared.wire import Record

# What is demanded beside a budget, when neither the client nor the data file states a limit.
_UNSTATED_LIMIT = 4_096
_THINKS = ("enabled", "adaptive")
_SAMPLING = ("temperature", "top_p", "top_k")


def write_thinking(
    chat: Chat, target: Target, flavor: Flavor, sampling: Record, messages: list[Record], *, forced: bool
) -> tuple[Record, int | None]:
    """Return the fields for the model, and the limit on its answer.

    `forced` says that a tool must be called. What of `sampling` is refused beside thinking is left out of it.
    """
    asked = chat.reasoning
    effort = asked.effort if asked is not None and asked.effort is not None else chat.effort
    budget = asked.max_tokens if asked is not None else None
    if flavor.signs_thinking:
        return _as_anthropic(chat, target, sampling, messages, forced=forced)
    if effort is None and budget is not None:
        effort = effort_of(budget)
        note_dropped(chat, target, "reasoning.max_tokens", f"the model takes no budget: taken for the effort {effort}")
    if effort is None:
        return {}, chat.max_tokens
    if flavor.reasoning_form is None:
        if effort != "none":
            note_dropped(chat, target, "reasoning_effort", "how much this model thinks cannot be said")
        return {}, chat.max_tokens
    return _as_effort(effort, chat, target, flavor), chat.max_tokens


def _as_anthropic(
    chat: Chat, target: Target, sampling: Record, messages: list[Record], *, forced: bool
) -> tuple[Record, int | None]:
    """Return Anthropic's own fields; as a client of Anthropic's format wrote them where it did."""
    wire: Record = {
        **{name: sampling[name] for name in _SAMPLING if name in sampling},
        "max_tokens": chat.max_tokens or target.max_output or _UNSTATED_LIMIT,
        "messages": messages,
    }
    if forced:
        wire["tool_choice"] = {"type": "any"}
    said = (chat.extra or {}) if chat.dialect == anthropic_wire.NAME else {}
    if isinstance(own := said.get("thinking"), dict):
        return _own_words(own, said.get("output_config"), wire, chat, target), chat.max_tokens
    anthropic.write_thinking(wire, chat, target)
    for name in _SAMPLING:
        if name not in wire:
            sampling.pop(name, None)
    fields: Record = {name: wire[name] for name in ("thinking", "output_config") if name in wire}
    drop_thinking(fields, chat, target)
    # Unsaid, the limit is a small one, in which thinking counts.
    stated = chat.max_tokens or target.max_output or fields
    return fields, wire["max_tokens"] if stated else None


def _own_words(thinking: Record, output: object, wire: Record, chat: Chat, target: Target) -> Record:
    """Return the client's own fields; no thinking beside a call that the model is now made to make."""
    thinks = thinking.get("type") in _THINKS
    if target.rewrites.hidden_tool is not None and thinks and (obstacle := anthropic.obstacle_of(wire)):
        note_dropped(chat, target, "reasoning", f"no thinking beside {obstacle}")
        return {}
    effort = output.get("effort") if isinstance(output, dict) else None
    fields: Record = {"thinking": thinking}
    drop_thinking(fields, chat, target)
    return fields if effort is None else {**fields, "output_config": {"effort": effort}}


def _as_effort(effort: Effort, chat: Chat, target: Target, flavor: Flavor) -> Record:
    """Return an effort as the model's maker has it."""
    form = str(flavor.reasoning_form)
    if form == "reasoningConfig" and effort == "none":
        return {form: {"type": "disabled"}}
    word = nearest_known_effort(effort, chat, target)
    if form == "reasoningConfig":
        return {form: {"type": "enabled", "maxReasoningEffort": word}}
    return {form: {"effort": word} if form == "reasoning" else word}
