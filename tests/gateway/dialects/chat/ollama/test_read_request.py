"""Requests in Ollama's format, as they are read into the canonical language."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Reasoning, ReasoningRequest, ResponseFormat, Text, ToolCall, ToolResult
from apps.gateway.dialects.chat.ollama import CLIENT
from apps.gateway.dialects.chat.ollama.read_request import NothingAsked
from apps.gateway.dialects.chat.ollama_generate import CLIENT as GENERATE
from apps.kernel.errors import InvalidRequest

QUESTION = [{"role": "user", "content": "?"}]


def read(**fields: Any) -> Chat:
    return CLIENT.read_request(json.dumps({"model": "m", "messages": QUESTION, **fields}).encode())


@pytest.mark.parametrize(
    ("think", "asked"),
    [
        (None, None),
        (True, ReasoningRequest(effort="medium")),
        (False, ReasoningRequest(effort="none", exclude=True)),
        ("low", ReasoningRequest(effort="low")),
        ("max", ReasoningRequest(effort="max")),
    ],
)
def test_think_is_an_effort(think: Any, asked: ReasoningRequest | None) -> None:
    assert read(think=think).reasoning == asked


@pytest.mark.parametrize(
    ("stated", "form"),
    [
        ("", None),
        ("json", ResponseFormat(kind="json_object")),
        ({"type": "object"}, ResponseFormat(kind="json_schema", name="answer", schema={"type": "object"})),
    ],
)
def test_format_is_the_form_of_the_answer(stated: Any, form: ResponseFormat | None) -> None:
    assert read(format=stated).response_format == form


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"num_predict": -1}, {"max_tokens": None}),
        ({"num_predict": 0}, {"max_tokens": None}),
        ({"num_predict": 7}, {"max_tokens": 7}),
        ({"top_k": 0}, {"top_k": -1}),
        ({"top_k": 40}, {"top_k": 40}),
        ({"stop": "END"}, {"stop": ["END"]}),
        ({"stop": []}, {"stop": None}),
        ({"num_ctx": 8192, "num_gpu": 1, "num_thread": 4}, {"extra": None}),
        ({"min_p": 0.5, "num_ctx": 1}, {"extra": {"options": {"min_p": 0.5}}}),
    ],
)
def test_an_option_is_read_by_its_meaning(options: dict[str, Any], fields: dict[str, Any]) -> None:
    chat = read(options=options)
    assert {name: getattr(chat, name) for name in fields} == fields


def test_a_stream_is_the_default() -> None:
    assert [read().stream, read(stream=None).stream, read(stream=False).stream] == [True, True, False]


def test_the_tag_latest_is_ignored() -> None:
    names = ("llama3:latest", "llama3:70b", "openai/gpt-5-mini")
    assert [read(model=name).model for name in names] == ["llama3", "llama3:70b", "openai/gpt-5-mini"]


def test_likely_tokens_need_log_probabilities() -> None:
    assert (read(top_logprobs=3).top_logprobs, read(logprobs=True, top_logprobs=3).top_logprobs) == (None, 3)


def test_a_turn_is_read_whole() -> None:
    call = {"id": "x", "function": {"index": 0, "name": "look", "arguments": {"n": 1}}}
    chat = read(
        messages=[
            {"role": "System", "content": "Be brief."},
            {"role": "assistant", "content": "So:", "thinking": "Hm.", "tool_calls": [call]},
            {"role": "tool", "content": "2", "tool_call_id": "x", "tool_name": "look"},
        ]
    )
    assert [message.role for message in chat.messages] == ["system", "assistant", "tool"]
    assert chat.messages[1].parts == [
        Reasoning(text="Hm."),
        Text(text="So:"),
        ToolCall(id="x", name="look", arguments='{"n":1}'),
    ]
    assert chat.messages[2].parts == [ToolResult(call_id="x", parts=[Text(text="2")], name="look")]


@pytest.mark.parametrize(
    ("keep_alive", "reason"), [(None, "load"), ("10s", "load"), (-1, "load"), (0, "unload"), ("0m0s", "unload")]
)
def test_a_body_without_a_question_says_what_becomes_of_the_model(keep_alive: Any, reason: str) -> None:
    bodies = [(CLIENT, {"messages": []}), (CLIENT, {}), (GENERATE, {}), (GENERATE, {"prompt": "", "system": "x"})]
    for client, fields in bodies:
        with pytest.raises(NothingAsked) as nothing:
            client.read_request(json.dumps({"model": "m", "keep_alive": keep_alive, **fields}).encode())
        assert (nothing.value.model, nothing.value.done_reason) == ("m", reason)


@pytest.mark.parametrize("body", [b"", b"[]", b"nonsense", b'{"messages": []}', b'{"model": ""}', b"\xff"])
def test_bytes_that_are_no_request_are_refused(body: bytes) -> None:
    for client in (CLIENT, GENERATE):
        with pytest.raises(InvalidRequest) as refused:
            client.read_request(body)
        assert not isinstance(refused.value, NothingAsked)
