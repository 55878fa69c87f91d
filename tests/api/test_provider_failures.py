"""A provider's failure on every route: status, type, code and words; logged, and free (section 7)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.billing import balances
from apps.gateway.access import credentials
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.model_routes import ROUTES, error_of, post
from tests.support.upstream import Caller, nothing_happened, settle_all

FAILED, LATE = "sandbox failed: ", "sandbox did not answer in time: "
UPSTREAM = ("upstream_error", "all_providers_failed")
# A script for the sandbox, then the status, OpenAI's type and code, the message's beginning, and the log's reason.
FAILURES = [
    ("status=500", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=502", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=500 html", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=401", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=402", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=403", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=404", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("cut=head", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("reset=head", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("cut=body", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("broken=body", 502, *UPSTREAM, FAILED, "upstream_error"),
    ("status=503", 503, "api_error", "overloaded", "sandbox: ", "upstream_error"),
    ("status=529", 503, "api_error", "overloaded", "sandbox: ", "upstream_error"),
    ("status=429", 429, "rate_limit_error", "rate_limit_exceeded", "sandbox: ", "upstream_error"),
    ("status=504", 504, "timeout_error", "upstream_timeout", LATE, "upstream_error"),
    ("status=408", 504, "timeout_error", "upstream_timeout", LATE, "upstream_error"),
    ("hang=head", 504, "timeout_error", "upstream_timeout", LATE, "upstream_error"),
    ("hang=body", 504, "timeout_error", "upstream_timeout", LATE, "upstream_error"),
    ("status=400 code=weird", 400, "invalid_request_error", "weird", "", "client_error"),
    ("status=413 code=large", 413, "invalid_request_error", "large", "", "client_error"),
    ("status=422 code=unfit", 422, "invalid_request_error", "unfit", "", "client_error"),
]
each_failure = pytest.mark.parametrize(("script", "status", "kind", "code", "words", "finish"), FAILURES)


def assert_free(caller: Caller, request_id: str, status: int, finish: str) -> None:
    """Assert that a request which was let in left one row that says how it ended, and moved no money."""
    # A late record of the test before may be settled with it: the request's own row is what must be there once.
    assert settle_all() >= 1
    row = RequestLog.objects.get(request_id=request_id)
    assert (row.status_code, row.has_error, row.cost, row.unified_finish_reason) == (status, True, 0, finish)
    assert Organization.objects.get(pk=caller.organization_id).credits == 100
    assert ApiKey.objects.get(pk=caller.key.pk).usage == 0
    assert valkey().hget(balances.key("organization", caller.organization_id), "held") == "0"
    assert nothing_happened(caller)


@pytest.fixture
def hasty(settings: Any) -> None:
    """Short timeouts for providers."""
    settings.UPSTREAM_FIRST_BYTE_TIMEOUT = settings.UPSTREAM_IDLE_TIMEOUT = 0.2


@each_failure
def test_of_a_whole_answer(
    caller: Caller, hasty: None, script: str, status: int, kind: str, code: str, words: str, finish: str
) -> None:
    for route in ROUTES:
        fails(caller, route, script, status, kind, code, words, finish)


@each_failure
def test_of_a_stream_before_its_first_content_it_is_a_plain_error(
    caller: Caller, hasty: None, script: str, status: int, kind: str, code: str, words: str, finish: str
) -> None:
    for route in ("chat", "messages"):
        fails(caller, route, script, status, kind, code, words, finish, stream=True)


def fails(
    caller: Caller, route: str, script: str, status: int, kind: str, code: str, words: str, finish: str, **fields: Any
) -> None:
    """Ask for the failure; assert the whole answer, a single call to the provider, and no charge."""
    credentials.reset_cooldowns()
    # A record of an earlier test's that came late.
    settle_all()
    tag = uuid4().hex
    answer = post(caller, route, f"hi [[sandbox tag={tag} {script}]]", headers={"x-request-id": tag}, **fields)
    message = answer.json()["message"]
    assert message.startswith(words), (route, message)
    assert len(message) > len(words)
    assert (answer.status, answer.json()) == (status, error_of(route, status, kind, code, message)), route
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"] == tag
    assert b"sandbox-secret" not in answer.content
    assert len(caller.sent(tag)) == 1
    assert_free(caller, tag, status, finish)


@pytest.mark.parametrize("route", ["generations", "edits"])
def test_an_answer_without_images_is_500(caller: Caller, route: str) -> None:
    answer = post(caller, route, "a cat [[sandbox pictures=0]]", headers={"x-request-id": "t-1"})
    message = answer.json()["message"]
    assert message.startswith("The model generated no images")
    assert (answer.status, answer.json()) == (500, error_of(route, 500, "api_error", "internal_error", message))
    assert_free(caller, "t-1", 500, "upstream_error")


@pytest.mark.parametrize(("asked", "told"), [("7", "7"), ("0.2", "1"), ("86399", "86399")])
def test_a_providers_retry_after_is_passed_on(caller: Caller, asked: str, told: str) -> None:
    for route in ROUTES:
        credentials.reset_cooldowns()
        answer = post(caller, route, f"hi [[sandbox status=429 retry-after={asked}]]")
        assert (answer.status, answer.headers["retry-after"]) == (429, told)
        answer = post(caller, route, f"hi [[sandbox status=503 retry-after={asked}]]")
        assert (answer.status, answer.headers["retry-after"]) == (503, told)
