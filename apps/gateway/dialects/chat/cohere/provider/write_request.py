"""Cohere Chat v2, provider side: writes a canonical chat as a request body.

Knows the format's fields and ranges. A wish that it has no words for is noted as a loss; what would change what the
client gets is refused before anything is sent. Must never know a model by name.
"""

from __future__ import annotations

from typing import Final

from apps.gateway.canonical.chat import Chat, Effort, Message, Reasoning, Target, Text, ToolCall
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.structured_output_tool import add_structured_output_tool
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped, note_unsupported_fields, repair_tool_results
from apps.gateway.dialects.chat.cohere.provider.flavor import Flavor, flavor_of
from apps.gateway.dialects.chat.cohere.provider.write_messages import write_messages
from apps.gateway.dialects.chat.cohere.provider.write_tools import write_tools
from apps.gateway.dialects.chat.cohere.shared.wire import NAME, PLAN_FORMAT, Record, encode, refused, without_none

# The bounds that Cohere states.
_RANGES: Final = {
    "top_p": (0.01, 0.99),
    "top_k": (0, 500),
    "frequency_penalty": (0, 1),
    "presence_penalty": (0, 1),
}
_NAMES: Final = {"top_p": "p", "top_k": "k", "stop": "stop_sequences"}
_SAME: Final = ("max_tokens", "temperature", "seed", "logprobs")
# Wishes and notes that there are no words for; an answer comes without them as well.
_WITHOUT_WORDS: Final = (
    "top_logprobs",
    "logit_bias",
    "effort",
    "plugins",
    "user",
    "metadata",
    "service_tier",
    "prompt_cache_key",
    "verbosity",
    "prediction",
    "store",
    "audio",
)
# What share of the answer's limit an effort may think.
_SHARES: Final[dict[Effort, float]] = {"minimal": 0.1, "low": 0.2, "medium": 0.5, "high": 0.8}
_JSON_PLEASE: Final = {"role": "system", "content": "Answer with JSON."}
_NO_FIELD: Final = "has no counterpart at this model's provider"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/chat"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    flavor = flavor_of(target)
    _refuse_unspeakable(chat)
    chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=False)
    _lose_wishes(chat, flavor, target)
    if _needs_tool(chat, flavor):
        chat = add_structured_output_tool(chat, target)
    wire = without_none(
        model=target.model_name,
        messages=write_messages(chat, target, thinks=flavor.thinks),
        stream=chat.stream or None,
        **write_tools(chat, target),
        **_sampling(chat, flavor, target),
        thinking=_thinking(chat, flavor, target),
        response_format=_form(chat),
    )
    if "response_format" in wire and not _speaks_of_json(chat.messages):
        # Without a word of JSON in the conversation, a model that is bound to it may never end.
        wire["messages"] = [_JSON_PLEASE, *wire["messages"]]
    return encode(wire)


def _refuse_unspeakable(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for param, asked in (
        ("n", (chat.n or 1) > 1),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
        ("image_config", bool(chat.image_config)),
    ):
        if asked:
            raise refused(f"{param} is not available from this model's provider", param)


def _lose_wishes(chat: Chat, flavor: Flavor, target: Target) -> None:
    for name in _WITHOUT_WORDS:
        if getattr(chat, name) is not None:
            note_dropped(chat, target, name, f"{name} {_NO_FIELD}")

    def goes_back(block: Reasoning) -> bool:
        planned = block.format == PLAN_FORMAT or ToolCall in chat.kinds
        return bool(block.text) and (flavor.thinks or planned)

    note_unsupported_fields(chat, target, NAME, marks=False, names=False, details=True, thinking=goes_back)


def _needs_tool(chat: Chat, flavor: Flavor) -> bool:
    """Return whether the answer's form is to be had by a tool alone: Cohere takes no form beside tools."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return False
    return bool(chat.tools) or (form.kind == "json_schema" and flavor.structured_outputs == "tool")


def _sampling(chat: Chat, flavor: Flavor, target: Target) -> Record:
    wire: Record = {}
    for name in (*_SAME, *_RANGES, "stop"):
        value = getattr(chat, name)
        if value is None or value == []:
            continue
        if name in flavor.unsupported:
            note_dropped(chat, target, name, f"{name} {_NO_FIELD}")
            continue
        if name == "top_k" and value < 0:
            # OpenAI-alikes write -1 for "all of them", which is the rule.
            continue
        least, most = _RANGES.get(name, (None, None))
        if least is not None and most is not None and not least <= value <= most:
            note_dropped(chat, target, name, f"this model's provider takes {name} from {least} to {most}")
            continue
        wire[_NAMES.get(name, name)] = value
    return wire


def _thinking(chat: Chat, flavor: Flavor, target: Target) -> Record | None:
    """Return how much to think: exactly so many tokens, or by an effort a share of the answer's limit."""
    asked = chat.reasoning
    if asked is None or (asked.effort is None and asked.max_tokens is None):
        return None
    if asked.effort == "none" and asked.max_tokens is None:
        return {"type": "disabled"} if flavor.thinks else None
    if flavor.reasoning_budget is None:
        note_dropped(
            chat, target, "reasoning_effort" if asked.max_tokens is None else "reasoning", "this model does not think"
        )
        return None
    budget = asked.max_tokens
    limit = chat.max_tokens or target.max_output
    if budget is None and asked.effort in _SHARES and limit is not None:
        most = flavor.reasoning_budget.get("max", limit)
        budget = max(min(int(limit * _SHARES[asked.effort]), most), flavor.reasoning_budget.get("min", 1), 1)
    return without_none(type="enabled", token_budget=budget)


def _form(chat: Chat) -> Record | None:
    """Return the form that the answer must have."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return None
    schema = form.schema
    if schema is not None and form.description and "description" not in schema:
        schema = {"description": form.description, **schema}
    return without_none(type="json_object", json_schema=schema)


def _speaks_of_json(messages: list[Message]) -> bool:
    """Return whether anybody mentions JSON."""
    return any("json" in part.text.lower() for message in messages for part in message.parts if isinstance(part, Text))
