"""OpenAI's and Anthropic's formats in front, Bedrock's behind: the gateway over real HTTP, against the sandbox as a
strict Bedrock."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.logs.models import RequestLog
from tests.support.providers_of_every_format import offer_models
from tests.support.upstream import Caller, chunks_of, settle_all

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}
PLACE = {"type": "json_schema", "json_schema": {"name": "place", "schema": PARAMETERS}}
# As the catalog has it of Claude.
SEALED = {"reasoning_form": "thinking", "takes": ["tool_choice", "cache_points"], "tool_results": "without_files"}


@pytest.fixture
def bedrock(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """The caller, in front of the catalog's `bedrock` at the sandbox, whose models it knows."""
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "ABSKsecret+/==")
    monkeypatch.setenv("BEDROCK_BASE_URL", caller.sandbox_url)

    def change(mapping: ModelProvider) -> None:
        mapping.reasoning = True
        mapping.facts = {**mapping.facts, **SEALED}

    offer_models("bedrock", change)
    return caller


def ask(bedrock: Caller, content: Any = "hello", **fields: Any) -> Any:
    """Return the answer of the provider's `echo`, unless another model is asked."""
    return bedrock.chat(content, **{"model": "bedrock/echo", **fields})


def write_to(bedrock: Caller, content: Any, **fields: Any) -> Any:
    """Ask in Anthropic's format."""
    body = {"model": "bedrock/echo", "max_tokens": 500, "messages": [{"role": "user", "content": content}], **fields}
    headers = {"x-api-key": bedrock.token, "anthropic-version": "2023-06-01"}
    return bedrock.client.post("/v1/messages", body, content_type="application/json", headers=headers)


def events_of(response: Any) -> list[dict[str, Any]]:
    """Return the data of a stream's events in Anthropic's format."""
    text = b"".join(response.streaming_content).decode()
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_a_plain_answer_comes_back_in_openais_format_and_is_billed(bedrock: Caller) -> None:
    tag = uuid4().hex
    response = ask(bedrock, f"hi [[sandbox usage=1000,200,100,0,40 tag={tag}]]", max_tokens=500)
    assert response.status_code == 200, response.content
    body = response.json()
    # The specification's `metadata` is richer than the field of that name in OpenAI's types.
    ChatCompletion.model_validate({**body, "metadata": None})
    assert body["choices"][0]["message"]["content"] == "You said: hi"
    assert body["choices"][0]["finish_reason"] == "stop"
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (1000, 200, 1200)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 100
    assert usage["prompt_tokens_details"]["cache_write_tokens"] == 40
    assert body["metadata"]["used_provider"] == "bedrock"
    (sent,) = bedrock.sent(tag)
    assert sent["path"] == "/model/echo/converse"
    assert sent["body"]["inferenceConfig"] == {"maxTokens": 500}
    assert sent["headers"]["authorization"].startswith("Bearer sha256:")
    assert "x-amz-date" not in sent["headers"]
    settle_all()
    log = RequestLog.objects.get()
    assert log.cost == Decimal(str(usage["cost_usd_total"]))
    assert log.cost > 0


def test_a_pair_of_keys_signs_the_request(bedrock: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLEEXAMPLE01")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret/+=")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    tag = uuid4().hex
    response = ask(bedrock, f"hi [[sandbox tag={tag}]]")
    assert (response.status_code, response.json()["metadata"]["used_provider"]) == (200, "bedrock")
    (sent,) = bedrock.sent(tag)
    assert sent["headers"]["authorization"].startswith("AWS4-HMAC-SHA256 ")
    assert sent["headers"]["x-amz-security-token"] == "token"


def test_a_stream_comes_back_in_openais_chunks(bedrock: Caller) -> None:
    tag = uuid4().hex
    asked = f"one two [[sandbox chunks=3 usage=10,5 reasoning=2 bytewise tag={tag}]]"
    *chunks, end = chunks_of(ask(bedrock, asked, stream=True))
    assert end == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == "You said: one two"
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "thought-1 thought-2"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 15
    (sent,) = bedrock.sent(tag)
    assert sent["path"] == "/model/echo/converse-stream"
    assert sent["headers"]["accept"] == "application/vnd.amazon.eventstream"


@pytest.mark.parametrize("stream", [False, True])
def test_a_tools_answer_is_taken_with_the_thinking_that_led_to_it(bedrock: Caller, stream: bool) -> None:
    tag = uuid4().hex
    question = {"role": "user", "content": f"call weather [[sandbox reasoning=3 tag={tag}]]"}
    response = ask(bedrock, model="bedrock/tools", messages=[question], tools=[WEATHER], stream=stream)
    message = gathered(response) if stream else response.json()["choices"][0]["message"]
    [call] = message["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"]).keys() == {"city"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "Sun"}
    again = ask(bedrock, model="bedrock/tools", messages=[question, message, result], tools=[WEATHER])
    assert again.status_code == 200, again.content
    assert again.json()["choices"][0]["message"]["content"] == "weather answered: Sun"
    thought = bedrock.sent(tag)[-1]["body"]["messages"][1]["content"][0]
    assert thought["reasoningContent"]["reasoningText"] == {
        "text": "thought-1 thought-2 thought-3",
        "signature": "c2FuZGJveCBzaWduYXR1cmU=",
    }


def gathered(response: Any) -> dict[str, Any]:
    """Return the message of a stream, put together as clients do: blocks of thinking by their number."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: dict[int, dict[str, Any]] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for chunk in chunks_of(response)[:-1]:
        delta = chunk["choices"][0]["delta"]
        for piece in delta.get("tool_calls", []):
            call = calls.setdefault(piece["index"], {**piece, "function": {"name": "", "arguments": ""}})
            for name, text in piece["function"].items():
                call["function"][name] += text
        for piece in delta.get("reasoning_details", []):
            block = blocks.setdefault(piece["index"], {**piece, "text": ""})
            block |= {name: value for name, value in piece.items() if name != "text"}
            block["text"] += piece.get("text") or ""
    message["tool_calls"] = [
        {name: value for name, value in call.items() if name != "index"} for call in calls.values()
    ]
    return {**message, "reasoning_details": list(blocks.values())}


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_of_the_answer_is_kept_by_a_tool_that_nobody_sees(bedrock: Caller, stream: bool) -> None:
    ModelProvider.objects.filter(provider_id="bedrock").update(facts={**SEALED, "structured_outputs": "tool"})
    policy.forget_all()
    tag = uuid4().hex
    asked = f"Where? [[sandbox tag={tag}]]"
    response = ask(bedrock, asked, model="bedrock/json", response_format=PLACE, stream=stream)
    if stream:
        chunks = chunks_of(response)[:-1]
        text = "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)
        finish = chunks[-1]["choices"][0]["finish_reason"]
        assert not any("tool_calls" in chunk["choices"][0]["delta"] for chunk in chunks)
    else:
        choice = response.json()["choices"][0]
        text, finish = choice["message"]["content"], choice["finish_reason"]
        assert "tool_calls" not in choice["message"]
    assert (json.loads(text).keys(), finish) == ({"city"}, "stop")
    (sent,) = bedrock.sent(tag)
    [tool] = sent["body"]["toolConfig"]["tools"]
    assert sent["body"]["toolConfig"]["toolChoice"] == {"tool": {"name": tool["toolSpec"]["name"]}}


def test_a_schema_is_asked_for_natively_where_the_model_takes_it(bedrock: Caller) -> None:
    tag = uuid4().hex
    response = ask(bedrock, f"Where? [[sandbox tag={tag}]]", model="bedrock/json", response_format=PLACE)
    assert json.loads(response.json()["choices"][0]["message"]["content"]).keys() == {"city"}
    (sent,) = bedrock.sent(tag)
    assert sent["body"]["outputConfig"]["textFormat"]["type"] == "json_schema"


def test_anthropics_format_in_front(bedrock: Caller) -> None:
    tag = uuid4().hex
    system = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    response = write_to(
        bedrock,
        f"hi [[sandbox usage=100,20,30,0,10 reasoning=2 tag={tag}]]",
        system=system,
        thinking={"type": "adaptive"},
        output_config={"effort": "low"},
    )
    assert response.status_code == 200, response.content
    message = Message.model_validate(response.json())
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.stop_reason == "end_turn"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (60, 30, 10)
    (sent,) = bedrock.sent(tag)
    assert sent["body"]["system"] == [{"text": "Be kind."}, {"cachePoint": {"type": "default"}}]
    fields = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}
    assert sent["body"]["additionalModelRequestFields"] == fields
    again = {"role": "assistant", "content": response.json()["content"]}
    messages = [{"role": "user", "content": "a"}, again, {"role": "user", "content": "b"}]
    response = write_to(bedrock, "", messages=messages)
    assert response.status_code == 200, response.content


def test_a_stream_in_anthropics_format_has_one_block_after_the_other(bedrock: Caller) -> None:
    tools = [{"name": "weather", "input_schema": PARAMETERS}]
    asked = "call weather [[sandbox reasoning=2]]"
    events = events_of(write_to(bedrock, asked, model="bedrock/tools", tools=tools, stream=True))
    kinds = [event["type"] for event in events if event["type"] not in ("ping", "content_block_delta")]
    assert kinds == [
        "message_start",
        *("content_block_start", "content_block_stop") * 2,
        "message_delta",
        "message_stop",
    ]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas][:3] == ["thinking_delta", "thinking_delta", "signature_delta"]
    arguments = "".join(delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")
    assert json.loads(arguments).keys() == {"city"}


def test_a_refusal_of_bedrocks_reaches_the_client_in_its_words(bedrock: Caller) -> None:
    response = ask(bedrock, "hi [[sandbox status=400]]")
    assert (response.status_code, response.json()["error"]["message"]) == (400, "The request is invalid.")


def test_who_asks_too_often_is_answered_by_another_provider(bedrock: Caller) -> None:
    tag = uuid4().hex
    response = ask(bedrock, f"hi [[sandbox status=429 times=1 tag={tag}]]", stream=True)
    *chunks, end = chunks_of(response)
    assert end == "[DONE]"
    routing = chunks[-1]["metadata"]["routing"]
    assert [(one["provider"], one["status_code"], one["succeeded"]) for one in routing] == [
        ("bedrock", 429, False),
        ("sandbox", 200, True),
    ]


def test_an_exception_before_the_first_word_is_followed_by_another_provider(bedrock: Caller) -> None:
    tag = uuid4().hex
    response = ask(bedrock, f"hi [[sandbox error times=1 tag={tag}]]", stream=True)
    chunks = chunks_of(response)
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["metadata"]["used_provider"] == "sandbox"


@pytest.mark.parametrize("fault", ["cut=3", "error=3", "broken=3", "end=3"])
def test_a_stream_that_breaks_ends_with_an_error(bedrock: Caller, fault: str) -> None:
    *chunks, last = chunks_of(ask(bedrock, f"one two three [[sandbox {fault}]]", stream=True))
    assert chunks
    assert last["error"]["message"]
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, row.unified_finish_reason) == ("bedrock", "upstream_error")


def test_a_stream_that_breaks_ends_with_an_error_event_in_anthropics_format(bedrock: Caller) -> None:
    last = events_of(write_to(bedrock, "one two three [[sandbox error=3]]", stream=True))[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "api_error")


def test_a_file_that_is_not_there_in_full_is_refused_by_the_name_of_its_place(bedrock: Caller) -> None:
    tag = uuid4().hex
    content = [
        {"type": "text", "text": f"Look! [[sandbox tag={tag}]]"},
        {"type": "file", "file": {"file_id": "file-1"}},
    ]
    response = ask(bedrock, content, model="bedrock/vision", headers={"X-No-Fallback": "true"})
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "own_credential_required")
    assert error["param"] == "messages[0].file_id"
    assert bedrock.sent(tag) == []


def test_what_is_left_out_is_told(bedrock: Caller) -> None:
    response = ask(bedrock, "hi", seed=3, temperature=2)
    assert response.status_code == 200
    warnings = response.json()["metadata"]["warnings"]
    assert [warning["param"] for warning in warnings] == ["seed", "temperature"]
