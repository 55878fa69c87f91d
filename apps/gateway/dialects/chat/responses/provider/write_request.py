"""OpenAI Responses, provider side: writes a canonical chat as a request body.

Knows the format's fields; what it has no words for is left out in `drop_unsupported_fields.py`. Must never know a
provider or a model by name.
"""

from __future__ import annotations

from typing import Final

from apps.gateway.canonical.chat import Chat, Effort, Target
from apps.gateway.dialects.adapting.reasoning_efforts import effort_of, nearest_known_effort
from apps.gateway.dialects.adapting.unsupported_fields import is_default_value, note_dropped
from apps.gateway.dialects.chat.responses.provider.drop_unsupported_fields import (
    drop_unsupported_fields,
    is_refused,
    shared_fields,
)
from apps.gateway.dialects.chat.responses.provider.flavor import Flavor, flavor_of
from apps.gateway.dialects.chat.responses.provider.write_items import write_input, write_instructions
from apps.gateway.dialects.chat.responses.provider.write_tools import write_tools
from apps.gateway.dialects.chat.responses.shared.wire import (
    ENCRYPTED_REASONING,
    LOGPROBS,
    NAME,
    SIGNATURE_FORMAT,
    Record,
    encode,
    without_none,
)

# The least limit on an answer that is accepted.
LEAST_OUTPUT: Final = 16

# Fields of clients of this format that are written together with what is understood of them.
_HALF_UNDERSTOOD: Final = frozenset({"include", "reasoning", "text"})

_SAMPLING: Final = ("temperature", "top_p")
_BOOKKEEPING: Final = ("user", "metadata", "prompt_cache_key")
_TIERS: Final = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/responses"


def signature_format(chat: Chat, target: Target) -> str | None:
    """Return whose signatures on thinking are wanted back: our own, where thinking comes under one."""
    return None if "include" in flavor_of(target).unsupported else SIGNATURE_FORMAT


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    flavor = flavor_of(target)
    chat = drop_unsupported_fields(chat, flavor, target)
    wire: Record = {
        flavor.model_field: target.model_name,
        **_own_fields(chat, flavor, target),
        **write_instructions(chat),
        "input": write_input(chat, flavor, target),
        # What is not kept by the provider comes back with the client: thinking under its signature.
        "store": chat.store is True,
        **_included(chat, flavor, target),
        **({"stream": True} if chat.stream else {}),
        **_limit(chat, flavor, target),
        **_plain(chat, _SAMPLING, flavor, target),
        **without_none(
            reasoning=_thinking(chat, flavor, target) or None,
            text=_form(chat, flavor, target) or None,
        ),
        **_response_format(chat, flavor),
        **write_tools(chat, flavor, target),
        **_plain(chat, _BOOKKEEPING, flavor, target),
        **_tier(chat, flavor, target),
        **shared_fields(chat, flavor),
    }
    return encode({**flavor.adds, **wire})


def _own_fields(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return what a client of this format says that the canonical language has no words for; unknown fields, too."""
    if chat.dialect != NAME or not chat.extra:
        return {}
    own = {name: value for name, value in chat.extra.items() if name not in _HALF_UNDERSTOOD}
    for name in own.keys() - flavor.takes if flavor.strict else flavor.unsupported & own.keys():
        del own[name]
        note_dropped(chat, target, name, "not available from this model's provider")
    return own


def _plain(chat: Chat, names: tuple[str, ...], flavor: Flavor, target: Target) -> Record:
    """Return fields that mean the same and are written the same here and in the canonical language."""
    said = {name: value for name in names if (value := getattr(chat, name)) is not None}
    return {name: value for name, value in said.items() if not is_refused(name, chat, flavor, target)}


def _included(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return what the answer shall hold beyond the usual."""
    wanted = [] if "include" in flavor.unsupported else [ENCRYPTED_REASONING]
    likely = None
    if chat.dialect == NAME and chat.extra and "include" not in flavor.unsupported:
        wanted += [word for word in chat.extra.get("include", ()) if word not in wanted]
    if chat.logprobs and not is_refused("logprobs", chat, flavor, target):
        wanted.append(LOGPROBS)
        likely = chat.top_logprobs
    return without_none(include=wanted or None, top_logprobs=likely)


def _limit(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return the limit on the answer: at least the least that is accepted."""
    if chat.max_tokens is None or is_refused("max_tokens", chat, flavor, target):
        return {}
    if chat.max_tokens < LEAST_OUTPUT:
        note_dropped(
            chat, target, "max_tokens", f"raised to {LEAST_OUTPUT}, the least that this model's provider takes"
        )
    return {"max_output_tokens": max(chat.max_tokens, LEAST_OUTPUT)}


def _thinking(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return how much to think; whoever asks gets a summary of it, too, unless it is not wanted."""
    asked = chat.reasoning
    effort: Effort | None = asked.effort if asked is not None and asked.effort is not None else chat.effort
    if asked is not None and asked.max_tokens is not None:
        effort = effort_of(asked.max_tokens)
        note_dropped(chat, target, "reasoning.max_tokens", "this model takes no budget for thinking: sent as an effort")
    if effort is not None:
        effort = nearest_known_effort(effort, chat, target)
    if chat.dialect == NAME:
        own: Record = (chat.extra or {}).get("reasoning", {})
        if "reasoning_summary" in flavor.unsupported:
            return without_none(effort=effort)
        return {**without_none(effort=effort, summary=asked.summary if asked is not None else None), **own}
    if asked is None and effort is None:
        return {}
    hidden = effort == "none" or "reasoning_summary" in flavor.unsupported or (asked is not None and asked.exclude)
    summary = (asked.summary if asked is not None else None) or "auto"
    return without_none(effort=effort, summary=None if hidden else summary)


def _form(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return the form that the answer must have, and how long it may be."""
    wire: Record = dict((chat.extra or {}).get("text", {})) if chat.dialect == NAME else {}
    form = chat.response_format
    if flavor.form_field != "text":
        return _plain(chat, ("verbosity",), flavor, target)
    if form is not None and form.kind == "json_object":
        wire["format"] = {"type": "json_object"}
    elif form is not None and form.kind == "json_schema":
        schema = form.schema if form.schema is not None else {"type": "object"}
        wire["format"] = {
            "type": "json_schema",
            **without_none(name=form.name or "answer", description=form.description, schema=schema, strict=form.strict),
        }
    return wire | _plain(chat, ("verbosity",), flavor, target)


def _response_format(chat: Chat, flavor: Flavor) -> Record:
    """Return the form that the answer must have where it is stated beside `text`."""
    form = chat.response_format
    if flavor.form_field == "text" or form is None or form.kind == "text":
        return {}
    if form.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = form.schema if form.schema is not None else {"type": "object"}
    inner = without_none(name=form.name or "answer", description=form.description, schema=schema, strict=form.strict)
    return {"response_format": {"type": "json_schema", "json_schema": inner}}


def _tier(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return how fast to be. A word of another format is left out; it is no loss where it asks for the usual."""
    tier = chat.service_tier
    if tier is None or is_refused("service_tier", chat, flavor, target):
        return {}
    if tier in _TIERS:
        return {"service_tier": tier}
    if not is_default_value("service_tier", tier):
        note_dropped(chat, target, "service_tier", f"this model's provider has no tier {tier[:64]}")
    return {}
