"""Several answers from a provider that gives one at a time: asked for in parallel, billed each, told each."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.gateway.upstream.parallel_calls import MAX_CALLS
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all


@pytest.fixture
def single(caller: Caller) -> Caller:
    """The caller; the sandbox gives one answer at a time."""
    ModelProvider.objects.filter(provider_id="sandbox").update(facts={"unsupported": ["n"]})
    generation.bump(generation.CATALOG)
    return caller


def ask(caller: Caller, directives: str, **fields: Any) -> tuple[str, Any]:
    """Return a tag and what three answers were asked for under it."""
    tag = uuid4().hex
    return tag, caller.chat(f"hi [[sandbox {directives} tag={tag}]]", **{"n": 3, "model": "echo", **fields})


def row_of(caller: Caller) -> RequestLog:
    """Return the one row of the one request."""
    settle_all()
    return RequestLog.objects.get(project_id=caller.key.project_id)


@pytest.mark.parametrize("stream", [False, True])
def test_each_answer_is_a_call_and_billed_and_told(single: Caller, stream: bool) -> None:
    tag, response = ask(single, "words=5 chunks=5 usage=100,20", stream=stream)
    assert response.status_code == 200, response.content
    if stream:
        chunks = chunks_of(response)
        texts = ["", "", ""]
        for chunk in chunks[:-1]:
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice["delta"].get("content") or ""
        ends = {c["index"]: c["finish_reason"] for chunk in chunks[:-1] for c in chunk["choices"] if c["finish_reason"]}
        assert (ends, chunks[-1]) == ({0: "stop", 1: "stop", 2: "stop"}, "[DONE]")
        body = chunks[-2]
    else:
        body = response.json()
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
        texts = [choice["message"]["content"] for choice in body["choices"]]
    assert texts[0]
    assert texts == [texts[0]] * 3
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (300, 60)
    told = body["metadata"]["routing"]
    assert [(line["choice"], line["succeeded"]) for line in told] == [(0, True), (1, True), (2, True)]
    assert "warnings" not in body["metadata"]
    sent = single.sent(tag)
    assert (len(sent), ["n" in one["body"] for one in sent]) == (3, [False] * 3)
    row = row_of(single)
    assert (row.prompt_tokens, row.completion_tokens, row.has_error) == (300, 60, False)
    assert row.cost == row.input_cost + row.output_cost


@pytest.mark.parametrize("stream", [False, True])
def test_the_failure_of_one_before_it_begins_leads_all_to_another_provider(
    single: Caller, backup: str, stream: bool
) -> None:
    # The second provider gives several answers in one call.
    ModelProvider.objects.filter(provider_id=backup).update(facts={})
    generation.bump(generation.CATALOG)
    _, response = ask(single, "status=503 times=1", stream=stream)
    body = chunks_of(response)[-2] if stream else response.json()
    assert body["metadata"]["used_provider"] == backup
    assert [(line["provider"], line["succeeded"]) for line in body["metadata"]["routing"]] == [
        ("sandbox", False),
        (backup, True),
    ]


def test_the_failure_of_one_that_has_begun_ends_the_answer_and_is_free(single: Caller) -> None:
    _, response = ask(single, "words=50 chunks=50 gap=20 cut=20", stream=True)
    chunks = chunks_of(response)
    assert "error" in chunks[-1]
    row = row_of(single)
    assert (row.has_error, row.cost) == (True, 0)


def test_more_answers_than_calls_are_made_at_a_time_are_refused_by_name(single: Caller) -> None:
    tag, response = ask(single, "words=1", n=MAX_CALLS + 1)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "n", "unsupported_feature")
    assert single.sent(tag) == []


def test_a_price_by_the_request_is_never_paid_once_for_several(single: Caller) -> None:
    tag, response = ask(single, "words=1", model="priced-request")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
    assert single.sent(tag) == []


def test_the_reservation_covers_every_call(single: Caller) -> None:
    """The credits cover the highest cost of a single call; three are refused before a provider is asked."""
    single.key.project.organization.__class__.objects.update(credits="0.0000001")
    tag, response = ask(single, "words=1", max_tokens=100)
    assert response.status_code == 402
    assert single.sent(tag) == []
    assert nothing_happened(single)
