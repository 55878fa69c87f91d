"""Provider sides of the embedding dialects: requests to each, and the reading of its answers, good and bad."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import Failed, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.task_options import Embedding
from apps.gateway.dialects.values.embeddings import to_base64, to_numbers
from apps.gateway.dialects.values.embeddings.provider import PROVIDERS
from apps.kernel.usage import Usage

FORMATS = ("openai", "google", "vertex", "cohere", "titan", "jina")
ALL = {"takes": ["input_type", "title", "user", "base64"], "input_types": {"query": "QUERY"}}
CHAT = Chat(
    model="m",
    messages=[Message(role="user", parts=[Text(text="a"), Text(text="b")])],
    user="u",
    task="embeddings",
    embedding=Embedding(dimensions=2, base64=True, input_type="query", title="t"),
)


def written(name: str, facts: dict[str, Any]) -> tuple[str, Any, list[str]]:
    """Return the path, the body, and the fields that were left out."""
    half = PROVIDERS[name]
    target = Target(model_name="m:0", facts={"embeddings": facts})
    body = json.loads(half.write_request(CHAT, target))
    return half.path(CHAT, target), body, [dropped.param for dropped in target.dropped_fields]


def read(name: str, answer: Any) -> list[Any]:
    """Return the events of an answer."""
    half = PROVIDERS[name]
    return list(half.read_reply(json.dumps(answer).encode() if not isinstance(answer, bytes) else answer))


def test_what_each_is_sent() -> None:
    assert written("openai", ALL) == (
        "/embeddings",
        {
            "model": "m:0",
            "input": ["a", "b"],
            "dimensions": 2,
            "encoding_format": "base64",
            "input_type": "QUERY",
            "user": "u",
        },
        [],
    )
    path, body, lost = written("openai", {"dimensions_field": "output_dimension"})
    assert (body, lost) == (
        {"model": "m:0", "input": ["a", "b"], "output_dimension": 2},
        ["input_type", "title", "user"],
    )
    form = {"model": "models/m:0", "taskType": "RETRIEVAL_QUERY", "title": "t", "outputDimensionality": 2}
    path, body, lost = written("google", {"takes": ["input_type", "title"]})
    assert (path, lost) == ("/models/m:0:batchEmbedContents", ["user"])
    assert body == {"requests": [{**form, "content": {"parts": [{"text": text}]}} for text in "ab"]}
    path, body, lost = written("vertex", {"takes": ["input_type"]})
    assert (path, lost) == ("/publishers/google/models/m%3A0:predict", ["title", "user"])
    assert body == {
        "instances": [{"content": text, "task_type": "RETRIEVAL_QUERY"} for text in "ab"],
        "parameters": {"autoTruncate": False, "outputDimensionality": 2},
    }
    path, body, lost = written("cohere", {})
    assert (path, lost) == ("/embed", ["title", "user"])
    assert body == {
        "model": "m:0",
        "texts": ["a", "b"],
        "input_type": "search_query",
        "embedding_types": ["float"],
        "truncate": "NONE",
        "output_dimension": 2,
    }
    options = {"embedding_type": "base64", "normalized": True, "truncate": False, "dimensions": 2, "task": "QUERY"}
    assert written("jina", ALL | {"takes": ["base64", "input_type"]}) == (
        "/embeddings",
        {"model": "m:0", "input": ["a", "b"], **options},
        ["title", "user"],
    )
    path, body, lost = written("jina", {"takes": ["input_type"]})
    assert (lost, "task" in body, body["embedding_type"]) == (["title", "user", "input_type"], False, "float")
    path, body, lost = written("titan", {})
    assert (path, lost) == ("/model/m%3A0/invoke", ["input_type", "title", "user"])
    assert body == {"inputText": "a", "dimensions": 2}


@pytest.mark.parametrize(
    ("name", "answer", "tokens"),
    [
        ("openai", {"data": [{"index": 0, "embedding": [1, 2]}], "usage": {"prompt_tokens": 7}}, 7),
        ("openai", {"data": [{"embedding": [1, 2]}], "usage": {"total_tokens": 7}}, 7),
        ("openai", {"data": [{"embedding": [1, 2]}]}, None),
        ("openai", {"data": [{"embedding": [1, 2]}], "usage": {"prompt_tokens": -7}}, None),
        ("google", {"embeddings": [{"values": [1, 2]}]}, None),
        ("google", {"embeddings": [{"values": [1, 2]}], "usageMetadata": {"promptTokenCount": 7}}, 7),
        ("vertex", {"predictions": [{"embeddings": {"values": [1, 2], "statistics": {"token_count": 7.0}}}]}, 7),
        ("vertex", {"predictions": [{"embeddings": {"values": [1, 2]}}]}, None),
        ("cohere", {"embeddings": {"float": [[1, 2]]}, "meta": {"billed_units": {"input_tokens": 7}}}, 7),
        ("cohere", {"embeddings": {"float": [[1, 2]]}}, None),
        ("titan", {"embedding": [1, 2], "inputTextTokenCount": 7}, 7),
        ("jina", {"data": [{"index": 0, "embedding": [1, 2]}], "usage": {"total_tokens": 7}}, 7),
    ],
)
def test_what_is_made_of_an_answer(name: str, answer: Any, tokens: int | None) -> None:
    usage = [] if tokens is None else [UsageReported(usage=Usage(input=tokens))]
    assert read(name, answer) == [Started(), ResultsGiven(values=[[1.0, 2.0]]), Finished(reason="stop"), *usage]


def test_vectors_come_in_the_order_of_their_index() -> None:
    answer = {"data": [{"index": 1, "embedding": [2]}, {"index": 0, "embedding": [1]}]}
    assert read("openai", answer)[1] == ResultsGiven(values=[[1.0], [2.0]])


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("answer", [b"", b"<html>", {}, [], {"data": []}, {"embeddings": []}, {"embedding": []}])
def test_an_answer_without_vectors_is_a_failure(name: str, answer: Any) -> None:
    (only,) = read(name, answer)
    assert isinstance(only, Failed)
    assert only.error.status == 502


@pytest.mark.parametrize("vector", ["", "AAA", "AAAA", "!!!!!!!!", [], ["a"], {}, None, 1])
def test_what_is_no_vector_is_a_failure(vector: Any) -> None:
    (only,) = read("openai", {"data": [{"embedding": vector}]})
    assert isinstance(only, Failed)


def test_an_error_with_status_200_is_told_in_its_words() -> None:
    (only,) = read("openai", {"error": {"message": "no such model", "status": 404}})
    assert isinstance(only, Failed)
    assert (only.error.message, only.error.status) == ("no such model", 404)


def test_numbers_and_base64_are_the_same_vector() -> None:
    assert to_base64([0.5, -2.0]) == "AAAAPwAAAMA="
    assert to_numbers("AAAAPwAAAMA=") == [0.5, -2.0]
    assert (to_base64("AAAA"), to_numbers([0.1])) == ("AAAA", [0.1])
