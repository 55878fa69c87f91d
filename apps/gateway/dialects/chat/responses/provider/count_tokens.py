"""OpenAI Responses, provider side: token counting by `/responses/input_tokens`."""

from __future__ import annotations

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat.anthropic.provider.count_tokens import read_count
from apps.gateway.dialects.chat.responses.provider.write_request import write_request
from apps.gateway.dialects.chat.responses.shared.wire import encode

__all__ = ["count_request", "read_count"]

_COUNTED = frozenset(
    {
        *("conversation", "input", "instructions", "model", "parallel_tool_calls", "personality"),
        *("previous_response_id", "reasoning", "text", "tool_choice", "tools", "truncation"),
    }
)
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`.

    The answer states them as Anthropic's does (`input_tokens`).
    """
    wire = _read_fields(write_request(chat, target))
    return "/responses/input_tokens", encode({name: value for name, value in wire.items() if name in _COUNTED})
