"""Probes of models at an organization's own server: what answers show, at servers that can much, little or nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.kernel.errors import InvalidRequest
from apps.keys.model_probe import probe_model
from apps.keys.own_models import Probe
from apps.keys.ssrf_guard import resolve_safe_address
from tests.support.own_servers import OwnServer, chat_answer, chat_stream, own_server

__all__ = ["own_server"]
CHAT, EMBEDDINGS, NOW = "/v1/chat/completions", "/v1/embeddings", "2026-11-29T12:00:00+00:00"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
ALL = ("chat", "streaming", "tools", "parallel_tools", "json_schema", "vision")


def probe_at(server: OwnServer) -> Probe:
    """Return the probe of a model at a server."""
    server.answers.setdefault("/v1/models", {"data": []})
    return probe_model(resolve_safe_address(f"{server.url}/v1", uuid4()), "sk-ours", "qwen", NOW)


def able(asked: dict[str, Any]) -> Any:
    """Answer as a model that can do everything, and thinks."""
    if asked.get("stream"):
        return chat_stream({"reasoning_content": "Hm"}, {"content": "OK"}, usage=USAGE)
    if asked.get("tools"):
        return chat_answer({"content": None, "tool_calls": [CALL, {**CALL, "id": "call_2"}]}, USAGE)
    if asked.get("response_format"):
        return chat_answer({"content": '{"hue_name": "blue"}'}, USAGE)
    assert asked["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    return chat_answer({"content": "Red."}, USAGE)


def test_a_model_that_can_do_everything(own_server: OwnServer) -> None:
    own_server.answers = {CHAT: able, EMBEDDINGS: {"data": [{"embedding": [0.1, 0.2]}]}}
    assert probe_at(own_server) == Probe(
        at=NOW,
        results={**dict.fromkeys(ALL, True), "embedding": True, "thinking": True},
        thinking_field="reasoning_content",
        reports_usage=True,
    )
    assert own_server.paths == ["/v1/models", *[CHAT] * 4, EMBEDDINGS]
    assert {one.authorization for one in own_server.asked} == {"Bearer sk-ours"}
    assert all(one.body["max_tokens"] <= 1200 for one in own_server.asked if one.path == CHAT)


def test_a_model_that_only_chats(own_server: OwnServer) -> None:
    own_server.answers = {
        CHAT: lambda asked: chat_stream({"content": "OK"}) if asked.get("stream") else chat_answer({"content": "Well"}),
        EMBEDDINGS: (404, b'{"error": {"message": "Not Found, sk-ours"}}'),
    }
    assert probe_at(own_server) == Probe(
        at=NOW,
        results={
            "chat": True,
            "streaming": True,
            "tools": False,
            "parallel_tools": False,
            "json_schema": False,
            "vision": False,
            "embedding": False,
        },
        reports_usage=False,
        notes={
            "tools": "The model answered without a call of the tool",
            "json_schema": "The answer does not follow the schema",
            "vision": "The answer does not name the color of the image",
            "embedding": "The server answered 404: Not Found, ...",
        },
    )


def test_an_embedding_model_is_not_asked_to_chat_on(own_server: OwnServer) -> None:
    refused = (400, b'{"error": {"message": "this model does not support chat"}}')
    own_server.answers = {CHAT: refused, EMBEDDINGS: {"data": [{"embedding": "AACAPw=="}]}}
    assert probe_at(own_server).results == {"streaming": False, "chat": False, "embedding": True}
    assert own_server.paths == ["/v1/models", CHAT, CHAT, EMBEDDINGS]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_the_field_of_thinking_is_found_without_a_stream_too(own_server: OwnServer, name: str) -> None:
    own_server.answers = {CHAT: chat_answer({"content": "OK", name: "Hm"}, USAGE)}
    probe = probe_at(own_server)
    assert (probe.thinking_field, probe.reports_usage, probe.results["streaming"]) == (name, True, False)


def test_servers_of_one_call_at_a_time_and_of_odd_calls(own_server: OwnServer) -> None:
    odd = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
    own_server.answers = {
        CHAT: lambda asked: chat_answer({"tool_calls": [odd]} if asked.get("tools") else {"content": "Hi"})
    }
    probe = probe_at(own_server)
    assert (probe.results["tools"], probe.results["parallel_tools"]) == (True, False)
    assert probe.notes["parallel_tools"] == "The model made one call where two were asked for"


def test_an_error_of_the_server_decides_only_what_it_names(own_server: OwnServer) -> None:
    def llama_cpp(asked: dict[str, Any]) -> Any:
        if asked.get("tools"):
            return 500, b'{"error": {"code": 500, "message": "tools param requires --jinja flag"}}'
        if asked.get("response_format"):
            return 503, b'{"error": {"message": "Loading model"}}'
        if isinstance(asked["messages"][0]["content"], list):
            return 500, b'{"error": {"message": "image input is not supported - hint: provide the mmproj"}}'
        return chat_stream({"content": "OK"}) if asked.get("stream") else chat_answer({"content": "OK"})

    own_server.answers = {CHAT: llama_cpp, EMBEDDINGS: (501, b"{}")}
    probe = probe_at(own_server)
    assert probe.results == {
        "chat": True,
        "streaming": True,
        "tools": False,
        "parallel_tools": False,
        "vision": False,
    }
    assert probe.notes == {
        "tools": "The server answered 500: tools param requires --jinja flag",
        "json_schema": "The server answered 503: Loading model",
        "vision": "The server answered 500: image input is not supported - hint: provide the mmproj",
        "embedding": "The server answered 501",
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"[]", b"{" * 100_000, b'{"choices": 7}', b'{"choices": [7]}', b'{"choices": [{"message": 7}]}',
     b"data: 7\n\ndata: {\n\n", b'data: {"choices": [{"delta": 7}]}\n\n', b"\xff\xfe"],
)  # fmt: skip
def test_hostile_answers_show_nothing(own_server: OwnServer, body: bytes) -> None:
    own_server.answers = {CHAT: (200, body), EMBEDDINGS: (200, body)}
    assert not any(probe_at(own_server).results.values())


def test_a_server_that_is_away_or_refuses_is_an_error(own_server: OwnServer) -> None:
    own_server.answers["/v1/models"] = (401, b'{"error": "no"}')
    with pytest.raises(InvalidRequest, match="the provider answered 401: no"):
        probe_at(own_server)
    assert own_server.paths == ["/v1/models"]
    own_server.kill()
    with pytest.raises(InvalidRequest, match="the provider could not be reached"):
        probe_at(own_server)
