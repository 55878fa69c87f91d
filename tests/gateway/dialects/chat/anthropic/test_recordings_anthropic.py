"""Real traffic of Anthropic through its dialect: read without loss, and written so that Anthropic's own client and
OpenAI's take it. The recordings are not part of the project; without them these tests are skipped."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from msgspec.structs import replace
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Event, Failed, Reply, Summary, UsageReported, fold
from apps.gateway.dialects.chat import anthropic, openai
from apps.gateway.framing import sse_frames
from apps.kernel.usage import COUNTS, Usage
from gateway_project.configuration.data_directory import PROJECT
from tests.gateway.dialects.chat.openai.test_recordings_openai import HOSTS
from tests.gateway.dialects.chat.openai.test_recordings_openai import events_of as openai_events_of
from tests.gateway.dialects.chat.openai.test_recordings_openai import exchanges as openai_exchanges
from tests.support.anthropic_stream import assert_in_order, message_of

RECORDINGS = PROJECT.parent / "shared" / "recordings"
SUMMARY = Summary(
    usage=Usage(input=7, cache_read=2, output=3, reasoning=1),
    cost={"total": Decimal("0.0000012")},
    metadata={"used_model": "the-model"},
)
CLIENT = anthropic.read_request(b'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}')
EVENTS: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)
UNIFIED = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls"}

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges() -> Iterator[dict[str, Any]]:
    """Yield the exchanges with the endpoint for messages."""
    with gzip.open(RECORDINGS / "api.anthropic.com.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            if exchange["url"].split("?")[0].endswith("/v1/messages"):
                yield exchange


def events_of(exchange: dict[str, Any], size: int | None = None) -> list[Event]:
    """Read the answer of an exchange; a stream in pieces of `size` bytes."""
    if exchange["json"] is not None:
        return list(anthropic.read_reply(json.dumps(exchange["json"]).encode()))
    body = exchange["text"].encode()
    step = size or len(body)
    return list(anthropic.read_events(sse_frames(body[at : at + step] for at in range(0, len(body), step))))


def told_message(exchange: dict[str, Any]) -> dict[str, Any]:
    """Return the message that an answer amounts to, without the code under test."""
    if exchange["json"] is not None:
        return dict(exchange["json"])
    return message_of(json.loads(line[6:]) for line in exchange["text"].splitlines() if line.startswith("data: {"))


def test_recorded_answers_keep_their_meaning_for_clients_of_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for exchange in exchanges():
        if exchange["status"] != 200:
            failure = anthropic.read_failure(exchange["status"], json.dumps(exchange["json"]).encode())
            assert failure.message == exchange["json"]["error"]["message"]
            assert failure.code == exchange["json"]["error"]["type"]
            counts["refused"] += 1
            continue
        check_answer(exchange)
        counts["plain" if exchange["json"] else "streamed"] += 1
    assert counts
    with capsys.disabled():
        sys.stdout.write(f"\napi.anthropic.com: {dict(counts)}")


def check_answer(exchange: dict[str, Any]) -> None:
    events = events_of(exchange)
    reply = fold(events)
    told = told_message(exchange)
    check_meaning(reply, told)
    if exchange["json"] is None:
        assert fold(events_of(exchange, size=1)) == reply
        assert fold(events_of(exchange, size=61)) == reply
    check_anthropics_client(events, reply, told, streamed=exchange["json"] is None)
    check_openais_client(events, reply)


def check_meaning(reply: Reply, told: dict[str, Any]) -> None:
    """Check that the canonical reply has the meaning of the recorded one."""
    (choice,) = reply.choices
    blocks = told["content"]
    assert (choice.text or "") == "".join(block["text"] for block in blocks if block["type"] == "text")
    assert [(block.text, block.signature) for block in choice.reasoning] == [
        (block["thinking"], block["signature"]) for block in blocks if block["type"] == "thinking"
    ]
    assert [(call.id, call.name, json.loads(call.arguments)) for call in choice.tool_calls] == [
        (block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
    ]
    assert [note["url_citation"]["url"] for note in choice.annotations] == [
        citation["url"] for block in blocks for citation in block.get("citations") or () if "url" in citation
    ]
    assert (choice.finish, choice.native_finish) == (UNIFIED[told["stop_reason"]], told["stop_reason"])
    usage, counted = reply.usage, told["usage"]
    assert usage is not None
    assert min(getattr(usage, name) for name in COUNTS) >= 0
    assert usage.input == counted["input_tokens"]
    assert usage.cache_read == counted["cache_read_input_tokens"]
    assert usage.cache_write + usage.cache_write_1h == counted["cache_creation_input_tokens"]
    assert usage.completion_tokens == counted["output_tokens"]
    assert usage.reasoning == (counted.get("output_tokens_details") or {}).get("thinking_tokens", 0)


def check_anthropics_client(events: list[Event], reply: Reply, told: dict[str, Any], *, streamed: bool) -> None:
    """Check that our answer validates against Anthropic's types, and that it has all of the reply."""
    plain = json.loads(anthropic.write_reply(reply, SUMMARY, CLIENT))
    BetaMessage.model_validate(plain)
    assert without_nothing(plain["content"]) == without_nothing(told["content"])
    assert (plain["stop_reason"], plain["stop_sequence"]) == (told["stop_reason"], told["stop_sequence"])
    assert (plain["usage"]["input_tokens"], plain["usage"]["cache_read_input_tokens"]) == (7, 2)
    for name in ("container", "context_management"):
        assert plain.get(name) == told.get(name)
    if not streamed:
        return
    written = [json.loads(data) for data in sse_frames(anthropic.write_events([*events, SUMMARY], CLIENT))]
    for event in written:
        EVENTS.validate_python(event)
    assert_in_order(written)
    again = message_of(written)
    assert without_nothing(again["content"]) == without_nothing(told["content"])
    assert (again["stop_reason"], again["stop_sequence"]) == (told["stop_reason"], told["stop_sequence"])
    first = next(event.usage for event in events if isinstance(event, UsageReported))
    assert written[0]["message"]["usage"]["input_tokens"] == first.input
    assert again["usage"]["output_tokens"] == 4


def check_openais_client(events: list[Event], reply: Reply) -> None:
    """Check that clients of OpenAI's format get the same reply, and that it validates against OpenAI's types."""
    completion = ChatCompletion.model_validate(json.loads(openai.write_reply(reply, SUMMARY, CLIENT)))
    payloads = list(sse_frames(openai.write_events([*events, SUMMARY], CLIENT)))
    assert payloads[-1] == b"[DONE]"
    for payload in payloads[:-1]:
        ChatCompletionChunk.model_validate(json.loads(payload))
    (streamed,) = fold(openai.read_events(payloads)).choices
    (choice,) = reply.choices
    message = completion.choices[0].message
    assert (message.content or "") == (choice.text or "") == (streamed.text or "")
    calls = [(call.id, call.name, call.arguments) for call in choice.tool_calls]
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()] == calls
    assert [(call.id, call.name, call.arguments) for call in streamed.tool_calls] == calls
    assert completion.choices[0].finish_reason == choice.finish == streamed.finish
    assert [block.signature for block in streamed.reasoning] == [block.signature for block in choice.reasoning]


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_answers_of_openais_format_satisfy_anthropics_client(host: str) -> None:
    passed = 0
    for exchange in openai_exchanges(host):
        if exchange["status"] != 200:
            continue
        events = openai_events_of(exchange)
        if isinstance(events[-1], Failed):
            continue
        reply = fold(events)
        choice = reply.choices[0]
        plain = json.loads(anthropic.write_reply(reply, SUMMARY, CLIENT))
        written = [json.loads(data) for data in sse_frames(anthropic.write_events([*events, SUMMARY], CLIENT))]
        for event in written:
            EVENTS.validate_python(event)
        assert_in_order(written)
        streamed = message_of(written)
        assert streamed["stop_reason"] == plain["stop_reason"]
        for message in (plain, streamed):
            BetaMessage.model_validate(message)
            blocks = message["content"]
            assert "".join(block["text"] for block in blocks if block["type"] == "text") == (choice.text or "")
            assert [
                (block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
            ] == [(call.id, call.name, json.loads(call.arguments or "{}")) for call in choice.tool_calls]
            assert "".join(block["thinking"] for block in blocks if block["type"] == "thinking") == "".join(
                block.text for block in choice.reasoning
            )
        passed += 1
    assert passed


def without_nothing(value: Any) -> Any:
    """Return a JSON value without the fields that say nothing."""
    if isinstance(value, dict):
        return {name: without_nothing(inner) for name, inner in value.items() if inner not in (None, [])}
    return [without_nothing(inner) for inner in value] if isinstance(value, list) else value


def test_recorded_requests_come_out_as_they_went_in() -> None:
    passed = 0
    for exchange in exchanges():
        request = exchange["request"]
        chat = anthropic.read_request(json.dumps(request).encode())
        target = Target(model_name=request["model"], facts={})
        written = json.loads(anthropic.write_request(chat, target))
        assert written == {name: value for name, value in request.items() if value is not None}, exchange["name"]
        # The same from the canonical form, as for a chat that the gateway has changed.
        again = anthropic.read_request(anthropic.write_request(replace(chat, source=None), target))
        assert again == replace(chat, source=again.source), exchange["name"]
        passed += 1
    assert passed
