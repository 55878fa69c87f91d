"""Image generation through the whole pipeline, over real HTTP to the upstream (section 4.9)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.billing.models import LedgerEntry
from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.kernel.valkey import generation
from apps.keys.models import IamRule
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.image_requests import generate, size_of
from tests.support.upstream import Caller, nothing_happened, settle_all


def test_the_answer_has_the_fields_of_the_specification(caller: Caller) -> None:
    response = generate(caller, "a cat", size="1536x1024", n=2)
    assert response.status_code == 200, response.content
    body = response.json()
    assert body["created"] == 1767225600
    assert [size_of(image["b64_json"]) for image in body["data"]] == [(1536, 1024)] * 2
    assert [image["revised_prompt"] for image in body["data"]] == ["You said: a cat", "You said: a cat (choice 2)"]
    assert body["data"][0]["b64_json"] != body["data"][1]["b64_json"]
    assert (body["size"], body["quality"]) == ("1536x1024", "medium")
    assert body["usage"] == {
        "input_tokens": 2,
        "input_tokens_details": {"text_tokens": 2, "image_tokens": 0},
        "output_tokens": 2112,
        "output_tokens_details": {"text_tokens": 0, "image_tokens": 2112},
        "total_tokens": 2114,
    }


def test_it_is_recorded_once_and_charged_once_to_the_digit(caller: Caller) -> None:
    response = generate(caller, "a cat", n=2, headers={"x-request-id": "cat-1", "x-source": "shop"})
    assert response["x-request-id"] == "cat-1"
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.route, row.request_id, row.status_code) == ("images_generations", "cat-1", 200)
    assert (row.requested_model, row.used_model, row.used_provider) == ("painter", "painter", "sandbox")
    assert (row.prompt_tokens, row.completion_tokens, row.image_output_tokens) == (2, 2112, 2112)
    # 2 at 5.1 and 2,112 at 31.7 USD per million tokens.
    assert (row.input_cost, row.image_output_cost) == (Decimal("0.0000102"), Decimal("0.0669504"))
    assert (row.cost, row.estimated_cost) == (Decimal("0.0669606"), False)
    assert row.unified_finish_reason == "completed"
    assert [entry.credits for entry in LedgerEntry.objects.all()] == [Decimal("-0.0669606")]
    assert Organization.objects.get().credits == Decimal(100) - Decimal("0.0669606")


def test_pictures_that_are_paid_each_cost_that_and_are_no_estimate(caller: Caller) -> None:
    response = generate(caller, model="painter-flat", n=2)
    assert "usage" not in response.json()
    settle_all()
    row = RequestLog.objects.get()
    assert (row.cost, row.image_output_cost, row.estimated_cost) == (Decimal("0.0246"), Decimal("0.0246"), False)


def test_the_provider_is_sent_what_was_asked_and_nothing_else(caller: Caller) -> None:
    tag = uuid4().hex
    generate(
        caller,
        f"a cat [[sandbox tag={tag}]]",
        n=2,
        size="1024x1536",
        quality="high",
        background="transparent",
        output_format="webp",
        output_compression=80,
        moderation="low",
        user="u-1",
        response_format="b64_json",
    )
    (sent,) = caller.sent(tag)
    assert sent["path"] == "/v1/images/generations"
    assert sent["body"] == {
        "model": "painter",
        "prompt": f"a cat [[sandbox tag={tag}]]",
        "n": 2,
        "size": "1024x1536",
        "quality": "high",
        "background": "transparent",
        "output_format": "webp",
        "output_compression": 80,
        "moderation": "low",
        "user": "u-1",
    }


def test_what_is_auto_is_left_to_the_model(caller: Caller) -> None:
    tag = uuid4().hex
    words = dict.fromkeys(("size", "quality", "background", "moderation", "aspect_ratio"), "auto")
    response = generate(caller, f"a cat [[sandbox tag={tag}]]", **words)
    assert response.status_code == 200, response.content
    (sent,) = caller.sent(tag)
    assert set(sent["body"]) == {"model", "prompt"}


def test_an_aspect_ratio_goes_before_the_size(caller: Caller) -> None:
    image = generate(caller, size="1024x1024", aspect_ratio="3:2").json()["data"][0]
    assert size_of(image["b64_json"]) == (1536, 1024)


def test_an_aspect_ratio_may_be_in_image_config(caller: Caller) -> None:
    image = generate(caller, image_config={"aspect_ratio": "2:3"}).json()["data"][0]
    assert size_of(image["b64_json"]) == (1024, 1536)


def test_a_wish_that_the_model_does_not_take_is_told(caller: Caller) -> None:
    response = generate(caller, style="vivid", negative_prompt="dogs")
    assert (response.status_code, response["x-gateway-loss"]) == (200, "style, negative_prompt")
    settle_all()
    assert RequestLog.objects.get().cost > 0


def test_with_x_strict_a_wish_is_a_condition(caller: Caller) -> None:
    tag = uuid4().hex
    response = generate(caller, f"a cat [[sandbox tag={tag}]]", style="vivid", headers={"x-strict": "true"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "style")
    assert caller.sent(tag) == []
    settle_all()
    assert RequestLog.objects.get().cost == 0


@pytest.mark.parametrize("fields", [{}, {"model": "auto"}])
def test_auto_is_the_cheapest_model_that_draws(caller: Caller, fields: dict[str, Any]) -> None:
    response = generate(caller, **{"model": None, **fields})
    assert response.status_code == 200, response.content
    settle_all()
    row = RequestLog.objects.get()
    assert (row.requested_model, row.used_model, row.cost) == ("auto", "painter-flat", Decimal("0.0123"))


def test_auto_has_what_is_asked_for(caller: Caller) -> None:
    response = generate(caller, model="auto", quality="high")
    assert response.status_code == 200, response.content
    settle_all()
    assert RequestLog.objects.get().used_model == "painter"


def test_auto_is_a_model_that_the_key_may_use(caller: Caller) -> None:
    IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["painter-flat"]})
    generate(caller, model="auto")
    settle_all()
    assert RequestLog.objects.get().used_model != "painter-flat"


def test_a_model_that_the_key_may_not_use_is_403(caller: Caller) -> None:
    IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["painter"]})
    response = generate(caller)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "access_denied")
    assert nothing_happened(caller)


def test_a_model_that_draws_in_chats_is_chatted_to(caller: Caller) -> None:
    tag = uuid4().hex
    response = generate(caller, f"a dog [[sandbox tag={tag}]]", model="sketcher", aspect_ratio="16:9")
    assert response.status_code == 200, response.content
    (image,) = response.json()["data"]
    assert size_of(image["b64_json"]) == (256, 144)
    assert "revised_prompt" not in image
    (sent,) = caller.sent(tag)
    assert sent["path"] == "/v1/chat/completions"
    assert sent["body"] == {
        "model": "sketcher",
        "messages": [{"role": "user", "content": f"a dog [[sandbox tag={tag}]]"}],
        "modalities": ["text", "image"],
        "image_config": {"aspect_ratio": "16:9"},
    }
    settle_all()
    row = RequestLog.objects.get()
    # The words `You said: a dog` are 4 tokens at 2.7, the picture 1,056 at 29.9 USD per million.
    assert (row.completion_tokens, row.image_output_tokens) == (1060, 1056)
    assert (row.output_cost, row.image_output_cost) == (Decimal("0.0000108"), Decimal("0.0315744"))


def test_a_size_that_only_the_shape_of_can_be_had_is_told(caller: Caller) -> None:
    exact = generate(caller, model="sketcher", size="16x16")
    assert (exact.status_code, exact.has_header("x-gateway-loss")) == (200, False)
    assert size_of(exact.json()["data"][0]["b64_json"]) == (16, 16)
    near = generate(caller, model="sketcher", size="1536x1024")
    assert (near.status_code, near["x-gateway-loss"]) == (200, "size")
    assert size_of(near.json()["data"][0]["b64_json"]) == (48, 32)


@pytest.mark.parametrize("model", ["painter", "sketcher"])
def test_an_answer_without_images_is_500_and_free(caller: Caller, model: str) -> None:
    response = generate(caller, "a cat [[sandbox pictures=0]]", model=model)
    assert response.status_code == 500
    assert response.json()["message"].startswith("The model generated no images")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.status_code, row.cost, row.has_error) == (500, Decimal(0), True)
    assert row.unified_finish_reason == "upstream_error"
    assert Organization.objects.get().credits == 100


def test_without_a_key_it_is_401(caller: Caller) -> None:
    response = generate(caller, headers={"Authorization": "Bearer gw_dev_nobody"})
    assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    assert nothing_happened(caller)


def test_what_is_no_json_is_refused(caller: Caller) -> None:
    headers = {"Authorization": f"Bearer {caller.token}"}
    form = caller.client.post("/v1/images/generations", {"prompt": "a cat"}, headers=headers)
    assert (form.status_code, form.json()["error"]["code"]) == (415, "unsupported_media_type")
    broken = caller.client.post("/v1/images/generations", "{", content_type="application/json", headers=headers)
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")
    assert nothing_happened(caller)


def test_the_dearest_that_it_may_cost_must_be_there(caller: Caller) -> None:
    """Ten pictures of 6,240 tokens at 31.7 USD per million, and 2 tokens and 1,024 of no price."""
    Organization.objects.update(credits=Decimal("1.97"))
    policy.forget_all()
    response = generate(caller, "a cat", n=10)
    assert (response.status_code, response.json()["error"]["code"]) == (402, "insufficient_credits")
    assert "1.97" in response.json()["message"]
    assert nothing_happened(caller)


def test_a_retryable_failure_moves_on_to_the_next_provider(caller: Caller, backup: str) -> None:
    tag = uuid4().hex
    first = ModelProvider.objects.get(provider_id="sandbox", model_id="painter")
    first.pk, first.provider_id, first.prices, first.model_name = None, backup, {"image": "0.05"}, "painter"
    first._state.adding = True
    first.save()
    ModelProvider.objects.filter(provider_id="sandbox", model_id="painter").update(
        model_name=f"painter:status=503:tag={tag}"
    )
    generation.bump(generation.CATALOG)
    response = generate(caller, model="sandbox/painter")
    assert response.status_code == 200, response.content
    settle_all()
    row = RequestLog.objects.get()
    assert (row.used_provider, len(caller.sent(tag))) == (backup, 1)
    # Two tokens of a price that is not stated, and one picture.
    assert row.cost == Decimal("0.05")


def test_no_fallback_stays_with_the_provider(caller: Caller, backup: str) -> None:
    response = generate(caller, "a cat [[sandbox status=503]]", headers={"x-no-fallback": "true"})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "overloaded")
    settle_all()
    row = RequestLog.objects.get()
    assert (row.status_code, row.cost) == (503, Decimal(0))


def test_a_providers_own_refusal_keeps_its_status_and_words(caller: Caller) -> None:
    response = generate(caller, "a cat [[sandbox status=400 code=moderation_blocked]]")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "moderation_blocked")
    settle_all()
    assert RequestLog.objects.get().cost == 0


@pytest.mark.parametrize("fault", ["cut", "broken", "error"])
def test_an_answer_that_breaks_is_502_and_free(caller: Caller, fault: str) -> None:
    response = generate(caller, f"a cat [[sandbox {fault}]]")
    assert response.status_code in {500, 502}
    settle_all()
    row = RequestLog.objects.get()
    assert (row.has_error, row.cost) == (True, Decimal(0))
