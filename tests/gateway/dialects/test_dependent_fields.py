"""Fields that make sense only beside another: none is sent alone, as providers refuse the whole request for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, google, openai, responses
from tests.gateway.dialects.chat.openai.test_write_request import read, sent

TEXT = "Say hello"
SAID = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": TEXT}]}
PROVIDERS: dict[str, Any] = {
    "openai": openai,
    "responses": responses,
    "anthropic": anthropic,
    "google": google,
    "bedrock": bedrock,
    "cohere": cohere,
}
CHOICES = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "toolConfig",
    "tool_config",
    "toolChoice",
    "strict_tools",
    "additionalModelRequestFields",
)


def of_gemini(**fields: Any) -> Chat:
    return google.read_request(json.dumps({"contents": [{"parts": [{"text": TEXT}]}], **fields}).encode())


CHATS = {
    "Codex's compaction": responses.read_request(
        json.dumps(
            {"model": "m", "input": TEXT, "tools": [], "tool_choice": "auto", "parallel_tool_calls": False}
        ).encode()
    ),
    "a chat with none to call": openai.read_request(json.dumps({**SAID, "tool_choice": "none"}).encode()),
    "a chat with an empty list": openai.read_request(
        b'{"model":"m","max_tokens":99,"messages":[{"role":"user","content":"Hi"}],"tools":[ ],'
        b'"tool_choice":"auto","parallel_tool_calls":true}'
    ),
    "messages": anthropic.read_request(
        json.dumps({**SAID, "tools": [], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}).encode()
    ),
    "gemini": of_gemini(toolConfig={"functionCallingConfig": {"mode": "NONE"}}),
    "gemini with an underscore": of_gemini(tool_config={"function_calling_config": {"mode": "AUTO"}}),
}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CHATS)
def test_nothing_is_said_of_a_choice_among_no_tools(client: str, provider: str) -> None:
    target = Target(model_name="fox-1", facts={})
    wire = json.loads(PROVIDERS[provider].write_request(CHATS[client], target))
    # A provider's own empty list says the same as no list.
    assert [name for name in CHOICES if wire.get(name) not in (None, [])] == []
    assert target.dropped_fields == []


def test_a_call_that_is_demanded_of_no_tool_stays_for_the_provider_to_refuse() -> None:
    assert sent(read(tools=[], tool_choice="required"))["tool_choice"] == "required"


def test_a_choice_that_no_tools_are_left_for_takes_what_goes_with_it_away() -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    chat = read(tools=tools, tool_choice="none", parallel_tool_calls=False)
    assert sent(chat, tool_choices=["auto"]) == sent(read())


def test_a_search_that_becomes_a_field_is_no_tool_to_choose() -> None:
    chat = responses.read_request(
        json.dumps(
            {
                "model": "m",
                "input": TEXT,
                "tools": [{"type": "web_search"}, {"type": "function", "name": "look", "parameters": None}],
                "tool_choice": {"type": "web_search"},
            }
        ).encode()
    )
    target = Target(model_name="fox-1", facts={"takes": ["web_search_options"]})
    wire = json.loads(openai.write_request(chat, target))
    assert ("tool_choice" in wire, [tool["function"]["name"] for tool in wire["tools"]]) == (False, ["look"])
    assert [dropped.param for dropped in target.dropped_fields] == ["tool_choice"]


def test_the_likeliest_words_are_not_asked_for_without_their_probabilities() -> None:
    chat = of_gemini(generationConfig={"logprobs": 3})
    target = Target(model_name="fox-1", facts={})
    assert "top_logprobs" not in json.loads(openai.write_request(chat, target))
    assert [dropped.param for dropped in target.dropped_fields] == ["generationConfig.logprobs"]
    assert sent(read(logprobs=True, top_logprobs=3))["top_logprobs"] == 3
