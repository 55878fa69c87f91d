"""Google generateContent, provider side: token counting by `:countTokens`."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat.google.provider.write_request import write_request
from apps.gateway.dialects.chat.google.shared.wire import encode

_MAX_COUNT = 10**9
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`.

    The whole request stands under a name of its own: beside it, instructions and tools are not taken.
    """
    asked = {"model": f"models/{target.model_name}", **_read_fields(write_request(chat, target))}
    return f"/models/{quote(target.model_name)}:countTokens", encode({"generateContentRequest": asked})


def read_count(body: bytes) -> int | None:
    """Return the tokens that were counted; None for an answer that does not say."""
    try:
        count = msgspec.json.decode(body, type=_Count).total
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return count if 0 <= count <= _MAX_COUNT else None


class _Count(msgspec.Struct):
    total: int = msgspec.field(name="totalTokens")
