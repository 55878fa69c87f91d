"""Bedrock Converse, provider side: writes `toolConfig`.

Knows what the format has words for: any tool or a named one, but neither none nor one at a time, for which some models
have words of their own. Must never know a model by name.
"""

from __future__ import annotations

from msgspec import Struct

from apps.gateway.canonical.chat import Chat, FunctionTool, OpaqueTool, Target, Tool, ToolCall, ToolChoice, ToolResult
from apps.gateway.dialects.adapting.schemas import UnsupportedSchema, close_schema, object_root
from apps.gateway.dialects.adapting.unsupported_fields import kind_of, unsupported_feature
from apps.gateway.dialects.chat.bedrock.provider.flavor import Flavor
from apps.gateway.dialects.chat.bedrock.provider.write_blocks import Blocks
from apps.gateway.dialects.chat.bedrock.shared.wire import Record, refused

_ANY_OBJECT: Record = {"type": "object", "properties": {}}
_NATIVE = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


class Choices(Struct, frozen=True, kw_only=True):
    """What becomes of a chat's tools: `toolConfig`, fields for the model itself, and whether a tool must be called."""

    config: Record | None = None
    fields: Record = {}
    forced: bool = False


def write_tools(chat: Chat, blocks: Blocks, target: Target, flavor: Flavor) -> Choices:
    """Return how tools are offered. Raises InvalidRequest for a choice among them that cannot be said.

    Who may call none is offered none, unless the conversation has calls: Bedrock insists on tools beside these.
    """
    choice = chat.tool_choice or ToolChoice(mode="auto")
    tools = _offered(chat, choice, blocks, target, flavor)
    remembered = _remembered(chat)
    if choice.mode == "none" and not remembered:
        return Choices()
    if not tools:
        return Choices(config={"tools": remembered}) if remembered else Choices()
    config: Record = {"tools": tools}
    forced = choice.mode in {"required", "named"}
    if choice.mode == "none" or chat.parallel_tool_calls is False:
        return Choices(config=config, fields=_native(choice, chat, flavor), forced=forced)
    if chat.tool_choice is not None:
        config["toolChoice"] = _choice(choice)
    return Choices(config=config, forced=forced)


def _offered(chat: Chat, choice: ToolChoice, blocks: Blocks, target: Target, flavor: Flavor) -> list[Record]:
    """Return the client's tools, those alone that the choice leaves."""
    if chat.web_search:
        raise unsupported_feature(chat, "web_search", "This model's provider has no web search")
    offered: list[Record] = []
    for number, tool in enumerate(chat.tools or ()):
        at = f"tools[{number}]"
        spec = _spec(tool, at, target, flavor)
        if not choice.allowed or (isinstance(tool, FunctionTool) and tool.name in choice.allowed):
            offered += [spec, *blocks.mark(tool.cache, spec, at, "cache_tools")]
    return offered


def _spec(tool: Tool, at: str, target: Target, flavor: Flavor) -> Record:
    if not isinstance(tool, FunctionTool):
        kind = kind_of(tool.data) if isinstance(tool, OpaqueTool) else "web_search"
        raise refused(f"{kind} is a tool that this model's provider does not have", at)
    spec: Record = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    try:
        schema = object_root(tool.parameters)
    except UnsupportedSchema:
        raise refused("A function's parameters must be an object for this model's provider", at) from None
    bound = _bound(schema, at, target, flavor) if tool.strict else None
    spec["inputSchema"] = {"json": schema if bound is None else bound}
    if bound is not None:
        spec["strict"] = True
    return {"toolSpec": spec}


def _bound(schema: Record, at: str, target: Target, flavor: Flavor) -> Record | None:
    """Return a schema that arguments can be bound to; None where the model binds to none, or not to this one."""
    try:
        bound, left_out = close_schema(schema) if "strict" in flavor.takes else (None, ["the schema"])
    except UnsupportedSchema:
        bound, left_out = None, ["the schema"]
    if left_out:
        target.note_dropped(f"{at}.strict", f"the arguments are not bound to {', '.join(left_out)}")
    return bound


def _remembered(chat: Chat) -> list[Record]:
    """Return the least that must be declared of the tools that were called before: Bedrock insists on them."""
    parts = [part for message in chat.messages for part in message.parts]
    names = dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall))
    if not names and any(isinstance(part, ToolResult) for part in parts):
        names = {"tool": None}
    return [{"toolSpec": {"name": name, "inputSchema": {"json": _ANY_OBJECT}}} for name in names]


def _choice(choice: ToolChoice) -> Record:
    if choice.mode == "named":
        return {"tool": {"name": choice.name}}
    return {"any": {}} if choice.mode == "required" else {"auto": {}}


def _native(choice: ToolChoice, chat: Chat, flavor: Flavor) -> Record:
    """Return a choice that the format has no word for, in the words that Anthropic's models have: instead of
    Bedrock's, which they refuse beside them."""
    if "tool_choice" not in flavor.takes:
        if choice.mode == "none":
            raise unsupported_feature(
                chat, "tool_choice", "This model's provider cannot be told not to call tools that it called before"
            )
        raise unsupported_feature(
            chat, "parallel_tool_calls", "This model's provider cannot be told to call one tool at a time"
        )
    wire: Record = {"type": _NATIVE[choice.mode]}
    if choice.mode == "named":
        wire["name"] = choice.name
    if chat.parallel_tool_calls is False and choice.mode != "none":
        wire["disable_parallel_tool_use"] = True
    return {"tool_choice": wire}
