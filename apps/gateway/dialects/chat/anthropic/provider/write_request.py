"""Anthropic Messages, provider side: writes a canonical chat as a request body, for an answer or for a count of tokens.

A request in this very format passes through untouched except for the model's name; any other is written
from the canonical form.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Effort, Image, Target
from apps.gateway.dialects.adapting.emulated_tools import adapt_tool_names
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import (
    UnsupportedSchema,
    add_structured_output_tool,
    close_schema,
    described,
)
from apps.gateway.dialects.adapting.thinking import effort_of, nearest_known_effort
from apps.gateway.dialects.adapting.unsupported_fields import (
    note_dropped,
    note_generated_images,
    note_unsupported_fields,
    note_unsupported_hints,
    repair_tool_results,
    unsupported_feature,
)
from apps.gateway.dialects.chat.anthropic.provider.write_messages import (
    drop_thinking,
    is_signed,
    split_system,
    write_messages,
    write_system,
    write_tools,
)
from apps.gateway.dialects.chat.anthropic.wire import NAME, VERSION, capabilities_of, encode
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS

_JSON_PLEASE = {"type": "text", "text": "Answer with one JSON object and nothing else."}
_CONFIG = "output_config"


def is_native(target: Target) -> bool:
    """Return whether the model takes schemas; one of which nothing is said does."""
    return bool(target.facts.get("structured_outputs", "native") == "native")


def with_form(chat: Chat, target: Target, *, same_dialect: bool) -> tuple[Chat, Record | None]:
    """Return the chat to write, and the schema to bind its answer to; what a schema cannot bind is noted.

    Where the model takes no schemas, or not this one, a tool takes it: then the chat that is returned has that tool.
    """
    form = chat.response_format
    if form is None or form.kind != "json_schema" or form.schema is None:
        return chat, None
    if is_native(target):
        if same_dialect:
            return chat, form.schema
        try:
            schema, left_out = close_schema(described(form.schema, form))
        except UnsupportedSchema:
            pass
        else:
            if left_out:
                note_dropped(
                    chat, target, "response_format", f"the answer is not bound to {', '.join(left_out)} of its schema"
                )
            return chat, schema
    return _without_config(add_structured_output_tool(chat, target)), None


def write_form(wire: Record, chat: Chat, target: Target, schema: Record | None) -> None:
    """Add the form. There is no switch for JSON of any shape: it is asked for in words, and repaired where needed."""
    if schema is not None:
        wire.setdefault(_CONFIG, {})["format"] = {"type": "json_schema", "schema": schema}
    elif chat.response_format is not None and chat.response_format.kind != "text":
        system = wire.get("system", [])
        wire["system"] = [*([{"type": "text", "text": system}] if isinstance(system, str) else system), _JSON_PLEASE]
        target.rewrites.healing = True


def _without_config(chat: Chat) -> Chat:
    """Return a chat whose own `output_config` asks for no form any more."""
    if not chat.extra or not isinstance(config := chat.extra.get(_CONFIG), dict):
        return chat
    rest = {name: value for name, value in config.items() if name != "format"}
    extra = {name: value for name, value in chat.extra.items() if name != _CONFIG}
    return replace(chat, extra={**extra, _CONFIG: rest} if rest else extra)


# The least that is accepted.
_LEAST = 1_024
# The share of the answer's limit that each effort may use for thinking.
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
        if capabilities_of(target).reasoning_budget is None:
            wire["thinking"] = {"type": "disabled"}
        return
    if effort is None and budget is None:
        return
    field = "reasoning_effort" if budget is None else "reasoning.max_tokens"
    if obstacle := obstacle_of(wire):
        note_dropped(chat, target, field, f"no thinking beside {obstacle}")
    elif capabilities_of(target).reasoning_budget is not None or (budget is not None and _knows_no_efforts(target)):
        _write_budget(wire, chat, target, effort, budget)
    else:
        _write_effort(wire, chat, target, effort, budget)
    if "thinking" in wire:
        fit_to_thinking(wire, chat, target)


def _knows_no_efforts(target: Target) -> bool:
    """Return whether nothing tells that the model is one of those that decide for themselves how much they think."""
    capabilities = capabilities_of(target)
    return capabilities.reasoning_efforts is None and capabilities.temperature


def obstacle_of(wire: Record) -> str | None:
    """Return what a request says that is refused beside thinking, None when there is nothing."""
    if wire.get("tool_choice", {}).get("type") in _FORCED:
        return "a call that the model is made to make"
    messages = wire["messages"]
    return "an answer that is begun" if messages and messages[-1]["role"] == "assistant" else None


def _write_budget(wire: Record, chat: Chat, target: Target, effort: Effort | None, budget: int | None) -> None:
    """Write a thinking budget, or an effort as one, within the accepted bounds; without room for one, no thinking."""
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
    if wanted == "minimal" and not capabilities_of(target).reasoning_efforts:
        note_dropped(chat, target, "reasoning_effort", "the model does not know minimal: sent as low")
        wanted = "low"
    wire["thinking"] = {"type": "adaptive"}
    wire["output_config"] = {"effort": nearest_known_effort(wanted, chat, target)}


# Hints that the format has no words for.
_HINTS = (
    *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "verbosity", "prediction", "store"),
    *("prompt_cache_key", "image_config", "metadata", "audio"),
)
_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_SAMPLING = ("temperature", "top_p", "top_k")
# The least share that is taken beside thinking.
_LEAST_TOP_P = 0.95


def refuse_unsupported_fields(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for field, asked in (
        ("n", (chat.n or 1) > 1),
        ("logprobs", bool(chat.logprobs)),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
    ):
        if asked:
            raise unsupported_feature(chat, field, f"{field} is not available from this model's provider")


def write_sampling(wire: Record, chat: Chat, target: Target, *, same_dialect: bool) -> None:
    """Add how words are chosen and where the answer ends."""
    for name, value in (
        ("temperature", _temperature(chat, target)),
        ("top_p", _top_p(chat, target, same_dialect=same_dialect)),
        ("top_k", None if chat.top_k is not None and chat.top_k < 0 else chat.top_k),
        ("stop_sequences", _stops(chat, target, same_dialect=same_dialect)),
        ("service_tier", chat.service_tier if same_dialect else _TIERS.get(chat.service_tier or "")),
    ):
        if value is not None:
            wire[name] = value
    if chat.service_tier is not None and "service_tier" not in wire:
        note_dropped(chat, target, "service_tier", "the provider does not have this tier")
    note_unsupported_hints(chat, target, *_HINTS)
    drop_sampling(wire, chat, target)


def drop_sampling(wire: Record, chat: Chat, target: Target) -> None:
    """Leave out what a model that chooses its words alone refuses."""
    if not capabilities_of(target).temperature:
        for name in _SAMPLING:
            if wire.pop(name, None) is not None and getattr(chat, name) != 1:
                note_dropped(chat, target, name, "the model chooses its words alone")


def fit_to_thinking(wire: Record, chat: Chat, target: Target) -> None:
    """Leave out the fields that are refused beside thinking."""
    for name, fits in (
        ("temperature", lambda value: value == 1),
        ("top_p", lambda value: value >= _LEAST_TOP_P),
        ("top_k", lambda value: False),
    ):
        if name in wire and not fits(wire[name]):
            del wire[name]
            note_dropped(chat, target, name, "not taken beside thinking")


def _temperature(chat: Chat, target: Target) -> float | None:
    if chat.temperature is None or chat.temperature <= 1:
        return chat.temperature
    note_dropped(chat, target, "temperature", "sent as 1, the most that this model's provider takes")
    return 1.0


def _top_p(chat: Chat, target: Target, *, same_dialect: bool) -> float | None:
    """Return the share of likely words; newer models take it or a temperature."""
    if same_dialect or chat.top_p is None or chat.temperature is None:
        return chat.top_p
    if chat.top_p != 1:
        note_dropped(chat, target, "top_p", "not taken beside a temperature")
    return None


def _stops(chat: Chat, target: Target, *, same_dialect: bool) -> list[str] | None:
    """Return the stop sequences; those of white space alone are refused."""
    if chat.stop is None or same_dialect:
        return chat.stop
    kept = [stop for stop in chat.stop if stop.strip()]
    if len(kept) < len(chat.stop):
        note_dropped(chat, target, "stop", "stop sequences of white space alone are not taken")
    return kept or None


# The format requires a limit: this one, when neither the client nor the data file states one.
_UNSTATED_LIMIT = 4_096
_NAMES, _MAX_NAME_LENGTH = re.compile(r"[a-zA-Z0-9_-]+"), 128
_NULL = msgspec.Raw(b"null")
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/messages"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the headers that belong to the format: its version, and the previews that the client asks for. A provider
    whose data file lists `betas` takes no others."""
    allowed = capabilities_of(target).betas
    betas = [beta for beta in chat.betas or () if allowed is None or beta in allowed]
    return {"anthropic-version": VERSION, **({"anthropic-beta": ",".join(betas)} if betas else {})}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    _note_unknown_betas(chat, target)
    if not capabilities_of(target).prefill and chat.messages[-1].role == "assistant":
        raise unsupported_feature(chat, "messages", "The model does not go on with an answer that is begun")
    if not chat.is_plain:
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
    for name in capabilities_of(target).unsupported:
        if wire.pop(name, None) is not None:
            target.note_dropped(name, "not available from this model's provider")
    return encode(wire)


def _note_unknown_betas(chat: Chat, target: Target) -> None:
    allowed = capabilities_of(target).betas
    if unknown := [beta for beta in chat.betas or () if allowed is not None and beta not in allowed]:
        note_dropped(chat, target, "betas", f"previews that the provider does not take: {', '.join(unknown)[:200]}")


def _is_welcome(chat: Chat, target: Target) -> bool:
    """Return whether a conversation can be sent on as it is: it has no thinking that another maker signed, and asks
    for no response format that has to be emulated."""
    if chat.response_format is not None and not is_native(target):
        return False
    return all(is_signed(part) for message in chat.messages for part in message.parts)


def _written(chat: Chat, target: Target) -> Record:
    """Return the fields of a chat in the format's own words."""
    refuse_unsupported_fields(chat)
    same_dialect = chat.dialect == NAME
    # Previews are sent, and those that the provider lacks noted, whatever the client's format.
    asked = chat if chat.betas is None else replace(chat, betas=None)
    note_unsupported_fields(asked, target, NAME, marks=True, names=False, details=False, thinking=is_signed)
    if Image in chat.kinds:
        note_generated_images(chat, target)
    if not same_dialect:
        chat = adapt_tool_names(chat, target, _NAMES, _MAX_NAME_LENGTH)
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
