"""Real traffic of Gemini, at AI Studio and at Vertex, through the Google dialect: read without loss, written so that
OpenAI's own client takes it, and brought back as Google had said it. The recordings are not part of the project;
without them these tests are skipped."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from google.genai import types
from msgspec.structs import replace
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Event, Failed, Reply, Started, Summary, fold
from apps.gateway.dialects.chat import google, openai
from apps.gateway.dialects.chat.google.wire import FAILURE_WORDS, FINISH_REASONS
from apps.gateway.framing import sse_frames
from apps.kernel.usage import Usage
from gateway_project.configuration.data_directory import PROJECT

RECORDINGS = PROJECT.parent / "shared" / "recordings"
HOSTS = (
    "generativelanguage.googleapis.com",
    "aiplatform.googleapis.com",
    "europe-west4-aiplatform.googleapis.com",
)
SUMMARY = Summary(
    usage=Usage(input=7, cache_read=2, output=3, reasoning=1),
    cost={"total": Decimal("0.0000012")},
    metadata={"used_model": "the-model"},
)
CLIENT = openai.read_request(b'{"model": "the-model", "messages": [{"role": "user", "content": "?"}], "stream": true}')
# A model that does not insist on seals, so that exactly those come back that were there.
LENIENT = Target(model_name="gemini", facts={"reasoning_budget": {"min": 0}})

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges(host: str) -> Iterator[dict[str, Any]]:
    """Yield the exchanges of a host that ask for content; others (embeddings, counts) are not this dialect's."""
    with gzip.open(RECORDINGS / f"{host}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            if "enerateContent" in exchange["url"]:
                yield exchange


def body_of(exchange: dict[str, Any]) -> bytes:
    """Return the body of an answer."""
    text: str = exchange["text"] if exchange["json"] is None else json.dumps(exchange["json"])
    return text.encode()


def is_streamed(exchange: dict[str, Any]) -> bool:
    """Return whether the answer is a stream."""
    return "streamGenerateContent" in exchange["url"]


def chunks_of(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what Google said, a plain answer as one chunk."""
    if not is_streamed(exchange):
        return [json.loads(body_of(exchange))]
    return [json.loads(line[5:]) for line in exchange["text"].splitlines() if line.startswith("data:")]


def events_of(exchange: dict[str, Any], size: int | None = None) -> list[Event]:
    """Read the answer of an exchange; a stream in pieces of `size` bytes."""
    body = body_of(exchange)
    if not is_streamed(exchange):
        return list(google.read_reply(body))
    step = size or len(body)
    return list(google.read_events(sse_frames(body[at : at + step] for at in range(0, len(body), step))))


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_answers_keep_their_meaning_and_satisfy_openais_client(
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
        failure = google.read_failure(exchange["status"], body_of(exchange))
        assert failure.message == exchange["json"]["error"]["message"]
        assert failure.code == exchange["json"]["error"]["status"]
        return "refused"
    said = meaning(chunks_of(exchange))
    events = events_of(exchange)
    if said["native"] in FAILURE_WORDS:
        assert isinstance(events[-1], Failed), exchange["name"]
        assert events[-1].error.status == 502
        return f"useless ({said['native']})"
    reply = fold(events)
    assert told(reply) == said, exchange["name"]
    assert_counted(reply.usage, chunks_of(exchange)[-1].get("usageMetadata") or {})
    streamed = is_streamed(exchange)
    if streamed:
        for size in (1, 61):
            assert nameless(fold(events_of(exchange, size))) == nameless(reply), exchange["name"]
    check_plain(reply, said)
    check_stream(events, said)
    check_return(reply, chunks_of(exchange))
    return "streamed" if streamed else "plain"


def parts_of(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all parts of the only candidate."""
    return [
        part
        for chunk in chunks
        for candidate in chunk.get("candidates", [])
        for part in candidate.get("content", {}).get("parts", [])
    ]


def meaning(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what an answer says, read in the plainest way."""
    parts = parts_of(chunks)
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    [native] = {
        word for chunk in chunks for candidate in chunk["candidates"] if (word := candidate.get("finishReason"))
    }
    reason = FINISH_REASONS.get(native, "stop")
    return {
        "text": "".join(part["text"] for part in parts if "text" in part and not part.get("thought")),
        "reasoning": "".join(part["text"] for part in parts if part.get("thought")),
        "calls": [(call["name"], call.get("args", {})) for call in calls],
        "seals": [part["thoughtSignature"] for part in parts if "thoughtSignature" in part and is_ours(part)],
        "finish": "tool_calls" if calls and reason == "stop" else reason,
        "native": native,
    }


def is_ours(part: dict[str, Any]) -> bool:
    """Return whether a part is one that clients get: Google's own tools are not."""
    return "text" in part or "functionCall" in part or "inlineData" in part


def told(reply: Reply) -> dict[str, Any]:
    """Return what a reply says, in the words of `meaning`."""
    [choice] = reply.choices
    seals = [block.signature for block in choice.reasoning if block.signature]
    seals += [
        call.extra["extra_content"]["google"]["thought_signature"]
        for call in choice.tool_calls
        if call.extra is not None
    ]
    return {
        "text": choice.text or "",
        "reasoning": "".join(block.text for block in choice.reasoning),
        "calls": [(call.name, json.loads(call.arguments)) for call in choice.tool_calls],
        "seals": seals,
        "finish": choice.finish,
        "native": choice.native_finish,
    }


def nameless(reply: Reply) -> Reply:
    """Return a reply without the ids of its calls, which are made up where Google gave none."""
    choices = [
        replace(choice, tool_calls=[replace(call, id="") for call in choice.tool_calls]) for choice in reply.choices
    ]
    return replace(reply, choices=choices)


def assert_counted(usage: Usage | None, counts: dict[str, Any]) -> None:
    """The counts add up to Google's, cached and reasoning tokens apart."""
    assert usage is not None
    assert usage.prompt_tokens == counts["promptTokenCount"] + counts.get("toolUsePromptTokenCount", 0)
    assert usage.completion_tokens == counts.get("candidatesTokenCount", 0) + counts.get("thoughtsTokenCount", 0)
    assert usage.total_tokens == counts["totalTokenCount"]
    assert usage.cache_read == counts.get("cachedContentTokenCount", 0)
    assert usage.reasoning == counts.get("thoughtsTokenCount", 0)


def check_plain(reply: Reply, said: dict[str, Any]) -> None:
    """The reply as we write it validates against OpenAI's types and says the same."""
    written = openai.write_reply(reply, SUMMARY, CLIENT)
    completion = ChatCompletion.model_validate(json.loads(written))
    assert completion.choices[0].finish_reason == said["finish"]
    assert told(fold(openai.read_reply(written))) == {**said, "native": said["finish"]}


def check_stream(events: list[Event], said: dict[str, Any]) -> None:
    """The stream as we write it validates chunk by chunk and says the same."""
    for event in events:
        if isinstance(event, Started):
            event.model = "the-model"
    payloads = list(sse_frames(openai.write_events([*events, SUMMARY], CLIENT)))
    assert payloads[-1] == b"[DONE]"
    for payload in payloads[:-1]:
        ChatCompletionChunk.model_validate(json.loads(payload))
    assert told(fold(openai.read_events(payloads))) == {**said, "native": said["finish"]}


def check_return(reply: Reply, chunks: list[dict[str, Any]]) -> None:
    """A client that sends our answer back brings Google the text, the calls and the seals it had sent.

    One that keeps nothing of a call but its id, name and arguments still brings the seal.
    """
    message = json.loads(openai.write_reply(reply, SUMMARY, CLIENT))["choices"][0]["message"]
    sent = [part for part in parts_of(chunks) if is_ours(part)]
    for forgetful in (False, True):
        for call in message.get("tool_calls", []) if forgetful else ():
            call.pop("extra_content", None)
        parts = returned(message)
        calls = [part for part in parts if "functionCall" in part]
        expected = [part for part in sent if "functionCall" in part]
        assert len(calls) == len(expected)
        for part, original in zip(calls, expected, strict=True):
            call = {"id": part["functionCall"]["id"], "args": {}, **original["functionCall"]}
            assert part == {**original, "functionCall": call}
        seals = [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]
        assert seals == [part["thoughtSignature"] for part in sent if "thoughtSignature" in part]


def returned(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parts that Google gets for an answer of ours that a client sends back; Google's own types take it."""
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in message.get("tool_calls", [])
    ]
    messages = [{"role": "user", "content": "?"}, message, *results, {"role": "user", "content": "And now?"}]
    chat = openai.read_request(json.dumps({"model": "m", "messages": messages}).encode())
    contents = json.loads(google.write_request(chat, LENIENT))["contents"]
    for content in contents:
        types.Content.model_validate(content)
    parts: list[dict[str, Any]] = [
        part for content in contents if content["role"] == "model" for part in content["parts"]
    ]
    return parts
