"""Requests in OpenAI's chat format, and its refusals."""

from __future__ import annotations

import json
from typing import Any

from apps.gateway.canonical.chat import (
    CacheMark,
    Chat,
    File,
    FunctionTool,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    Reasoning,
    ReasoningRequest,
    Target,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    WebSearchTool,
)
from apps.gateway.dialects.chat import openai

MESSAGES = [{"role": "user", "content": "Hi"}]


def read(**fields: Any) -> Chat:
    """Read a request with these fields beside a model and a message."""
    return openai.read_request(json.dumps({"model": "fox-1", "messages": MESSAGES, **fields}).encode())


def sent(chat: Chat, **facts: Any) -> dict[str, Any]:
    """Return what a provider with these facts is sent."""
    wire: dict[str, Any] = json.loads(openai.write_request(chat, Target(model_name="upstream-model", facts=facts)))
    return wire


def user(*parts: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(parts)}]


def test_null_is_absent() -> None:
    names = [
        "stream",
        "max_tokens",
        "temperature",
        "stop",
        "tools",
        "tool_choice",
        "reasoning",
        "user",
        "some_new_field",
    ]
    chat = read(**dict.fromkeys(names))
    plain = read()
    plain.source = chat.source
    assert chat == plain
    assert sent(chat) == {"model": "upstream-model", "messages": MESSAGES}


def test_a_body_may_nest_128_deep() -> None:
    nested: Any = 1
    for depth in range(127):
        nested = [nested] if depth % 2 else {"x": nested}
    assert read(some_new_field=nested).extra == {"some_new_field": nested}


def test_every_field_is_read() -> None:
    chat = read(
        stream=True,
        stream_options={"include_usage": False},
        max_completion_tokens=9,
        max_tokens=9.0,
        temperature=2,
        top_p=0,
        top_k=40,
        frequency_penalty=-2,
        presence_penalty=2,
        stop="end",
        seed=-1,
        n=128,
        logprobs=True,
        top_logprobs=20,
        logit_bias={"7": -100},
        parallel_tool_calls=False,
        reasoning_effort="xhigh",
        reasoning={"effort": "xhigh", "max_tokens": 1024},
        effort="low",
        web_search=True,
        free_models_only=True,
        no_reasoning=True,
        plugins=[{"id": "response-healing"}],
        image_config={"aspect_ratio": "16:9", "image_size": "2K", "image_quality": "high", "n": 2, "seed": 5},
        user="dana",
        metadata={"a": "b"},
        service_tier="flex",
        prompt_cache_key="k",
        verbosity="low",
        modalities=["text", "audio"],
        audio={"voice": "alloy", "format": "wav"},
        prediction={"type": "content", "content": "x"},
        store=True,
        some_new_field=[1],
    )
    assert (chat.stream, chat.include_usage, chat.max_tokens) == (True, False, 9)
    assert (chat.temperature, chat.top_p, chat.top_k) == (2, 0, 40)
    assert (chat.frequency_penalty, chat.presence_penalty) == (-2, 2)
    assert (chat.stop, chat.seed, chat.n) == (["end"], -1, 128)
    assert (chat.logprobs, chat.top_logprobs, chat.logit_bias) == (True, 20, {"7": -100})
    assert chat.parallel_tool_calls is False
    assert chat.reasoning == ReasoningRequest(effort="xhigh", max_tokens=1024)
    assert (chat.effort, chat.web_search, chat.free_models_only, chat.no_reasoning) == ("low", True, True, True)
    assert chat.plugins == ["response-healing"]
    assert chat.image_config == {
        "aspect_ratio": "16:9",
        "image_size": "2K",
        "image_quality": "high",
        "n": 2,
        "seed": 5,
    }
    assert (chat.user, chat.metadata, chat.service_tier) == ("dana", {"a": "b"}, "flex")
    assert (chat.prompt_cache_key, chat.verbosity, chat.modalities) == ("k", "low", ["text", "audio"])
    assert (chat.audio, chat.store) == ({"voice": "alloy", "format": "wav"}, True)
    assert chat.prediction == {"type": "content", "content": "x"}
    assert chat.extra == {"some_new_field": [1]}


def test_the_parts_of_messages_are_read() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    chat = read(
        messages=[
            *user(
                {"type": "text", "text": "Look", "cache_control": mark, "new": 1, "image_url": None},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
                {"type": "image_url", "image_url": "data:image/png;base64,AA=="},
                {"type": "file", "file": {"file_data": "https://example.org/a.pdf", "filename": "a.pdf"}},
                {"type": "file", "file": {"file_id": "file-1"}},
                {"type": "video_url", "video_url": {"url": "https://example.org/v"}},
            ),
            {
                "role": "assistant",
                "content": None,
                "prefix": True,
                "reasoning": "Hm. So.",
                "reasoning_details": [
                    {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "format": "f", "index": 0},
                    {"type": "reasoning.summary", "summary": "So.", "format": "f", "index": 1},
                    {"type": "reasoning.encrypted", "data": "ZGF0YQ==", "id": "rs_1", "format": "f", "index": 2},
                ],
                "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "", "name": "f"},
        ]
    )
    assert chat.messages == [
        Message(
            role="user",
            parts=[
                Text(text="Look", cache=CacheMark(ttl="1h"), extra={"new": 1}),
                Image(url="https://example.org/a.png", detail="low"),
                Image(url="data:image/png;base64,AA=="),
                File(url="https://example.org/a.pdf", filename="a.pdf"),
                File(file_id="file-1"),
                Opaque(dialect="openai", data={"type": "video_url", "video_url": {"url": "https://example.org/v"}}),
            ],
        ),
        Message(
            role="assistant",
            parts=[
                Reasoning(text="Hm.", signature="c2ln", format="f"),
                Reasoning(text="So.", summary=True, format="f"),
                Reasoning(data="ZGF0YQ==", id="rs_1", format="f"),
                ToolCall(id="call_1", name="f", arguments='{"a":1}'),
            ],
            extra={"prefix": True},
        ),
        Message(role="tool", parts=[ToolResult(call_id="call_1", parts=[Text(text="")], name="f")]),
    ]


def test_tools_and_their_choice_are_read() -> None:
    schema = {"type": "object", "properties": {}}
    chat = read(
        tools=[
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema, "strict": True}},
            {"function": {"name": "g"}, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search", "user_location": {"city": "Oslo"}, "search_context_size": "low", "max_uses": 3},
            {"type": "custom", "custom": {"name": "h"}},
        ],
        tool_choice={
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}],
            },
        },
    )
    assert chat.tools == [
        FunctionTool(name="f", description="d", parameters=schema, strict=True),
        FunctionTool(name="g", cache=CacheMark()),
        WebSearchTool(user_location={"city": "Oslo"}, search_context_size="low", max_uses=3),
        OpaqueTool(dialect="openai", data={"type": "custom", "custom": {"name": "h"}}),
    ]
    assert chat.tool_choice == ToolChoice(mode="required", allowed=("f", "web_search"))
    assert read(tool_choice="none").tool_choice == ToolChoice(mode="none")
    assert read(tool_choice={"function": {"name": "f"}}).tool_choice == ToolChoice(mode="named", name="f")
    assert read(tools=[]).tools is None


def test_calls_without_ids_are_paired_by_name_and_always_alike() -> None:
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    result = {"role": "function", "name": "f", "content": "ok"}
    chat = read(messages=[*MESSAGES, call, result, call, result, {**result, "name": "g"}])
    parts = [message.parts[0] for message in chat.messages[1:]]
    ids = [part.id if isinstance(part, ToolCall) else part.call_id for part in parts if not isinstance(part, Text)]
    assert ids == ["call_1_f", "call_1_f", "call_3_f", "call_3_f", "call_g"]
