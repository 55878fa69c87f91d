"""Requests to an OpenAI-alike, by the facts that are stated of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    CacheMark,
    Chat,
    File,
    Image,
    Message,
    Opaque,
    OpaqueTool,
    Part,
    Reasoning,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.chat import openai
from apps.kernel.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Hi"}]
PLAIN = Target(model_name="upstream-model", facts={})


def read(**fields: Any) -> Chat:
    """Read a request with these fields beside a model and a message."""
    return openai.read_request(json.dumps({"model": "fox-1", "messages": MESSAGES, **fields}).encode())


def sent(chat: Chat, **facts: Any) -> dict[str, Any]:
    """Return what a provider with these facts is sent."""
    wire: dict[str, Any] = json.loads(openai.write_request(chat, Target(model_name="upstream-model", facts=facts)))
    return wire


def test_what_is_not_changed_passes_byte_for_byte() -> None:
    body = (
        b'{ "messages" :[{"role":"user", "content" : "\\u0041\xc3\xa9" }],"temperature":1.0,\n'
        b'"model":"fox-1", "new": {"b":1e2, "a": 123456789012345678901} , "user":null}'
    )
    assert openai.write_request(openai.read_request(body), PLAIN) == (
        b'{"messages":[{"role":"user", "content" : "\\u0041\xc3\xa9" }],"temperature":1.0,'
        b'"model":"upstream-model","new":{"b":1e2, "a": 123456789012345678901}}'
    )


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("known", ["max_tokens", "max_completion_tokens"])
def test_the_limit_is_sent_under_the_name_the_provider_knows(field: str, known: str) -> None:
    chat = read(**{field: 5})
    assert sent(chat, max_tokens_field=known) == {"model": "upstream-model", "messages": MESSAGES, known: 5}
    both = read(max_tokens=5, max_completion_tokens=5)
    assert sent(both, max_tokens_field=known) == {"model": "upstream-model", "messages": MESSAGES, known: 5}


def test_usage_is_asked_for_on_every_stream_whose_provider_can_tell() -> None:
    assert sent(read(stream=True))["stream_options"] == {"include_usage": True}
    assert "stream_options" not in sent(read(stream=True, stream_options={"include_usage": True}), stream_usage=False)
    assert "stream_options" not in sent(read(stream_options={"include_usage": True}))


def test_our_own_fields_go_only_where_they_are_taken() -> None:
    chat = read(
        reasoning={"effort": "low", "max_tokens": 9},
        effort="low",
        plugins=[{"id": "response-healing"}],
        image_config={"n": 1},
        free_models_only=True,
        no_reasoning=True,
    )
    plain = {"model": "upstream-model", "messages": MESSAGES}
    assert sent(chat) == {**plain, "reasoning_effort": "low"}
    assert sent(chat, unsupported=["reasoning_effort"]) == plain
    taken = {"reasoning": {"effort": "low", "max_tokens": 9}, "image_config": {"n": 1}}
    assert sent(chat, takes=["reasoning", "image_config"]) == {**plain, **taken}
    chat.source = None
    assert sent(chat) == {**plain, "reasoning_effort": "low"}
    assert sent(chat, takes=["reasoning", "image_config"]) == {**plain, **taken}


@pytest.mark.parametrize(
    ("fields", "param"), [({"web_search": True}, "web_search"), ({"tools": [{"type": "web_search"}]}, "tools")]
)
def test_a_web_search_that_cannot_be_had_is_refused_before_anybody_is_called(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        openai.write_request(read(**fields), PLAIN)
    assert (refusal.value.code, refusal.value.param) == ("unsupported_feature", param)


def foreign(*messages: Message, **fields: Any) -> Chat:
    """Return a chat that was read from another format."""
    return Chat(model="fox-1", messages=list(messages), dialect="another", **fields)


def test_pictures_that_tools_show_follow_the_results_of_their_turn() -> None:
    picture = Image(url="data:image/png;base64,AA==", extra={"only": "theirs"})
    calls: list[Part] = [ToolCall(id=name, name="show", arguments="{}") for name in "abc"]
    wire = sent(
        foreign(
            Message(role="assistant", parts=calls),
            Message(role="tool", parts=[ToolResult(call_id="a", parts=[Text(text="see"), picture])]),
            Message(role="tool", parts=[ToolResult(call_id="b", parts=[Text(text="no")], is_error=True)]),
            Message(role="tool", parts=[ToolResult(call_id="c", parts=[picture])]),
            Message(role="user", parts=[Text(text="so?", cache=CacheMark())], extra={"only": "theirs"}),
            extra={"only": "theirs"},
        )
    )
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    assert wire == {
        "model": "upstream-model",
        "messages": [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": name, "type": "function", "function": {"name": "show", "arguments": "{}"}} for name in "abc"
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "see"}]},
            {"role": "tool", "tool_call_id": "b", "content": "Error: no"},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {"role": "user", "content": [shown, shown]},
            {"role": "user", "content": "so?"},
        ],
    }


def test_thinking_goes_back_only_as_the_provider_takes_it() -> None:
    chat = foreign(
        Message(
            role="assistant",
            parts=[Reasoning(text="Hm", signature="c2ln", format="f"), Text(text="4")],
        )
    )
    plain = {"role": "assistant", "content": "4"}
    block = {"type": "reasoning.text", "text": "Hm", "signature": "c2ln", "format": "f", "index": 0}
    assert sent(chat)["messages"] == [plain]
    assert sent(chat, reasoning_field="reasoning_content")["messages"] == [{**plain, "reasoning_content": "Hm"}]
    assert sent(chat, takes=["reasoning_details"])["messages"] == [{**plain, "reasoning_details": [block]}]


def test_what_only_another_format_can_say_is_refused() -> None:
    part = foreign(Message(role="user", parts=[Opaque(dialect="another", data={})]))
    tool = foreign(Message(role="user", parts=[Text(text="?")]), tools=[OpaqueTool(dialect="another", data={})])
    for chat in (part, tool):
        with pytest.raises(InvalidRequest) as refusal:
            openai.write_request(chat, PLAIN)
        assert refusal.value.code == "unsupported_feature"


def test_a_file_without_its_media_type_in_front_gets_it() -> None:
    wire = sent(
        foreign(Message(role="user", parts=[File(data="AA==", media_type="application/pdf", filename="a.pdf")]))
    )
    part = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}}
    assert wire["messages"][0]["content"] == [part]


def test_a_chosen_custom_tool_is_pointed_at_as_one_where_the_request_is_rewritten() -> None:
    tools = [{"type": "custom", "custom": {"name": "patch"}}, {"type": "function", "function": {"name": "find"}}]
    pointers = [{"type": "custom", "custom": {"name": "patch"}}, {"type": "function", "function": {"name": "find"}}]
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": pointers}}
    for choice in (*pointers, allowed):
        body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": tools, "tool_choice": choice}
        chat = replace(openai.read_request(json.dumps(body).encode()), source=None)
        wire = json.loads(openai.write_request(chat, Target(model_name="m", facts={})))
        assert (wire["tools"], wire["tool_choice"]) == (tools, choice)
