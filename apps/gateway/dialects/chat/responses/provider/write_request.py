"""OpenAI Responses, provider side: writes a canonical chat as a request body, for an answer or for a count of tokens.

Fields that the format lacks are dropped in `drop_unsupported_fields.py`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat, Effort, FunctionTool, OpaqueTool, Target, Tool, ToolChoice, WebSearchTool
from apps.gateway.dialects.adapting.thinking import effort_of, nearest_known_effort
from apps.gateway.dialects.adapting.unsupported_fields import is_default_value, note_dropped, unsupported_feature
from apps.gateway.dialects.chat.anthropic.provider.write_request import read_count
from apps.gateway.dialects.chat.responses.provider.drop_unsupported_fields import (
    SEARCH_FILTERS,
    drop_unsupported_fields,
    is_refused,
    search_filters,
    shared_fields,
)
from apps.gateway.dialects.chat.responses.provider.write_items import write_input, write_instructions
from apps.gateway.dialects.chat.responses.wire import (
    ENCRYPTED_REASONING,
    LOGPROBS,
    NAME,
    SIGNATURE_FORMAT,
    Capabilities,
    capabilities_of,
    encode,
    without_none,
)
from apps.gateway.dialects.reading.fields import Record

_NO_PARAMETERS: Record = {"type": "object", "properties": {}}
_SEARCH = "web_search"
# Kinds of tools that have names; others are pointed at by their kind.
_NAMED = frozenset({"function", "custom", "namespace", ""})
_OPENAI, _ANTHROPIC = "openai", "anthropic"
_RUN_BY_CLIENTS = frozenset({"function", "custom", "namespace"})
# The user's location, at providers that take no `type` of location.
_PLACE = frozenset({"city", "region", "country", "latitude", "longitude"})


def write_tools(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return the fields that say which tools there are and whether they are called. Raises InvalidRequest."""
    asked = list(chat.tools or ())
    if chat.web_search and not any(isinstance(tool, WebSearchTool) for tool in asked):
        asked.append(WebSearchTool())
    choice = chat.tool_choice
    if capabilities.always_searches and choice is None and all(isinstance(tool, WebSearchTool) for tool in asked):
        # A model that only may search answers some questions without.
        choice = ToolChoice(mode="named", name=_SEARCH)
    if not asked:
        # Without tools a choice is irrelevant, unless it requires a call: that tool is missing.
        return {} if choice is None or choice.mode in {"auto", "none"} else {"tool_choice": _tool_choice(choice, {})}
    searches = [tool.max_uses for tool in asked if isinstance(tool, WebSearchTool) and tool.max_uses is not None]
    most = min(searches, default=None)
    if most is not None and "max_tool_calls" in capabilities.unsupported:
        note_dropped(chat, target, "tools", "the provider's web search takes no limit on the number of searches")
        most = None
    elif most is None and "max_tool_calls" not in capabilities.unsupported:
        most = _unstated_limit(asked, chat, target)
    kinds = {_name_of(tool): _kind_of(tool, chat) for tool in asked}
    return without_none(
        tools=[_tool(tool, chat, capabilities) for tool in asked],
        tool_choice=None if choice is None else _tool_choice(choice, kinds),
        parallel_tool_calls=chat.parallel_tool_calls,
        max_tool_calls=most,
    )


def _unstated_limit(tools: list[Tool], chat: Chat, target: Target) -> int | None:
    """Return the limit on calls that is held for, where the client states none; None where it would limit more than
    searches: code that the provider runs, and servers of tools, are called as often as it takes."""
    if chat.dialect == NAME and (chat.extra or {}).get("max_tool_calls") is not None:
        return None
    kinds = {_kind_of(tool, chat) for tool in tools} - _RUN_BY_CLIENTS
    searches = [kind == "file_search" or kind.startswith(_SEARCH) for kind in kinds]
    return target.max_searches if searches and all(searches) else None


def _tool(tool: Tool, chat: Chat, capabilities: Capabilities) -> Record:
    """Return a tool. Raises InvalidRequest for one that the format has no words for."""
    if isinstance(tool, FunctionTool):
        # Unsaid, `strict` would mean true here, and a schema that cannot be enforced would be refused.
        wire = without_none(name=tool.name, description=tool.description)
        if chat.dialect == NAME:
            # A client of this format knows what it means where nothing is said.
            own = {**(tool.extra or {}), **without_none(strict=tool.strict)}
            return {"type": "function", **wire, "parameters": tool.parameters or _NO_PARAMETERS, **own}
        return {
            "type": "function",
            **wire,
            "parameters": tool.parameters or _NO_PARAMETERS,
            "strict": tool.strict is True,
        }
    if isinstance(tool, WebSearchTool):
        limited = capabilities.search_limits == "domain_filter"
        return _filtered_search(tool, chat, capabilities) if limited else _search(tool, chat)
    if tool.dialect == NAME:
        return dict(tool.data)
    if _kind_of(tool, chat) == "custom" and isinstance(custom := tool.data.get("custom"), dict):
        return {"type": "custom", **custom, **_grammar(custom)}
    raise unsupported_feature(chat, "tools", "A tool is of a kind that this model's provider does not have")


def _grammar(custom: Record) -> Record:
    """Return the form that a custom tool's input must have: flat here, nested in OpenAI's chat format."""
    form = custom.get("format")
    inner = form.get("grammar") if isinstance(form, dict) else None
    return {"format": {"type": "grammar", **inner}} if isinstance(inner, dict) else {}


def _search(tool: WebSearchTool, chat: Chat) -> Record:
    """Return a web search. Raises InvalidRequest for one that must not look at some pages."""
    if chat.dialect == NAME:
        limits = without_none(user_location=tool.user_location, search_context_size=tool.search_context_size)
        return {"type": _SEARCH, **(tool.extra or {}), **limits}
    own = (tool.extra or {}) if chat.dialect == _ANTHROPIC else {}
    if own.get("blocked_domains"):
        raise unsupported_feature(chat, "tools", "The web search of this model's provider cannot leave out domains")
    allowed = own.get("allowed_domains")
    place = tool.user_location
    if place is not None and isinstance(place.get("approximate"), dict):
        place = place["approximate"]
    return {
        "type": _SEARCH,
        **without_none(
            user_location=None if place is None else {"type": "approximate", **place},
            search_context_size=tool.search_context_size,
            filters={"allowed_domains": allowed} if allowed else None,
        ),
    }


def _filtered_search(tool: WebSearchTool, chat: Chat, capabilities: Capabilities) -> Record:
    """Return a web search whose limits are filters, a domain to leave out behind a minus sign."""
    stated = tool.extra or {}
    own: Record = stated["filters"] if isinstance(stated.get("filters"), dict) else {}
    filters = search_filters(chat, capabilities) | {
        name: value for name, value in own.items() if name in SEARCH_FILTERS
    }
    wanted = own if chat.dialect == NAME else stated if chat.dialect == _ANTHROPIC else {}
    domains = [*_texts(wanted.get("allowed_domains")), *(f"-{it}" for it in _texts(wanted.get("blocked_domains")))]
    if domains:
        filters["search_domain_filter"] = domains
    place = tool.user_location
    if place is not None and isinstance(place.get("approximate"), dict):
        place = place["approximate"]
    near = {name: value for name, value in (place or {}).items() if name in _PLACE and value is not None}
    return {
        "type": _SEARCH,
        **without_none(
            user_location=near or None, search_context_size=tool.search_context_size, filters=filters or None
        ),
    }


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _name_of(tool: Tool) -> str:
    if isinstance(tool, FunctionTool):
        return tool.name
    if isinstance(tool, WebSearchTool):
        return _SEARCH
    if tool.dialect == NAME and isinstance(tool.data, dict):
        return str(tool.data.get("server_label") or tool.data.get("name") or tool.data.get("type"))
    inner = tool.data.get("custom") if isinstance(tool.data, dict) else None
    return str(inner.get("name")) if isinstance(inner, dict) else ""


def _kind_of(tool: Tool, chat: Chat) -> str:
    if isinstance(tool, OpaqueTool):
        known = isinstance(tool.data, dict) and tool.dialect in (_OPENAI, NAME)
        return str(tool.data.get("type")) if known else ""
    if not isinstance(tool, WebSearchTool):
        return "function"
    # A client of this format states the type; clients of other formats state none.
    stated = (tool.extra or {}).get("type", _SEARCH)
    return stated if isinstance(stated, str) and chat.dialect == NAME else _SEARCH


def _tool_choice(choice: ToolChoice, kinds: dict[str, str]) -> str | Record:
    if choice.allowed:
        tools = [_chosen(name, kinds) for name in choice.allowed]
        return {"type": "allowed_tools", "mode": choice.mode, "tools": tools}
    if choice.mode != "named":
        return choice.mode
    return _chosen(choice.name or "", kinds) | without_none(name=choice.server_tool)


def _chosen(name: str, kinds: dict[str, str]) -> Record:
    """Return how a tool is pointed at; a function of the client's may bear the search's name."""
    kind = kinds.get(name, "function")
    if kind == "mcp":
        return {"type": kind, "server_label": name}
    return {"type": kind, "name": name} if kind in _NAMED else {"type": kind}


# The least limit on an answer that is accepted.
LEAST_OUTPUT: Final = 16

# Fields of clients of this format that are merged with their canonical counterparts.
_HALF_UNDERSTOOD: Final = frozenset({"include", "reasoning", "text"})

_SAMPLING: Final = ("temperature", "top_p")
_BOOKKEEPING: Final = ("user", "metadata", "prompt_cache_key")
_TIERS: Final = frozenset({"auto", "default", "flex", "scale", "priority", "fast", "ultrafast"})


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return "/responses"


def signature_format(chat: Chat, target: Target) -> str | None:
    """Return whose signatures on thinking are wanted back: our own, where thinking comes under one."""
    return None if "include" in capabilities_of(target).unsupported else SIGNATURE_FORMAT


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    capabilities = capabilities_of(target)
    chat = drop_unsupported_fields(chat, capabilities, target)
    wire: Record = {
        capabilities.model_field: target.model_name,
        **_own_fields(chat, capabilities, target),
        **write_instructions(chat),
        "input": write_input(chat, capabilities, target),
        # Thinking that the provider does not keep comes back from the client, under its signature.
        "store": chat.store is True,
        **_included(chat, capabilities, target),
        **({"stream": True} if chat.stream else {}),
        **_limit(chat, capabilities, target),
        **_plain(chat, _SAMPLING, capabilities, target),
        **without_none(
            reasoning=_thinking(chat, capabilities, target) or None,
            text=_form(chat, capabilities, target) or None,
        ),
        **_response_format(chat, capabilities),
        **write_tools(chat, capabilities, target),
        **_plain(chat, _BOOKKEEPING, capabilities, target),
        **_tier(chat, capabilities, target),
        **shared_fields(chat, capabilities),
    }
    return encode({**capabilities.adds, **wire})


def _own_fields(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return what a client of this format says that the canonical language has no words for; unknown fields, too."""
    if chat.dialect != NAME or not chat.extra:
        return {}
    own = {name: value for name, value in chat.extra.items() if name not in _HALF_UNDERSTOOD}
    for name in own.keys() - capabilities.takes if capabilities.strict else capabilities.unsupported & own.keys():
        del own[name]
        note_dropped(chat, target, name, "not available from this model's provider")
    return own


def _plain(chat: Chat, names: tuple[str, ...], capabilities: Capabilities, target: Target) -> Record:
    """Return fields that mean the same and are written the same here and in the canonical language."""
    stated = {name: value for name in names if (value := getattr(chat, name)) is not None}
    return {name: value for name, value in stated.items() if not is_refused(name, chat, capabilities, target)}


def _included(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return what the answer shall hold beyond the usual."""
    wanted = [] if "include" in capabilities.unsupported else [ENCRYPTED_REASONING]
    likely = None
    if chat.dialect == NAME and chat.extra and "include" not in capabilities.unsupported:
        wanted += [word for word in chat.extra.get("include", ()) if word not in wanted]
    if chat.logprobs and not is_refused("logprobs", chat, capabilities, target):
        wanted.append(LOGPROBS)
        likely = chat.top_logprobs
    return without_none(include=wanted or None, top_logprobs=likely)


def _limit(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return the limit on the answer: at least the least that is accepted."""
    if chat.max_tokens is None or is_refused("max_tokens", chat, capabilities, target):
        return {}
    if chat.max_tokens < LEAST_OUTPUT:
        note_dropped(
            chat, target, "max_tokens", f"raised to {LEAST_OUTPUT}, the least that this model's provider takes"
        )
    return {"max_output_tokens": max(chat.max_tokens, LEAST_OUTPUT)}


def _thinking(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return `reasoning`: the effort, and a summary unless the client does not want one."""
    asked = chat.reasoning
    effort: Effort | None = asked.effort if asked is not None and asked.effort is not None else chat.effort
    if asked is not None and asked.max_tokens is not None:
        effort = effort_of(asked.max_tokens)
        note_dropped(chat, target, "reasoning.max_tokens", "this model takes no budget for thinking: sent as an effort")
    if effort is not None:
        effort = nearest_known_effort(effort, chat, target)
    if chat.dialect == NAME:
        own: Record = (chat.extra or {}).get("reasoning", {})
        if "reasoning_summary" in capabilities.unsupported:
            return without_none(effort=effort)
        return {**without_none(effort=effort, summary=asked.summary if asked is not None else None), **own}
    if asked is None and effort is None:
        return {}
    hidden = (
        effort == "none" or "reasoning_summary" in capabilities.unsupported or (asked is not None and asked.exclude)
    )
    summary = (asked.summary if asked is not None else None) or "auto"
    return without_none(effort=effort, summary=None if hidden else summary)


def _form(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return the form that the answer must have, and how long it may be."""
    wire: Record = dict((chat.extra or {}).get("text", {})) if chat.dialect == NAME else {}
    form = chat.response_format
    if capabilities.form_field != "text":
        return _plain(chat, ("verbosity",), capabilities, target)
    if form is not None and form.kind == "json_object":
        wire["format"] = {"type": "json_object"}
    elif form is not None and form.kind == "json_schema":
        schema = form.schema if form.schema is not None else {"type": "object"}
        wire["format"] = {
            "type": "json_schema",
            **without_none(name=form.name or "answer", description=form.description, schema=schema, strict=form.strict),
        }
    return wire | _plain(chat, ("verbosity",), capabilities, target)


def _response_format(chat: Chat, capabilities: Capabilities) -> Record:
    """Return the form that the answer must have where it is stated beside `text`."""
    form = chat.response_format
    if capabilities.form_field == "text" or form is None or form.kind == "text":
        return {}
    if form.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    schema = form.schema if form.schema is not None else {"type": "object"}
    inner = without_none(name=form.name or "answer", description=form.description, schema=schema, strict=form.strict)
    return {"response_format": {"type": "json_schema", "json_schema": inner}}


def _tier(chat: Chat, capabilities: Capabilities, target: Target) -> Record:
    """Return how fast to be. A word of another format is left out; it is no loss where it asks for the usual."""
    tier = chat.service_tier
    if tier is None or is_refused("service_tier", chat, capabilities, target):
        return {}
    if tier in _TIERS:
        return {"service_tier": tier}
    if not is_default_value("service_tier", tier):
        note_dropped(chat, target, "service_tier", f"this model's provider has no tier {tier[:64]}")
    return {}


__all__ = ["count_request", "read_count"]

_COUNTED = frozenset(
    {
        *("conversation", "input", "instructions", "model", "parallel_tool_calls", "personality"),
        *("previous_response_id", "reasoning", "text", "tool_choice", "tools", "truncation"),
    }
)
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_request(chat: Chat, target: Target) -> tuple[str, bytes]:
    """Return path and body of the question how many tokens a prompt has. Raises InvalidRequest as `write_request`.

    The answer states them as Anthropic's does (`input_tokens`).
    """
    wire = _read_fields(write_request(chat, target))
    return "/responses/input_tokens", encode({name: value for name, value in wire.items() if name in _COUNTED})
