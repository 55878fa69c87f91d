"""OpenAI Chat Completions, both sides: names and constants on the wire.

Differences between OpenAI-alikes are facts (docs/adding-a-dialect.md).
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import CacheMark, Effort
from apps.gateway.canonical.events import FinishReason

NAME: Final = "openai"
FRAMING: Final = "sse"

EFFORTS: Final[tuple[Effort, ...]] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# How much of the reasoning a summary tells.
SUMMARIES: Final = ("auto", "concise", "detailed")

# Fields of a request that are same_dialect, not OpenAI's: sent on only to providers that take them as they are.
OWN_FIELDS: Final = frozenset(
    {"reasoning", "effort", "web_search", "free_models_only", "no_reasoning", "plugins", "image_config"}
)

# Where an answer parks what OpenAI's own types refuse, or what a field of the gateway's hides.
PARKED: Final = "provider_specific_fields"

# How thinking that came signed as a part of the content is marked on its way through clients.
PART_FORMAT: Final = "thinking-part"

# Providers' words for why a model stopped, in lower case. A word not listed is taken for `stop`.
FINISH_REASONS: Final[dict[str, FinishReason]] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "sensitive": "content_filter",
}
# Words that say that the provider broke down.
FAILURE_WORDS: Final = frozenset({"error", "network_error", "insufficient_system_resource"})

_ENCODER = msgspec.json.Encoder(decimal_format="number")
encode = _ENCODER.encode


def cache_control(mark: CacheMark) -> dict[str, Any]:
    """Return a cache mark as Anthropic and those who follow it write it."""
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}


def new_id(prefix: str) -> str:
    """Return an id for what a provider gave none: the prefix and 24 characters."""
    return prefix + secrets.token_hex(12)
