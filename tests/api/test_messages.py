"""Anthropic's messages format, for models behind either format, over real HTTP (section 4.8)."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.dialects.chat import anthropic
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.anthropic_requests import WEATHER, ask, speak
from tests.support.upstream import Caller, nothing_happened, settle_all

CALLED = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}}


@pytest.fixture(params=["openai", "anthropic"])
def upstream(request: pytest.FixtureRequest, caller: Caller) -> str:
    """The format that the upstream speaks: each test runs against both."""
    speak(request.param)
    return str(request.param)


def test_the_answer_has_the_fields_of_the_specification(caller: Caller, upstream: str) -> None:
    response = ask(caller, "hi [[sandbox usage=1000,200,300]]", headers={"x-request-id": "my-own.id_1"})
    assert response.status_code == 200
    assert response["x-request-id"] == "my-own.id_1"
    body = response.json()
    assert body.pop("id")
    assert (
        body.pop("usage").items()
        >= {
            "input_tokens": 700,
            "output_tokens": 200,
            "cache_read_input_tokens": 300,
            "cache_creation_input_tokens": 0,
        }.items()
    )
    assert body == {
        "type": "message",
        "role": "assistant",
        "model": "echo",
        "content": [{"type": "text", "text": "You said: hi"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }


@pytest.mark.parametrize(
    ("content", "fields", "reason"),
    [
        ("hi", {}, "end_turn"),
        ("one two three four five six", {"max_tokens": 2}, "max_tokens"),
        ("call get_weather", {"tools": [WEATHER]}, "tool_use"),
    ],
)
def test_stop_reasons(caller: Caller, upstream: str, content: str, fields: dict[str, Any], reason: str) -> None:
    assert ask(caller, content, **fields).json()["stop_reason"] == reason


def test_tool_use_becomes_tool_calls_and_tool_results_tool_messages(caller: Caller) -> None:
    tag = uuid4().hex
    response = ask(
        caller,
        messages=[
            {"role": "user", "content": f"weather? [[sandbox tag={tag}]]"},
            {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, CALLED]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rainy"}]},
        ],
        system=[
            {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "Be kind."},
        ],
        tools=[WEATHER],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        stop_sequences=["STOP"],
    )
    assert response.json()["content"] == [{"type": "text", "text": "get_weather answered: rainy"}]
    (sent,) = caller.sent(tag)
    assert [message["role"] for message in sent["body"]["messages"]] == ["system", "user", "assistant", "tool"]
    system, _, said, result = sent["body"]["messages"]
    assert [part["text"] for part in system["content"]] == ["Be brief.", "Be kind."]
    assert said["content"] == "Let me see."
    assert said["tool_calls"] == [
        {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
    ]
    assert (result["tool_call_id"], result["content"]) == ("toolu_1", "rainy")
    assert sent["body"]["tools"][0]["function"]["parameters"] == WEATHER["input_schema"]
    assert (sent["body"]["max_tokens"], sent["body"]["stop"]) == (100, ["STOP"])
    assert sent["body"]["parallel_tool_calls"] is False


def test_an_image_block_becomes_an_image_url_part(caller: Caller) -> None:
    tag = uuid4().hex
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    response = ask(caller, [{"type": "text", "text": f"look [[sandbox tag={tag}]]"}, picture], model="sandbox/vision")
    assert response.json()["content"][0]["text"] == "You said: look (1 image)"
    (sent,) = caller.sent(tag)
    assert sent["body"]["messages"][0]["content"][1] == {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,aGk="},
    }


def test_messages_of_the_roles_tool_and_function_are_taken(caller: Caller, upstream: str) -> None:
    response = ask(
        caller,
        messages=[
            {"role": "user", "content": "weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "rainy"},
            {"role": "assistant", "content": "", "function_call": {"name": "get_time", "arguments": "{}"}},
            {"role": "function", "name": "get_time", "content": "noon"},
        ],
    )
    assert response.json()["content"][0]["text"] == "get_time answered: noon"


def test_a_tool_is_called_with_the_arguments_that_the_model_wrote(caller: Caller, upstream: str) -> None:
    body = ask(caller, "call get_weather", tools=[WEATHER]).json()
    (block,) = body["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "get_weather", {"city": "city"})
    assert block["id"]


def test_what_claude_code_sends_is_taken(caller: Caller, upstream: str) -> None:
    tag = uuid4().hex
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}, "kind": {"const": "a"}},
        "propertyNames": {"pattern": "^[a-z]+$"},
        "additionalProperties": False,
    }
    response = ask(
        caller,
        path="/v1/messages?beta=true",
        headers={
            "Authorization": f"Bearer {caller.token}",
            "x-api-key": "",
            "anthropic-beta": "claude-code-20250219,context-1m-2025-08-07, effort-2025-11-24",
            "X-Claude-Code-Session-Id": "s-1",
        },
        max_tokens=64_000,
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>be good</system-reminder>"},
                    {
                        "type": "text",
                        "text": f"say hi [[sandbox tag={tag}]]",
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    },
                ],
            },
            {"role": "system", "content": "The date is today."},
        ],
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli;"},
            {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}},
        ],
        tools=[{"name": f"Tool{number}", "description": "x", "input_schema": schema} for number in range(24)],
        metadata={"user_id": json.dumps({"device": "d", "session": "s"})},
        thinking={"type": "adaptive"},
        context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        output_config={"effort": "high"},
        something_new={"from": "tomorrow"},
    )
    assert response.status_code == 200
    assert response.json()["content"][-1]["text"] == "You said: <system-reminder>be good</system-reminder>\nsay hi"
    (sent,) = caller.sent(tag)
    if upstream == "openai":
        assert "x-anthropic-billing-header" not in json.dumps(sent["body"])
        assert not {"something_new", "context_management", "thinking", "output_config"} & set(sent["body"])
    else:
        assert sent["body"]["something_new"] == {"from": "tomorrow"}
        assert sent["body"]["messages"][0]["content"][1]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
        assert sent["body"]["system"][0]["text"].startswith("x-anthropic-billing-header")
        headers = {name.lower(): value for name, value in sent["headers"].items()}
        assert headers["anthropic-version"] == "2023-06-01"
        assert headers["anthropic-beta"] == "claude-code-20250219,context-1m-2025-08-07,effort-2025-11-24"


def test_thinking_comes_with_its_seal_and_goes_back(caller: Caller) -> None:
    speak("anthropic")
    tag = uuid4().hex
    thinking, text = ask(
        caller, "why?", model="sandbox/reasoner", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}
    ).json()["content"]
    assert (thinking["type"], thinking["signature"]) == ("thinking", "c2FuZGJveCBzaWduYXR1cmU=")
    assert thinking["thinking"]
    again = ask(
        caller,
        model="sandbox/reasoner",
        messages=[
            {"role": "user", "content": "why?"},
            {"role": "assistant", "content": [thinking, text]},
            {"role": "user", "content": f"and? [[sandbox tag={tag}]]"},
        ],
    )
    assert again.status_code == 200
    (sent,) = caller.sent(tag)
    assert sent["body"]["messages"][1]["content"] == [thinking, text]


def test_an_openai_client_is_answered_by_an_upstream_of_anthropics_format(caller: Caller) -> None:
    speak("anthropic")
    tag = uuid4().hex
    response = caller.chat(f"hi [[sandbox tag={tag} usage=1000,200,300,0,100]]", stop="END", user="u-1")
    body = response.json()
    assert body["choices"][0]["message"]["content"] == "You said: hi"
    assert body["usage"]["prompt_tokens"] == 1000
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 300
    assert body["usage"]["prompt_tokens_details"]["cache_write_tokens"] == 100
    (sent,) = caller.sent(tag)
    assert sent["body"].pop("max_tokens") > 0
    assert sent["body"] == {
        "model": "echo",
        "messages": [{"role": "user", "content": f"hi [[sandbox tag={tag} usage=1000,200,300,0,100]]"}],
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u-1"},
    }


def test_a_request_is_logged_with_its_messages_and_paid(caller: Caller, upstream: str) -> None:
    Organization.objects.update(retention_level="retain")
    response = ask(caller, "hi [[sandbox usage=1000,200]]", system="Be brief.")
    assert response.status_code == 200
    assert settle_all() == 1
    entry = RequestLog.objects.get()
    assert (entry.route, entry.prompt_tokens, entry.completion_tokens) == ("messages", 1000, 200)
    assert (entry.unified_finish_reason, entry.content) == ("completed", "You said: hi")
    assert entry.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi [[sandbox usage=1000,200]]"},
    ]
    assert entry.cost > 0


def test_counting_tokens_is_free_and_asks_nobody(caller: Caller) -> None:
    response = ask(
        caller,
        "hello " * 100,
        path="/v1/messages/count_tokens?beta=true",
        max_tokens=None,
        tools=[WEATHER],
        system="Hi",
    )
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "hello " * 100}],
        "tools": [WEATHER],
        "system": "Hi",
        "max_tokens": 1,
    }
    expected = estimate_prompt_tokens(anthropic.read_request(json.dumps(body).encode()))
    assert (response.status_code, response.json()) == (200, {"input_tokens": expected})
    assert expected > 150
    assert nothing_happened(caller)
    missing = ask(caller, path="/v1/messages/count_tokens", messages=None)
    assert (missing.status_code, missing.json()["message"]) == (400, "Invalid request format: messages: Required")
