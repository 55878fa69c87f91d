"""The page of a request: the same facts for tenants and operators, except for what only one of them may see."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from apps.logs.conversation import MAX_CHARACTERS
from apps.logs.models import RequestLog
from apps.logs.request_page import (
    MAX_MESSAGES,
    CostLine,
    GuardRun,
    Link,
    Medium,
    Reader,
    RequestPage,
    page_of,
    row_of,
)


def made(reader: Reader = Reader.TENANT, *, with_content: bool = True, **columns: Any) -> RequestPage:
    log = RequestLog(
        **{
            "id": UUID(int=1),
            "created_at": datetime(2026, 3, 4, 5, 6, 7, 89_000, tzinfo=UTC),
            "request_id": "12345",
            "organization_id": UUID(int=2),
            "project_id": UUID(int=3),
            "api_key_id": UUID(int=4),
            "route": "chat_completions",
            "duration": 1_250,
            "requested_model": "gpt-5",
            "used_model": "gpt-5",
            "used_provider": "openai",
            "mode": "credits",
            "used_mode": "credits",
            "status_code": 200,
            "unified_finish_reason": "completed",
            **columns,
        }
    )
    links = {"project_id": Link("web", "/projects/web")}
    return page_of(row_of(log), reader, links, with_content=with_content)


def facts_of(page: RequestPage) -> dict[str, str]:
    return {fact.title: fact.value for fact in page.facts}


def test_tenants_and_operators_see_the_same_except_for_their_own() -> None:
    columns = {"source": "site", "custom_headers": {"team": "red"}, "provider_key_id": UUID(int=5)}
    tenant, operator = (facts_of(made(reader, **columns)) for reader in Reader)
    assert set(tenant) - set(operator) == {"Source", "Tag team"}
    assert set(operator) - set(tenant) == {"Sent", "Organization", "Provider key", "Stored"}
    assert {title: tenant[title] for title in tenant if title in operator} == {
        "Project": "web",
        "API key": str(UUID(int=4)),
        "Requested model": "gpt-5",
        "Answered by": "openai/gpt-5",
        "Finish reason": "Completed",
        "Endpoint": "chat completions",
        "Response size": "0 bytes",
        "Request id": "12345",
        "Log id": str(UUID(int=1)),
    }
    assert operator["Sent"] == "2026-03-04 05:06:07.089 UTC"
    assert operator["Stored"] == "no content"


def test_only_counts_are_numbers_and_only_known_ids_are_links() -> None:
    page = made()
    assert [fact.title for fact in page.facts if fact.is_number] == ["Response size"]
    assert [(fact.title, fact.href) for fact in page.facts if fact.href] == [("Project", "/projects/web")]


def test_costs_have_every_digit_and_their_tokens() -> None:
    page = made(
        cost=Decimal("0.5"),
        input_cost=Decimal("0.000000125000"),
        prompt_tokens=12_345,
        request_cost=Decimal("0.2"),
        data_storage_cost=Decimal("0.01"),
        discount_savings=Decimal("1234.5"),
    )
    assert page.costs == [CostLine("Input", "12,345", "$0.000000125"), CostLine("Per request", "", "$0.20")]
    [output] = made(output_cost=1, completion_tokens=45, reasoning_tokens=12).costs
    assert output == CostLine("Output", "45", "$1.00", "of which 12 reasoning")
    assert (page.total_cost, made().total_cost) == ("$0.50", "\N{EN DASH}")
    assert [(fact.title, fact.value) for fact in page.extras] == [
        ("Saved by discounts", "$1,234.50"),
        ("Log storage (not in the total)", "$0.01"),
    ]


@pytest.mark.parametrize(
    ("line", "state", "outcome"),
    [
        ({"succeeded": True, "status_code": 200, "error_type": "none"}, "ok", "answered, HTTP 200"),
        ({"succeeded": False, "error_type": "hedge_lost"}, "slower", "slower, closed"),
        (
            {"succeeded": False, "status_code": 503, "error_type": "rate_limited"},
            "bad",
            "failed, HTTP 503, rate limited",
        ),
        ({}, "bad", "failed, failed"),
    ],
)
def test_an_attempt_states_its_outcome(line: dict[str, Any], state: str, outcome: str) -> None:
    scores = [{"providerId": "openai", "score": 0.934}, "odd"]
    routing = {"routing": [{"provider": "openai", "model": "m", **line}, "odd"], "providerScores": scores}
    [attempt] = made(routing_metadata=routing).waterfall.attempts
    assert (attempt.state, attempt.outcome, attempt.score) == (state, outcome, "0.93")


def test_a_run_of_a_guard_states_its_outcome_duration_and_cost() -> None:
    calls: list[Any] = [
        {
            "rule_name": "Judge",
            "type": "model",
            "direction": "output",
            "outcome": "found",
            "milliseconds": 1_234,
            "cost": 0.0000125,
        },
        {"type": "webhook", "direction": "input", "outcome": "failed", "milliseconds": 7, "error": "it answered 500"},
        {"milliseconds": "odd", "cost": [1]},
        "odd",
    ]
    assert made(routing_metadata={"guardrail_calls": calls}).guard_runs == [
        GuardRun("Judge", "answer", "found", "1.23 s", "$0.0000125"),
        GuardRun("webhook", "request", "failed: it answered 500", "7 ms", "\N{EN DASH}"),
        GuardRun("", "", "", "\N{EN DASH}", "\N{EN DASH}"),
    ]


def test_content_is_there_only_if_asked_for() -> None:
    content: dict[str, Any] = {
        "messages": [{"role": "user", "content": "hello"}],
        "content": "hi",
        "route": "mcp_tool_call",
        "tool_results": [{"name": "search"}],
        "has_error": True,
        "error_details": {"type": "upstream_error", "message": "it quotes hello"},
    }
    bare, whole = (made(Reader.OPERATOR, with_content=asked, **content) for asked in (False, True))
    assert (bare.said, bare.failure_message, bare.keeps_content) == ([], "", True)
    assert whole.failure_message == "it quotes hello"
    assert [(one.title, one.pieces) for one in whole.said] == [
        ("user", [("text", "hello")]),
        ("answer", [("text", "hi")]),
        ("results of tools", [("JSON", json.dumps([{"name": "search"}], indent=2))]),
    ]
    assert [(fact.title, fact.value) for fact in bare.failure] == [("Class", "upstream_error")]


CALLED = '{\n  "city": "Paris"\n}'


@pytest.mark.parametrize(
    "turns",
    [
        [
            {"role": "assistant", "tool_calls": [{"function": {"name": "find", "arguments": '{"city":"Paris"}'}}]},
            {"role": "tool", "content": "sunny"},
        ],
        [
            {"role": "assistant", "content": [{"type": "tool_use", "name": "find", "input": {"city": "Paris"}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "sunny"}]},
        ],
        [
            {"type": "function_call", "name": "find", "arguments": '{"city":"Paris"}'},
            {"type": "function_call_output", "output": "sunny"},
        ],
        [
            {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"city": "Paris"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "find", "response": "sunny"}}]},
        ],
    ],
    ids=["chat", "messages", "responses", "gemini"],
)
def test_calls_and_results_of_tools_are_folded_in_every_format(turns: Any) -> None:
    said = made(messages=turns).said
    assert [one.pieces for one in said] == [[("tool call find", CALLED)], [("tool result", "sunny")]]


def test_the_answer_has_each_choice_with_its_calls() -> None:
    page = made(
        content="one\ntwo",
        refusal="no",
        choices=[
            {"index": 0, "finishReason": "stop", "contentLength": 3},
            {"index": 1, "finishReason": "stop", "contentLength": 3, "refusalLength": 2},
        ],
        tool_calls=[{"id": "c", "name": "find", "arguments": '{"city":"Paris"}', "choice": 1}, {"omitted": 3}],
        citations=[{"type": "url_citation", "url_citation": {"title": "News", "url": "https://a.example"}}],
    )
    assert [(one.title, one.pieces) for one in page.said] == [
        ("answer 1 of 2", [("text", "one"), ("more calls", "3 more calls were not stored")]),
        ("answer 2 of 2", [("text", "two"), ("refusal", "no"), ("tool call find", CALLED)]),
        ("citations", [("text", "News https://a.example")]),
    ]


def test_an_answer_of_calls_alone_is_content_and_its_images_are_described() -> None:
    calls = {"tool_calls": [{"id": "c", "name": "find", "arguments": "{"}], "tool_call_counts": {"find": 1}}
    media = [{"kind": "image", "contentType": "image/png", "size": 1234, "stored": True}]
    page = made(**calls, media=media)
    assert (page.keeps_content, made(media=media).keeps_content, made().keeps_content) == (True, True, False)
    assert [(one.title, one.pieces) for one in page.said] == [("answer", [("tool call find", "{")])]
    assert facts_of(page)["Tools called"] == "find (1)"
    assert page.media == [Medium(0, "image", "image/png · 1,234 bytes", "", is_stored=True, is_shown=True)]
    bare = made(Reader.OPERATOR, with_content=False, **calls, media=media)
    assert (bare.said, bare.media, "Tools called" in facts_of(bare)) == ([], [], False)


def test_offered_tools_are_named_in_every_format() -> None:
    tools = [
        {"type": "function", "function": {"name": "chat"}},
        {"name": "messages", "input_schema": {}},
        {"type": "web_search"},
        {"functionDeclarations": [{"name": "gemini"}]},
        "name alone",
    ]
    settings = made(tools=tools, tool_choice="auto", response_format={"type": "text"}).settings
    assert [title for title, _ in settings] == [
        *("tool chat", "tool messages", "tool web_search", "tool gemini", "tool name alone"),
        *("tool choice", "response format"),
    ]
    assert [text for _, text in settings[4:]] == ["", "auto", '{\n  "type": "text"\n}']


@pytest.mark.parametrize("odd", [["odd"], "odd", 7, {"routing": {}, "providerScores": 7, "warnings": "x"}])
def test_stored_json_of_any_shape_is_shown(odd: Any) -> None:
    page = made(messages=odd, routing_metadata=odd, error_details=odd, custom_headers=odd, has_error=True)
    assert (page.waterfall.attempts, page.scores, page.failure, page.dropped_fields) == ([], [], [], [])
    assert len(page.said) == 1


def test_a_long_conversation_is_cut() -> None:
    messages = [{"role": "user", "content": "x" * (MAX_CHARACTERS + 1)}] * (MAX_MESSAGES + 2)
    page = made(messages=messages, content="the answer")
    assert (len(page.said), page.left_out, page.said[-1].is_answer) == (MAX_MESSAGES + 1, 2, True)
    [(_, text)] = page.said[0].pieces
    assert text == "x" * MAX_CHARACTERS + "\n… 1 more characters; the export has them"


def test_blocks_of_bedrock_are_calls_and_results_of_tools() -> None:
    messages = [
        {"role": "user", "content": [{"text": "Weather?"}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "1", "name": "find", "input": {"city": "Rome"}}}]},
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "1", "content": [{"json": {"sky": "clear"}}]}},
                {"toolResult": {"toolUseId": "2", "content": [{"text": "no such city"}], "status": "error"}},
                {"toolResult": {"toolUseId": "3", "content": [{"text": "a"}, {"text": "b"}]}},
            ],
        },
    ]
    said = [(one.title, one.pieces) for one in made(messages=messages, route="converse").said]
    assert said == [
        ("user", [("text", "Weather?")]),
        ("assistant", [("tool call find", '{\n  "city": "Rome"\n}')]),
        (
            "user",
            [
                ("tool result", '{\n  "sky": "clear"\n}'),
                ("tool result (error)", "no such city"),
                ("tool result", json.dumps([{"text": "a"}, {"text": "b"}], indent=2)),
            ],
        ),
    ]


def test_a_session_and_the_client_are_shown_to_tenants_alone() -> None:
    columns = {"session_id": "run-1", "user_agent": "claude-cli/2.1"}
    tenant, operator = (facts_of(made(reader, **columns)) for reader in Reader)
    assert (tenant["Session"], tenant["Client"]) == ("run-1", "claude-cli/2.1")
    assert not {"Session", "Client"} & set(operator)
