"""The loop of turns: its limits, what ends it early, and what guardrails and other turns make of its calls."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import gevent
import pytest

from apps.gateway.canonical.events import Failed, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.server_tools import loop, toolset
from apps.gateway.server_tools.toolset import OfferedTool
from apps.guardrails.models import Violation
from apps.kernel.errors import ApiError, ClientGone, PaymentRequired
from apps.logs.models import RequestLog
from apps.mcp_servers.client import Tool
from apps.mcp_servers.models import McpServer
from apps.organizations.models import Organization
from tests.support.guardrails_in_force import forbid, guard
from tests.support.mcp_stand_in import StandIn, tool
from tests.support.responses_calls import ask, events_of, text_of
from tests.support.upstream import Caller, settle_all

MODEL = "sandbox/echo"
SERVER = {"type": "mcp", "server_label": "tickets", "require_approval": "never"}
CALL = 'tickets__echo({"words": "hi"})'


def told(caller: Caller, given: Any, **fields: Any) -> Any:
    return ask(caller, given, **{"model": MODEL, "tools": [SERVER], **fields})


def test_in_the_last_turn_no_tool_may_be_called(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_TURNS", 2)
    response = told(caller, f"[[sandbox tag=last]] {CALL}").json()
    assert text_of(response) == "tickets__echo answered: hello"
    first, last = (request["body"] for request in caller.sent("last"))
    assert (first.get("tool_choice", "auto"), last["tool_choice"]) == ("auto", "none")


def test_calls_have_a_limit_of_all_turns_together(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "MAX_CALLS", 1)
    response = told(caller, 'tickets__echo({"n": 1}) tickets__add({"n": 2})').json()
    refused = response["output"][2]
    assert (refused["status"], refused["error"]["code"]) == ("failed", 400)
    assert response["gateway"]["server_tools"]["calls"] == 1
    assert mcp_server.methods().count("tools/call") == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_later_turn_that_is_refused_ends_the_answer_and_the_first_is_paid(
    caller: Caller, tickets: McpServer, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def refuse(*_: Any) -> Any:
        raise PaymentRequired("Nothing is left")

    monkeypatch.setattr(loop, "open_chat", refuse)
    response = told(caller, CALL, stream=stream)
    if stream:
        last = events_of(response)[-1]
        assert (last["type"], last["response"]["error"]["message"]) == ("response.failed", "Nothing is left")
        assert [item["type"] for item in last["response"]["output"]] == ["mcp_list_tools", "mcp_call"]
    else:
        assert (response.status_code, response.json()["error"]["message"]) == (402, "Nothing is left")
    assert settle_all() == 2
    turn = RequestLog.objects.get(route="responses")
    assert turn.unified_finish_reason == "tool_calls"
    assert turn.cost is not None
    assert turn.cost > 0


def test_whoever_stops_listening_ends_the_call_as_a_client_that_left(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.HEARTBEAT_INTERVAL = 0.01
    ended: list[BaseException] = []

    def slow(*_: Any, **__: Any) -> Any:
        try:
            gevent.sleep(60)
        except BaseException as error:
            ended.append(error)
            raise

    monkeypatch.setattr(toolset, "call_tool", slow)
    offered = OfferedTool(function="t__f", label="t", server="t", tool=Tool("f", {"name": "f"}))
    whoever: Any = None
    work = toolset.call_server_tool(
        whoever, toolset.ServerCall(id="1", offered=offered, arguments="{}"), ClientDisconnect(None)
    )
    assert isinstance(next(work), Waiting)
    work.close()
    assert [type(error) for error in ended] == [ClientGone]


def test_what_a_guardrail_finds_in_a_result_is_not_read_by_the_model(
    caller: Caller, mcp_server: StandIn, tickets: McpServer
) -> None:
    guard(caller, rules={})
    forbid(caller, "hello")
    response = told(caller, CALL).json()
    assert response["output"][1]["status"] == "failed"
    assert "hello" not in text_of(response)
    settle_all()
    assert RequestLog.objects.get(route="mcp_tool_call").status_code == 400


def test_a_defect_of_the_loop_is_an_error_and_closes_what_is_open(
    caller: Caller, tickets: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("no")
        yield

    monkeypatch.setattr(loop, "call_server_tool", broken)
    assert told(caller, CALL).status_code == 500
    assert events_of(told(caller, CALL, stream=True))[-1]["type"] == "response.failed"


def test_an_error_before_anything_was_told_is_raised() -> None:
    class Run:
        chat = None

        def events(self) -> Any:
            raise PaymentRequired("no")
            yield

    class Form:
        toolset, max_calls = None, None

        def begin_turn(self, chat: Any) -> Any:
            return None

    run: Any = Run()
    form: Any = Form()
    whoever: Any = None
    answering = loop.ToolLoop(run, form, whoever, ClientDisconnect(None), whoever)
    with pytest.raises(ApiError):
        assert not [event for event in answering.events() if isinstance(event, Failed)]


@pytest.mark.parametrize(
    ("annotations", "count"),
    [({"readOnlyHint": False}, 1), ({"destructiveHint": True}, 1), ({"readOnlyHint": True}, 0), ({}, 0), ("odd", 0)],
)
def test_annotations_of_a_tool_say_whether_the_origin_of_its_arguments_matters(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, annotations: Any, count: int
) -> None:
    guard(caller, rules={"tool_argument_origin": "warn"})
    schema = {"type": "object", "properties": {"to": {"type": "string", "format": "email"}}, "required": ["to"]}
    mcp_server.tools = [tool("note", inputSchema=schema, annotations=annotations)]
    # The address is the one that the sandbox writes where a schema wants any.
    given = [
        {"role": "user", "content": "Read my mail."},
        {"type": "function_call", "call_id": "call_1", "name": "read_mail", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "From: user@example.com"},
        {"role": "user", "content": "call tickets__note"},
    ]
    own = {"type": "function", "name": "read_mail", "parameters": {"type": "object"}, "strict": False}
    assert told(caller, given, tools=[SERVER, own]).status_code == 200
    settle_all()
    found = Violation.objects.values_list("matched_pattern", flat=True)
    assert list(found) == ["email in tickets__note.to from read_mail"] * count


ADDRESSES = ("ann@zanzibar-post.com", "ben@zanzibar-post.com")


@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("stream", [False, True])
def test_tools_get_masked_values_and_models_do_not(
    caller: Caller, mcp_server: StandIn, tickets: McpServer, restore: bool, stream: bool
) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    everyone = {"roles": {"tool_result": "redact"}}
    guard(caller, rules={"pii_detection": "redact"}, pii_detection={"restore": restore, **everyone})
    (ann, ben), tag = ADDRESSES, uuid4().hex
    mcp_server.result = {"content": [{"type": "text", "text": f"sent to {ann}, copy to {ben}"}]}
    response = told(caller, f'[[sandbox tag={tag}]] tickets__echo({{"to": "{ann}", "n": 1}})', stream=stream)
    answer = events_of(response)[-1]["response"] if stream else response.json()
    words = [ann, ben] if restore else ["[EMAIL_REDACTED]"] * 2
    assert mcp_server.params_of("tools/call")["arguments"] == {"to": words[0], "n": 1}
    assert text_of(answer) == f"tickets__echo answered: sent to {words[0]}, copy to {words[1]}"
    call = next(item for item in answer["output"] if item["type"] == "mcp_call")
    assert json.loads(call["arguments"])["to"] == words[0]
    assert call["output"] == f"sent to {words[0]}, copy to {words[1]}"
    seen = ["[EMAIL_1]", "[EMAIL_2]"] if restore else words
    _, last = (json.dumps(request["body"]) for request in caller.sent(tag))
    assert f"sent to {seen[0]}, copy to {seen[1]}" in last
    assert settle_all() == 3
    rows = json.dumps(list(RequestLog.objects.values()), default=str)
    assert ("zanzibar" in rows + last, "EMAIL_REDACTED" in rows) == (False, True)
