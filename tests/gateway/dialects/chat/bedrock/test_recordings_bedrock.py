"""Real traffic of Bedrock through its dialect: read without loss, written so that OpenAI's and Anthropic's own clients
take it, and brought back as Bedrock had said it. The recordings are not part of the project; without them these tests
are skipped."""

from __future__ import annotations

import gzip
import json
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from botocore.eventstream import EventStreamBuffer
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Event, Reply, Started, Summary, fold
from apps.gateway.dialects.chat import anthropic, bedrock, openai
from apps.gateway.framing import aws_event_frames, sse_frames
from apps.kernel.usage import Usage
from gateway_project.configuration.data_directory import PROJECT
from tests.support.anthropic_stream import assert_in_order, message_of

HOST = "bedrock-runtime.us-east-1.amazonaws.com"
RECORDINGS = PROJECT.parent / "shared" / "recordings"
SUMMARY = Summary(
    usage=Usage(input=7, cache_read=2, output=3, reasoning=1),
    cost={"total": Decimal("0.0000012")},
    metadata={"used_model": "the-model"},
)
CLIENT = openai.read_request(b'{"model": "the-model", "messages": [{"role": "user", "content": "?"}], "stream": true}')
EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
SEALED = Target(model_name="claude", facts={"reasoning_form": "thinking", "takes": ["tool_choice"]})
REASONS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length"}
ANTHROPICS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}
REGIONS = ("us", "eu", "global")

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges() -> Iterator[dict[str, Any]]:
    """Yield all exchanges of the host; each is with Converse."""
    with gzip.open(RECORDINGS / f"{HOST}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def maker_of(exchange: dict[str, Any]) -> str:
    """Return who made the model that was asked."""
    model = unquote(exchange["url"].partition("/model/")[2].rpartition("/")[0])
    words = [word for word in model.split(".") if word not in REGIONS]
    return "a profile" if model.startswith("arn:") else words[0]


def body_of(exchange: dict[str, Any]) -> bytes:
    """Return the body of a plain answer."""
    text: str = exchange["text"] if exchange["json"] is None else json.dumps(exchange["json"])
    return text.encode()


def events_of(exchange: dict[str, Any], size: int | None = None) -> list[Event]:
    """Read the answer of an exchange; a stream in pieces of `size` bytes."""
    if not exchange["b64"]:
        return list(bedrock.read_reply(body_of(exchange)))
    body = b64decode(exchange["b64"])
    step = size or len(body)
    pieces = (body[at : at + step] for at in range(0, len(body), step))
    return list(bedrock.read_events(aws_event_frames(pieces)))


def told_answer(exchange: dict[str, Any]) -> dict[str, Any]:
    """Return the answer that an exchange amounts to, without the code under test: AWS's own SDK reads the frames."""
    if not exchange["b64"]:
        return dict(json.loads(body_of(exchange)))
    buffer = EventStreamBuffer()
    buffer.add_data(b64decode(exchange["b64"]))
    blocks: dict[int, dict[str, Any]] = {}
    answer: dict[str, Any] = {}
    for event in buffer:
        told = json.loads(event.payload)
        match event.headers[":event-type"]:
            case "contentBlockStart":
                blocks[told["contentBlockIndex"]] = dict(told["start"])
            case "contentBlockDelta":
                grow(blocks.setdefault(told["contentBlockIndex"], {}), told["delta"])
            case "messageStop":
                answer["stopReason"] = told["stopReason"]
            case "metadata":
                answer["usage"] = told["usage"]
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"] = {**block["toolUse"], "input": json.loads(block.pop("input"))}
    return {**answer, "output": {"message": {"content": [blocks[index] for index in sorted(blocks)]}}}


def grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta to a block."""
    match delta:
        case {"text": text}:
            block["text"] = block.get("text", "") + text
        case {"toolUse": {"input": piece}}:
            block["input"] = block.get("input", "") + piece
        case {"reasoningContent": {"redactedContent": data}}:
            block["reasoningContent"] = {"redactedContent": data}
        case {"reasoningContent": thought}:
            whole = block.setdefault("reasoningContent", {"reasoningText": {}})["reasoningText"]
            for name, piece in thought.items():
                whole[name] = whole.get(name, "") + piece


def meaning(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer says, read in the plainest way."""
    blocks = answer["output"]["message"]["content"]
    calls = [block["toolUse"] for block in blocks if "toolUse" in block]
    thoughts = [block["reasoningContent"] for block in blocks if "reasoningContent" in block]
    return {
        "text": "".join(block.get("text", "") for block in blocks),
        "thoughts": [
            (thought.get("reasoningText", {}).get("text", ""), thought.get("reasoningText", {}).get("signature"))
            for thought in thoughts
        ],
        "redacted": [
            b64decode(thought["redactedContent"]).decode() for thought in thoughts if "redactedContent" in thought
        ],
        "calls": [
            (call["toolUseId"], call["name"], call["input"]) for call in calls if call.get("type") != "server_tool_use"
        ],
        "native": answer["stopReason"],
    }


def told(reply: Reply) -> dict[str, Any]:
    """Return what a reply says, in the words of `meaning`."""
    [choice] = reply.choices
    return {
        "text": choice.text or "",
        "thoughts": [(block.text, block.signature) for block in choice.reasoning],
        "redacted": [block.data for block in choice.reasoning if block.data is not None],
        "calls": [(call.id, call.name, json.loads(call.arguments)) for call in choice.tool_calls],
        "native": choice.native_finish,
    }


def test_recorded_answers_keep_their_meaning_for_clients_of_both_formats(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for exchange in exchanges():
        counts[f"{maker_of(exchange)}, {check_answer(exchange)}"] += 1
    assert counts
    with capsys.disabled():
        sys.stdout.write(f"\n{HOST}: {counts.total()} answers, none set aside")
        for name, count in sorted(counts.items()):
            sys.stdout.write(f"\n  {name}: {count}")


def check_answer(exchange: dict[str, Any]) -> str:
    """Check one answer and return of which kind it was."""
    if exchange["status"] != 200:
        failure = bedrock.read_failure(exchange["status"], body_of(exchange))
        assert failure.message == exchange["json"]["message"]
        assert failure.status == (404 if "model identifier" in failure.message else None)
        return "refused"
    answer = told_answer(exchange)
    said = meaning(answer)
    events = events_of(exchange)
    reply = fold(events)
    assert told(reply) == said, exchange["name"]
    assert reply.choices[0].finish == REASONS[said["native"]]
    assert_counted(reply.usage, answer["usage"])
    for size in (1, 61) if exchange["b64"] else ():
        assert fold(events_of(exchange, size)) == reply, exchange["name"]
    check_openais_client(events, reply, said)
    check_anthropics_client(events, reply, said)
    check_return(reply, answer)
    return "streamed" if exchange["b64"] else "plain"


def assert_counted(usage: Usage | None, counts: dict[str, Any]) -> None:
    """The counts add up to Bedrock's, what the cache gave or took apart."""
    assert usage is not None
    assert usage.input == counts["inputTokens"]
    assert usage.cache_read == counts.get("cacheReadInputTokens", 0)
    assert usage.cache_write + usage.cache_write_1h == counts.get("cacheWriteInputTokens", 0)
    assert usage.completion_tokens == counts["outputTokens"]
    assert usage.total_tokens == counts["totalTokens"]


def check_openais_client(events: list[Event], reply: Reply, said: dict[str, Any]) -> None:
    """The answer as we write it validates against OpenAI's types and says the same, plain and streamed."""
    finish = REASONS[said["native"]]
    written = openai.write_reply(reply, SUMMARY, CLIENT)
    completion = ChatCompletion.model_validate(json.loads(written))
    assert completion.choices[0].finish_reason == finish
    assert told(fold(openai.read_reply(written))) == {**said, "native": finish}
    for event in events:
        if isinstance(event, Started):
            event.model = "the-model"
    payloads = list(sse_frames(openai.write_events([*events, SUMMARY], CLIENT)))
    assert payloads[-1] == b"[DONE]"
    for payload in payloads[:-1]:
        ChatCompletionChunk.model_validate(json.loads(payload))
    assert told(fold(openai.read_events(payloads))) == {**said, "native": finish}


def check_anthropics_client(events: list[Event], reply: Reply, said: dict[str, Any]) -> None:
    """The answer as we write it validates against Anthropic's types and says the same, plain and streamed."""
    plain = json.loads(anthropic.write_reply(reply, SUMMARY, CLIENT))
    Message.model_validate(plain)
    written = [json.loads(data) for data in sse_frames(anthropic.write_events([*events, SUMMARY], CLIENT))]
    for event in written:
        EVENTS.validate_python(event)
    assert_in_order(written)
    for message in (plain, message_of(written)):
        blocks = message["content"]
        assert message["stop_reason"] == ANTHROPICS[REASONS[said["native"]]]
        assert "".join(block["text"] for block in blocks if block["type"] == "text") == said["text"]
        assert [(block["thinking"], block["signature"]) for block in blocks if block["type"] == "thinking"] == [
            (text, signature or "") for text, signature in said["thoughts"] if text
        ]
        assert [block["data"] for block in blocks if block["type"] == "redacted_thinking"] == said["redacted"]
        assert [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"] == [
            *said["calls"]
        ]


def check_return(reply: Reply, answer: dict[str, Any]) -> None:
    """A client that sends our answer back brings Bedrock the sealed thinking and the calls that it had sent."""
    blocks = answer["output"]["message"]["content"]
    sealed = [block for block in blocks if is_sealed(block)]
    calls = [
        {name: value for name, value in block["toolUse"].items() if name != "type"}
        for block in blocks
        if "toolUse" in block and block["toolUse"].get("type") != "server_tool_use"
    ]
    ours = json.loads(openai.write_reply(reply, SUMMARY, CLIENT))["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in ours.get("tool_calls", [])]
    asked = [{"role": "user", "content": "?"}, ours, *results, {"role": "user", "content": "And now?"}]
    check_returned(openai.read_request(json.dumps({"model": "m", "messages": asked}).encode()), sealed, calls)
    content = json.loads(anthropic.write_reply(reply, SUMMARY, CLIENT))["content"]
    found = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "done"}
        for block in content
        if block["type"] == "tool_use"
    ]
    last = [*found, {"type": "text", "text": "And now?"}]
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]
    request = {"model": "m", "max_tokens": 9, "messages": [*turns, {"role": "user", "content": last}]}
    check_returned(anthropic.read_request(json.dumps(request).encode()), sealed, calls)


def is_sealed(block: dict[str, Any]) -> bool:
    """Return whether a block is thinking that its maker takes back."""
    thought = block.get("reasoningContent", {})
    return "redactedContent" in thought or "signature" in thought.get("reasoningText", {})


def check_returned(chat: Any, sealed: list[Any], calls: list[Any]) -> None:
    messages = json.loads(bedrock.write_request(chat, SEALED))["messages"]
    parts = [block for message in messages if message["role"] == "assistant" for block in message["content"]]
    assert [part for part in parts if "reasoningContent" in part] == sealed
    assert [part["toolUse"] for part in parts if "toolUse" in part] == calls
