"""Bedrock Converse, provider side: token counting by `count-tokens`."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat.bedrock.provider.write_request import write_request
from apps.gateway.dialects.chat.bedrock.shared.wire import encode

_COUNTED = ("messages", "system", "toolConfig", "additionalModelRequestFields")
_MAX_COUNT = 10**9
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`."""
    wire = _read_fields(write_request(chat, target))
    asked = {name: wire[name] for name in _COUNTED if name in wire}
    return f"/model/{quote(target.model_name, safe='')}/count-tokens", encode({"input": {"converse": asked}})


def read_count(body: bytes) -> int | None:
    """Return the tokens that were counted; None for an answer that does not say."""
    try:
        count = msgspec.json.decode(body, type=_Count).tokens
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return count if 0 <= count <= _MAX_COUNT else None


class _Count(msgspec.Struct):
    tokens: int = msgspec.field(name="inputTokens")
