"""Server tools of `POST /v1/responses`: called turn by turn, billed by turn, told in the format's items."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.catalog.models import Provider
from apps.gateway.access import policy
from apps.gateway.server_tools.responses_form import plain_items
from apps.gateway.server_tools.toolset import Toolset
from apps.kernel.valkey import generation
from apps.keys.models import IamRule
from apps.logs.models import RequestLog
from apps.mcp_servers.models import McpServer
from apps.organizations.models import Organization
from tests.support.mcp_stand_in import TOKEN, StandIn, tool
from tests.support.responses_calls import answer, ask, events_of, text_of
from tests.support.upstream import Caller, nothing_happened, settle_all

MODEL = "sandbox/echo"
SERVER = {"type": "mcp", "server_label": "tickets", "require_approval": "never"}
CALL = 'tickets__echo({"words": "hi"})'


def told(caller: Caller, given: Any, *, stream: bool = False, **fields: Any) -> dict[str, Any]:
    return answer(caller, given, stream=stream, **{"model": MODEL, "tools": [SERVER], **fields})


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_answered_with(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, stream: bool
) -> None:
    response = told(caller, CALL, stream=stream)
    listing, made, _ = response["output"]
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    assert [one["name"] for one in listing["tools"]] == ["echo", "add"]
    assert (made["name"], made["server_label"], made["arguments"]) == ("echo", "tickets", '{"words":"hi"}')
    assert (made["status"], made["output"], made["error"]) == ("completed", "hello", None)
    assert text_of(response) == "tickets__echo answered: hello"
    assert response["status"] == "completed"
    assert response["tools"] == [SERVER]
    assert mcp_server.params_of("tools/call") == {"name": "echo", "arguments": {"words": "hi"}}
    assert mcp_server.headers_of("tools/call")["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_provider_of_this_very_format_places_its_own_items_beside_the_gateways(
    caller: Caller, tickets: McpServer, stream: bool
) -> None:
    Provider.objects.filter(pk="sandbox").update(dialect="responses", auth="bearer")
    generation.bump(generation.CATALOG)
    response = told(caller, f"[[sandbox reasoning=4]] {CALL}", stream=stream)
    assert [kind for kind in kinds(response) if kind != "reasoning"] == ["mcp_list_tools", "mcp_call", "message"]
    assert len({item["id"] for item in response["output"]}) == len(response["output"])
    assert text_of(response) == "tickets__echo answered: hello"


def test_each_turn_is_billed_and_logged_once_and_the_answer_has_their_sum(caller: Caller, tickets: McpServer) -> None:
    response = told(caller, CALL)
    assert settle_all() == 3
    turns = list(RequestLog.objects.filter(route="responses").order_by("created_at"))
    calls = RequestLog.objects.get(route="mcp_tool_call")
    assert (len(turns), calls.used_model, calls.cost) == (2, "tickets/echo", Decimal(0))
    assert len({row.request_id for row in (*turns, calls)}) == 1
    assert [row.unified_finish_reason for row in turns] == ["tool_calls", "completed"]
    assert response["gateway"]["server_tools"] == {"turns": 2, "calls": 1, "log_ids": [row.id.hex for row in turns]}
    usage = response["usage"]
    assert usage["input_tokens"] == sum(row.prompt_tokens or 0 for row in turns)
    assert usage["output_tokens"] == sum(row.completion_tokens or 0 for row in turns)
    cost = sum(row.cost for row in turns)
    assert Decimal(str(usage["cost_usd_total"])) == cost > 0
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - cost


def test_a_stream_tells_of_each_call_while_it_goes_on(caller: Caller, tickets: McpServer) -> None:
    events = events_of(ask(caller, CALL, stream=True, model=MODEL, tools=[SERVER]))
    words = [event["type"].removeprefix("response.") for event in events if "mcp" in event["type"]]
    assert words == [
        *("mcp_list_tools.in_progress", "mcp_list_tools.completed"),
        *("mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.done", "mcp_call.completed"),
    ]
    made = next(event for event in events if event["type"] == "response.mcp_call.completed")
    item = next(event["item"] for event in events if event.get("item", {}).get("type") == "mcp_call")
    assert (made["item_id"], made["output_index"]) == (item["id"], 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_that_fails_is_told_to_the_model_which_goes_on(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, stream: bool
) -> None:
    mcp_server.result = {"content": [{"type": "text", "text": "no such ticket"}], "isError": True}
    response = told(caller, CALL, stream=stream)
    made = response["output"][1]
    assert (made["status"], made["output"]) == ("failed", None)
    assert made["error"]["content"] == [{"type": "text", "text": "no such ticket"}]
    assert text_of(response) == "tickets__echo answered: Error: no such ticket"


def test_a_server_that_fails_is_told_with_a_status_and_no_credential(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    told(caller, "hello")
    mcp_server.failure = (500, b"boom " + TOKEN.encode())
    error = told(caller, CALL)["output"][1]["error"]
    assert (error["type"], error["code"]) == ("http_error", 502)
    assert TOKEN not in error["message"]


def test_a_clients_own_tool_ends_the_answer_and_it_goes_on_from_the_items(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    own = {"type": "function", "name": "get_time", "parameters": {"type": "object"}}
    tools = [SERVER, own]
    first = told(caller, f'{CALL} get_time({{"city": "Rome"}})', tools=tools)
    assert kinds(first) == ["mcp_list_tools", "function_call", "mcp_call"]
    given = [
        {"role": "user", "content": "go on"},
        *first["output"],
        {"type": "function_call_output", "call_id": first["output"][1]["call_id"], "output": "noon"},
    ]
    second = told(caller, given, tools=tools)
    # The list is known by now.
    assert kinds(second) == ["message"]
    assert "hello" in text_of(second)
    assert "noon" in text_of(second)
    assert mcp_server.methods().count("tools/call") == 1
    # Neither does a request need the server that goes on without it.
    assert "hello" in text_of(answer(caller, given, stream=False, model=MODEL, tools=[own]))


def test_calls_beyond_the_clients_limit_are_not_made(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    response = told(caller, 'tickets__echo({"n": 1}) tickets__add({"n": 2})', max_tool_calls=1)
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [item["status"] for item in response["output"][1:3]] == ["completed", "failed"]
    assert response["max_tool_calls"] == 1
    assert mcp_server.methods().count("tools/call") == 1


def test_only_allowed_tools_are_offered_and_one_may_be_demanded(caller: Caller, tickets: McpServer) -> None:
    server = {**SERVER, "allowed_tools": ["add"], "server_url": tickets.url, "server_label": "mine"}
    choice = {"type": "mcp", "server_label": "mine", "name": "add"}
    response = told(caller, "[[sandbox tag=allowed]] hello", tools=[server], tool_choice=choice)
    assert [one["name"] for one in response["output"][0]["tools"]] == ["add"]
    assert (response["output"][1]["server_label"], response["output"][1]["name"]) == ("mine", "add")
    sent = [request["body"] for request in caller.sent("allowed")]
    assert [one["function"]["name"] for one in sent[0]["tools"]] == ["tickets__add"]
    # The model has made the call that it was forced to make.
    assert sent[1].get("tool_choice", "auto") == "auto"


def test_only_tools_that_read_are_offered(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    mcp_server.tools = [tool("look", annotations={"readOnlyHint": True}), tool("delete")]
    response = told(caller, "hello", tools=[{**SERVER, "allowed_tools": {"read_only": True}}])
    assert [one["name"] for one in response["output"][0]["tools"]] == ["look"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"server_label": "elsewhere"}, "tools[0].server_label"),
        ({"server_url": "https://tools.example.com/mcp"}, "tools[0].server_url"),
        ({"require_approval": "always"}, "tools[0].require_approval"),
        ({"require_approval": None}, "tools[0].require_approval"),
        ({"require_approval": {"never": {"tool_names": ["echo"]}}}, "tools[0].require_approval"),
        ({"authorization": "secret"}, "tools[0].authorization"),
        ({"headers": {"X-Key": "secret"}}, "tools[0].headers"),
        ({"connector_id": "connector_gmail"}, "tools[0].connector_id"),
        ({"allowed_tools": [1]}, "tools[0].allowed_tools[0]"),
        ({"defer_loading": True}, "tools[0].defer_loading"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(
    caller: Caller, tickets: McpServer, fields: dict[str, Any], param: str
) -> None:
    response = ask(caller, CALL, model=MODEL, tools=[{**SERVER, **fields}])
    assert (response.status_code, response.json()["error"]["param"]) == (400, param), response.content
    assert nothing_happened(caller)


def test_servers_of_other_projects_are_nobodys(caller: Caller, mcp_server: StandIn, tickets: McpServer) -> None:
    tickets.project_ids = ["0190a000-0000-7000-8000-000000000000"]
    tickets.save()
    response = ask(caller, CALL, model=MODEL, tools=[SERVER])
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unknown_mcp_server")
    assert mcp_server.asked == []
    assert nothing_happened(caller)


def test_access_rules_of_the_key_decide_which_tools_are_offered(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    rule = IamRule.objects.create(
        api_key=caller.key, rule_type="deny_mcp_servers", rule_value={"mcpServers": ["tickets/echo"]}
    )
    listing, message = told(caller, CALL)["output"]
    assert [one["name"] for one in listing["tools"]] == ["add"]
    assert message["type"] == "message"
    assert "tools/call" not in mcp_server.methods()
    settle_all()
    rule.rule_value = {"mcpServers": ["tickets"]}
    rule.save()
    policy.forget_all()
    response = ask(caller, CALL, model=MODEL, tools=[SERVER])
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "unknown_mcp_server")
    assert error["param"] == "tools[0].server_label"
    assert nothing_happened(caller)


def test_a_server_is_named_once_and_its_functions_are_nobody_elses(caller: Caller, tickets: McpServer) -> None:
    twice = ask(caller, CALL, model=MODEL, tools=[SERVER, {**SERVER, "server_label": "b", "server_url": tickets.url}])
    assert (twice.status_code, twice.json()["error"]["param"]) == (400, "tools[1].server_url")
    own = {"type": "function", "name": "tickets__echo", "parameters": {"type": "object"}}
    assert ask(caller, CALL, model=MODEL, tools=[own, SERVER]).status_code == 400
    assert nothing_happened(caller)


def test_a_failed_call_tells_the_model_the_error_and_what_was_answered() -> None:
    call = {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "look", "arguments": "{}"}
    items = [
        {**call, "error": "broke", "output": "half of it"},
        {**call, "error": {"code": 1}},
        {**call, "output": "x"},
    ]
    plain = plain_items(items, Toolset([]))
    outputs = [item["output"] for item in plain if item["type"] == "function_call_output"]
    assert outputs == ["Error: broke\nhalf of it", 'Error: {"code":1}', "x"]


def test_listing_with_an_odd_label_is_no_servers(caller: Caller, tickets: McpServer) -> None:
    odd = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": ["tickets"], "tools": []}
    response = told(caller, [odd, {"role": "user", "content": "hello"}])
    assert kinds(response) == ["mcp_list_tools", "message"]
    assert response["output"][0]["server_label"] == "tickets"
