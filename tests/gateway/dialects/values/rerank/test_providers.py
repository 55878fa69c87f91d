"""Provider sides of reranking: requests to each, and the reading of its answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Message, Target, Text
from apps.gateway.canonical.events import Failed, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.task_options import Ranked, Reranking
from apps.gateway.dialects.values.rerank import PROVIDERS
from apps.kernel.usage import Usage

FORMATS = ("cohere", "cohere_tokens", "jina", "voyage", "bedrock")
CHAT = Chat(
    model="m",
    messages=[Message(role="user", parts=[Text(text="q"), Text(text="a"), Text(text="b")])],
    task="rerank",
    reranking=Reranking(top_n=1, max_tokens_per_doc=9, truncation=False),
)
ASKED = {"model": "m:0", "query": "q", "documents": ["a", "b"]}


def written(name: str, *takes: str) -> tuple[str, Any, list[str]]:
    """Return the path, the body, and the fields that were left out."""
    half = PROVIDERS[name]
    target = Target(model_name="m:0", facts={"rerank": {"takes": list(takes)}})
    body = json.loads(half.write_request(CHAT, target))
    return half.path(CHAT, target), body, [dropped.param for dropped in target.dropped_fields]


def read(name: str, answer: Any) -> list[Any]:
    """Return the events of an answer."""
    half = PROVIDERS[name]
    return list(half.read_reply(json.dumps(answer).encode() if not isinstance(answer, bytes) else answer))


def test_what_each_is_sent() -> None:
    both = ["max_tokens_per_doc", "truncation"]
    for name in ("cohere", "cohere_tokens"):
        assert written(name) == ("/rerank", {**ASKED, "top_n": 1}, both)
    asked = {**ASKED, "top_n": 1, "max_tokens_per_doc": 9}
    assert written("cohere", "max_tokens_per_doc") == ("/rerank", asked, ["truncation"])
    assert written("jina") == ("/rerank", {**ASKED, "top_n": 1, "return_documents": False}, both)
    assert written("voyage") == ("/rerank", {**ASKED, "top_k": 1, "truncation": True}, both)
    asked = {**ASKED, "top_k": 1, "truncation": False}
    assert written("voyage", "truncation") == ("/rerank", asked, ["max_tokens_per_doc"])
    path, body, lost = written("bedrock")
    assert (path, lost) == ("/model/m%3A0/invoke", both)
    assert body == {"query": "q", "documents": ["a", "b"], "top_n": 1, "api_version": 2}


RESULTS = [{"index": 1, "relevance_score": 0.25}, {"index": 0, "relevance_score": 0.5, "document": {"text": "a"}}]
UNITS = {"results": RESULTS, "meta": {"billed_units": {"search_units": 2.0, "input_tokens": 7.0}}}


@pytest.mark.parametrize(
    ("name", "answer", "usage"),
    [
        # Each reads the unit that it is paid in.
        ("cohere", UNITS, Usage(search_units=2)),
        ("bedrock", UNITS, Usage(search_units=2)),
        ("cohere_tokens", UNITS, Usage(input=7)),
        ("cohere", {"results": RESULTS, "meta": {"billed_units": {"input_tokens": 7}}}, None),
        ("cohere_tokens", {"results": RESULTS, "meta": {"billed_units": {"search_units": 1}}}, None),
        ("cohere", {"results": RESULTS, "meta": {"billed_units": {"search_units": -1}}}, None),
        ("cohere", {"results": RESULTS, "meta": {"billed_units": {"search_units": 1e300}}}, None),
        ("bedrock", {"results": RESULTS}, None),
        ("jina", {"results": RESULTS, "usage": {"total_tokens": 7}}, Usage(input=7)),
        ("jina", {"results": RESULTS}, None),
        ("voyage", {"data": RESULTS, "usage": {"total_tokens": 7}}, Usage(input=7)),
        ("voyage", {"data": RESULTS, "usage": {"total_tokens": 0}}, None),
    ],
)
def test_what_is_made_of_an_answer(name: str, answer: Any, usage: Usage | None) -> None:
    reported = [] if usage is None else [UsageReported(usage=usage)]
    given = ResultsGiven(values=[Ranked(0, 0.5), Ranked(1, 0.25)])
    assert read(name, answer) == [Started(), given, Finished(reason="stop"), *reported]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"<html>", {}, [], {"results": []}, {"data": []}, {"results": None}),
        {"results": [{"index": 0}], "data": [{"index": 0}]},
        {"results": [{"relevance_score": 1}], "data": [{"relevance_score": 1}]},
        {"results": [{"index": "0", "relevance_score": 1}], "data": [{"index": 0.5, "relevance_score": 1}]},
        {"results": [{"index": 0, "relevance_score": "1"}], "data": [{"index": 0, "relevance_score": None}]},
        b'{"results": [{"index": 0, "relevance_score": NaN}], "data": [{"index": 0, "relevance_score": 1e999}]}',
    ],
)
def test_an_answer_without_a_ranking_is_a_failure(name: str, answer: Any) -> None:
    (only,) = read(name, answer)
    assert isinstance(only, Failed)
    assert only.error.status == 502
