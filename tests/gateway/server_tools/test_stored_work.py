"""Server tools in stored work: answers that are gone on from, answered in the background, and lines of batches."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from openai import OpenAI

from apps.logs.models import RequestLog
from apps.mcp_servers.models import McpServer
from tests.batches.batch_work import MODEL, run, work_all
from tests.responses.conftest import clients, keeper, openai
from tests.support.mcp_stand_in import StandIn
from tests.support.upstream import Caller, settle_all

__all__ = ["clients", "keeper", "openai"]

CALL = 'tickets__echo({"words": "hi"})'
SERVER: Any = {"type": "mcp", "server_label": "tickets", "require_approval": "never"}
ANSWERED = "tickets__echo answered: hello"


def types_of(response: Any) -> list[str]:
    return [item.type for item in response.output]


@pytest.mark.parametrize("offered", [True, False])
def test_a_response_goes_on_from_one_with_calls(
    keeper: Caller, openai: OpenAI, mcp_server: StandIn, tickets: McpServer, offered: bool
) -> None:
    first = openai.responses.create(model=MODEL, input=CALL, tools=[SERVER])
    assert types_of(first) == ["mcp_list_tools", "mcp_call", "message"]
    asked = len(mcp_server.methods())
    later = openai.responses.create(
        model=MODEL,
        input=f"[[sandbox tag=later-{offered}]] thanks",
        previous_response_id=first.id,
        tools=[SERVER] if offered else [],
    )
    # The tools were listed before, and nothing is called again.
    assert (types_of(later), later.output_text) == (["message"], "You said: thanks")
    assert mcp_server.methods()[asked:] == []
    (sent,) = keeper.sent(f"later-{offered}")
    said = sent["body"]["messages"]
    assert [message["role"] for message in said] == ["user", "assistant", "tool", "assistant", "user"]
    (call,) = said[1]["tool_calls"]
    assert call["function"]["name"] in {"tickets__echo", "echo"}
    assert json.loads(call["function"]["arguments"]) == {"words": "hi"}
    assert (said[2]["tool_call_id"], said[2]["content"]) == (call["id"], "hello")
    assert ("tools" in sent["body"]) == offered


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_answered_in_the_background(
    openai: OpenAI, mcp_server: StandIn, tickets: McpServer, stream: bool
) -> None:
    if stream:
        events = list(openai.responses.create(model=MODEL, input=CALL, tools=[SERVER], background=True, stream=True))
        asked = events[-1].response.id  # type: ignore[union-attr]  # the last has it
        again = list(openai.responses.retrieve(asked, stream=True))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events]
    else:
        queued = openai.responses.create(model=MODEL, input=CALL, tools=[SERVER], background=True)
        assert (queued.status, queued.output) == ("queued", [])
        asked = queued.id
    done = openai.responses.retrieve(asked)
    assert (done.status, done.output_text) == ("completed", ANSWERED)
    assert types_of(done) == ["mcp_list_tools", "mcp_call", "message"]
    assert mcp_server.methods().count("tools/call") == 1
    assert settle_all() == 3
    assert sorted(RequestLog.objects.values_list("route", flat=True)) == ["mcp_tool_call", "responses", "responses"]
    turns = RequestLog.objects.filter(route="responses")
    assert all(row.cost is not None and row.cost > Decimal(0) for row in turns)


LINES: dict[str, Any] = {
    "/v1/responses": {"input": CALL, "tools": [SERVER]},
    "/v1/messages": {
        "max_tokens": 200,
        "messages": [{"role": "user", "content": CALL}],
        "mcp_servers": [{"type": "url", "name": "tickets"}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "tickets"}],
    },
}


def test_a_line_of_a_batch_may_name_servers(openai: OpenAI, mcp_server: StandIn, tickets: McpServer) -> None:
    url = "/v1/responses"
    lines = [
        {"custom_id": "a", "method": "POST", "url": url, "body": {"model": MODEL, **LINES[url]}},
        {
            "custom_id": "b",
            "method": "POST",
            "url": url,
            "body": {"model": MODEL, "input": CALL, "tools": [{**SERVER, "server_label": "nobodys"}]},
        },
    ]
    told = run(openai, lines, endpoint=url)
    assert (told.status, told.request_counts.model_dump()) == ("completed", {"total": 2, "completed": 1, "failed": 1})
    result = json.loads(openai.files.content(told.output_file_id).text)["response"]["body"]
    assert [item["type"] for item in result["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert result["output"][2]["content"][0]["text"] == ANSWERED
    refused = json.loads(openai.files.content(told.error_file_id).text)["response"]["body"]["error"]
    assert refused["code"] == "unknown_mcp_server"
    assert mcp_server.methods().count("tools/call") == 1
    rows = RequestLog.objects.filter(status_code=200)
    assert sorted(rows.values_list("route", flat=True)) == ["mcp_tool_call", "responses", "responses"]


def test_a_line_of_a_batch_of_messages_may_name_servers(
    keeper: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    def ask(method: str, path: str, body: Any = None) -> Any:
        headers = {"x-api-key": keeper.token, "anthropic-version": "2023-06-01"}
        return getattr(keeper.client, method)(path, body, content_type="application/json", headers=headers)

    params = {"model": MODEL, **LINES["/v1/messages"]}
    made = ask("post", "/v1/messages/batches", {"requests": [{"custom_id": "a", "params": params}]}).json()
    work_all()
    answer = keeper.client.get(f"/v1/messages/batches/{made['id']}/results", headers={"x-api-key": keeper.token})
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    result = json.loads(body)["result"]
    assert result["type"] == "succeeded", result
    kinds = [block["type"] for block in result["message"]["content"]]
    assert kinds == ["mcp_tool_use", "mcp_tool_result", "text"]
    assert result["message"]["content"][2]["text"] == ANSWERED
    assert mcp_server.methods().count("tools/call") == 1
