"""Moderation through the whole pipeline, over real HTTP, by the model's own categories (section 4)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.billing.models import LedgerEntry
from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from apps.organizations.models import Project
from apps.sandbox.formats.values import MISTRAL_CATEGORIES, OPENAI_CATEGORIES
from apps.sandbox.scripted_reply import CLEAN, FLAGGED
from tests.api.test_rerank import bill_of
from tests.support.guardrails_in_force import forbid, guard
from tests.support.sandbox_providers import add_provider as add_provider
from tests.support.sandbox_providers import clock as clock
from tests.support.upstream import Caller, nothing_happened, settle_all

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PICTURE = {"type": "image_url", "image_url": {"url": PIXEL}}
TERM = "project zanzibar"


def moderate(caller: Caller, value: Any = "a cat", **fields: Any) -> Any:
    """Ask for a judgement, of `moderator` unless `model` says otherwise; a field that is None is left out."""
    headers = {"Authorization": f"Bearer {caller.token}", **fields.pop("headers", {})}
    wire = {"model": "moderator", "input": value, **fields}
    body = json.dumps({name: one for name, one in wire.items() if one is not None})
    return caller.client.post("/v1/moderations", body, content_type="application/json", headers=headers)


def tagged(mapping: str = "moderator", provider: str = "sandbox", **directives: str) -> str:
    """Have the sandbox note under a new tag what it is asked for a model; return the tag."""
    tag = uuid4().hex
    script = "".join(f":{name}={value}" if value else f":{name}" for name, value in {"tag": tag, **directives}.items())
    asked = mapping if provider == "sandbox" else {"mistral": "moderator-mistral"}.get(provider, "moderator")
    ModelProvider.objects.filter(model_id=mapping, provider_id=provider).update(model_name=f"{asked}{script}")
    generation.bump(generation.CATALOG)
    return tag


def test_the_answer_has_openais_fields_and_a_judgement_of_each_input(caller: Caller) -> None:
    response = moderate(caller, ["a cat", "violence"])
    assert response.status_code == 200, response.content
    body = response.json()
    first, second = body["results"]
    assert (first["flagged"], second["flagged"]) == (False, True)
    assert first["categories"] == dict.fromkeys(OPENAI_CATEGORIES, False)
    assert first["category_scores"] == dict.fromkeys(OPENAI_CATEGORIES, CLEAN)
    assert first["category_applied_input_types"] == {name: ["text"] for name in OPENAI_CATEGORIES}
    assert [name for name, flag in second["categories"].items() if flag] == ["violence"]
    assert (second["category_scores"]["violence"], body["model"]) == (FLAGGED, "moderator")


def test_a_free_model_is_recorded_at_its_stated_price(caller: Caller) -> None:
    body = moderate(caller, headers={"x-request-id": "cat-1"}).json()
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.request_id, row.status_code) == ("moderations", "cat-1", 200)
    assert body["id"] == f"modr-{row.id.hex}"
    assert (row.cost, row.unpriced, Decimal(row.prices["input"]), bill_of(row)) == (0, False, 0, 0)
    assert row.prompt_tokens > 0
    assert LedgerEntry.objects.filter(credits__lt=0).count() == 0


def test_mistrals_categories_keep_their_names_and_are_paid_by_the_token(caller: Caller) -> None:
    body = moderate(caller, ["violence", "selfharm", "pii"], model="moderator-mistral").json()
    calm, harm, private = body["results"]
    names = {*MISTRAL_CATEGORIES, "self-harm"}
    assert {frozenset(one["categories"]) for one in (calm, harm, private)} == {frozenset(names)}
    assert [one["flagged"] for one in (calm, harm, private)] == [False, True, True]
    assert {name for name, flag in harm["categories"].items() if flag} == {"selfharm", "self-harm"}
    assert harm["category_scores"]["self-harm"] == FLAGGED
    assert harm["category_applied_input_types"] == {name: ["text"] for name in names}
    settle_all()
    row = RequestLog.objects.get()
    # 2, 2 and 1 tokens in two calls, at 0.047 USD per million.
    assert (row.prompt_tokens, row.cost, row.estimated_cost) == (5, Decimal("0.000000235"), False)
    assert bill_of(row) == row.cost
    assert [entry.credits for entry in LedgerEntry.objects.all()] == [-row.cost]


def test_more_inputs_than_the_provider_takes_are_split_and_joined_in_order(caller: Caller) -> None:
    tag = tagged()
    inputs = ["a", "violence", "b", "sexual", "c"]
    body = moderate(caller, inputs).json()
    assert [one["flagged"] for one in body["results"]] == [False, True, False, True, False]
    sent = sorted((one["body"]["input"] for one in caller.sent(tag)), key=lambda texts: inputs.index(texts[0]))
    assert sent == [inputs[:2], inputs[2:4], inputs[4:]]
    assert settle_all() == 1


def test_parts_are_judged_together(caller: Caller) -> None:
    tag = tagged()
    parts = [{"type": "text", "text": "violence"}, PICTURE, {"type": "text", "text": "a cat"}]
    [judged] = moderate(caller, parts).json()["results"]
    assert judged["flagged"] is True
    assert judged["category_applied_input_types"]["violence"] == ["text", "image"]
    assert judged["category_applied_input_types"]["hate"] == ["text"]
    (sent,) = caller.sent(tag)
    assert sent["body"]["input"] == parts


def test_texts_of_one_input_are_one_text_at_mistral(caller: Caller) -> None:
    tag = tagged("moderator-mistral")
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "pii"}]
    assert len(moderate(caller, parts, model="moderator-mistral").json()["results"]) == 1
    (sent,) = caller.sent(tag)
    assert sent["body"]["input"] == ["a\npii"]


def test_without_a_model_openais_default_is_asked(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{caller.sandbox_url}/v1")
    tag = tagged("omni-moderation", "openai")
    assert moderate(caller, model=None).json()["model"] == "omni-moderation"
    assert len(caller.sent(tag)) == 1


def test_mistrals_own_model(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISTRAL_API_KEY", "secret")
    monkeypatch.setenv("MISTRAL_BASE_URL", f"{caller.sandbox_url}/v1")
    tagged("mistral-moderation", "mistral")
    assert "jailbreaking" in moderate(caller, "a cat", model="mistral-moderation").json()["results"][0]["categories"]
    settle_all()
    assert RequestLog.objects.get().cost == Decimal("0.0000002")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"value": None}, "input"),
        ({"value": ""}, "input"),
        ({"value": []}, "input"),
        ({"value": 7}, "input"),
        ({"value": {"text": "a"}}, "input"),
        ({"value": ["a", ""]}, "input[1]"),
        ({"value": ["a", 1]}, "input[1]"),
        ({"value": ["a", PICTURE]}, "input[1]"),
        ({"value": [PICTURE, "a"]}, "input[1]"),
        ({"value": ["a"] * 2049}, "input"),
        ({"value": [{"type": "text", "text": "a"}] * 65}, "input"),
        ({"value": [{"text": "a"}]}, "input[0].type"),
        ({"value": [{"type": "audio"}]}, "input[0].type"),
        ({"value": [{"type": "text"}]}, "input[0].text"),
        ({"value": [{"type": "text", "text": ""}]}, "input[0].text"),
        ({"value": [{"type": "image_url", "image_url": PIXEL}]}, "input[0].image_url"),
        ({"value": [{"type": "image_url", "image_url": {}}]}, "input[0].image_url.url"),
        ({"value": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}, "input[0].image_url.url"),
        ({"value": [PICTURE], "model": "moderator-mistral"}, "input"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
    ],
)
def test_a_wrong_field_is_refused_by_name_and_changes_nothing(
    caller: Caller, fields: dict[str, Any], param: str
) -> None:
    refused = moderate(caller, fields.pop("value", "a cat"), **fields)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.content
    assert nothing_happened(caller)


def test_models_of_another_kind_are_refused_with_the_path_to_ask(caller: Caller) -> None:
    refused = moderate(caller, model="reranker").json()["error"]["message"]
    assert refused == "reranker is no moderation model; ask for it at /v1/rerank"
    refused = caller.chat(model="moderator").json()["error"]["message"]
    assert refused == "moderator is a moderation model, not a chat model; ask for it at /v1/moderations"
    assert nothing_happened(caller)


def test_what_is_not_known_is_told_and_not_sent(caller: Caller) -> None:
    tag = tagged()
    response = moderate(caller, speed="high", user="u-1")
    assert [one["param"] for one in response.json()["metadata"]["warnings"]] == ["speed", "user"]
    (sent,) = caller.sent(tag)
    assert sent["body"] == {"model": f"moderator:tag={tag}", "input": ["a cat"]}


def test_an_answer_without_all_judgements_goes_to_another_provider(
    caller: Caller, add_provider: Any, clock: Any
) -> None:
    add_provider("spare", "1", model_id="moderator")
    tagged(empty="")
    body = moderate(caller).json()
    assert (len(body["results"]), body["metadata"]["used_provider"]) == (1, "spare")


def test_a_provider_that_fails_is_paid_nothing(caller: Caller, clock: Any) -> None:
    tagged("moderator-mistral", status="503")
    assert moderate(caller, model="moderator-mistral").status_code == 503
    settle_all()
    assert (RequestLog.objects.get().cost, LedgerEntry.objects.count()) == (0, 0)


def test_rules_see_every_input_and_block_or_mask_it(caller: Caller) -> None:
    guard(caller)
    forbid(caller, TERM, name="Secret projects")
    tag = tagged()
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": TERM}]
    for value, place in ((["a", TERM], "input[1]"), (parts, "input[1].text")):
        error = moderate(caller, value).json()["error"]
        assert (error["code"], error["param"]) == ("guardrail_blocked", "input")
        assert f"in {place}:" in error["message"]
    assert caller.sent(tag) == []
    settle_all()
    assert {row.cost for row in RequestLog.objects.all()} == {0}


def test_the_second_time_nobody_is_asked(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    tag, text = tagged(), f"violence {uuid4().hex}"
    together = [{"type": "text", "text": text}]
    answers = [moderate(caller, value) for value in (text, text, together)]
    assert [one["x-gateway-cache"] for one in answers] == ["miss", "hit", "miss"]
    assert answers[1].json()["results"] == answers[0].json()["results"]
    assert len(caller.sent(tag)) == 2
