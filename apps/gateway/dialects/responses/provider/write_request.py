"""A canonical chat to the body of a request in the Responses format.

Knows the format's fields; what it has no words for is dealt with in `losing.py`. Must never know a provider or a model
by name.
"""

from __future__ import annotations

from typing import Final

from apps.gateway.canonical.chat import Chat, Effort, Target
from apps.gateway.dialects.reasoning_efforts import effort_of, known_effort
from apps.gateway.dialects.responses.provider.drop_unsupported_fields import is_refused, shared_fields, speakable
from apps.gateway.dialects.responses.provider.flavor import Flavor, flavor_of
from apps.gateway.dialects.responses.provider.write_items import write_input
from apps.gateway.dialects.responses.provider.write_tools import write_tools
from apps.gateway.dialects.responses.shared.wire import SEAL, Record, encode, stated
from apps.gateway.dialects.unsupported_fields import is_usual, lose

# The least limit on an answer that is accepted.
LEAST_OUTPUT: Final = 16

_SAMPLING: Final = ("temperature", "top_p")
_BOOKKEEPING: Final = ("user", "metadata", "prompt_cache_key")
_TIERS: Final = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/responses"


def seal(chat: Chat, target: Target) -> str | None:
    """Return whose seals on thinking are wanted back: our own, where thinking comes under one."""
    return None if "include" in flavor_of(target).unsupported else SEAL


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    flavor = flavor_of(target)
    chat = speakable(chat, flavor, target)
    wire: Record = {
        "model": target.model_name,
        "input": write_input(chat, flavor, target),
        # What is not kept by the provider comes back with the client: thinking under its seal.
        "store": chat.store is True,
        **_included(chat, flavor, target),
        **({"stream": True} if chat.stream else {}),
        **_limit(chat, flavor, target),
        **_plain(chat, _SAMPLING, flavor, target),
        **stated(
            reasoning=_thinking(chat, flavor, target) or None,
            text=_form(chat, flavor, target) or None,
        ),
        **write_tools(chat, flavor, target),
        **_plain(chat, _BOOKKEEPING, flavor, target),
        **_tier(chat, flavor, target),
        **shared_fields(chat),
    }
    return encode(wire)


def _plain(chat: Chat, names: tuple[str, ...], flavor: Flavor, target: Target) -> Record:
    """Return fields that mean the same and are written the same here and in the canonical language."""
    said = {name: value for name in names if (value := getattr(chat, name)) is not None}
    return {name: value for name, value in said.items() if not is_refused(name, chat, flavor, target)}


def _included(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return what the answer shall hold beyond the usual."""
    wanted = [] if "include" in flavor.unsupported else ["reasoning.encrypted_content"]
    likely = None
    if chat.logprobs and not is_refused("logprobs", chat, flavor, target):
        wanted.append("message.output_text.logprobs")
        likely = chat.top_logprobs
    return stated(include=wanted or None, top_logprobs=likely)


def _limit(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return the limit on the answer: at least the least that is accepted."""
    if chat.max_tokens is None or is_refused("max_tokens", chat, flavor, target):
        return {}
    if chat.max_tokens < LEAST_OUTPUT:
        lose(chat, target, "max_tokens", f"raised to {LEAST_OUTPUT}, the least that this model's provider takes")
    return {"max_output_tokens": max(chat.max_tokens, LEAST_OUTPUT)}


def _thinking(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return how much to think; whoever asks gets a summary of it, too, unless it is not wanted."""
    asked = chat.reasoning
    effort: Effort | None = asked.effort if asked is not None and asked.effort is not None else chat.effort
    if asked is not None and asked.max_tokens is not None:
        effort = effort_of(asked.max_tokens)
        lose(chat, target, "reasoning.max_tokens", "this model takes no budget for thinking: sent as an effort")
    if effort is not None:
        effort = known_effort(effort, chat, target)
    if asked is None and effort is None:
        return {}
    hidden = effort == "none" or "reasoning_summary" in flavor.unsupported or (asked is not None and asked.exclude)
    return stated(effort=effort, summary=None if hidden else "auto")


def _form(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return the form that the answer must have, and how long it may be."""
    wire: Record = {}
    form = chat.response_format
    if form is not None and form.kind == "json_object":
        wire["format"] = {"type": "json_object"}
    elif form is not None and form.kind == "json_schema":
        schema = form.schema if form.schema is not None else {"type": "object"}
        wire["format"] = {
            "type": "json_schema",
            **stated(name=form.name or "answer", description=form.description, schema=schema, strict=form.strict),
        }
    return wire | _plain(chat, ("verbosity",), flavor, target)


def _tier(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return how fast to be. A word of another format is left out; it is no loss where it asks for the usual."""
    tier = chat.service_tier
    if tier is None or is_refused("service_tier", chat, flavor, target):
        return {}
    if tier in _TIERS:
        return {"service_tier": tier}
    if not is_usual("service_tier", tier):
        lose(chat, target, "service_tier", f"this model's provider has no tier {tier[:64]}")
    return {}
