"""OpenAI Responses: earlier calls of server tools in an input, told to a model as calls of functions and their results.

Any model that goes on understands them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from apps.gateway.dialects.chat.responses.wire import MAX_ID, encode, new_id
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.server_tools.toolset import Toolset
from apps.mcp_servers.tool_names import joined_name

_CALL: Final = "mcp_call"
_LISTING: Final = "mcp_list_tools"
# Characters of a label that precede the name of a tool that is no longer offered.
_MAX_LABEL_LENGTH: Final = 40


def has_calls(items: Any) -> bool:
    """Return whether an input has items of server tools."""
    return isinstance(items, list) and any(isinstance(item, dict) and item.get("type") in _OURS for item in items)


def plain_items(items: Sequence[Any], toolset: Toolset) -> list[Any]:
    """Return an input without items of server tools: lists are left out, calls that stand together become functions'
    calls, with their results behind all of them."""
    left = [item for item in items if not (isinstance(item, dict) and item.get("type") == _LISTING)]
    plain: list[Any] = []
    for is_call, group in groupby(left, key=_is_call):
        if not is_call:
            plain += group
            continue
        pairs = [_pair(item, toolset) for item in group]
        plain += [call for call, _ in pairs]
        plain += [result for _, result in pairs]
    return plain


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == _CALL


def _pair(item: Record, toolset: Toolset) -> tuple[Record, Record]:
    label, name, call_id = (item.get(field) for field in ("server_label", "name", "id"))
    if not isinstance(call_id, str) or not 0 < len(call_id) <= MAX_ID:
        call_id = new_id("mcp_")
    label, name = str(label or ""), str(name or "tool")
    function = toolset.function_of(label, name) or joined_name(label[:_MAX_LABEL_LENGTH], name)
    arguments = item.get("arguments")
    call = {
        "type": "function_call",
        "call_id": call_id,
        "name": function,
        "arguments": arguments if isinstance(arguments, str) else "{}",
    }
    return call, {"type": "function_call_output", "call_id": call_id, "output": _result(item)}


def _result(item: Record) -> str:
    error, output = item.get("error"), item.get("output")
    said = output if isinstance(output, str) else ""
    if error is None:
        return said
    words = f"Error: {error if isinstance(error, str) else encode(error).decode()}"
    return f"{words}\n{said}" if said else words


# Compared, not looked up: what a client wrote as a type may be anything.
_OURS: Final = (_CALL, _LISTING)
