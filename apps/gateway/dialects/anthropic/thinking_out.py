"""How much to think, in Anthropic's words: a budget of tokens for older models, else an effort.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Chat, Effort, Target

Record = dict[str, Any]

# The least that is accepted.
_LEAST = 1_024
# What share of the answer's limit an effort may think.
_SHARES: dict[Effort, float] = {"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8, "xhigh": 0.95, "max": 0.95}
_WORDS: dict[Effort, str] = {"minimal": "low"}


def write_thinking(wire: Record, chat: Chat, target: Target) -> None:
    """Add what a chat asks for. An exact budget is sent as it is; where the client set no limit on the answer, thinking
    fits below the model's."""
    asked = chat.reasoning
    effort = asked.effort if asked is not None and asked.effort is not None else chat.effort
    if asked is not None and asked.max_tokens is not None:
        wire["thinking"] = {"type": "enabled", "budget_tokens": asked.max_tokens}
        if chat.max_tokens is None:
            wire["max_tokens"] = max(wire["max_tokens"], asked.max_tokens + _LEAST)
    elif effort is None:
        return
    elif "reasoning_budget" in target.facts:
        _write_budget(wire, effort)
    elif effort == "none":
        wire["thinking"] = {"type": "disabled"}
    else:
        wire["thinking"] = {"type": "adaptive"}
        wire["output_config"] = {"effort": _WORDS.get(effort, effort)}


def _write_budget(wire: Record, effort: Effort) -> None:
    """State an effort as a budget; with a limit that leaves no room for one there is no thinking."""
    limit: int = wire["max_tokens"]
    if effort != "none" and limit > _LEAST:
        wire["thinking"] = {"type": "enabled", "budget_tokens": max(int(limit * _SHARES[effort]), _LEAST)}
