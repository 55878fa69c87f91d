"""Real traffic of Cohere through its dialect: read without loss, written so that OpenAI's own client takes it, and
conversations written so that Cohere's own types take them. The recordings are not part of the project; without them
these tests are skipped."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from cohere.types import AssistantMessageResponse, ChatMessageV2, Thinking, ToolV2
from cohere.v2.types import V2ChatResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Reply, Summary, fold
from apps.gateway.dialects.chat import cohere, openai
from apps.gateway.framing import sse_frames
from apps.kernel.usage import Usage
from gateway_project.configuration.data_directory import PROJECT
from tests.support.unfolding import unfold

RECORDINGS = PROJECT.parent / "shared" / "recordings"
SUMMARY = Summary(
    usage=Usage(input=7, output=3), cost={"total": Decimal("0.0000012")}, metadata={"used_model": "the-model"}
)
CLIENT = openai.read_request(b'{"model": "the-model", "messages": [{"role": "user", "content": "?"}], "stream": true}')
FINISHES = {"COMPLETE": "stop", "TOOL_CALL": "tool_calls"}
THINKS = {"reasoning_budget": {"min": 1}}
# Ways of choosing tools in OpenAI's words.
CHOICES = {"NONE": "none", "REQUIRED": "required"}

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges() -> Iterator[dict[str, Any]]:
    """Yield the exchanges, all of which are plain."""
    with gzip.open(RECORDINGS / "api.cohere.com.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def test_recorded_answers_keep_their_meaning_and_satisfy_openais_client(capsys: pytest.CaptureFixture[str]) -> None:
    counts: Counter[str] = Counter()
    for exchange in exchanges():
        answer = exchange["json"]
        # That the recording is what Cohere's client takes.
        V2ChatResponse.model_validate(answer)
        reply = fold(cohere.read_reply(json.dumps(answer).encode()))
        assert told_by(reply) == meaning(answer), exchange["name"]
        check_usage(answer["usage"], reply.usage)
        check_clients(reply, answer)
        counts[reply.choices[0].finish or ""] += 1
    assert counts == {"stop": 3, "tool_calls": 1}
    with capsys.disabled():
        sys.stdout.write(f"\napi.cohere.com: {dict(counts)}")


def meaning(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer says, read in the plainest way."""
    message = answer["message"]
    parts = message.get("content") or []
    return {
        "text": "".join(part["text"] for part in parts if part["type"] == "text"),
        "reasoning": [part["thinking"] for part in parts if part["type"] == "thinking"]
        + [plan for plan in [message.get("tool_plan")] if plan],
        "calls": [
            (call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or []
        ],
        "finish": FINISHES[answer["finish_reason"]],
    }


def told_by(reply: Reply) -> dict[str, Any]:
    """Return what a reply says, in the words of `meaning`."""
    [choice] = reply.choices
    return {
        "text": choice.text or "",
        "reasoning": [block.text for block in choice.reasoning],
        "calls": [(call.id, call.name, call.arguments) for call in choice.tool_calls],
        "finish": choice.finish,
    }


def check_usage(counts: dict[str, Any], usage: Usage | None) -> None:
    """Check that the counts are those that Cohere charges, and that no more tokens are cached than possible."""
    assert usage is not None
    billed = counts["billed_units"]
    assert (usage.prompt_tokens, usage.completion_tokens) == (billed["input_tokens"], billed["output_tokens"])
    assert 0 <= usage.cache_read <= counts.get("cached_tokens", 0)


def check_clients(reply: Reply, answer: dict[str, Any]) -> None:
    """The reply validates against OpenAI's types, plain and streamed, and still says the same."""
    said = meaning(answer)
    written = openai.write_reply(reply, SUMMARY, CLIENT)
    ChatCompletion.model_validate({**json.loads(written), "metadata": None})
    payloads = list(sse_frames(openai.write_events([*unfold(reply), SUMMARY], CLIENT)))
    for payload in payloads[:-1]:
        ChatCompletionChunk.model_validate(json.loads(payload))
    for read in (openai.read_reply(written), openai.read_events(payloads)):
        again = told_by(fold(read))
        assert {**again, "reasoning": "".join(again["reasoning"])} == {**said, "reasoning": "".join(said["reasoning"])}


def test_an_answer_that_a_client_sends_back_is_the_one_that_cohere_gave() -> None:
    for exchange in exchanges():
        answer = exchange["json"]
        reply = fold(cohere.read_reply(json.dumps(answer).encode()))
        message = json.loads(openai.write_reply(reply, SUMMARY, CLIENT))["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in message.get("tool_calls", [])
        ]
        wire = request_for([{"role": "user", "content": "?"}, message, *results, {"role": "user", "content": "And?"}])
        back = next(message for message in wire["messages"] if message["role"] == "assistant")
        AssistantMessageResponse.model_validate({**back, "content": None})
        given = {name: value for name, value in answer["message"].items() if name != "content"}
        assert {name: value for name, value in back.items() if name != "content"} == given
        assert as_parts(back.get("content")) == as_parts(answer["message"].get("content"))


def request_for(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return what Cohere is sent for a conversation in OpenAI's words."""
    body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
    wire: dict[str, Any] = json.loads(
        cohere.write_request(openai.read_request(body), Target(model_name="m", facts=THINKS))
    )
    return wire


def as_parts(content: Any) -> list[dict[str, Any]]:
    """Return content as the list that it may be written as."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def test_recorded_requests_are_written_as_cohere_took_them() -> None:
    """The conversation, said in OpenAI's words, becomes the very messages and tools that Cohere was sent."""
    for exchange in exchanges():
        request = exchange["request"]
        fields = {name: request[name] for name in ("tools", "stream") if request.get(name)}
        if choice := request.get("tool_choice"):
            fields["tool_choice"] = CHOICES[choice]
        wire = request_for([in_openais_words(message) for message in request["messages"]], **fields)
        for message in wire["messages"]:
            TypeAdapter(ChatMessageV2).validate_python(message)
        for tool in wire.get("tools", []):
            ToolV2.model_validate(tool)
        assert [{**message, "content": as_parts(message["content"])} for message in wire["messages"]] == [
            {**message, "content": as_parts(message["content"])} for message in request["messages"]
        ]
        assert wire.get("tools") == request.get("tools")
        assert wire.get("tool_choice") == request.get("tool_choice")


def in_openais_words(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of Cohere's as OpenAI's clients write it."""
    parts = as_parts(message["content"])
    thoughts = [part["thinking"] for part in parts if part["type"] == "thinking"]
    others = [part for part in parts if part["type"] != "thinking"]
    details = [{"type": "reasoning.text", "text": text, "index": number} for number, text in enumerate(thoughts)]
    return {**message, "content": others, **({"reasoning_details": details} if details else {})}


@pytest.mark.parametrize(
    ("asked", "thinking"),
    [
        ({"reasoning_effort": "none"}, {"type": "disabled"}),
        ({"reasoning_effort": "high"}, {"type": "enabled"}),
        ({"reasoning_effort": "low", "max_tokens": 100}, {"type": "enabled", "token_budget": 20}),
        ({"reasoning": {"max_tokens": 31}}, {"type": "enabled", "token_budget": 31}),
    ],
)
def test_thinking_is_asked_for_as_cohere_has_it(asked: dict[str, Any], thinking: dict[str, Any]) -> None:
    wire = request_for([{"role": "user", "content": "?"}], **asked)
    Thinking.model_validate(wire["thinking"])
    assert wire["thinking"] == thinking
