"""Google Cloud's side of the formats against real traffic and against the types of Google's and Anthropic's clients.

The recordings are not part of the project; without them these tests are skipped.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from google.genai import types
from pydantic import TypeAdapter

from apps.gateway.canonical.chat import Target
from apps.gateway.canonical.events import Failed, fold
from apps.gateway.dialects.chat import anthropic, openai, vertex, vertex_anthropic
from apps.gateway.framing import sse_frames
from apps.kernel.errors import InvalidRequest
from gateway_project.configuration.data_directory import PROJECT

RECORDINGS = PROJECT.parent / "shared" / "recordings"
CLOUD = ("aiplatform.googleapis.com", "europe-west4-aiplatform.googleapis.com")

pytestmark = pytest.mark.skipif(not RECORDINGS.is_dir(), reason="there are no recordings in ../shared/recordings")


def exchanges(host: str) -> Iterator[dict[str, Any]]:
    """Yield the exchanges of a host."""
    with gzip.open(RECORDINGS / f"{host}.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def model_of(url: str) -> str:
    """Return the model that a URL names."""
    return url.rpartition("/models/")[2].partition(":")[0]


@pytest.mark.parametrize("host", CLOUD)
def test_a_request_goes_where_the_recorded_ones_went(host: str) -> None:
    seen: Counter[str] = Counter()
    for exchange in exchanges(host):
        url, model = exchange["url"], model_of(exchange["url"])
        # Google's own client asks for the beta version of the same.
        base_url, _, path = url.replace("/v1beta1/", "/v1/").partition("/publishers/")
        location = base_url.rpartition("/")[2]
        prefix = f"https://{location}-aiplatform.googleapis.com"
        stated = prefix + base_url.partition("googleapis.com")[2]
        chat = openai.read_request(b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}')
        chat.stream = "stream" in path
        target = Target(model_name=model, facts={})
        if "countTokens" in url:
            asked, _ = vertex.count_request(chat, target)
            assert vertex.url_of_path(stated, asked) == f"{base_url}/publishers/{path}"
        else:
            assert vertex.url(stated, chat, target) == f"{base_url}/publishers/{path}"
        seen[path.rpartition(":")[2]] += 1
    assert seen["generateContent"]


def test_recorded_counts_are_read() -> None:
    counted = [exchange for exchange in exchanges(CLOUD[0]) if "countTokens" in exchange["url"]]
    assert [vertex.read_count(json.dumps(exchange["json"]).encode()) for exchange in counted] == [13, 36]
    counted = [exchange for exchange in exchanges("api.anthropic.com") if "count_tokens" in exchange["url"]]
    told = [anthropic.read_count(json.dumps(exchange["json"]).encode()) for exchange in counted]
    assert told == [exchange["json"].get("input_tokens") for exchange in counted]
    assert 1114 in told


@pytest.mark.parametrize("host", CLOUD)
def test_recorded_answers_are_read_with_all_of_their_tokens(host: str) -> None:
    read = 0
    for exchange in exchanges(host):
        if "countTokens" in exchange["url"] or exchange["status"] != 200:
            continue
        if exchange["json"] is None:
            events = list(vertex.PROVIDER.read_events(sse_frames([exchange["text"].encode()])))
            last = [json.loads(line[5:]) for line in exchange["text"].splitlines() if line.startswith("data:")][-1]
        else:
            events, last = list(vertex.PROVIDER.read_reply(json.dumps(exchange["json"]).encode())), exchange["json"]
        if isinstance(events[-1], Failed):
            # An answer that the model itself spoilt, in Google's own words.
            assert events[-1].error.message == last["candidates"][0]["finishMessage"]
            continue
        reply = fold(events)
        counts = last["usageMetadata"]
        assert reply.usage is not None
        assert reply.usage.total_tokens == counts["totalTokenCount"], exchange["name"]
        assert reply.choices[0].finish is not None
        read += 1
    assert read


def test_what_openais_clients_asked_is_written_in_googles_types() -> None:
    """Every recorded request that Google has words for."""
    written = 0
    for exchange in exchanges("api.openai.com"):
        if "chat/completions" not in exchange["url"] or exchange["request"] is None:
            continue
        try:
            chat = openai.read_request(json.dumps(exchange["request"]).encode())
            wire = json.loads(vertex.write_request(chat, Target(model_name="gemini", facts={})))
        except InvalidRequest:
            continue
        assert wire.keys() <= {"systemInstruction", "contents", "tools", "toolConfig", "generationConfig", "labels"}
        for content in [*wire["contents"], *([wire["systemInstruction"]] if "systemInstruction" in wire else [])]:
            types.Content.model_validate(content)
        for tool in wire.get("tools", ()):
            types.Tool.model_validate(tool)
        types.ToolConfig.model_validate(wire.get("toolConfig", {}))
        types.GenerationConfig.model_validate(wire.get("generationConfig", {}))
        written += 1
    assert written > 50


def test_what_anthropics_clients_asked_is_sent_on_as_it_is() -> None:
    """But for the model, which is in the path, and the version, which is in the body."""
    plain, streamed = TypeAdapter(MessageCreateParamsNonStreaming), TypeAdapter(MessageCreateParamsStreaming)
    sent = 0
    for exchange in exchanges("api.anthropic.com"):
        body = exchange["request"]
        if "count_tokens" in exchange["url"] or not isinstance(body, dict):
            continue
        try:
            chat = anthropic.read_request(json.dumps(body).encode())
            target = Target(model_name=body["model"], facts={})
            wire = json.loads(vertex_anthropic.write_request(chat, target))
        except InvalidRequest:
            continue
        assert wire.pop("anthropic_version") == "vertex-2023-10-16"
        assert "model" not in wire
        if not target.dropped_fields:
            kept = {name: value for name, value in body.items() if value is not None and name != "model"}
            assert wire == kept, exchange["name"]
        if not exchange["url"].endswith("beta=true"):
            (streamed if body.get("stream") else plain).validate_python({**wire, "model": body["model"]})
        sent += 1
    assert sent > 150
