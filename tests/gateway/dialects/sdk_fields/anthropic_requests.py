"""Requests of Anthropic's SDK: each block in a turn that may have it, in a sound conversation."""

from __future__ import annotations

import re
from typing import Any

from anthropic.types.beta import BetaSystemMessageParam

from tests.gateway.dialects.sdk_fields.requests import LEAST

LEAST[BetaSystemMessageParam] = lambda field: {"role": "system", "content": "?"}

ASKED = {"role": "user", "content": "?"}
# Blocks that only a model's turn holds, and those of a system message.
_MODELS = re.compile(
    r"(server_|mcp_)?tool_use|[a-z_]+_tool_result|(redacted_)?thinking|compaction|fallback|connector_text"
)
_SYSTEMS = re.compile(r"tool_(addition|removal)")


def body_of(request: Any) -> Any:
    """Return the body of a request, with calls that are answered and results that answer a call."""
    return {**request, "messages": [turn for message in request["messages"] for turn in _turns(message)]}


def _turns(message: Any) -> list[Any]:
    content = message.get("content")
    block = content[0] if isinstance(content, list) and content else {}
    kind = block.get("type", "") if isinstance(block, dict) else ""
    if kind == "tool_result":
        call = {"type": "tool_use", "id": block["tool_use_id"], "name": "f", "input": {}}
        return [ASKED, {"role": "assistant", "content": [call]}, message]
    if kind == "tool_use":
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": "x"}
        return [ASKED, {**message, "role": "assistant"}, {"role": "user", "content": [result]}]
    if _MODELS.fullmatch(kind):
        return [ASKED, {**message, "role": "assistant"}, ASKED]
    if _SYSTEMS.fullmatch(kind) or message["role"] == "system":
        return [ASKED, {**message, "role": "system"}, ASKED]
    return [message]
