"""Anthropic Messages, provider side: writes a canonical chat as a request body.

What the client wrote in this very format passes through untouched but for the model's name; anything else is written
from the canonical form. Knows facts. Must never know a provider by name.
"""

from __future__ import annotations

import re

import msgspec

from apps.gateway.canonical.chat import Chat, Image, Target
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.tool_names import adapt_tool_names
from apps.gateway.dialects.adapting.unsupported_fields import (
    note_dropped,
    note_made_pictures,
    note_unsupported_fields,
    repair_tool_results,
    unsupported_feature,
)
from apps.gateway.dialects.chat.anthropic.provider.flavor import flavor_of
from apps.gateway.dialects.chat.anthropic.provider.thinking_signatures import drop_thinking
from apps.gateway.dialects.chat.anthropic.provider.write_messages import (
    Record,
    is_signed,
    split_system,
    write_messages,
    write_system,
)
from apps.gateway.dialects.chat.anthropic.provider.write_response_format import is_native, with_form, write_form
from apps.gateway.dialects.chat.anthropic.provider.write_sampling import (
    drop_sampling,
    refuse_unsupported_fields,
    write_sampling,
)
from apps.gateway.dialects.chat.anthropic.provider.write_thinking import obstacle_of, write_thinking
from apps.gateway.dialects.chat.anthropic.provider.write_tools import write_tools
from apps.gateway.dialects.chat.anthropic.shared.wire import NAME, VERSION, encode
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS

# What the format demands a limit for, when neither the client nor the data file states one.
_UNSTATED_LIMIT = 4_096
_NAMES, _LONGEST_NAME = re.compile(r"[a-zA-Z0-9_-]+"), 128
_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/messages"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the headers that belong to the format: its version, and the previews that the client asks for. A provider
    whose data file lists `betas` takes no others."""
    allowed = flavor_of(target).betas
    betas = [beta for beta in chat.betas or () if allowed is None or beta in allowed]
    return {"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    _note_unknown_betas(chat, target)
    if not flavor_of(target).prefill and chat.messages[-1].role == "assistant":
        raise unsupported_feature(chat, "messages", "The model does not go on with an answer that is begun")
    chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=True)
    if chat.source is not None and chat.source.dialect == NAME and _is_welcome(chat, target):
        wire: Record = {name: raw for name, raw in _read_fields(chat.source.body).items() if raw != _NULL}
        if not ROUTER_FIELDS.isdisjoint(wire):
            wire = {name: raw for name, raw in wire.items() if name not in ROUTER_FIELDS}
        drop_sampling(wire, chat, target)
        if not chat.tools and (chat.tool_choice is None or chat.tool_choice.mode in ("auto", "none")):
            # A choice among no tools is refused.
            wire.pop("tool_choice", None)
    else:
        wire = _written(chat, target)
    drop_thinking(wire, chat, target)
    wire["model"] = target.model_name
    if chat.max_tokens is not None:
        # Lowered, maybe, to what the model can write.
        wire["max_tokens"] = chat.max_tokens
    for name in flavor_of(target).unsupported:
        if wire.pop(name, None) is not None:
            target.note_dropped(name, "not available from this model's provider")
    return encode(wire)


def _note_unknown_betas(chat: Chat, target: Target) -> None:
    allowed = flavor_of(target).betas
    if unknown := [beta for beta in chat.betas or () if allowed is not None and beta not in allowed]:
        target.note_dropped("anthropic-beta", f"previews that the provider does not take: {', '.join(unknown)[:200]}")


def _is_welcome(chat: Chat, target: Target) -> bool:
    """Return whether a conversation can be sent on as it is: no thinking in it that somebody else signed, and no wish
    for a form that the model has to be brought to."""
    if chat.response_format is not None and not is_native(target):
        return False
    return all(is_signed(part) for message in chat.messages for part in message.parts)


def _written(chat: Chat, target: Target) -> Record:
    """Return the fields of a chat in the format's own words."""
    refuse_unsupported_fields(chat)
    same_dialect = chat.dialect == NAME
    note_unsupported_fields(chat, target, NAME, marks=True, names=False, details=False, thinking=is_signed)
    if Image in chat.kinds:
        note_made_pictures(chat, target)
    if not same_dialect:
        chat = adapt_tool_names(chat, target, _NAMES, _LONGEST_NAME)
    chat, schema = with_form(chat, target, same_dialect=same_dialect)
    instructions, messages = split_system(chat.messages)
    wire: Record = {
        "model": chat.model,
        "max_tokens": chat.max_tokens or target.max_output or _UNSTATED_LIMIT,
        "messages": write_messages(messages, same_dialect=same_dialect),
    }
    if system := write_system(instructions, same_dialect=same_dialect):
        wire["system"] = system
    if chat.stream:
        wire["stream"] = True
    write_sampling(wire, chat, target, same_dialect=same_dialect)
    write_tools(wire, chat, target, same_dialect=same_dialect)
    if same_dialect:
        wire |= _own_fields(wire, chat, target)
        return wire
    if chat.user is not None:
        wire["metadata"] = {"user_id": chat.user}
    write_thinking(wire, chat, target)
    write_form(wire, chat, target, schema)
    return wire


def _own_fields(wire: Record, chat: Chat, target: Target) -> Record:
    """Return the client's fields of this very format; no thinking beside a call that the model is now made to make."""
    extra = dict(chat.extra or {})
    thinks = extra.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if thinks and target.rewrites.hidden_tool is not None and (obstacle := obstacle_of(wire)):
        del extra["thinking"]
        note_dropped(chat, target, "reasoning", f"no thinking beside {obstacle}")
    return extra
