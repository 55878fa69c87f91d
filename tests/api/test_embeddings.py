"""Embeddings through the whole pipeline, over real HTTP: in order, and billed once (section 4)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.billing.models import LedgerEntry
from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.sandbox.generated_media import in_base64, vector_of
from tests.support.sandbox_providers import add_provider as add_provider
from tests.support.sandbox_providers import clock as clock
from tests.support.upstream import Caller, nothing_happened, settle_all


def embed(caller: Caller, value: Any = "a cat", path: str = "/v1/embeddings", **fields: Any) -> Any:
    """Ask for vectors, of `embedder` unless `model` says otherwise; a field that is None is left out."""
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    wire = {"model": "embedder", "input": value, **fields}
    body = json.dumps({name: one for name, one in wire.items() if one is not None})
    return caller.client.post(path, body, content_type="application/json", headers=headers)


def tagged(mapping: str = "embedder", **directives: str) -> str:
    """Have the sandbox note under a new tag what it is asked for a model; return the tag."""
    tag = uuid4().hex
    script = "".join(f":{name}={value}" if value else f":{name}" for name, value in {"tag": tag, **directives}.items())
    ModelProvider.objects.filter(model_id=mapping, provider_id="sandbox").update(model_name=f"{mapping}{script}")
    generation.bump(generation.CATALOG)
    return tag


def test_the_answer_has_openais_fields_and_one_vector_for_each_input_in_order(caller: Caller) -> None:
    response = embed(caller, ["a cat", "a dog"])
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["object"] == "list"
    assert body["data"] == [
        {"object": "embedding", "index": 0, "embedding": list(vector_of("a cat", 8))},
        {"object": "embedding", "index": 1, "embedding": list(vector_of("a dog", 8))},
    ]
    assert (body["model"], body["usage"]) == ("embedder", {"prompt_tokens": 4, "total_tokens": 4})
    assert body["metadata"]["used_provider"] == "sandbox"


def test_it_is_recorded_once_and_charged_once_to_the_digit(caller: Caller) -> None:
    embed(caller, ["a cat", "a dog"], headers={"x-request-id": "cat-1"})
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.request_id, row.status_code) == ("embeddings", "cat-1", 200)
    assert (row.used_model, row.used_provider) == ("embedder", "sandbox")
    assert (row.prompt_tokens, row.completion_tokens, row.unified_finish_reason) == (4, 0, "completed")
    # 4 tokens at 0.037 USD per million, and nothing else.
    assert (row.cost, row.input_cost, row.output_cost) == (Decimal("0.000000148"), Decimal("0.000000148"), 0)
    assert (row.estimated_cost, Decimal(row.prices["input"]) * 4 / 1_000_000) == (False, row.cost)
    assert [entry.credits for entry in LedgerEntry.objects.all()] == [Decimal("-0.000000148")]


def test_base64_is_what_the_provider_sent(caller: Caller) -> None:
    tag = tagged()
    body = embed(caller, "a cat", encoding_format="base64").json()
    assert [one["embedding"] for one in body["data"]] == [in_base64(vector_of("a cat", 8))]
    (sent,) = caller.sent(tag)
    assert sent["body"]["encoding_format"] == "base64"


def test_options_are_sent_in_the_providers_words(caller: Caller) -> None:
    tag = tagged()
    body = embed(caller, "a cat", dimensions=4, user="u-1", input_type="search_query").json()
    assert len(body["data"][0]["embedding"]) == 4
    (sent,) = caller.sent(tag)
    own = sent["body"]["model"]
    assert sent["body"] == {"model": own, "input": ["a cat"], "dimensions": 4, "user": "u-1", "input_type": "query"}


def test_jinas_words_mean_the_same_and_what_is_never_changed_is_told(caller: Caller) -> None:
    tag = tagged()
    fields = {"task": "retrieval.query", "embedding_type": "base64", "normalized": True, "truncate": False}
    response = embed(caller, "a cat", **fields)
    assert response.json()["data"][0]["embedding"] == in_base64(vector_of("a cat", 8))
    assert not response.has_header("x-gateway-loss")
    (sent,) = caller.sent(tag)
    own = sent["body"]["model"]
    assert sent["body"] == {"model": own, "input": ["a cat"], "encoding_format": "base64", "input_type": "query"}
    told = embed(caller, "a cat", normalized=False, truncate=True)
    assert (told.status_code, told["x-gateway-loss"]) == (200, "normalized, truncate")


def test_voyages_name_for_dimensions_means_the_same(caller: Caller) -> None:
    assert len(embed(caller, "a cat", output_dimension=2).json()["data"][0]["embedding"]) == 2


def test_what_is_not_known_is_told_and_not_sent(caller: Caller) -> None:
    tag = tagged()
    response = embed(caller, "a cat", speed="high", title="t")
    assert {one["param"] for one in response.json()["metadata"]["warnings"]} == {"speed", "title"}
    (sent,) = caller.sent(tag)
    assert sent["body"].keys() == {"model", "input"}
    refused = embed(caller, "a cat", speed="high", headers={"x-strict": "true"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "speed")


def test_more_inputs_than_the_provider_takes_are_split_and_joined_in_order(caller: Caller) -> None:
    tag = tagged()
    inputs = [f"text {number}" for number in range(10)]
    body = embed(caller, inputs).json()
    assert [tuple(one["embedding"]) for one in body["data"]] == [vector_of(text, 8) for text in inputs]
    assert [one["index"] for one in body["data"]] == list(range(10))
    assert body["usage"] == {"prompt_tokens": 20, "total_tokens": 20}
    sent = sorted((one["body"]["input"] for one in caller.sent(tag)), key=lambda texts: inputs.index(texts[0]))
    assert sent == [inputs[:4], inputs[4:8], inputs[8:]]
    assert settle_all() == 1
    assert RequestLog.objects.get().cost == Decimal("0.00000074")


@pytest.mark.parametrize("value", [[1, 2, 3], [[1, 2, 3]]])
def test_tokens_are_sent_as_they_are(caller: Caller, value: Any) -> None:
    tag = tagged()
    body = embed(caller, value).json()
    (sent,) = caller.sent(tag)
    assert (sent["body"]["input"], body["usage"]["prompt_tokens"]) == ([[1, 2, 3]], 3)


def test_tokens_for_a_model_that_takes_none_are_refused_by_name(caller: Caller) -> None:
    refused = embed(caller, [1, 2], model="embedder-fast")
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["code"]) == (400, "input", "unsupported_feature")
    assert error["message"].startswith("embedder-fast does not support arrays of tokens as inputs")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"value": None}, "input"),
        ({"value": ""}, "input"),
        ({"value": []}, "input"),
        ({"value": 7}, "input"),
        ({"value": ["a", ""]}, "input[1]"),
        ({"value": ["a", 1]}, "input[1]"),
        ({"value": ["a", None]}, "input[1]"),
        ({"value": [1, "a"]}, "input[1]"),
        ({"value": [1, -1]}, "input[1]"),
        ({"value": [1, True]}, "input[1]"),
        ({"value": [[1], []]}, "input[1]"),
        ({"value": [[1], [1.5]]}, "input[1][0]"),
        ({"value": ["a"] * 2049}, "input"),
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": 3}, "dimensions"),
        ({"dimensions": "4"}, "dimensions"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"input_type": "poem"}, "input_type"),
        ({"embedding_type": "binary"}, "embedding_type"),
        ({"normalized": 1}, "normalized"),
        ({"user": 7}, "user"),
        ({"value": "word " * 20_000}, "input"),
        ({"value": list(range(9_000))}, "input"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    refused = embed(caller, fields.pop("value", "a cat"), **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)


def test_models_of_another_kind_are_refused_with_the_path_to_ask(caller: Caller) -> None:
    refused = embed(caller, model="echo")
    assert refused.json()["error"]["message"] == "echo is no embedding model; chat with it at /v1/chat/completions"
    chat = caller.chat(model="embedder")
    assert (chat.status_code, chat.json()["error"]["param"]) == (400, "model")
    assert chat.json()["error"]["message"].endswith("ask for it at /v1/embeddings")
    assert nothing_happened(caller)


def test_an_answer_without_all_vectors_goes_to_another_provider(caller: Caller, add_provider: Any, clock: Any) -> None:
    add_provider("spare", "1", model_id="embedder")
    tagged(empty="")
    body = embed(caller, ["a cat", "a dog"]).json()
    assert [tuple(one["embedding"]) for one in body["data"]] == [vector_of("a cat", 8), vector_of("a dog", 8)]
    assert body["metadata"]["used_provider"] == "spare"
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("0.000004")


def test_a_batch_that_fails_fails_all_and_is_charged_nothing(caller: Caller, clock: Any) -> None:
    inputs = [f"text {number}" for number in range(8)] + ["last [[sandbox status=503]]"]
    refused = embed(caller, inputs)
    assert refused.status_code == 503
    settle_all()
    assert (RequestLog.objects.get().cost, LedgerEntry.objects.count()) == (0, 0)


def test_what_nobody_counted_is_estimated_and_marked(caller: Caller) -> None:
    embed(caller, "a cat [[sandbox no-usage]]")
    settle_all()
    row = RequestLog.objects.get()
    assert row.estimated_cost is True
    assert row.cost == Decimal(row.prompt_tokens) * Decimal("0.000000037")


# --- in Google's format


def google(caller: Caller, method: str, **fields: Any) -> Any:
    """Ask in Google's format."""
    path = f"/v1beta/models/embedder:{method}"
    headers = {"x-goog-api-key": caller.token}
    return caller.client.post(path, json.dumps(fields), content_type="application/json", headers=headers)


def test_embed_content(caller: Caller) -> None:
    body = google(caller, "embedContent", content={"parts": [{"text": "a "}, {"text": "cat"}]}).json()
    assert body["embedding"] == {"values": list(vector_of("a cat", 8))}
    assert body["usageMetadata"] == {"promptTokenCount": 2}


def test_batch_embed_contents(caller: Caller) -> None:
    one = {"model": "models/embedder", "outputDimensionality": 4, "taskType": "RETRIEVAL_DOCUMENT"}
    requests = [{**one, "content": {"parts": [{"text": text}]}} for text in ("a cat", "a dog")]
    body = google(caller, "batchEmbedContents", requests=requests).json()
    assert body["embeddings"] == [{"values": list(vector_of(text, 4))} for text in ("a cat", "a dog")]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "requests"),
        ({"requests": []}, "requests"),
        ({"requests": [{"content": {"parts": []}}]}, "requests[0].content.parts"),
        ({"requests": [{"content": {"parts": [{"inlineData": {}}]}}]}, "requests[0].content.parts[0]"),
        (
            {"requests": [{"content": {"parts": [{"text": "a"}]}}, {"content": {"parts": [{"text": ""}]}}]},
            "requests[1].content.parts",
        ),
    ],
)
def test_wrong_fields_of_googles_format_are_named(caller: Caller, fields: dict[str, Any], words: str) -> None:
    refused = google(caller, "batchEmbedContents", **fields)
    assert (refused.status_code, refused.json()["error"]["message"].startswith(words)) == (400, True), refused.content
    assert nothing_happened(caller)


# --- providers with a format of their own


@pytest.mark.parametrize(
    ("provider", "model", "path", "key", "calls", "cost"),
    [
        ("openai", "text-embedding-3-small", "/v1", "OPENAI_API_KEY", 1, "0.00000008"),
        ("mistral", "mistral-embed", "/v1", "MISTRAL_API_KEY", 1, "0.0000004"),
        ("voyage", "voyage-4", "/v1", "VOYAGE_API_KEY", 1, "0.00000024"),
        ("jina", "jina-embeddings-v5-text-small", "/jina/v1", "JINA_API_KEY", 1, "0.0000002"),
        ("cohere", "embed-v4", "/v2", "COHERE_API_KEY", 1, "0.00000048"),
        ("bedrock", "titan-embed-text-v2", "", "AWS_BEARER_TOKEN_BEDROCK", 2, "0.00000008"),
        # Nothing is counted there: 8 tokens by an estimate.
        ("google", "gemini-embedding-1", "/v1beta", "GEMINI_API_KEY", 1, "0.0000012"),
    ],
)
def test_every_format_of_providers(
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    model: str,
    path: str,
    key: str,
    calls: int,
    cost: str,
) -> None:
    monkeypatch.setenv(key, "secret")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", caller.sandbox_url + path)
    tag = uuid4().hex
    name = f"embedder:tag={tag}"
    ModelProvider.objects.filter(provider_id=provider, model_id=model).update(model_name=name)
    generation.bump(generation.CATALOG)
    body = embed(caller, ["a cat", "a dog"], model=f"{provider}/{model}", encoding_format="base64").json()
    vectors = [in_base64(vector_of(text, 8)) for text in ("a cat", "a dog")]
    assert [one["embedding"] for one in body["data"]] == vectors, body
    assert len(caller.sent(tag)) == calls
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, row.cost, row.estimated_cost) == (provider, Decimal(cost), provider == "google")
