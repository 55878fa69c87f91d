"""Google generateContent, provider side: passes on what a client wrote in this very format."""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.chat import Chat, ToolCall
from apps.gateway.dialects.adapting.signed_call_ids import stated_signature
from apps.gateway.dialects.chat.google.provider.capabilities import Capabilities
from apps.gateway.dialects.chat.google.shared.wire import NAME
from apps.gateway.dialects.reading.fields import Record

_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def passes(chat: Chat, capabilities: Capabilities) -> bool:
    """Return whether a request can be sent in the client's own words."""
    if chat.source is None or chat.source.dialect != NAME:
        return False
    asked = chat.reasoning
    if asked is not None and asked.effort not in (None, "none") and capabilities.thinking == "budget":
        # A level, which the model does not know.
        return False
    return not capabilities.requires_signatures or all(map(_is_signed, chat.messages))


def _is_signed(message: Any) -> bool:
    """Return whether the first call of a turn has its signature, where there is one."""
    first = next((part for part in message.parts if isinstance(part, ToolCall)), None)
    return first is None or stated_signature(first.extra) is not None


def pass_on(chat: Chat, body: bytes) -> Record:
    """Return the fields of the client's body, with the limit on the answer as it is now."""
    wire: Record = {name: raw for name, raw in _read_fields(body).items() if raw != _NULL and name != "model"}
    config: Record = _read_fields(wire["generationConfig"]) if "generationConfig" in wire else {}
    if chat.max_tokens is not None:
        wire["generationConfig"] = {**config, "maxOutputTokens": chat.max_tokens}
    if not chat.tools and (chat.tool_choice is None or chat.tool_choice.mode in ("auto", "none")):
        # How functions are called is refused where there are none.
        for name in ("toolConfig", "tool_config"):
            wire.pop(name, None)
    return wire


def merged(wire: Record, own: Record) -> Record:
    """Return fields and, beside them, what only clients of this format say; where both say something, the former."""
    whole = {**own, **wire}
    for name in wire.keys() & own.keys():
        if isinstance(wire[name], dict) and isinstance(own[name], dict):
            whole[name] = merged(wire[name], own[name])
    return whole
