"""Losses at a provider, for clients: a note in `metadata.warnings` and a header, or 400 for the strict."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from tests.support.anthropic_requests import ask, speak
from tests.support.upstream import Caller, chunks_of, nothing_happened

pytestmark = pytest.mark.django_db

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}


def mark(text: str, script: str = "") -> tuple[str, str]:
    """Return a message that the sandbox journals under a tag of its own, and the tag."""
    tag = uuid4().hex
    return f"{text} [[sandbox tag={tag} {script}]]", tag


def update(**fields: Any) -> None:
    """Change what the catalog says of `sandbox/echo`."""
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(**fields)
    generation.bump(generation.CATALOG)


def params_of(metadata: dict[str, Any]) -> list[str]:
    return [loss["param"] for loss in metadata.get("warnings", [])]


def test_an_unknown_field_passes_to_an_upstream_of_the_same_format_and_is_no_loss(caller: Caller) -> None:
    text, tag = mark("hi")
    response = caller.chat(text, x_new={"a": 1})
    assert response.status_code == 200
    assert "warnings" not in response.json()["metadata"]
    assert "x-gateway-loss" not in response.headers
    assert caller.sent(tag)[0]["body"]["x_new"] == {"a": 1}


def test_an_unknown_field_is_ignored_with_a_warning_by_an_upstream_of_another_format(caller: Caller) -> None:
    speak("anthropic")
    text, tag = mark("hi")
    response = caller.chat(text, x_new={"a": 1}, frequency_penalty=0.5, temperature=1.5)
    assert response.status_code == 200
    assert response.json()["metadata"]["warnings"] == [
        {"param": "x_new", "message": "a field that is not known to this model's provider"},
        {"param": "temperature", "message": "sent as 1, the most that this model's provider takes"},
        {"param": "frequency_penalty", "message": "not available from this model's provider"},
    ]
    assert response.headers["x-gateway-loss"] == "x_new, temperature, frequency_penalty"
    body = caller.sent(tag)[0]["body"]
    assert (body["temperature"], "x_new" in body, "frequency_penalty" in body) == (1.0, False, False)


def test_a_stream_tells_its_losses_in_a_header_and_at_its_end(caller: Caller) -> None:
    speak("anthropic")
    response = caller.chat("hi", seed=7, stream=True)
    assert response.headers["x-gateway-loss"] == "seed"
    chunks = chunks_of(response)
    (metadata,) = [chunk["metadata"] for chunk in chunks[:-1] if "metadata" in chunk]
    assert params_of(metadata) == ["seed"]


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_clients_are_told_in_their_own_words(caller: Caller, stream: bool) -> None:
    text, tag = mark("hi")
    response = ask(
        caller,
        text,
        stream=stream,
        context_management={"edits": []},
        output_config={"effort": "max"},
        headers={"anthropic-beta": "context-management-2025-06-27"},
    )
    assert response.status_code == 200
    assert response.headers["x-gateway-loss"] == "context_management, anthropic-beta, output_config.effort"
    assert (
        "context_management" not in caller.sent(tag)[0]["body"] if not stream else b"".join(response.streaming_content)
    )


def test_the_strict_are_refused_before_anybody_is_called(caller: Caller) -> None:
    speak("anthropic")
    text, tag = mark("hi")
    response = caller.chat(text, seed=7, headers={"X-Strict": "true"})
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_feature", "seed")
    assert caller.sent(tag) == []
    assert caller.chat("hi", headers={"X-Strict": "true"}).status_code == 200


def test_the_strict_get_the_next_provider_where_that_one_loses_nothing(caller: Caller, backup: str) -> None:
    speak("anthropic")
    generation.bump(generation.CATALOG)
    response = caller.chat("hi", model="echo", seed=7, headers={"X-Strict": "true"})
    assert response.status_code == 200, response.content
    assert response.json()["metadata"]["used_provider"] == backup


def test_a_conversation_whose_calls_and_results_do_not_fit_is_mended(caller: Caller) -> None:
    text, tag = mark("go on")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "gone", "content": "old"},
        {"role": "user", "content": text},
    ]
    tools = [{"type": "function", "function": {"name": "f"}}]
    response = caller.chat(messages=messages, tools=tools)
    assert response.status_code == 200, response.content
    assert params_of(response.json()["metadata"]) == ["messages[2].tool_call_id", "messages[1].tool_calls"]
    sent = caller.sent(tag)[0]["body"]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "user", "user"]


@pytest.mark.parametrize("wire_format", ["openai", "anthropic"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_is_kept_by_a_tool_that_the_client_never_sees(caller: Caller, wire_format: str, stream: bool) -> None:
    speak(wire_format)
    update(structured_outputs=False)
    text, tag = mark("where?")
    response = caller.chat(text, response_format=FORM, stream=stream)
    assert response.status_code == 200, response.content
    if stream:
        chunks = [chunk for chunk in chunks_of(response)[:-1] if chunk["choices"]]
        said = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        finish = chunks[-1]["choices"][0]["finish_reason"]
        assert not any("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks)
    else:
        choice = response.json()["choices"][0]
        said, finish = choice["message"]["content"], choice["finish_reason"]
        assert "tool_calls" not in choice["message"]
    assert finish == "stop"
    assert json.loads(said).keys() == {"city"}
    body = caller.sent(tag)[0]["body"]
    names = [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]
    assert names == ["final_answer"]
    assert "response_format" not in body


@pytest.mark.parametrize("old", [False, True], ids=["today", "as in the preview"])
def test_anthropics_clients_get_their_schema_kept_by_the_tool_too(caller: Caller, old: bool) -> None:
    speak("anthropic")
    update(structured_outputs=False)
    form = {"type": "json_schema", "schema": SCHEMA}
    response = ask(caller, "where?", **({"output_format": form} if old else {"output_config": {"format": form}}))
    body = response.json()
    assert response.status_code == 200, body
    assert [block["type"] for block in body["content"]] == ["text"]
    assert json.loads(body["content"][0]["text"]).keys() == {"city"}
    assert body["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output_format": 5}, "output_format: must be an object"),
        ({"output_format": {"type": "json_schema"}}, "output_config.format.schema: Required"),
        (
            {"output_format": {"type": "json_schema", "schema": {}}, "output_config": {"format": {"type": "text"}}},
            "output_format: contradicts output_config.format",
        ),
    ],
)
def test_a_form_by_its_old_name_is_refused_by_name(caller: Caller, fields: dict[str, Any], message: str) -> None:
    response = ask(caller, "where?", **fields)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == f"Invalid request format: {message}"
    assert nothing_happened(caller)


def test_a_schema_beside_nothing_but_json_is_asked_for_in_words_and_the_strict_are_refused(caller: Caller) -> None:
    update(structured_outputs=False, tools=False)
    text, tag = mark("where?")
    response = caller.chat(text, response_format=FORM)
    assert params_of(response.json()["metadata"]) == ["response_format"]
    body = caller.sent(tag)[0]["body"]
    assert body["response_format"] == {"type": "json_object"}
    assert json.dumps(SCHEMA, separators=(",", ":")) in body["messages"][0]["content"]
    refused = caller.chat(text, response_format=FORM, headers={"X-Strict": "true"})
    assert refused.json()["error"]["code"] == "unsupported_feature"


def test_a_schema_is_refused_where_there_is_no_way_to_keep_it(caller: Caller) -> None:
    update(structured_outputs=False, tools=False, json_output=False)
    response = caller.chat("where?", response_format=FORM)
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "sandbox/echo does not support structured outputs"
    assert nothing_happened(caller)


def test_a_tools_name_that_a_provider_refuses_comes_back_as_it_was(caller: Caller) -> None:
    speak("anthropic")
    text, tag = mark("call")
    name = "mcp.server/look it up"
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}}]
    forced = {"type": "function", "function": {"name": name}}
    response = caller.chat(text, tools=tools, tool_choice=forced)
    assert response.status_code == 200, response.content
    assert response.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == name
    sent = caller.sent(tag)[0]["body"]["tools"][0]["name"]
    assert sent.startswith("mcp_server_look_it_up__")


BROKEN = '{"city": "Rome", "sights": ["Forum"'
PLUGIN = [{"id": "response-healing"}]


@pytest.mark.parametrize("stream", [False, True])
def test_broken_json_is_put_right_for_those_who_want_that(caller: Caller, stream: bool) -> None:
    fields = {"response_format": {"type": "json_object"}, "plugins": PLUGIN, "stream": stream}
    response = caller.chat(f"[[sandbox verbatim]]{BROKEN}", **fields)
    assert response.status_code == 200, response.content
    if stream:
        chunks = chunks_of(response)[:-1]
        texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
        said, metadata = "".join(text or "" for text in texts), chunks[-1]["metadata"]
    else:
        body = response.json()
        said, metadata = body["choices"][0]["message"]["content"], body["metadata"]
    assert said == '{"city": "Rome", "sights": ["Forum"]}'
    assert metadata["healed"] is True


def test_broken_json_stays_as_it_is_for_everybody_else(caller: Caller) -> None:
    response = caller.chat(f"[[sandbox verbatim]]{BROKEN}", response_format={"type": "json_object"})
    body = response.json()
    assert body["choices"][0]["message"]["content"] == BROKEN
    assert "healed" not in body["metadata"]


def test_an_unknown_plugin_is_refused(caller: Caller) -> None:
    response = caller.chat("hi", plugins=[{"id": "weather"}])
    assert (response.status_code, response.json()["error"]["param"]) == (400, "plugins[0].id")
    assert nothing_happened(caller)
