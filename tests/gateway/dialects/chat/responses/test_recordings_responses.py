"""Real traffic of the Responses format through its dialect: read without loss, written so that OpenAI's and Anthropic's
own clients take it, and brought back with the thinking as its maker had sealed it. The recordings are not part of the
project; without them these tests are skipped."""

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
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Event, Failed, Reply, Summary, fold
from apps.gateway.dialects.chat import anthropic, openai, responses
from apps.gateway.framing import sse_frames
from apps.kernel.usage import COUNTS, Usage
from gateway_project.configuration.data_directory import PROJECT
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.responses_bodies import assert_well_formed

RECORDINGS = PROJECT.parent / "shared" / "recordings"
HOSTS = (
    "api.openai.com",
    "openrouter.ai",
    "api.deepseek.com",
    "pydantic-ai-realtime-dev.openai.azure.com",
)
SUMMARY = Summary(
    usage=Usage(input=7, cache_read=2, output=3, reasoning=1),
    cost={"total": Decimal("0.0000012")},
    metadata={"used_model": "the-model"},
)
FACTS = {
    "developer_role": True,
    "takes": ["phase"],
    "prompt_cache": True,
    "reasoning_efforts": ["low", "medium", "high"],
}
TARGET = Target(model_name="gpt", facts=FACTS)
OPENAIS = openai.read_request(b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}')
ANTHROPICS = anthropic.read_request(b'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]}')
ANTHROPIC_EVENTS: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges(host: str) -> Iterator[dict[str, Any]]:
    """Yield the exchanges of a host that ask for a response."""
    with gzip.open(RECORDINGS / f"{host}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            if exchange["url"].split("?")[0].endswith("/responses"):
                yield exchange


def body_of(exchange: dict[str, Any]) -> bytes:
    """Return the body of an answer."""
    text: str = exchange["text"] if exchange["json"] is None else json.dumps(exchange["json"])
    return text.encode()


def is_streamed(exchange: dict[str, Any]) -> bool:
    """Return whether the answer is a stream."""
    return bool(exchange["request"].get("stream"))


def events_of(exchange: dict[str, Any], size: int | None = None) -> list[Event]:
    """Read the answer of an exchange; a stream in pieces of `size` bytes."""
    body = body_of(exchange)
    if not is_streamed(exchange):
        return list(responses.read_reply(body))
    step = size or len(body)
    return list(responses.read_events(sse_frames(body[at : at + step] for at in range(0, len(body), step))))


def response_of(exchange: dict[str, Any]) -> dict[str, Any]:
    """Return the response that an answer amounts to: of a stream, what its last event says, with the items as they were
    when they were done (the last event has a new seal, and its ids may be others)."""
    if not is_streamed(exchange):
        return dict(json.loads(body_of(exchange)))
    told = [json.loads(line[5:]) for line in exchange["text"].splitlines() if line.startswith("data: {")]
    items = {event["output_index"]: event["item"] for event in told if event["type"] == "response.output_item.done"}
    for event in told:
        if event["type"] == "response.output_text.done" and event.get("logprobs"):
            # Rounded in the item.
            items[event["output_index"]]["content"][event["content_index"]]["logprobs"] = event["logprobs"]
    response: dict[str, Any] = told[-1]["response"]
    assert [item["type"] for item in response["output"]] == [items[index]["type"] for index in sorted(items)]
    return {**response, "output": [items[index] for index in sorted(items)]}


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_answers_keep_their_meaning_for_clients_of_both_formats(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    for exchange in exchanges(host):
        counts[check_answer(exchange)] += 1
    assert counts
    with capsys.disabled():
        sys.stdout.write(f"\n{host}: {dict(counts)}")


def check_answer(exchange: dict[str, Any]) -> str:
    """Check one answer and return of which kind it was."""
    if exchange["status"] != 200:
        failure = responses.read_failure(exchange["status"], body_of(exchange))
        error = json.loads(body_of(exchange))["error"]
        assert (failure.message, failure.code, failure.param) == (error["message"], error["code"], error["param"])
        return "refused"
    response, events = response_of(exchange), events_of(exchange)
    if response["status"] == "queued":
        # Asked for in the background, which the gateway never does: there is no answer in it.
        assert isinstance(events[-1], Failed), exchange["name"]
        assert events[-1].error.code == "upstream_broken"
        return "set aside: queued in the background"
    reply = fold(events)
    assert told(reply) == meaning(response), exchange["name"]
    assert_counted(reply.usage, response)
    if is_streamed(exchange):
        for size in (1, 61):
            assert fold(events_of(exchange, size)) == reply, exchange["name"]
    check_openais_client(events, reply, response)
    check_anthropics_client(events, reply, response)
    return "streamed" if is_streamed(exchange) else "plain"


def items_of(response: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the items of a kind."""
    return [item for item in response["output"] if item["type"] == kind]


def meaning(response: dict[str, Any]) -> dict[str, Any]:
    """Return what a response says, read in the plainest way."""
    parts = [part for item in items_of(response, "message") for part in item["content"]]
    thoughts = [
        part["text"]
        for item in items_of(response, "reasoning")
        for part in [*item["summary"], *(item.get("content") or [])]
    ]
    calls = [(call["call_id"], call["name"], call["arguments"]) for call in items_of(response, "function_call")]
    return {
        "text": "".join(part["text"] for part in parts if part["type"] == "output_text"),
        "thoughts": thoughts,
        "calls": calls,
        "cited": [
            note["url"] for part in parts for note in part.get("annotations", []) if note["type"] == "url_citation"
        ],
        "logprobs": [entry["token"] for part in parts for entry in part.get("logprobs") or []],
        "sealed": sealed_of(response),
        "finish": "tool_calls" if calls else "stop",
    }


def sealed_of(response: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the ids and the seals of a response's thinking."""
    items = items_of(response, "reasoning")
    return [(item["id"], item["encrypted_content"]) for item in items if item.get("encrypted_content")]


def told(reply: Reply) -> dict[str, Any]:
    """Return what a reply says, in the words of `meaning`."""
    [choice] = reply.choices
    return {
        "text": choice.text or "",
        "thoughts": [block.text for block in choice.reasoning if block.text],
        "calls": [(call.id, call.name, call.arguments) for call in choice.tool_calls],
        "cited": [note["url_citation"]["url"] for note in choice.annotations],
        "logprobs": [entry["token"] for entry in (choice.logprobs or {}).get("content", [])],
        "sealed": [(block.id, block.data) for block in choice.reasoning if block.data is not None],
        "finish": choice.finish,
    }


def assert_counted(usage: Usage | None, response: dict[str, Any]) -> None:
    """The counts add up to the provider's, cached and reasoning tokens apart."""
    counts = response["usage"]
    if usage is None:
        assert not (counts or {}).get("total_tokens")
        return
    assert min(getattr(usage, name) for name in COUNTS) >= 0
    assert (usage.prompt_tokens, usage.completion_tokens) == (counts["input_tokens"], counts["output_tokens"])
    assert usage.total_tokens == counts["total_tokens"]
    assert usage.cache_read == counts["input_tokens_details"]["cached_tokens"]
    assert usage.cache_write == counts["input_tokens_details"].get("cache_write_tokens", 0)
    assert usage.reasoning == counts["output_tokens_details"]["reasoning_tokens"]
    actions = [item.get("action") or {} for item in items_of(response, "web_search_call")]
    assert usage.web_searches == sum(action.get("type", "search") == "search" for action in actions)


def check_openais_client(events: list[Event], reply: Reply, response: dict[str, Any]) -> None:
    """Check that clients of OpenAI's format get a valid answer, with the same content, that comes back whole."""
    plain = json.loads(openai.write_reply(reply, SUMMARY, OPENAIS))
    completion = ChatCompletion.model_validate({**plain, "metadata": None})
    payloads = list(sse_frames(openai.write_events([*events, SUMMARY], OPENAIS)))
    assert payloads[-1] == b"[DONE]"
    for payload in payloads[:-1]:
        ChatCompletionChunk.model_validate({**json.loads(payload), "metadata": None})
    said = meaning(response)
    assert told(fold(openai.read_reply(json.dumps(plain).encode()))) == said
    assert told(fold(openai.read_events(payloads))) == said
    assert completion.choices[0].finish_reason == said["finish"]
    message = plain["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in message.get("tool_calls", [])
    ]
    messages = [{"role": "user", "content": "?"}, message, *results, {"role": "user", "content": "And now?"}]
    chat = openai.read_request(json.dumps({"model": "m", "messages": messages}).encode())
    check_return(json.loads(responses.write_request(chat, TARGET)), response)


def check_anthropics_client(events: list[Event], reply: Reply, response: dict[str, Any]) -> None:
    """Check that Anthropic's clients get a valid answer, with the same content, that comes back whole."""
    plain = json.loads(anthropic.write_reply(reply, SUMMARY, ANTHROPICS))
    written = [json.loads(data) for data in sse_frames(anthropic.write_events([*events, SUMMARY], ANTHROPICS))]
    for event in written:
        ANTHROPIC_EVENTS.validate_python(event)
    assert_in_order(written)
    said = meaning(response)
    for message in (plain, message_of(written)):
        BetaMessage.model_validate(message)
        blocks = message["content"]
        assert "".join(block["text"] for block in blocks if block["type"] == "text") == said["text"]
        assert [block["thinking"] for block in blocks if block["type"] == "thinking"] == said["thoughts"]
        assert [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"] == [
            (call_id, name, json.loads(arguments)) for call_id, name, arguments in said["calls"]
        ]
        assert message["stop_reason"] == {"stop": "end_turn", "tool_calls": "tool_use"}[said["finish"]]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
            for block in blocks
            if block["type"] == "tool_use"
        ]
        turns = [
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [*results, {"type": "text", "text": "And now?"}]},
        ]
        chat = anthropic.read_request(json.dumps({"model": "m", "max_tokens": 99, "messages": turns}).encode())
        check_return(json.loads(responses.write_request(chat, TARGET)), response)


def check_return(request: dict[str, Any], response: dict[str, Any]) -> None:
    """A client that sends our answer back brings the provider its thinking, text and calls as it had sent them."""
    assert_well_formed(request)
    sent = request["input"]
    thoughts = [
        {name: value for name, value in item.items() if name not in {"status"} and value not in (None, [])}
        for item in items_of(response, "reasoning")
        if item.get("encrypted_content") or item.get("content")
    ]
    returned = [item for item in sent if item.get("type") == "reasoning"]
    assert [{name: value for name, value in item.items() if value != []} for item in returned] == thoughts
    calls = [item for item in sent if item.get("type") == "function_call"]
    assert [(call["call_id"], call["name"], json.loads(call["arguments"])) for call in calls] == [
        (call_id, name, json.loads(arguments)) for call_id, name, arguments in meaning(response)["calls"]
    ]
    answered = [item["call_id"] for item in sent if item.get("type") == "function_call_output"]
    assert answered == [call["call_id"] for call in calls]
    said = [item for item in sent if item.get("role") == "assistant"]
    phases = {item.get("phase") for item in items_of(response, "message")}
    assert phases <= {None, *(item.get("phase") for item in said)}
    texts = [item["content"] for item in said]
    assert "".join(text if isinstance(text, str) else text[0]["text"] for text in texts) == meaning(response)["text"]
