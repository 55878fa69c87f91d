"""Real traffic of OpenAI-alikes through the OpenAI dialect: read without loss, and written so that OpenAI's own client
takes it. The recordings are not part of the project; without them these tests are skipped."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Choice, Event, Failed, Reply, Started, Summary, fold
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.chat.openai.wire import OWN_FIELDS
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS
from apps.gateway.framing import sse_frames
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import COUNTS, Usage
from gateway_project.configuration.data_directory import PROJECT

RECORDINGS = PROJECT.parent / "shared" / "recordings"
HOSTS = (
    "api.openai.com",
    "api.groq.com",
    "api.mistral.ai",
    "api.deepseek.com",
    "api.cerebras.ai",
    "openrouter.ai",
    "api.z.ai",
    "router.huggingface.co",
    "pydanticai7521574644.openai.azure.com",
    "generativelanguage.googleapis.com",
)
# A provider that takes everything as it is: whatever is missing from the body then was lost by us.
TAKES_ALL = {
    "developer_role": True,
    "tool_call_ids": "any",
    "takes": [*OWN_FIELDS, "reasoning_details", "images", "cache_control", "web_search_options"],
}
# Words of providers' own that the specification's ranges leave out: our clients get a refusal that says so.
NOT_OPENAIS = {
    **{
        f"test_tool_choice_matrix/test_tool_choice_matrix[{case}": "^tool_choice: must be one of auto, none, required"
        for case in (
            "none_with_output-mistral]#0",
            "required-mistral]#0",
            "tools_plus_output-mistral]#0",
            "tools_plus_output-mistral]#1",
        )
    },
    "test_thinking_wire_contract/test_reasoning_wire_contract[groq-qwen3-effort-setting]#0": "^reasoning_effort: must",
}
SUMMARY = Summary(
    usage=Usage(input=7, cache_read=2, output=3, reasoning=1),
    cost={"total": Decimal("0.0000012")},
    metadata={"used_model": "the-model"},
)

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges(host: str) -> Iterator[dict[str, Any]]:
    """Yield the chat exchanges of a host."""
    with gzip.open(RECORDINGS / f"{host}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            if exchange["url"].split("?")[0].endswith("/chat/completions"):
                yield exchange


def events_of(exchange: dict[str, Any], size: int | None = None) -> list[Event]:
    """Read the answer of an exchange; a stream in pieces of `size` bytes."""
    if exchange["json"] is not None:
        return list(openai.read_reply(json.dumps(exchange["json"]).encode()))
    body = exchange["text"].encode()
    step = size or len(body)
    return list(openai.read_events(sse_frames(body[at : at + step] for at in range(0, len(body), step))))


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
        failure = openai.read_failure(exchange["status"], json.dumps(exchange["json"]).encode())
        assert failure.message == exchange["json"]["error"]["message"]
        return "refused"
    streamed = exchange["json"] is None
    events = events_of(exchange)
    told = errors_told(exchange)
    if told:
        assert isinstance(events[-1], Failed), exchange["name"]
        assert events[-1].error.message == told
        check_stream(events, None)
        return "failed in its stream"
    reply = fold(events)
    said = streamed_choices(exchange["text"]) if streamed else plain_choices(exchange["json"])
    told = {index: told_by(choice) for index, choice in enumerate(reply.choices)}
    said = {index: with_minted_ids(one, told[index]["calls"]) for index, one in said.items()}
    assert told == said, exchange["name"]
    check_usage(exchange, reply.usage)
    if streamed:
        assert fold(events_of(exchange, size=1)) == reply
        assert fold(events_of(exchange, size=61)) == reply
    check_plain(reply, said)
    check_stream(events, said)
    return "streamed" if streamed else "plain"


def told_by(choice: Choice) -> dict[str, Any]:
    return {
        "text": choice.text or "",
        "reasoning": "".join(block.text for block in choice.reasoning),
        "refusal": choice.refusal or "",
        "calls": [(call.id, call.name, call.arguments) for call in choice.tool_calls],
        "finish": choice.native_finish,
        "annotations": choice.annotations,
        "details": [(block.data, block.signature) for block in choice.reasoning if block.data or block.signature],
    }


def with_minted_ids(said: dict[str, Any], told: list[tuple[str, str, str]]) -> dict[str, Any]:
    """Return the message with the ids that we gave to calls without one."""
    calls = [(said_id or told_id, *rest) for (said_id, *rest), (told_id, *_) in zip(said["calls"], told, strict=True)]
    assert all(call_id for call_id, *_ in calls)
    return {**said, "calls": calls}


def plain_choices(answer: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Work out what a plain answer says, without the code under test."""
    return {choice["index"]: meaning([choice["message"]], choice["finish_reason"]) for choice in answer["choices"]}


def streamed_choices(text: str) -> dict[int, dict[str, Any]]:
    """Work out what a stream says, without the code under test."""
    deltas: dict[int, list[dict[str, Any]]] = {}
    ends: dict[int, str] = {}
    for line in text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                deltas.setdefault(choice["index"], []).append(choice["delta"])
                ends[choice["index"]] = choice.get("finish_reason") or ends.get(choice["index"], "")
    return {index: meaning(found, ends[index]) for index, found in sorted(deltas.items())}


def meaning(messages: list[dict[str, Any]], finish: str) -> dict[str, Any]:
    text, reasoning = "", ""
    calls: dict[Any, list[str]] = {}
    details: list[tuple[Any, Any]] = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else [{"type": "text", "text": content or ""}]:
            text += part["text"] if part["type"] == "text" else ""
            reasoning += "".join(thought["text"] for thought in part.get("thinking", ()))
        reasoning += message.get("reasoning") or message.get("reasoning_content") or ""
        for position, call in enumerate(message.get("tool_calls") or ()):
            known = calls.setdefault(call.get("index", position), ["", "", ""])
            function = call["function"]
            pieces = (call.get("id"), function.get("name"), function.get("arguments"))
            known[:] = [old + (new or "") for old, new in zip(known, pieces, strict=True)]
        details += [
            (detail.get("data"), detail.get("signature"))
            for detail in message.get("reasoning_details") or ()
            if detail.get("data") or detail.get("signature")
        ]
    return {
        "text": text,
        "reasoning": reasoning,
        "refusal": "".join(message.get("refusal") or "" for message in messages),
        "calls": [tuple(call) for call in calls.values()],
        "finish": finish,
        "annotations": [note for message in messages for note in message.get("annotations") or ()],
        "details": details,
    }


def errors_told(exchange: dict[str, Any]) -> str | None:
    """Return the words of the error inside an answer, if there is one."""
    for line in (exchange["text"] or "").splitlines():
        if line.startswith("data: {") and "error" in (chunk := json.loads(line[6:])):
            return str(chunk["error"]["message"])
    return None


def check_usage(exchange: dict[str, Any], usage: Usage | None) -> None:
    """Every class is at least 0, and they add up to what the provider says in total."""
    told = exchange["json"] and exchange["json"]["usage"]
    for line in (exchange["text"] or "").splitlines():
        if line.startswith("data: {"):
            chunk = json.loads(line[6:])
            told = chunk.get("usage") or (chunk.get("x_groq") or {}).get("usage") or told
    if told is None:
        assert usage is None
        return
    assert usage is not None
    assert min(getattr(usage, name) for name in COUNTS) >= 0
    assert usage.prompt_tokens == told["prompt_tokens"]
    assert usage.completion_tokens == told["completion_tokens"]
    details = told.get("prompt_tokens_details") or {}
    beside = [told.get(name) or 0 for name in ("prompt_cache_hit_tokens", "num_cached_tokens", "cached_tokens")]
    assert usage.cache_read == (details.get("cached_tokens") or max(beside))
    assert usage.reasoning == ((told.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)


CLIENT = openai.read_request(b'{"model": "the-model", "messages": [{"role": "user", "content": "?"}], "stream": true}')


def check_plain(reply: Reply, said: dict[int, dict[str, Any]]) -> None:
    """The reply as we write it validates against OpenAI's types and says the same."""
    written = openai.write_reply(reply, SUMMARY, CLIENT)
    completion = ChatCompletion.model_validate(json.loads(written))
    assert completion.model == "the-model"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (9, 4)
    again = fold(openai.read_reply(written))
    assert {
        index: told_by(choice) | {"finish": said[index]["finish"]} for index, choice in enumerate(again.choices)
    } == {index: without_foreign_notes(meaning) for index, meaning in said.items()}


def check_stream(events: list[Event], said: dict[int, dict[str, Any]] | None) -> None:
    """The stream as we write it validates chunk by chunk and says the same."""
    for event in events:
        if isinstance(event, Started):
            event.model = "the-model"
    written = list(openai.write_events([*events, SUMMARY] if said else events, CLIENT))
    payloads = list(sse_frames(written))
    if said is None:
        assert "error" in json.loads(payloads[-1])
        assert b"[DONE]" not in payloads
        return
    assert payloads[-1] == b"[DONE]"
    for payload in payloads[:-1]:
        chunk = ChatCompletionChunk.model_validate(json.loads(payload))
        assert chunk.model == "the-model"
    again = fold(openai.read_events(payloads))
    assert {
        index: told_by(choice) | {"finish": said[index]["finish"]} for index, choice in enumerate(again.choices)
    } == {index: without_foreign_notes(meaning) for index, meaning in said.items()}


def assert_says(reply: Reply, said: dict[int, dict[str, Any]]) -> None:
    """Check that our reply means the same as the provider's; of its own word for the end, the canonical one is left."""
    for index, choice in enumerate(reply.choices):
        assert told_by(choice) | {"finish": None} == without_foreign_notes(said[index]) | {"finish": None}


def without_foreign_notes(meaning: dict[str, Any]) -> dict[str, Any]:
    """Notes that OpenAI's types do not know are parked elsewhere in the message."""
    return meaning | {"annotations": [note for note in meaning["annotations"] if note["type"] == "url_citation"]}


@pytest.mark.parametrize("host", HOSTS)
def test_recorded_requests_come_out_as_they_went_in(host: str) -> None:
    passed = 0
    for exchange in exchanges(host):
        request = exchange["request"]
        body = json.dumps(request).encode()
        if reason := NOT_OPENAIS.get(exchange["name"]):
            with pytest.raises(InvalidRequest, match=reason):
                openai.read_request(body)
            continue
        chat = openai.read_request(body)
        facts = {**TAKES_ALL, "reasoning_field": "reasoning" if b'"reasoning":' in body else "reasoning_content"}
        if "max_completion_tokens" in request:
            facts["max_tokens_field"] = "max_completion_tokens"
        target = Target(model_name=request["model"], facts=facts)
        written = json.loads(openai.write_request(chat, target))
        if request.get("stream"):
            assert written.pop("stream_options") == {"include_usage": True}
        request.pop("stream_options", None)
        if request.get("tools") == []:
            del request["tools"]
        # Fields for a router are the gateway's business, and no provider's.
        assert written == {name: it for name, it in request.items() if name not in ROUTER_FIELDS}, exchange["name"]
        # The same from the canonical form, as for a chat that the gateway has changed.
        chat = replace(chat, source=None, preferences=None, dropped_fields=None, usage_details=False, plugins=None)
        chat = replace(chat, tools=chat.tools or None)
        again = openai.read_request(openai.write_request(chat, target))
        assert again.source is not None
        assert replace(again, source=None, include_usage=chat.include_usage) == chat, exchange["name"]
        passed += 1
    assert passed
