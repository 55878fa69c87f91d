"""Reranking through the whole pipeline, over real HTTP: in order, and billed once (section 4)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from apps.billing.models import LedgerEntry
from apps.billing.pricing import Bill, cost_by
from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Project
from tests.support.guardrails_in_force import forbid, guard
from tests.support.sandbox_providers import add_provider as add_provider
from tests.support.sandbox_providers import clock as clock
from tests.support.upstream import Caller, nothing_happened, settle_all

QUERY = "a quiet cat"
DOCUMENTS = ["a loud dog", "a quiet cat", "the cat"]
# The share of the query's words that each has, in sixteenths: 1/3, all, 1/3.
RANKING = [{"index": 1, "relevance_score": 1.0}, {"index": 0, "relevance_score": 0.3125}]
RANKING += [{"index": 2, "relevance_score": 0.3125}]
TERM = "project zanzibar"


def rerank(caller: Caller, documents: Any = DOCUMENTS, path: str = "/v1/rerank", **fields: Any) -> Any:
    """Ask for a ranking, of `reranker` unless `model` says otherwise; a field that is None is left out."""
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    wire = {"model": "reranker", "query": QUERY, "documents": documents, **fields}
    body = json.dumps({name: one for name, one in wire.items() if one is not None})
    return caller.client.post(path, body, content_type="application/json", headers=headers)


def tagged(mapping: str = "reranker", **directives: str) -> str:
    """Have the sandbox note under a new tag what it is asked for a model; return the tag."""
    tag = uuid4().hex
    script = "".join(f":{name}={value}" if value else f":{name}" for name, value in {"tag": tag, **directives}.items())
    ModelProvider.objects.filter(model_id=mapping, provider_id="sandbox").update(model_name=f"reranker{script}")
    generation.bump(generation.CATALOG)
    return tag


def bill_of(row: RequestLog) -> Decimal:
    """Return what a row's own prices and units come to."""
    return cost_by(msgspec.convert(row.prices, Bill, strict=False)).total


def test_the_most_relevant_document_comes_first(caller: Caller) -> None:
    tag = tagged()
    response = rerank(caller)
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["results"] == RANKING
    # 3 tokens of the query with each of 3 documents of 3, 3 and 2 tokens.
    assert body["usage"] == {"prompt_tokens": 17, "total_tokens": 17}
    assert body["meta"] == {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 17}}
    assert (body["object"], body["model"], "data" in body) == ("list", "reranker", False)
    assert body["metadata"]["used_provider"] == "sandbox"
    (sent,) = caller.sent(tag)
    assert sent["body"] == {
        "model": f"reranker:tag={tag}",
        "query": QUERY,
        "documents": DOCUMENTS,
        "return_documents": False,
    }


def test_it_is_recorded_once_and_charged_once_to_the_digit(caller: Caller) -> None:
    body = rerank(caller, headers={"x-request-id": "cat-1"}).json()
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.request_id, row.status_code) == ("rerank", "cat-1", 200)
    assert body["id"] == f"rerank-{row.id.hex}"
    assert (row.used_model, row.used_provider) == ("reranker", "sandbox")
    assert (row.prompt_tokens, row.completion_tokens, row.unified_finish_reason) == (17, 0, "completed")
    # 17 tokens at 0.043 USD per million.
    assert (row.cost, row.input_cost, row.estimated_cost) == (Decimal("0.000000731"), Decimal("0.000000731"), False)
    assert bill_of(row) == row.cost
    assert [entry.credits for entry in LedgerEntry.objects.all()] == [Decimal("-0.000000731")]


def test_search_units_are_paid_each(caller: Caller) -> None:
    # A document of more than 500 tokens is two.
    body = rerank(caller, ["cat"] * 99 + ["x" * 2004], model="reranker-units", max_tokens_per_doc=900).json()
    assert body["meta"]["billed_units"] == {"search_units": 2}
    settle_all()
    row = RequestLog.objects.get()
    assert row.prices["used"] == {"search_units": 2}
    assert (row.cost, row.request_cost, row.input_cost) == (Decimal("0.0034"), Decimal("0.0034"), 0)
    assert (bill_of(row), row.estimated_cost) == (row.cost, False)


@pytest.mark.parametrize(("model", "cost"), [("reranker", None), ("reranker-units", "0.0017")])
def test_what_nobody_counted_is_estimated_and_marked(caller: Caller, model: str, cost: str | None) -> None:
    rerank(caller, ["a cat", "a dog [[sandbox no-usage]]"], model=model)
    settle_all()
    row = RequestLog.objects.get()
    assert (row.estimated_cost, bill_of(row)) == (True, row.cost)
    assert row.cost == (Decimal(row.prompt_tokens) * Decimal("0.000000043") if cost is None else Decimal(cost))
    assert row.cost > 0


def test_auto_weighs_tokens_against_search_units(caller: Caller) -> None:
    # 17 tokens cost less than a unit, 200,000 cost more.
    assert rerank(caller, model="auto").json()["model"] == "reranker"
    assert rerank(caller, ["word " * 40_000] * 4, model="auto").json()["model"] == "reranker-units"


def test_so_many_as_are_wanted_with_their_text(caller: Caller) -> None:
    tag = tagged()
    documents = [{"text": text} for text in DOCUMENTS]
    body = rerank(caller, documents, top_n=2, return_documents=True, path="/v2/rerank").json()
    assert body["results"] == [
        {"index": 1, "relevance_score": 1.0, "document": {"text": "a quiet cat"}},
        {"index": 0, "relevance_score": 0.3125, "document": {"text": "a loud dog"}},
    ]
    (sent,) = caller.sent(tag)
    assert (sent["body"]["top_n"], sent["body"]["documents"]) == (2, DOCUMENTS)


def test_more_than_there_are_is_all(caller: Caller) -> None:
    assert len(rerank(caller, top_n=9).json()["results"]) == 3


def test_voyages_words_are_answered_in_its_shape_as_well(caller: Caller) -> None:
    body = rerank(caller, top_k=1, truncation=True, return_documents=True).json()
    assert body["data"] == [{"index": 1, "relevance_score": 1.0, "document": "a quiet cat"}]
    assert body["results"] == [{"index": 1, "relevance_score": 1.0, "document": {"text": "a quiet cat"}}]


def test_what_is_not_known_is_told_and_not_sent(caller: Caller) -> None:
    tag = tagged()
    documents = ["a cat", {"text": "a dog", "title": "Dogs"}]
    asked: dict[str, Any] = {"speed": "high", "max_tokens_per_doc": 9, "truncation": False, "top_n": 1, "top_k": 2}
    response = rerank(caller, documents, **asked)
    told = {one["param"] for one in response.json()["metadata"]["warnings"]}
    assert told == {"speed", "documents[1].title", "max_tokens_per_doc", "truncation", "top_k"}
    (sent,) = caller.sent(tag)
    assert sent["body"].keys() == {"model", "query", "documents", "top_n", "return_documents"}
    assert sent["body"]["top_n"] == 1
    refused = rerank(caller, documents, headers={"x-strict": "true"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "documents[1].title")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"query": None}, "query"),
        ({"query": ""}, "query"),
        ({"query": 7}, "query"),
        ({"query": {"text": "a"}}, "query"),
        ({"documents": None}, "documents"),
        ({"documents": []}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"documents": ["a", ""]}, "documents[1]"),
        ({"documents": ["a", 1]}, "documents[1]"),
        ({"documents": ["a", None]}, "documents[1]"),
        ({"documents": ["a", {}]}, "documents[1].text"),
        ({"documents": ["a", {"text": ""}]}, "documents[1].text"),
        ({"documents": [{"image": "https://x.test/a.png"}]}, "documents[0].text"),
        ({"documents": ["a"] * 10_001}, "documents"),
        # This model takes 8.
        ({"documents": ["a"] * 9}, "documents"),
        ({"top_n": 0}, "top_n"),
        ({"top_n": 1.5}, "top_n"),
        ({"top_n": True}, "top_n"),
        ({"top_k": -1}, "top_k"),
        ({"max_tokens_per_doc": 0}, "max_tokens_per_doc"),
        ({"return_documents": "yes"}, "return_documents"),
        ({"truncation": 1}, "truncation"),
        ({"rank_fields": ["title", "text"]}, "rank_fields"),
        ({"rank_fields": "text"}, "rank_fields"),
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    refused = rerank(caller, fields.pop("documents", DOCUMENTS), **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)


def test_models_of_another_kind_are_refused_with_the_path_to_ask(caller: Caller) -> None:
    for model, path in (("echo", "chat with it at /v1/chat/completions"), ("embedder", "ask for it at /v1/embeddings")):
        message = rerank(caller, model=model).json()["error"]["message"]
        assert message == f"{model} is no reranking model; {path}"
    refused = caller.chat(model="reranker").json()["error"]["message"]
    assert refused == "reranker is a rerank model, not a chat model; ask for it at /v1/rerank"
    assert nothing_happened(caller)


@pytest.mark.parametrize("places", ["0,1,1", "0,1,3", "0,1,-1", "0,1", "0,1,2,2"])
def test_a_ranking_that_cannot_be_meant_goes_to_another_provider(
    caller: Caller, add_provider: Any, clock: Any, places: str
) -> None:
    add_provider("spare", "1", model_id="reranker")
    tagged(places=places)
    body = rerank(caller).json()
    assert (body["results"], body["metadata"]["used_provider"]) == (RANKING, "spare")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, bill_of(row)) == (Decimal("0.000017"), row.cost)


@pytest.mark.parametrize(
    ("directives", "status"), [({"places": "0,0,0"}, 502), ({"empty": ""}, 502), ({"status": "422"}, 422)]
)
def test_a_provider_that_fails_is_paid_nothing(
    caller: Caller, clock: Any, directives: dict[str, str], status: int
) -> None:
    tagged(**directives)
    assert rerank(caller).status_code == status
    settle_all()
    row = RequestLog.objects.get()
    assert (row.status_code, row.cost, LedgerEntry.objects.count()) == (status, 0, 0)


def test_rules_see_the_query_and_every_document(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, name="Secret projects")
    tag = tagged()
    for fields, place in (({"query": f"of {TERM}"}, "query"), ({"documents": ["a", TERM]}, "documents[1]")):
        error = rerank(caller, **fields).json()["error"]
        assert (error["code"], error["param"]) == ("guardrail_blocked", place.partition("[")[0])
        assert f"in {place}:" in error["message"]
    assert caller.sent(tag) == []
    settle_all()
    assert {row.cost for row in RequestLog.objects.all()} == {0}


def test_a_rule_masks_a_document_and_leaves_the_others(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, action="redact")
    tag = tagged()
    body = rerank(caller, ["a cat", f"of {TERM}"], return_documents=True).json()
    (sent,) = caller.sent(tag)
    assert (sent["body"]["query"], sent["body"]["documents"][0]) == (QUERY, "a cat")
    assert TERM not in json.dumps(sent["body"])
    assert TERM not in json.dumps(body["results"])


@pytest.mark.parametrize(
    ("provider", "model", "path", "key", "cost", "estimated"),
    [
        ("cohere", "rerank-v3.5", "/v2", "COHERE_API_KEY", "0.002", False),
        ("cohere", "rerank-v4.0-pro", "/v2", "COHERE_API_KEY", "0.0025", False),
        ("cohere", "rerank-v5.0-fast", "/v2", "COHERE_API_KEY", "0.00000034", False),
        ("jina", "jina-reranker-v3", "/v1", "JINA_API_KEY", "0.00000085", False),
        ("voyage", "rerank-2.5-lite", "/v1", "VOYAGE_API_KEY", "0.00000034", False),
        # Nothing is counted there.
        ("bedrock", "rerank-v3.5", "", "AWS_BEARER_TOKEN_BEDROCK", "0.002", True),
    ],
)
def test_every_format_of_providers(
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    model: str,
    path: str,
    key: str,
    cost: str,
    estimated: bool,
) -> None:
    monkeypatch.setenv(key, "secret")
    monkeypatch.setenv(f"{provider.upper()}_BASE_URL", caller.sandbox_url + path)
    tag = uuid4().hex
    mapping = ModelProvider.objects.filter(provider_id=provider, model_id=model)
    mapping.update(model_name=f"reranker:tag={tag}")
    generation.bump(generation.CATALOG)
    body = rerank(caller, model=f"{provider}/{model}").json()
    assert body["results"] == RANKING, body
    assert len(caller.sent(tag)) == 1
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, row.cost, row.estimated_cost) == (provider, Decimal(cost), estimated)
    assert bill_of(row) == row.cost


def test_the_second_time_nobody_is_asked_and_nothing_is_paid(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    tag, documents = tagged(), [uuid4().hex, "a quiet cat"]
    first, second = rerank(caller, documents), rerank(caller, documents)
    other = rerank(caller, documents, top_n=1)
    assert [one["x-gateway-cache"] for one in (first, second, other)] == ["miss", "hit", "miss"]
    assert second.json()["results"] == first.json()["results"]
    assert [one["index"] for one in other.json()["results"]] == [1]
    assert len(caller.sent(tag)) == 2
    settle_all()
    assert [row.cost > 0 for row in RequestLog.objects.order_by("created_at")] == [True, False, True]
