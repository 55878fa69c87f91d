"""Anthropic Messages, provider side: token counting by `/messages/count_tokens`."""

from __future__ import annotations

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat.anthropic.provider.write_request import write_request
from apps.gateway.dialects.chat.anthropic.shared.wire import encode

# Those of the format's reference and, with the client's previews, those of the previews.
_COUNTED = frozenset(
    {
        "cache_control",
        "context_management",
        "mcp_servers",
        "messages",
        "model",
        "output_config",
        "speed",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    }
)
_MAX_COUNT = 10**9
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`."""
    wire = _read_fields(write_request(chat, target))
    return "/messages/count_tokens", encode({name: value for name, value in wire.items() if name in _COUNTED})


def read_count(body: bytes) -> int | None:
    """Return the tokens that were counted; None for an answer that does not say."""
    try:
        count = msgspec.json.decode(body, type=_Count).input_tokens
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return count if 0 <= count <= _MAX_COUNT else None


class _Count(msgspec.Struct):
    input_tokens: int
