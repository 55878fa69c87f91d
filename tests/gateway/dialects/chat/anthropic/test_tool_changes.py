"""Tools that system messages add and withdraw, and efforts that they state: as they are in the end, elsewhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, openai
from apps.kernel.errors import InvalidRequest

SCHEMA = {"type": "object", "properties": {}}
FIND, OPEN = ({"name": name, "input_schema": SCHEMA} for name in ("find", "open"))
HI, MORE = {"role": "user", "content": "Hi"}, {"role": "user", "content": "More"}
FACTS = {"reasoning_efforts": ["low", "medium", "high"]}


def change(kind: str, tool: dict[str, Any]) -> dict[str, Any]:
    """Return a block that changes the tools."""
    return {"type": f"tool_{kind}", "tool": tool}


def named(name: str) -> dict[str, Any]:
    """Return a reference to a tool."""
    return {"type": "tool_reference", "name": name}


def defined(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool by value."""
    return {"type": "tool_definition", "definition": tool}


def asked(*messages: dict[str, Any], **fields: Any) -> Chat:
    """Return the chat of a request."""
    body = {"model": "m", "max_tokens": 100, "messages": [HI, *messages, MORE], **fields}
    return anthropic.read_request(json.dumps(body).encode())


def elsewhere(chat: Chat) -> dict[str, Any]:
    """Return what an OpenAI-alike is sent, of which nothing is left out."""
    target = Target(model_name="m", facts=FACTS)
    wire: dict[str, Any] = json.loads(openai.write_request(chat, target))
    assert target.dropped_fields == []
    return wire


def test_the_tools_that_are_there_in_the_end_are_the_tools_elsewhere() -> None:
    changes = [
        {"role": "system", "content": [change("addition", defined(OPEN)), change("removal", named("find"))]},
        {"role": "system", "content": [{"type": "text", "text": "Now."}, change("removal", named("open"))]},
        {"role": "system", "content": [change("addition", named("open"))]},
    ]
    wire = elsewhere(asked(*changes, tools=[FIND]))
    assert [tool["function"]["name"] for tool in wire["tools"]] == ["open"]
    assert [message["content"] for message in wire["messages"]] == ["Hi", "Now.", "More"]


def test_the_latest_effort_is_the_one_that_others_are_told() -> None:
    changes = [{"role": "system", "output_config": {"effort": effort}} for effort in ("high", "medium")]
    wire = elsewhere(asked(*changes, output_config={"effort": "low"}))
    assert wire["reasoning_effort"] == "medium"
    assert [message["content"] for message in wire["messages"]] == ["Hi", "More"]


@pytest.mark.parametrize("rewritten", [False, True])
def test_anthropic_gets_the_changes_as_they_are(rewritten: bool) -> None:
    changes = [
        {"role": "system", "content": [change("addition", defined(OPEN))]},
        {"role": "system", "output_config": {"effort": "high"}},
    ]
    chat = asked(*changes, tools=[FIND])
    if rewritten:
        chat = replace(chat, source=None)
    wire = json.loads(anthropic.write_request(chat, Target(model_name="m", facts={})))
    assert wire["messages"] == [HI, *changes, MORE]
    assert [tool["name"] for tool in wire["tools"]] == ["find"]


@pytest.mark.parametrize(
    "tool", [{"type": "mcp_toolset_reference", "server_name": "x"}, defined({"name": "x"}), {"type": "tool_reference"}]
)
def test_a_change_that_cannot_be_read_is_refused_elsewhere(tool: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        elsewhere(asked({"role": "system", "content": [change("addition", tool)]}))
    assert (refusal.value.code, refusal.value.message) == (
        "unsupported_feature",
        "A message holds content that this model's provider has no form for: tool_addition",
    )


def test_a_tool_of_anthropics_own_that_is_added_is_refused_elsewhere_by_its_kind() -> None:
    bash = {"type": "bash_20250124", "name": "bash"}
    with pytest.raises(InvalidRequest) as refusal:
        elsewhere(asked({"role": "system", "content": [change("addition", defined(bash))]}))
    assert refusal.value.message == "bash_20250124 is a tool that this model's provider does not have"


def test_a_system_message_without_content_has_to_change_something() -> None:
    with pytest.raises(InvalidRequest) as malformed:
        asked({"role": "system", "output_config": {}})
    assert malformed.value.param == "messages[1].content"
