"""Server tools of `POST /v1/messages`: called turn by turn, billed by turn, told in the format's blocks."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, cast

import pytest

from apps.gateway.access import policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Finished, OpaqueDelta, Summary
from apps.gateway.run import ChatRun
from apps.gateway.server_tools.loop import ModelTurn
from apps.gateway.server_tools.messages_form import MessagesForm
from apps.gateway.server_tools.toolset import Toolset
from apps.kernel.usage import Usage
from apps.keys.models import IamRule
from apps.logs.models import RequestLog
from apps.mcp_servers.models import McpServer
from apps.organizations.models import Organization
from tests.support.anthropic_requests import WEATHER, ask, speak
from tests.support.mcp_stand_in import TOKEN, StandIn
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

SET = {"type": "mcp_toolset", "mcp_server_name": "tickets"}
CALL = 'tickets__echo({"words": "hi"})'
BETA = {"anthropic-beta": "mcp-client-2025-11-20"}


def named(tickets: McpServer, **fields: Any) -> dict[str, Any]:
    """Return the fields that name the server."""
    return {"mcp_servers": [{"type": "url", "url": tickets.url, "name": "tickets", **fields}], "tools": [SET]}


def blocks(response: Any) -> list[dict[str, Any]]:
    """Return the blocks of a whole answer, or of a stream put together."""
    assert response.status_code == 200, response.content
    if not response.streaming:
        return list(response.json()["content"])
    found: list[dict[str, Any]] = []
    for event in chunks_of(response):
        if event["type"] == "content_block_start":
            found.append({**event["content_block"]})
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], found[event["index"]]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "input_json_delta":
                block["json"] = block.get("json", "") + delta["partial_json"]
    return [{**block, "input": json.loads(block.pop("json"))} if "json" in block else block for block in found]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
def test_a_tool_is_called_and_its_result_answered_with(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, stream: bool, upstream: str
) -> None:
    speak(upstream)
    told = blocks(ask(caller, CALL, stream=stream, headers=BETA, **named(tickets)))
    use, result, text = told
    assert [block["type"] for block in told] == ["mcp_tool_use", "mcp_tool_result", "text"]
    assert (use["name"], use["server_name"], use["input"]) == ("echo", "tickets", {"words": "hi"})
    assert (result["tool_use_id"], result["is_error"]) == (use["id"], False)
    assert result["content"] == [{"type": "text", "text": "hello"}]
    assert text["text"] == "tickets__echo answered: hello"
    assert mcp_server.params_of("tools/call") == {"name": "echo", "arguments": {"words": "hi"}}
    assert mcp_server.headers_of("tools/call")["authorization"] == f"Bearer {TOKEN}"


def test_each_turn_is_billed_and_logged_once_and_the_answer_has_their_sum(caller: Caller, tickets: McpServer) -> None:
    response = ask(caller, CALL, **named(tickets)).json()
    assert settle_all() == 3
    turns = list(RequestLog.objects.filter(route="messages").order_by("created_at"))
    assert len(turns) == 2
    assert response["id"] == f"msg_{turns[0].id.hex}"
    assert response["stop_reason"] == "end_turn"
    assert response["usage"]["input_tokens"] == sum(row.prompt_tokens or 0 for row in turns)
    assert response["usage"]["output_tokens"] == sum(row.completion_tokens or 0 for row in turns)
    assert RequestLog.objects.get(route="mcp_tool_call").cost == Decimal(0)
    paid = sum((row.cost or Decimal(0) for row in turns), Decimal(0))
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - paid < 100


def test_a_tool_that_fails_is_told_to_the_model_which_goes_on(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    mcp_server.result = {"content": [{"type": "text", "text": "no such ticket"}], "isError": True}
    told = blocks(ask(caller, CALL, **named(tickets)))
    assert (told[1]["is_error"], told[1]["content"][0]["text"]) == (True, "no such ticket")
    assert "no such ticket" in told[2]["text"]


@pytest.mark.parametrize("upstream", ["openai", "anthropic"])
def test_a_clients_own_tool_ends_the_answer_and_it_goes_on_from_the_blocks(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, upstream: str
) -> None:
    speak(upstream)
    fields = named(tickets)
    fields["tools"] = [WEATHER, SET]
    asked = f'{CALL} get_weather({{"city": "Rome"}})'
    first = ask(caller, asked, **fields).json()
    assert [block["type"] for block in first["content"]] == ["tool_use", "mcp_tool_use", "mcp_tool_result"]
    assert first["stop_reason"] == "tool_use"
    result = {"type": "tool_result", "tool_use_id": first["content"][0]["id"], "content": "sunny"}
    messages = [
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result]},
    ]
    second = blocks(ask(caller, messages=messages, **fields))
    assert [block["type"] for block in second] == ["text"]
    assert "sunny" in second[0]["text"]
    assert "hello" in second[0]["text"]
    assert mcp_server.methods().count("tools/call") == 1
    # Neither does a request need the server that goes on without it.
    assert "hello" in blocks(ask(caller, messages=messages, tools=[WEATHER]))[0]["text"]


def test_only_tools_that_are_switched_on_are_offered(caller: Caller, tickets: McpServer) -> None:
    fields = named(tickets)
    fields["tools"] = [{**SET, "default_config": {"enabled": False}, "configs": {"add": {"enabled": True}}}]
    ask(caller, "[[sandbox tag=switched]] hello", **fields)
    [sent] = caller.sent("switched")
    assert [one["function"]["name"] for one in sent["body"]["tools"]] == ["tickets__add"]
    # As the first preview says it.
    fields = {"mcp_servers": named(tickets, tool_configuration={"allowed_tools": ["echo"]})["mcp_servers"]}
    ask(caller, "[[sandbox tag=configured]] hello", **fields)
    [sent] = caller.sent("configured")
    assert [one["function"]["name"] for one in sent["body"]["tools"]] == ["tickets__echo"]


@pytest.mark.parametrize(
    ("server", "tools", "param"),
    [
        ({"url": "https://tools.example.com/mcp"}, [SET], "mcp_servers[0].url"),
        ({"url": None, "name": "elsewhere"}, None, "mcp_servers[0].name"),
        ({"authorization_token": "secret"}, [SET], "mcp_servers[0].authorization_token"),
        ({"type": "stdio"}, [SET], "mcp_servers[0].type"),
        ({}, [{**SET, "mcp_server_name": "other"}], "tools[0].mcp_server_name"),
        ({}, [SET, SET], "tools[1].mcp_server_name"),
        ({}, [{**SET, "tools": []}], "tools[0].tools"),
        ({}, [{**SET, "default_config": {"defer_loading": True}}], "tools[0].default_config.defer_loading"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(
    caller: Caller, tickets: McpServer, server: dict[str, Any], tools: Any, param: str
) -> None:
    fields = named(tickets, **server)
    fields["tools"] = tools
    response = ask(caller, CALL, **fields)
    assert response.status_code == 400
    assert f" {param}: " in f" {response.json()['error']['message']}", response.content
    assert nothing_happened(caller)


def test_servers_of_other_projects_are_nobodys(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    tickets.project_ids = ["0190a000-0000-7000-8000-000000000000"]
    tickets.save()
    assert ask(caller, CALL, **named(tickets)).status_code == 400
    assert mcp_server.asked == []
    assert nothing_happened(caller)


def test_tokens_are_counted_with_the_servers_tools(caller: Caller, tickets: McpServer) -> None:
    path = "/v1/messages/count_tokens"
    bare = ask(caller, "hello", path=path, max_tokens=None).json()["input_tokens"]
    with_tools = ask(caller, "hello", path=path, max_tokens=None, **named(tickets)).json()["input_tokens"]
    assert with_tools > bare


def test_access_rules_of_the_key_decide_which_tools_are_offered(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    rule = IamRule.objects.create(
        api_key=caller.key, rule_type="allow_mcp_servers", rule_value={"mcpServers": ["tickets/add"]}
    )
    told = blocks(ask(caller, CALL, headers=BETA, **named(tickets)))
    assert [block["type"] for block in told] == ["text"]
    assert "tools/call" not in mcp_server.methods()
    rule.rule_value = {"mcpServers": ["files"]}
    rule.save()
    policy.forget_all()
    refused = ask(caller, CALL, headers=BETA, **named(tickets))
    assert refused.status_code == 400
    assert "is none of the MCP servers that this key may use" in refused.json()["error"]["message"]


def test_call_with_an_odd_name_stays_in_the_answer() -> None:
    content = [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "id": "toolu_1", "name": ["tickets__echo"], "input": {}},
    ]
    form = MessagesForm({"messages": []}, [], Toolset([]))
    transcript = form.begin_turn(Chat(model="sandbox/echo", messages=[], dialect="anthropic"))
    transcript.add(OpaqueDelta(dialect="anthropic", data={"content": content}))
    turn = ModelTurn(cast(ChatRun, None), 0, Toolset([]), transcript, 0)
    turn.summary = Summary(usage=Usage(), cost={}, metadata={})
    form.end_turn(turn, [])
    assert form.reply(Finished(reason="stop")).choices[0].extra["anthropic"]["content"] == content
