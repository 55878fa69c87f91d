"""Bounds of request fields: what the API's description states is exactly what the readers of requests take."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.chat import anthropic, bedrock, cohere, completions, openai
from apps.gateway.dialects.media.images import client as images
from apps.gateway.dialects.media.speech import client as speech
from apps.gateway.dialects.values import moderations as moderations
from apps.gateway.dialects.values import rerank as rerank
from apps.gateway.dialects.values.embeddings import client as embeddings
from apps.kernel.errors import InvalidRequest
from gateway_project.configuration.data_directory import PROJECT

MESSAGE = {"role": "user", "content": "?"}
# For each description: its file and schema, its reader, and the smallest body that the reader takes.
DESCRIBED: dict[str, tuple[str, str, Callable[[bytes], Chat], dict[str, Any]]] = {
    "chat": ("chat.yaml", "ChatRequest", openai.read_request, {"model": "m", "messages": [MESSAGE]}),
    "messages": (
        "messages.yaml",
        "Prompt",
        anthropic.read_request,
        {"model": "m", "messages": [MESSAGE], "max_tokens": 9},
    ),
    "cohere": ("cohere.yaml", "CohereChatRequest", cohere.CLIENT.read_request, {"model": "m", "messages": [MESSAGE]}),
    "converse": (
        "bedrock.yaml",
        "ConverseRequest",
        bedrock.read_request,
        {"messages": [{"role": "user", "content": [{"text": "?"}]}]},
    ),
    "completions": ("completions.yaml", "CompletionRequest", completions.read_request, {"model": "m", "prompt": "a"}),
    "embeddings": ("embeddings.yaml", "EmbeddingRequest", embeddings.read_openai_request, {"model": "m", "input": "a"}),
    "embed": ("embeddings.yaml", "EmbedRequest", embeddings.read_cohere_request, {"model": "m", "texts": ["a"]}),
    "rerank": ("rerank.yaml", "RerankRequest", rerank.read_request, {"model": "m", "query": "q", "documents": ["a"]}),
    "moderations": ("moderations.yaml", "ModerationRequest", moderations.read_request, {"input": "a"}),
    "speech": ("audio.yaml", "SpeechRequest", speech.read_request, {"model": "m", "input": "a", "voice": "v"}),
    "images": ("images.yaml", "Drawing", images.read_generation, {"model": "m", "prompt": "a cat"}),
}
# The companions that a field needs, so that only its bound is tested.
BESIDE: dict[str, dict[str, Any]] = {
    "top_logprobs": {"logprobs": True},
    "budget_tokens": {"type": "enabled"},
    "token_budget": {"type": "enabled"},
    "allowed_tools": {"type": "allowed_tools"},
    "tools": {"mode": "auto"},
}
PART = {"type": "text", "text": "a"}
TOOL = {"name": "f", "parameters": {"type": "object"}}
ITEMS: dict[tuple[str, str], Any] = {
    ("chat", "tools"): {"type": "function", "function": TOOL},
    ("messages", "tools"): {"name": "f", "input_schema": {"type": "object"}},
    ("cohere", "tools"): {"type": "function", "function": TOOL},
    ("cohere", "documents"): "a",
    ("converse", "tools"): {"toolSpec": {"name": "f", "inputSchema": {"json": {"type": "object"}}}},
    ("converse", "messages"): {"role": "user", "content": [{"text": "?"}]},
    ("converse", "system"): {"text": "?"},
    ("converse", "content"): {"text": "?"},
    ("chat", "functions"): TOOL,
    ("embed", "embedding_types"): "float",
    ("chat", "plugins"): {"id": "response-healing"},
}


class Bound(NamedTuple):
    """A bound of a field: the last value that is taken, and one that is not."""

    api: str
    path: tuple[str, ...]
    last: Any
    beyond: Any

    def __str__(self) -> str:
        return f"{self.api}:{'.'.join(self.path)}:{self.last if isinstance(self.last, int | float) else len(self.last)}"


def bounds_of(api: str, path: tuple[str, ...], schema: dict[str, Any]) -> Iterator[Bound]:
    """Yield the bounds that a field's description states, and those of the fields in it."""
    if "minimum" in schema:
        yield Bound(api, path, schema["minimum"], schema["minimum"] - 1)
    if "maximum" in schema:
        yield Bound(api, path, schema["maximum"], schema["maximum"] + 1)
    if "maxLength" in schema:
        yield Bound(api, path, "x" * schema["maxLength"], "x" * (schema["maxLength"] + 1))
    if "maxItems" in schema:
        usual = PART if "anyOf" in schema.get("items", {}) else "text"
        item = ITEMS.get((api, path[-1]), MESSAGE if path == ("messages",) else usual)
        yield Bound(api, path, [item] * schema["maxItems"], [item] * (schema["maxItems"] + 1))
    for name, inner in schema.get("properties", {}).items():
        yield from bounds_of(api, (*path, name), inner)


def stated() -> Iterator[Bound]:
    """Yield every bound of every field that is described."""
    for api, (file, name, _, _) in DESCRIBED.items():
        parts = yaml.safe_load((PROJECT / "gateway_project/openapi/parts" / file).read_text())
        for field, schema in properties_of(parts["schemas"], name).items():
            for one in [schema, *schema.get("anyOf", ())]:
                yield from bounds_of(api, (field,), one)


def properties_of(schemas: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the fields that an object's description states."""
    found: dict[str, Any] = schemas[name]["properties"]
    return found


def answer_to(bound: Bound, value: Any) -> str | None:
    """Return the name of the field for which a request with this value is refused, None where it is taken."""
    _, _, read, least = DESCRIBED[bound.api]
    for name in reversed(bound.path[1:]):
        value = {name: value, **BESIDE.get(name, {})}
    beside = BESIDE.get(bound.path[0], {}) if len(bound.path) == 1 else {}
    body = {**least, **beside, bound.path[0]: value}
    try:
        read(json.dumps(body).encode())
    except InvalidRequest as refusal:
        return refusal.param
    return None


@pytest.mark.parametrize("bound", list(stated()), ids=str)
def test_a_bound_is_the_same_in_the_description_and_in_the_reader(bound: Bound) -> None:
    assert answer_to(bound, bound.last) is None
    assert answer_to(bound, bound.beyond) == ".".join(bound.path)


def test_every_number_is_bounded_from_both_sides() -> None:
    for file, name, _, _ in DESCRIBED.values():
        parts = yaml.safe_load((PROJECT / "gateway_project/openapi/parts" / file).read_text())
        for field, schema in properties_of(parts["schemas"], name).items():
            if {"integer", "number"} & set(schema.get("type", ())):
                assert {"minimum", "maximum"} <= schema.keys(), field
