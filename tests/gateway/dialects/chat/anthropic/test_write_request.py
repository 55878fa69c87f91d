"""Requests to a provider of Anthropic's format, for clients of OpenAI's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Target
from apps.gateway.dialects.chat import anthropic, openai
from apps.kernel.errors import InvalidRequest


def sent(messages: Any = "Hi", facts: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return the body for an OpenAI client's request."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    chat = openai.read_request(json.dumps({"model": "m", "messages": messages, **fields}).encode())
    return dict(json.loads(anthropic.write_request(chat, Target(model_name="up", facts=facts or {}, max_output=8_000))))


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_the_limit_is_the_clients_or_else_the_models() -> None:
    assert sent() == {"model": "up", "max_tokens": 8_000, "messages": [{"role": "user", "content": "Hi"}]}
    assert sent(max_tokens=7)["max_tokens"] == 7
    assert sent(max_completion_tokens=9)["max_tokens"] == 9


def test_instructions_at_the_beginning_are_the_system_prompt_and_later_ones_stay_in_their_place() -> None:
    body = sent(
        [
            {"role": "system", "content": "One."},
            {
                "role": "developer",
                "content": [{"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "system", "content": "Three."},
            {"role": "user", "content": "And?"},
        ]
    )
    assert body["system"] == [
        {"type": "text", "text": "One."},
        {"type": "text", "text": "Two.", "cache_control": {"type": "ephemeral"}},
    ]
    assert body["messages"] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "<system>\nThree.\n</system>"}, {"type": "text", "text": "And?"}],
        },
    ]


def test_roles_alternate_and_results_of_tools_come_first() -> None:
    body = sent(
        [
            {"role": "assistant", "content": None, "tool_calls": [call("a", x=1), call("b")]},
            {"role": "tool", "tool_call_id": "call_a", "content": "A"},
            {"role": "tool", "tool_call_id": "call_b", "content": ""},
            {"role": "user", "content": [{"type": "text", "text": "so?"}, {"type": "text", "text": " "}]},
            {"role": "user", "content": "well?"},
        ]
    )
    assert body["messages"] == [
        {"role": "user", "content": "."},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "call_a", "name": "a", "input": {"x": 1}},
                {"type": "tool_use", "id": "call_b", "name": "b", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_a", "content": "A"},
                {"type": "tool_result", "tool_use_id": "call_b"},
                {"type": "text", "text": "so?"},
                {"type": "text", "text": "well?"},
            ],
        },
    ]
    # A conversation with calls is refused without tools.
    assert [tool["name"] for tool in body["tools"]] == ["a", "b"]


def test_arguments_that_are_no_object_are_put_into_one() -> None:
    broken = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    body = sent(
        [
            {"role": "user", "content": "?"},
            {"role": "assistant", "tool_calls": [broken]},
            {"role": "tool", "tool_call_id": "c", "content": "no"},
        ]
    )
    assert body["messages"][1]["content"][0]["input"] == {"arguments": '{"a":'}


@pytest.mark.parametrize(
    ("choice", "parallel", "written"),
    [
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ({"type": "function", "function": {"name": "f"}}, None, {"type": "tool", "name": "f"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (None, True, None),
    ],
)
def test_tool_choice(choice: Any, parallel: bool | None, written: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "strict": True}}]
    body = sent(tools=tools, tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == written
    assert body["tools"] == [
        {"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}, "strict": True}
    ]


def test_only_the_allowed_tools_are_offered() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b")]
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "b"}}]}
    body = sent(tools=tools, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert ([tool["name"] for tool in body["tools"]], body["tool_choice"]) == (["b"], {"type": "any"})


BUDGET = {"reasoning_budget": {"min": 1024}}


@pytest.mark.parametrize(
    ("fields", "facts", "written"),
    [
        ({"reasoning_effort": "high"}, {}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ({"reasoning_effort": "minimal"}, {}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}),
        ({"reasoning_effort": "none"}, {}, {"thinking": {"type": "disabled"}}),
        ({"reasoning_effort": "medium"}, BUDGET, {"thinking": {"type": "enabled", "budget_tokens": 4_000}}),
        (
            {"reasoning_effort": "low", "max_tokens": 2_000},
            BUDGET,
            {"thinking": {"type": "enabled", "budget_tokens": 1_024}},
        ),
        ({"reasoning_effort": "low", "max_tokens": 1_000}, BUDGET, {}),
        ({"reasoning_effort": "none"}, BUDGET, {}),
        ({"reasoning": {"max_tokens": 3_000}}, {}, {"thinking": {"type": "enabled", "budget_tokens": 3_000}}),
    ],
)
def test_how_much_to_think(fields: dict[str, Any], facts: dict[str, Any], written: dict[str, Any]) -> None:
    body = sent(facts=facts, **fields)
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == written


def test_a_budget_raises_the_limit_that_nobody_stated_as_far_as_the_model_goes() -> None:
    body = sent(reasoning={"max_tokens": 9_000})
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (8_000, 7_999)


def test_only_thinking_under_anthropics_seal_goes_back() -> None:
    details = [
        {"type": "reasoning.text", "text": "a", "signature": "s", "format": "anthropic-claude-v1"},
        {"type": "reasoning.encrypted", "data": "d", "format": "anthropic-claude-v1"},
        {"type": "reasoning.text", "text": "b", "signature": "s", "format": "google-gemini-v1"},
        {"type": "reasoning.encrypted", "data": "e", "format": "openai-responses-v1"},
        {"type": "reasoning.text", "text": "c"},
    ]
    body = sent(
        [{"role": "user", "content": "?"}, {"role": "assistant", "content": "ok", "reasoning_details": details}]
    )
    assert body["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "a", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "ok"},
    ]


def test_the_form_of_the_answer() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = sent(
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        reasoning_effort="low",
    )
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    body = sent(
        [{"role": "system", "content": "Hi"}, {"role": "user", "content": "?"}], response_format={"type": "json_object"}
    )
    assert [block["text"] for block in body["system"]] == ["Hi", "Answer with one JSON object and nothing else."]
    assert "system" not in sent(response_format={"type": "text"})


def test_pictures_and_documents() -> None:
    body = sent(
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,aGk=", "detail": "low"}},
                    {"type": "image_url", "image_url": {"url": "https://i.example/p.png"}},
                    {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
                ],
            }
        ]
    )
    assert body["messages"][0]["content"] == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aGk="}},
        {"type": "image", "source": {"type": "url", "url": "https://i.example/p.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            "title": "a.pdf",
        },
    ]


def test_web_search_is_anthropics_own() -> None:
    body = sent(tools=[{"type": "web_search", "max_uses": 3, "user_location": {"city": "Oslo"}}])
    assert body["tools"] == [
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 3,
            "user_location": {"type": "approximate", "city": "Oslo"},
        }
    ]
    assert sent(web_search=True)["tools"] == [{"type": "web_search_20250305", "name": "web_search"}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"n": 2}, "n"), ({"logprobs": True}, "logprobs"), ({"modalities": ["text", "audio"]}, "modalities")],
)
def test_what_cannot_be_said_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        sent(**fields)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", param)


def test_what_has_no_words_and_changes_no_shape_is_left_out() -> None:
    body = sent(frequency_penalty=0.5, seed=1, user="u", service_tier="default", stop=["END", "\n"])
    assert body == {
        "model": "up",
        "max_tokens": 8_000,
        "messages": [{"role": "user", "content": "Hi"}],
        "stop_sequences": ["END"],
        "service_tier": "standard_only",
        "metadata": {"user_id": "u"},
    }


def test_headers_carry_the_version_and_the_previews_that_the_provider_takes() -> None:
    chat = anthropic.read_request(b'{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "?"}]}')
    target = Target(model_name="m", facts={})
    assert anthropic.headers(chat, target) == {"anthropic-version": "2023-06-01"}
    chat.betas = ["a-1", "b-2"]
    assert anthropic.headers(chat, target)["anthropic-beta"] == "a-1,b-2"
    assert anthropic.headers(chat, Target(model_name="m", facts={"betas": ["b-2"]}))["anthropic-beta"] == "b-2"
