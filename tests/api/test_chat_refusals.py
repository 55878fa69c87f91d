"""Refused and failed chat requests, without side effects (section 7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.test import TestCase

from apps.catalog.models import Model, ModelProvider
from apps.keys.models import ApiKey, IamRule
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all

# --- refusals: each answers its status and changes nothing


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Authorization": ""}, "Missing or invalid API key"),
        ({"Authorization": "Bearer gw_dev_" + "0" * 40}, "Missing or invalid API key"),
        ({"Authorization": "Basic abc"}, "Missing or invalid API key"),
    ],
)
def test_a_missing_or_invalid_key_is_401(caller: Caller, headers: dict[str, str], message: str) -> None:
    response = caller.chat(headers=headers)
    assert (response.status_code, response.json()) == (
        401,
        {
            "error": {"message": message, "type": "authentication_error", "param": None, "code": "invalid_api_key"},
            "status": 401,
            "message": message,
        },
    )
    assert nothing_happened(caller)


@pytest.mark.parametrize("status", ["inactive", "deleted"])
def test_a_key_that_is_switched_off_is_refused_at_once(caller: Caller, status: str) -> None:
    assert caller.chat().status_code == 200
    settle_all()
    caller.key.status = status
    with TestCase.captureOnCommitCallbacks(execute=True):
        caller.key.save()
    assert caller.chat().status_code == 401
    assert nothing_happened(caller)


def test_an_expired_key_is_401(caller: Caller) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert caller.chat().status_code == 401


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"temperature": 2.1}, "temperature", "invalid_parameters"),
        ({"messages": []}, "messages", "invalid_parameters"),
        ({"model": 5}, "model", "invalid_parameters"),
        ({"model": "no-such-model"}, "model", "model_not_found"),
        ({"model": "sandbox/no-such-model"}, "model", "model_not_found"),
        ({"model": "openai/gpt-5"}, "model", "model_not_found"),
    ],
)
def test_what_cannot_be_served_is_400_naming_the_field(caller: Caller, fields: Any, param: str, code: str) -> None:
    response = caller.chat(**fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, param, code)
    assert nothing_happened(caller)


@pytest.mark.parametrize(("body", "words"), [("{nope", "JSON is malformed"), (" \n", "it is empty, send an object")])
def test_a_body_that_is_not_json_is_400_and_says_why(caller: Caller, body: str, words: str) -> None:
    response = caller.client.post(
        "/v1/chat/completions", body, content_type="application/json", headers={"x-api-key": caller.token}
    )
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "invalid_json")
    assert error["message"].startswith(f"The request body is not valid JSON: {words}")


def test_a_post_without_the_content_type_is_415(caller: Caller) -> None:
    response = caller.client.post(
        "/v1/chat/completions", "{}", content_type="text/plain", headers={"x-api-key": caller.token}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_no_credits_is_402(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(credits=0)
    response = caller.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (402, "insufficient_credits")
    assert nothing_happened(caller)


def test_credits_that_do_not_cover_the_worst_case_are_402(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(credits=Decimal("0.0005"))
    assert caller.chat(max_tokens=1000).status_code == 402
    assert nothing_happened(caller)
    assert caller.chat(max_tokens=100).status_code == 200


def test_a_free_model_needs_no_credits(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(credits=0)
    assert caller.chat(model="sandbox/free").status_code == 200


def test_a_key_over_its_usage_limit_is_402(caller: Caller) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=1, usage=1)
    response = caller.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (402, "usage_limit_exceeded")
    assert nothing_happened(caller)


@pytest.mark.parametrize(
    ("what", "fields"),
    [("project", {"status": "archived"}), ("project", {"status": "deleted"}), ("organization", {"status": "deleted"})],
)
def test_an_archived_project_or_deleted_organization_is_410(caller: Caller, what: str, fields: Any) -> None:
    row = caller.key.project if what == "project" else caller.key.project.organization
    type(row).objects.filter(pk=row.pk).update(**fields)
    response = caller.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (410, "gone")
    assert nothing_happened(caller)


def test_a_refusal_ends_as_soon_as_its_reason_does(caller: Caller) -> None:
    rule = IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["echo"]})
    assert caller.chat().status_code == 403
    with TestCase.captureOnCommitCallbacks(execute=True):
        rule.delete()
    assert caller.chat().status_code == 200
    project = caller.key.project
    for status, expected in (("archived", 410), ("active", 200)):
        project.status = status
        with TestCase.captureOnCommitCallbacks(execute=True):
            project.save()
        assert caller.chat().status_code == expected


def test_a_model_that_is_new_in_the_catalog_is_found_at_once(caller: Caller) -> None:
    assert caller.chat(model="brand-new").status_code == 400
    with TestCase.captureOnCommitCallbacks(execute=True):
        Model.objects.create(id="brand-new", name="New", family="sandbox", mode="chat", input_modalities=["text"])
        ModelProvider.objects.create(model_id="brand-new", provider_id="sandbox", model_name="echo")
    assert caller.chat(model="brand-new").status_code == 200


def test_an_access_rule_is_403_naming_the_rule(caller: Caller) -> None:
    rule = IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["echo"]})
    response = caller.chat()
    assert (response.status_code, response.json()["error"]["code"]) == (403, "access_denied")
    assert str(rule.id) in response.json()["message"]
    assert nothing_happened(caller)


def test_a_feature_that_the_provider_lacks_is_400(caller: Caller) -> None:
    response = caller.chat(reasoning_effort="high")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_feature")
    assert response.json()["message"] == "sandbox/echo does not support reasoning"
    assert nothing_happened(caller)


# --- failures of the upstream


@pytest.mark.parametrize(
    ("directives", "status", "code"),
    [
        ("status=500", 502, "all_providers_failed"),
        ("status=503", 503, "overloaded"),
        ("status=429 retry-after=7", 429, "rate_limit_exceeded"),
        ("status=400 code=weird", 400, "weird"),
        ("status=401", 502, "all_providers_failed"),
        ("error=head", 502, "all_providers_failed"),
        ("broken=head", 502, "all_providers_failed"),
        ("cut=head", 502, "all_providers_failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_upstreams_failure_is_told_and_logged_and_free(
    caller: Caller, directives: str, status: int, code: str, stream: bool
) -> None:
    response = caller.chat(f"x [[sandbox {directives}]]", stream=stream)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    if status == 429:
        assert response["Retry-After"] == "7"
    settle_all()
    row = RequestLog.objects.get()
    assert (row.status_code, row.has_error, row.cost) == (status, True, 0)
    assert row.unified_finish_reason == ("upstream_error" if status != 400 else "client_error")
    assert Organization.objects.get(pk=caller.organization_id).credits == 100


def test_a_failed_provider_is_replaced_by_another(caller: Caller, backup: str) -> None:
    tag = uuid4().hex
    response = caller.chat(f"hi [[sandbox status=503 times=1 tag={tag}]]", model="echo")
    assert response.status_code == 200
    assert [
        (one["provider"], one["status_code"], one["succeeded"]) for one in response.json()["metadata"]["routing"]
    ] == [
        ("sandbox", 503, False),
        ("backup", 200, True),
    ]
    settle_all()
    assert RequestLog.objects.get().used_provider == "backup"


def test_a_named_provider_falls_back_too_unless_told_not_to(caller: Caller, backup: str) -> None:
    answers = [
        caller.chat(f"hi [[sandbox status=503 times=1 tag={uuid4().hex}]]", headers=headers)
        for headers in ({}, {"X-No-Fallback": "true"})
    ]
    assert [answer.status_code for answer in answers] == [200, 503]


def test_a_stream_that_breaks_before_its_first_content_falls_back(caller: Caller, backup: str) -> None:
    tag = uuid4().hex
    chunks = chunks_of(caller.chat(f"hi [[sandbox error=body times=1 tag={tag}]]", model="echo", stream=True))
    assert chunks[-2]["metadata"]["used_provider"] == "backup"
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks[:-1]) == "You said: hi"


def test_a_refusal_of_the_request_itself_is_not_repeated(caller: Caller, backup: str) -> None:
    tag = uuid4().hex
    assert caller.chat(f"hi [[sandbox status=400 tag={tag}]]", model="echo").status_code == 400
    assert len(caller.sent(tag)) == 1


# --- `auto`


def test_auto_is_the_cheapest_model_that_can_do_what_is_asked(caller: Caller) -> None:
    plain = caller.chat(model="auto").json()["metadata"]
    assert (plain["requested_model"], plain["requested_provider"], plain["used_model"]) == ("auto", None, "free")
    thinking = caller.chat(model="auto", reasoning_effort="high").json()["metadata"]
    assert thinking["used_model"] == "reasoner"


def test_auto_without_any_sufficient_model_says_what_is_missing(caller: Caller) -> None:
    response = caller.chat(model="auto", reasoning_effort="high", no_reasoning=True)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "unsupported_feature")
    assert response.json()["message"] == "auto does not support reasoning"
    assert nothing_happened(caller)
