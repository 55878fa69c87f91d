"""Google generateContent, provider side: writes `tools` and `toolConfig`.

Knows what may stand beside what. Must never know a model by name.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Chat, FunctionTool, OpaqueTool, Target, ToolChoice, WebSearchTool
from apps.gateway.dialects.adapting.schemas import object_root
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.google.provider.flavor import Flavor
from apps.gateway.dialects.chat.google.provider.function_names import write_name
from apps.gateway.dialects.chat.google.shared.wire import NAME, Record, without_none
from apps.kernel.errors import InvalidRequest


def write_tools(chat: Chat, flavor: Flavor, target: Target) -> Record:
    """Return the fields that say which tools there are and whether they are called. Raises InvalidRequest."""
    tools = chat.tools or []
    functions = [tool for tool in tools if isinstance(tool, FunctionTool)]
    foreign = [tool for tool in tools if isinstance(tool, OpaqueTool)]
    if any(tool.dialect != NAME for tool in foreign):
        raise _refused("A tool is of a kind that this model's provider does not have", "tools")
    if functions and chat.parallel_tool_calls is False:
        note_dropped(chat, target, "parallel_tool_calls", "the model cannot be told to call one tool at a time")
    ours = chat.dialect == NAME
    declared = [_function(tool, ours=ours) for tool in functions]
    wire: list[Record] = [{"functionDeclarations": declared}] if functions else []
    wire += [dict(tool.data) for tool in foreign]
    config: Record = {}
    if _wants_search(chat, target):
        wire.append({"googleSearch": _own_search(chat)})
        if functions and not ours:
            # Clients of this format say themselves whether they can handle what the search did.
            if "search_with_tools" not in flavor.takes:
                raise _refused("A web search cannot be combined with functions for this model", "tools")
            config["includeServerSideToolInvocations"] = True
    if functions:
        strict = any(tool.strict for tool in functions)
        config |= without_none(functionCallingConfig=_choice(chat.tool_choice, strict=strict))
    return without_none(tools=wire or None, toolConfig=config or None)


def _function(tool: FunctionTool, *, ours: bool) -> Record:
    own = tool.extra if ours and tool.extra else {}
    return own | without_none(
        name=write_name(tool.name),
        description=tool.description,
        parametersJsonSchema=object_root(tool.parameters),
    )


def _own_search(chat: Chat) -> Record:
    """Return what only Google's search understands, in the words of a client of this format."""
    found = next((tool.extra for tool in chat.tools or () if isinstance(tool, WebSearchTool)), None)
    return found if found and chat.dialect == NAME else {}


def _wants_search(chat: Chat, target: Target) -> bool:
    """Return whether a web search is asked for; how it is limited is noted, as Google's takes no limits."""
    asked = [(at, tool) for at, tool in enumerate(chat.tools or ()) if isinstance(tool, WebSearchTool)]
    for at, tool in asked:
        for name in ("user_location", "search_context_size", "max_uses"):
            if getattr(tool, name) is not None:
                target.note_dropped(f"tools[{at}].{name}", "the provider's web search does not take it")
    return bool(asked) or chat.web_search


def _choice(choice: ToolChoice | None, *, strict: bool) -> Record | None:
    """Return how functions are called; arguments are bound to the schema where one of them is strict."""
    mode = choice.mode if choice else "auto"
    if mode == "none":
        return {"mode": "NONE"}
    names: tuple[Any, ...] = choice.allowed if choice else ()
    if choice and mode == "named":
        names = (choice.name,)
    allowed = [write_name(name) for name in names] or None
    if mode != "auto":
        return without_none(mode="ANY", allowedFunctionNames=allowed)
    if allowed or strict:
        return without_none(mode="VALIDATED", allowedFunctionNames=allowed)
    return {"mode": "AUTO"} if choice else None


def _refused(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_feature", param=param)
