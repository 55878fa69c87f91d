"""The gateway's own tools: what they answer, what they cost, and that they are requests like any other."""

from __future__ import annotations

from base64 import b64decode
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from apps.billing.models import LedgerEntry
from apps.gateway.access import policy
from apps.keys.models import ApiKey, IamRule
from apps.logs.models import RequestLog
from apps.organizations.models import RetentionLevel
from tests.mcp.conftest import EARLIER, LATER, NEWEST, McpClient, chat_of, messages_of
from tests.responses.conftest import keep
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, nothing_happened, settle_all

NAMES = ["chat", "list-models", "generate-image", "list-image-models"]


def open_if_need_be(mcp: McpClient, revision: str) -> None:
    if revision != NEWEST:
        mcp.open(revision)


@pytest.mark.parametrize("revision", [EARLIER, LATER, NEWEST])
def test_every_tool_answers_what_its_schema_says_in_every_revision(mcp: McpClient, revision: str) -> None:
    open_if_need_be(mcp, revision)
    tools = {tool["name"]: tool for tool in mcp.ask("tools/list").json()["result"]["tools"]}
    assert list(tools) == NAMES
    asked: dict[str, dict[str, Any]] = {
        "chat": chat_of("hello"),
        "list-models": {"family": "sandbox"},
        "generate-image": {"prompt": "a cat", "model": "painter", "n": 2},
        "list-image-models": {},
    }
    for name, arguments in asked.items():
        jsonschema.validate(arguments, tools[name]["inputSchema"])
        result = mcp.result(name, arguments)
        assert result["isError"] is False, result
        jsonschema.validate(result["structuredContent"], tools[name]["outputSchema"])
        assert result.get("resultType") == ("complete" if revision == NEWEST else None)


def test_a_chat_is_one_log_row_and_one_charge(mcp: McpClient, caller: Caller) -> None:
    keep(caller, RetentionLevel.RETAIN)
    result = mcp.result("chat", chat_of("hello"))
    assert result["content"] == [{"type": "text", "text": "You said: hello"}]
    told = result["structuredContent"]
    assert (told["content"], told["provider"], told["finish_reason"]) == ("You said: hello", "sandbox", "stop")
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.source, row.status_code, row.streamed) == ("chat_completions", "mcp", 200, False)
    assert row.api_key_id == caller.key.id
    assert told["usage"]["total_tokens"] == row.total_tokens
    assert Decimal(told["cost"]) == row.cost > 0
    assert LedgerEntry.objects.get(kind="usage").reference == row.id


@pytest.mark.parametrize("revision", [LATER, NEWEST])
def test_progress_is_the_text_as_it_comes(mcp: McpClient, revision: str) -> None:
    open_if_need_be(mcp, revision)
    text = "[[sandbox words=30 chunks=6 gap=120]] count"
    *told, last = messages_of(mcp.call("chat", chat_of(text), token="mine"))
    assert len(told) >= 3
    assert {(note["method"], note["params"]["progressToken"]) for note in told} == {("notifications/progress", "mine")}
    steps = [note["params"]["progress"] for note in told]
    assert steps == sorted(set(steps))
    whole = last["result"]["structuredContent"]["content"]
    assert "".join(note["params"]["message"] for note in told) == whole
    assert steps[-1] == len(whole)
    assert settle_all() == 1
    assert RequestLog.objects.get().streamed is True


def test_pictures_are_blocks_of_content(mcp: McpClient) -> None:
    result = mcp.result("generate-image", {"prompt": "a cat", "model": "painter", "n": 2})
    assert [(block["type"], block["mimeType"]) for block in result["content"]] == [("image", "image/png")] * 2
    assert b64decode(result["content"][0]["data"]).startswith(b"\x89PNG")
    assert result["structuredContent"]["images"] == ["image/png", "image/png"]
    assert settle_all() == 1
    assert RequestLog.objects.get().route == "images_generations"


def test_only_models_that_the_key_may_use_are_listed(mcp: McpClient, caller: Caller) -> None:
    listed = mcp.result("list-models", {"limit": 500})["structuredContent"]
    ids = [model["id"] for model in listed["models"]]
    assert "echo" in ids
    assert "painter" not in ids
    assert listed["total"] == len(ids)
    # No credential of a real provider is here.
    assert {provider for model in listed["models"] for provider in model["providers"]} == {"sandbox"}
    IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["echo"]})
    policy.forget_all()
    left = mcp.result("list-models", {"limit": 500})["structuredContent"]
    assert [model["id"] for model in left["models"]] == [one for one in ids if one != "echo"]
    drawing = mcp.result("list-image-models", {})["structuredContent"]
    assert "painter" in [model["id"] for model in drawing["models"]]


def test_lists_are_narrowed(mcp: McpClient) -> None:
    few = mcp.result("list-models", {"limit": 1})
    assert len(few["structuredContent"]["models"]) == 1
    assert few["structuredContent"]["total"] > 1
    assert "more: raise limit" in few["content"][0]["text"]
    found = mcp.result("list-models", {"query": "ECHO-FAST"})["structuredContent"]["models"]
    assert [model["id"] for model in found] == ["echo-fast"]
    assert mcp.result("list-models", {"family": "none"})["structuredContent"] == {"models": [], "total": 0}


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({}, None),
        ({**chat_of("x"), "temperature": 9}, "temperature"),
        ({**chat_of("x"), "unknown": 1}, None),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"messages": []}, "messages"),
        ({**chat_of("x"), "model": "no-such-model"}, "model"),
    ],
)
def test_wrong_arguments_are_told_to_the_model_and_cost_nothing(
    mcp: McpClient, caller: Caller, arguments: dict[str, Any], param: str | None
) -> None:
    result = mcp.result("chat", arguments)
    assert result["isError"] is True
    assert "structuredContent" not in result
    told = result["_meta"]["gateway/error"]
    assert (told["status"], told.get("param")) == (400, param)
    assert told["code"] in result["content"][0]["text"]
    assert nothing_happened(caller)


def test_rules_limits_and_budgets_are_those_of_any_request(mcp: McpClient, caller: Caller) -> None:
    IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["echo"]})
    assert mcp.result("chat", chat_of("x"))["_meta"]["gateway/error"]["status"] == 403
    IamRule.objects.all().delete()
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=0)
    policy.forget_all()
    assert mcp.result("chat", chat_of("x"))["_meta"]["gateway/error"]["status"] == 402
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=None, requests_per_minute=1)
    policy.forget_all()
    assert mcp.result("chat", chat_of("x"))["isError"] is False
    limited = mcp.result("chat", chat_of("x"))["_meta"]["gateway/error"]
    assert (limited["status"], limited["code"]) == (429, "rate_limit_exceeded")
    assert limited["retryAfter"] > 0
    assert settle_all() == 1


def test_guardrails_hold(mcp: McpClient, caller: Caller) -> None:
    guard(caller)
    forbid(caller, "falcon")
    result = mcp.result("chat", chat_of("the falcon flies [[sandbox tag=guarded]]"))
    assert result["isError"] is True
    assert result["_meta"]["gateway/error"]["status"] == 400
    assert mcp.result("generate-image", {"prompt": "a falcon [[sandbox tag=guarded]]"})["isError"] is True
    assert caller.sent("guarded") == []


def test_a_provider_that_fails_is_told_and_free(mcp: McpClient) -> None:
    result = mcp.result("chat", chat_of("hello [[sandbox status=500]]"))
    assert result["_meta"]["gateway/error"]["status"] == 502
    assert settle_all() == 1
    assert RequestLog.objects.get().cost == 0


def test_tags_of_the_call_stand_in_the_log(mcp: McpClient, caller: Caller) -> None:
    keep(caller, RetentionLevel.RETAIN)
    mcp.call("chat", chat_of("x"), x_source="agents", x_gateway_team="blue", x_request_id="mcp-request-1")
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.source, row.custom_headers, row.request_id) == ("agents", {"team": "blue"}, "mcp-request-1")


def test_an_unknown_tool_is_an_error_of_the_protocol(mcp: McpClient) -> None:
    (answer,) = messages_of(mcp.call("rm-rf", {}))
    assert answer["error"] == {"code": -32602, "message": "Unknown tool: rm-rf"}
