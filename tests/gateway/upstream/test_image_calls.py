"""More pictures than a call makes: several calls at once, one answer, and one bill for the pictures made."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest

from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.support.image_requests import generate, size_of
from tests.support.upstream import Caller, nothing_happened, settle_all


@pytest.fixture
def small_painter(caller: Caller) -> Caller:
    """The caller; `painter` makes two pictures a call."""
    row = ModelProvider.objects.get(provider_id="sandbox", model_id="painter")
    row.facts = {"images": {**row.facts["images"], "most": 2}}
    row.save()
    generation.bump(generation.CATALOG)
    return caller


def test_pictures_are_joined_in_order_and_their_counts_added(small_painter: Caller) -> None:
    tag = uuid4().hex
    response = generate(small_painter, f"cat [[sandbox tag={tag}]]", n=5)
    assert response.status_code == 200, response.content
    body = response.json()
    assert [image["revised_prompt"] for image in body["data"]] == [
        "You said: cat",
        "You said: cat (choice 2)",
        "You said: cat",
        "You said: cat (choice 2)",
        "You said: cat",
    ]
    assert {size_of(image["b64_json"]) for image in body["data"]} == {(1024, 1024)}
    assert sorted(sent["body"].get("n", 1) for sent in small_painter.sent(tag)) == [1, 2, 2]
    prompt = body["usage"]["input_tokens"]
    assert body["usage"]["output_tokens"] == 5 * 1_056
    assert settle_all() == 1
    row = RequestLog.objects.get()
    # Three prompts at 5.1, five pictures of 1,056 tokens at 31.7 USD per million.
    assert row.cost == (prompt * Decimal("5.1") + 5_280 * Decimal("31.7")) / 1_000_000
    assert (row.prompt_tokens, row.completion_tokens, row.estimated_cost) == (prompt, 5_280, False)


def test_what_was_made_is_answered_and_billed_where_a_call_fails(small_painter: Caller) -> None:
    tag = uuid4().hex
    response = generate(small_painter, f"cat [[sandbox tag={tag} times=1 status=503]]", n=4)
    assert response.status_code == 200, response.content
    assert len(response.json()["data"]) == 2
    assert response["x-gateway-loss"] == "n"
    assert response.json()["usage"]["output_tokens"] == 2 * 1_056
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.completion_tokens, row.unified_finish_reason) == (2_112, "length_limit")


def test_where_all_calls_fail_it_is_an_error_and_free(small_painter: Caller) -> None:
    response = generate(small_painter, "cat [[sandbox status=503]]", n=4)
    assert response.status_code == 503
    settle_all()
    assert RequestLog.objects.get().cost == Decimal(0)


def test_a_refusal_of_all_calls_is_told_as_it_is(small_painter: Caller) -> None:
    response = generate(small_painter, "cat [[sandbox status=400 code=moderation_blocked]]", n=4)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "moderation_blocked")


def test_a_model_that_draws_in_chats_is_asked_for_each(caller: Caller) -> None:
    response = generate(caller, "a cat", model="sketcher", n=2)
    assert response.status_code == 200, response.content
    assert len(response.json()["data"]) == 2
    assert settle_all() == 1
    assert RequestLog.objects.get().image_output_tokens == 2 * 1_056


def test_a_model_that_is_paid_by_the_request_is_asked_once(caller: Caller) -> None:
    row = ModelProvider.objects.get(provider_id="sandbox", model_id="painter-flat")
    row.prices = {"image": "0.0123", "request": "0.001"}
    row.save()
    generation.bump(generation.CATALOG)
    response = generate(caller, model="painter-flat", n=3)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
    assert nothing_happened(caller)
