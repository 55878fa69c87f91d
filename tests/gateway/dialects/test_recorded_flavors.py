"""Recorded requests of OpenAI-alikes, written by the facts that the catalog states of each: what a provider was really
sent, and took, is what we would send it. Mistral's are checked with its client's types as well. The recordings are not
part of the project; without them these tests are skipped."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from apps.catalog.files import ProviderFile, read_files
from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Failed, fold
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.reading.router_fields import ROUTER_FIELDS
from gateway_project.configuration.data_directory import PROJECT

RECORDINGS = PROJECT.parent / "shared" / "recordings"
HOSTS = {
    "api.groq.com": "groq",
    "api.cerebras.ai": "cerebras",
    "api.deepseek.com": "deepseek",
    "api.z.ai": "zai",
    "openrouter.ai": "openrouter",
}
# A model's word that no other provider has: our clients get a refusal that says so.
NOT_OURS = {"test_thinking_wire_contract/test_reasoning_wire_contract[groq-qwen3-effort-setting]#0"}

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges(host: str) -> Iterator[dict[str, Any]]:
    """Yield the chat exchanges of a host that went well."""
    with gzip.open(RECORDINGS / f"{host}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            if exchange["url"].endswith("/chat/completions") and exchange["status"] == 200:
                yield exchange


def provider_of(provider_id: str) -> ProviderFile:
    """Return a provider's data file."""
    return next(provider for provider in read_files().providers if provider.id == provider_id)


def target_of(provider: ProviderFile, model: str) -> Target:
    """Return the target that a model of a provider is, by its facts; by the provider's alone where it is not listed."""
    facts = msgspec.to_builtins(provider.facts)
    for mapping in provider.models:
        if model in mapping.own_names:
            stated = msgspec.to_builtins(mapping)
            efforts = {name: stated[name] for name in ("reasoning_efforts", "reasoning_budget") if name in stated}
            facts |= efforts | msgspec.to_builtins(mapping.facts)
    return Target(model_name=model, facts=facts)


@pytest.mark.parametrize("host", HOSTS)
def test_a_recorded_request_is_what_the_provider_would_be_sent_by_its_facts(
    host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    provider, counts = provider_of(HOSTS[host]), Counter[str]()
    for exchange in exchanges(host):
        if exchange["name"] in NOT_OURS:
            counts["set aside: an effort that no other provider knows"] += 1
            continue
        request = exchange["request"]
        target = target_of(provider, request["model"])
        written = json.loads(openai.write_request(openai.read_request(json.dumps(request).encode()), target))
        for body in (written, request):
            body.pop("stream_options", None)
        for name, value in (target.facts.get("adds") or {}).items():
            request.setdefault(name, value)
        # Fields for a router are the gateway's business, and no provider's.
        assert written == {name: it for name, it in request.items() if name not in ROUTER_FIELDS}, exchange["name"]
        assert target.dropped_fields == [], exchange["name"]
        counts["the same"] += 1
    assert counts["the same"]
    with capsys.disabled():
        sys.stdout.write(f"\n{host}: {dict(counts)}")


def test_mistrals_recorded_conversations_are_written_as_mistral_took_them(capsys: pytest.CaptureFixture[str]) -> None:
    models = pytest.importorskip("mistralai.client.models", reason="Mistral's client is not installed")
    provider, count = provider_of("mistral"), 0
    for exchange in exchanges("api.mistral.ai"):
        request = exchange["request"]
        target = target_of(provider, request["model"])
        said = request | {"messages": [in_openais_words(message) for message in request["messages"]]}
        if "tools" in said:
            said["tools"] = [{"type": "function", **tool} for tool in said["tools"]]
        if said.get("tool_choice") == "any":
            said["tool_choice"] = "required"
        written = json.loads(openai.write_request(openai.read_request(json.dumps(said).encode()), target))
        models.ChatCompletionRequest.model_validate(written)
        assert [plainly(message) for message in written["messages"]] == [
            plainly(message) for message in request["messages"]
        ], exchange["name"]
        assert {"stream": False, **written, "messages": []} == {**said, "messages": []}, exchange["name"]
        assert target.dropped_fields == [], exchange["name"]
        count += 1
    assert count == 37
    with capsys.disabled():
        sys.stdout.write(f"\napi.mistral.ai: {count} conversations valid for Mistral's types")


def in_openais_words(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of Mistral's as OpenAI's clients write it."""
    words = {name: value for name, value in message.items() if name != "prefix"}
    if not isinstance(words["content"], list):
        return words
    thoughts = [part for part in words["content"] if part["type"] == "thinking"]
    words["content"] = [openais_part(part) for part in words["content"] if part["type"] != "thinking"] or None
    if thoughts:
        words["reasoning"] = "".join(text["text"] for part in thoughts for text in part["thinking"])
    if words["content"] is None and "tool_calls" not in words:
        words["content"] = ""
    return words


def openais_part(part: dict[str, Any]) -> dict[str, Any]:
    """Return a document as OpenAI has it, anything else as it is."""
    if part["type"] != "document_url":
        return part
    return {"type": "file", "file": {"file_data": part["document_url"]}}


def plainly(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what may be said in more than one way."""
    content = message.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    calls = [{**call, "type": "function"} for call in message.get("tool_calls") or []]
    for call in calls:
        call.pop("index", None)
    texts = [
        {**part, "thinking": "".join(text["text"] for text in part["thinking"])} if part["type"] == "thinking" else part
        for part in parts
    ]
    return {"role": message["role"], "content": texts, "calls": calls, "of": message.get("tool_call_id")}


def test_mistrals_thinking_is_read_as_thinking() -> None:
    found = 0
    for exchange in exchanges("api.mistral.ai"):
        message = exchange["json"]["choices"][0]["message"]
        if not isinstance(message["content"], list):
            continue
        events = list(openai.read_reply(json.dumps(exchange["json"]).encode()))
        assert not any(isinstance(event, Failed) for event in events)
        [choice] = fold(events).choices
        thoughts = [part for part in message["content"] if part["type"] == "thinking"]
        assert "".join(block.text for block in choice.reasoning) == "".join(
            text["text"] for part in thoughts for text in part["thinking"]
        )
        assert choice.text == "".join(part["text"] for part in message["content"] if part["type"] == "text")
        found += bool(thoughts)
    assert found >= 2
