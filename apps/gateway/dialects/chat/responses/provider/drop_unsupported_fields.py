"""OpenAI Responses, provider side: drops request fields that the format does not support, with a note, replaces or
refuses them.

A hint is left out; a field that would change the answer is refused.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, OpaqueTool, Reasoning, Target, Tool, WebSearchTool
from apps.gateway.canonical.hosted_tools import X_SEARCH
from apps.gateway.dialects.adapting.emulated_tools import adapt_tool_names
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.schemas import emulate_structured_output
from apps.gateway.dialects.adapting.stop_sequences import emulate_stop_sequences
from apps.gateway.dialects.adapting.unsupported_fields import (
    is_default_value,
    note_dropped,
    note_unsupported_fields,
    note_unsupported_hints,
    repair_tool_results,
    shorten_user,
    unsupported_feature,
)
from apps.gateway.dialects.chat.responses.wire import BREAKPOINT, NAME, SIGNATURE_FORMAT, UNSIGNED_FORMAT, Capabilities

_NAMES, _MAX_NAME_LENGTH = re.compile(r"[a-zA-Z0-9_-]+"), 64
_REASONING_FORMATS: Final = frozenset({SIGNATURE_FORMAT, UNSIGNED_FORMAT})
_OPENAI: Final = "openai"
_SEARCH_OPTIONS: Final = "web_search_options"
# Hints on sampling and speed that this format lacks.
_HINTS: Final = (
    "seed",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "prediction",
    "audio",
)
# Fields of OpenAI's chat format beyond the canonical language that are the same here.
_SHARED: Final = ("safety_identifier", "prompt_cache_retention", "prompt_cache_options", "moderation")
# Fields that a model without sampling parameters refuses, and the value that asks for its default.
_CHOICE_OF_WORDS: Final = {"temperature": 1, "top_p": 1}
# Limits of a search at providers that take a `search_domain_filter`; their clients state it beside the messages.
SEARCH_FILTERS: Final = frozenset(
    {
        *("search_domain_filter", "search_recency_filter", "search_after_date_filter", "search_before_date_filter"),
        *("last_updated_after_filter", "last_updated_before_filter"),
    }
)
# Fields without which the client would get something else than what it asks for.
_NEEDED: Final = frozenset({"logprobs"})


def drop_unsupported_fields(chat: Chat, capabilities: Capabilities, target: Target) -> Chat:
    """Return the chat as it can be said here; the same one where nothing has to change.

    Raises InvalidRequest (`unsupported_feature`) for what cannot be said, and is no hint.
    """
    for param, asked in (
        ("n", (chat.n or 1) > 1),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
        ("image_config", bool(chat.image_config)),
    ):
        if asked:
            raise unsupported_feature(chat, param, f"{param} is not available from this model's provider")
    emulate_stop_sequences(chat, target)
    chat = _with_shared_tools(_with_search(chat, capabilities))
    if not chat.is_plain:
        chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=True)
    # A client of this format marks in its own words, which are kept.
    marks = chat.dialect == NAME or BREAKPOINT in capabilities.takes
    foreign = chat
    if shared := {**shared_fields(chat, capabilities), **search_filters(chat, capabilities)}:
        foreign = replace(chat, extra={name: it for name, it in (chat.extra or {}).items() if name not in shared})
    written = frozenset({BREAKPOINT})
    note_unsupported_fields(
        foreign,
        target,
        NAME,
        marks=marks,
        names=False,
        details=not capabilities.strict,
        thinking=lambda block: not capabilities.strict and is_returnable(block),
        written=written,
    )
    note_unsupported_hints(chat, target, *_HINTS)
    if chat.dialect != NAME:
        chat = shorten_user(chat, target)
    return emulate_structured_output(adapt_tool_names(chat, target, _NAMES, _MAX_NAME_LENGTH), target)


def _with_search(chat: Chat, capabilities: Capabilities) -> Chat:
    """Return the chat with a tool for the web search that an OpenAI client asks for with an option, or that is made
    for each answer."""
    options = (chat.extra or {}).get(_SEARCH_OPTIONS) if chat.dialect == _OPENAI else None
    stated = isinstance(options, dict)
    tools = list(chat.tools or ())
    searches = any(isinstance(tool, WebSearchTool) for tool in tools)
    if not stated and (searches or not capabilities.always_searches):
        return chat
    extra = chat.extra
    if stated:
        extra = {name: value for name, value in (chat.extra or {}).items() if name != _SEARCH_OPTIONS}
    if not searches:
        wish = options if isinstance(options, dict) else {}
        place, size = wish.get("user_location"), wish.get("search_context_size")
        tools.append(
            WebSearchTool(user_location=place if isinstance(place, dict) else None, search_context_size=_size(size))
        )
    return replace(chat, extra=extra, tools=tools, source=None)


def _with_shared_tools(chat: Chat) -> Chat:
    """Return the chat with searches of X that an OpenAI client asks for, which are asked for in the same words here."""
    if chat.dialect != _OPENAI or not any(map(_searches_x, chat.tools or ())):
        return chat
    tools = [replace(tool, dialect=NAME) if _searches_x(tool) else tool for tool in chat.tools or ()]
    return replace(chat, tools=tools, source=None)


def _searches_x(tool: Tool) -> bool:
    return isinstance(tool, OpaqueTool) and isinstance(tool.data, dict) and tool.data.get("type") == X_SEARCH


def _size(value: Any) -> Literal["low", "medium", "high"] | None:
    return value if value in ("low", "medium", "high") else None


def shared_fields(chat: Chat, capabilities: Capabilities) -> dict[str, Any]:
    """Return what an OpenAI client says that is said here in the same words."""
    if chat.dialect != _OPENAI or not chat.extra or capabilities.strict:
        return {}
    return {name: chat.extra[name] for name in _SHARED if name in chat.extra}


def search_filters(chat: Chat, capabilities: Capabilities) -> dict[str, Any]:
    """Return the filters of its search that an OpenAI client states as the provider's chat format has them."""
    if chat.dialect != _OPENAI or not chat.extra or capabilities.search_limits != "domain_filter":
        return {}
    return {name: chat.extra[name] for name in SEARCH_FILTERS & chat.extra.keys()}


def is_returnable(block: Reasoning) -> bool:
    """Return whether thinking is under a signature of this format."""
    return block.format in _REASONING_FORMATS and block.id is not None


def is_refused(name: str, chat: Chat, capabilities: Capabilities, target: Target) -> bool:
    """Return whether the facts say that a field is refused; then it is noted that it is left out.

    Raises InvalidRequest for one that the client would miss.
    """
    value = getattr(chat, name)
    if name in _CHOICE_OF_WORDS and not capabilities.temperature:
        if value != _CHOICE_OF_WORDS[name]:
            note_dropped(chat, target, name, "the model chooses its words alone")
        return True
    if name not in capabilities.unsupported:
        return False
    if is_default_value(name, value):
        return True
    if name in _NEEDED:
        raise unsupported_feature(chat, name, f"{name} is not available from this model's provider")
    note_dropped(chat, target, name, "not available from this model's provider")
    return True
