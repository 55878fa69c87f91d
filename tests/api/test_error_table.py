"""The error table, row by row, on every route that reaches a model, without side effects (section 7).

Each test asks all of them. How single fields are refused stands with the routes they belong to; what follows from a
provider's failure has its own table.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import gevent
import pytest
from django.db import OperationalError

from apps.catalog.models import ModelProvider
from apps.gateway.access import policy
from apps.gateway.routing import preferences
from apps.kernel.postgres import database
from apps.kernel.valkey import generation
from apps.keys.models import ApiKey, IamRule
from apps.organizations.models import Organization
from tests.support.model_routes import PATHS, ROUTES, error_of, post
from tests.support.upstream import Caller, nothing_happened, settle_all

INVALID = "invalid_request_error"
UNKNOWN_KEY = "gw_dev_" + "0" * 40
NOT_AUTHENTICATED = (401, "authentication_error", "invalid_api_key", "Missing or invalid API key", None)
NO_SUCH_PATH, NO_SUCH_METHOD = "There is nothing at this path", "This path does not take this method"


def refused(
    caller: Caller, route: str, status: int, kind: str, code: str, words: str, param: str | None, **fields: Any
) -> dict[str, str]:
    """Ask; assert that the answer is the error that is expected, under the client's own id, and that nothing else was
    done: no provider was called, nothing is held, nothing will be recorded or charged. Return the headers.

    `words` is a regular expression; `kind`, `code` and `param` are OpenAI's.
    """
    tag = uuid4().hex
    headers = {"x-request-id": f"trace.{tag}", **fields.pop("headers", {})}
    answer = post(caller, route, f"hi [[sandbox tag={tag}]]", headers=headers, **fields)
    told = answer.json()
    assert re.fullmatch(words, told["message"]), (route, told)
    assert (answer.status, told) == (status, error_of(route, status, kind, code, told["message"], param)), route
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == str(len(answer.content))
    assert answer.headers["x-request-id"] == f"trace.{tag}"
    # A header stops SDKs from a silent retry that cannot succeed.
    is_vain = status < 500 and status not in {408, 409, 429, 499}
    assert answer.headers.get("x-should-retry") == ("false" if is_vain else None)
    assert caller.sent(tag) == []
    assert nothing_happened(caller)
    return answer.headers


def refused_everywhere(
    caller: Caller, status: int, kind: str, code: str, words: str, param: str | None, **fields: Any
) -> list[dict[str, str]]:
    """Ask every route; return the headers of each answer."""
    return [refused(caller, route, status, kind, code, words, param, **fields) for route in ROUTES]


def change(row: Any, **values: Any) -> None:
    """Change a row behind the gateway's back, and make the gateway read everything again."""
    type(row).objects.filter(pk=row.pk).update(**values)
    policy.forget_all()


class Test400:
    @pytest.mark.parametrize("body", [b"{nope", b"", b"\xff", b"[" * 10_000, b'{"model": NaN}'])
    def test_a_body_that_is_not_json(self, caller: Caller, body: bytes) -> None:
        words = "The request body is (not valid JSON|nested too deeply).*"
        refused_everywhere(caller, 400, INVALID, "invalid_json", words, None, raw=body)

    @pytest.mark.parametrize(
        ("route", "field", "prefix"),
        [
            ("chat", "messages", ""),
            ("chat", "model", ""),
            ("messages", "messages", "Invalid request format: "),
            ("messages", "max_tokens", "Invalid request format: "),
            ("generations", "prompt", "Invalid request parameters: "),
            ("edits", "images", "Invalid request parameters: "),
        ],
    )
    def test_a_missing_field(self, caller: Caller, route: str, field: str, prefix: str) -> None:
        words = f"{prefix}{field}: Required"
        refused(caller, route, 400, INVALID, "invalid_parameters", words, field, **{field: None})

    def test_a_model_that_nobody_knows(self, caller: Caller) -> None:
        words = "The model `qqqqqqqqqqqq` does not exist"
        refused_everywhere(caller, 400, INVALID, "model_not_found", words, "model", model="qqqqqqqqqqqq")

    @pytest.mark.parametrize(
        ("route", "fields", "words", "param"),
        [
            ("chat", {"reasoning_effort": "high"}, "sandbox/echo does not support reasoning", "model"),
            (
                "messages",
                {"max_tokens": 2000, "thinking": {"type": "enabled", "budget_tokens": 1024}},
                "sandbox/echo does not support reasoning",
                "model",
            ),
            ("generations", {"size": "512x512"}, "sandbox/painter does not support size 512x512", "size"),
            ("edits", {"model": "painter-flat"}, "painter-flat does not support image editing", "images"),
        ],
    )
    def test_a_feature_that_the_model_lacks(
        self, caller: Caller, route: str, fields: dict[str, Any], words: str, param: str
    ) -> None:
        refused(caller, route, 400, INVALID, "unsupported_feature", words, param, **fields)

    def test_a_prompt_that_nobody_has_room_for(self, caller: Caller) -> None:
        ModelProvider.objects.filter(model_id="echo").update(context_length=5)
        generation.bump(generation.CATALOG)
        words = (
            r"This model's maximum context length is 5 tokens\. "
            r"The prompt is too long: about \d\d tokens > 5 that sandbox/echo takes"
        )
        for route in ("chat", "messages"):
            refused(caller, route, 400, INVALID, "context_length_exceeded", words, "messages")


class Test401:
    @pytest.mark.parametrize(
        "header", [None, "", "Bearer", "Basic abc", f"Bearer {UNKNOWN_KEY}", "Bearer " + "x" * 9000]
    )
    def test_no_key_or_none_that_is_known(self, caller: Caller, header: str | None) -> None:
        refused_everywhere(caller, *NOT_AUTHENTICATED, headers={"authorization": header})

    def test_two_keys(self, caller: Caller) -> None:
        words = "The headers Authorization and x-api-key carry different keys"
        refused_everywhere(caller, *NOT_AUTHENTICATED[:3], words, None, headers={"x-api-key": UNKNOWN_KEY})

    @pytest.mark.parametrize("status", ["inactive", "deleted"])
    def test_a_key_that_is_switched_off(self, caller: Caller, status: str) -> None:
        change(caller.key, status=status)
        refused_everywhere(caller, *NOT_AUTHENTICATED)

    def test_a_key_that_has_expired(self, caller: Caller) -> None:
        change(caller.key, expires_at=datetime.now(UTC) - timedelta(seconds=1))
        refused_everywhere(caller, *NOT_AUTHENTICATED[:3], "This API key has expired", None)

    def test_comes_before_anything_that_is_said_of_the_body(self, caller: Caller) -> None:
        refused_everywhere(caller, *NOT_AUTHENTICATED, headers={"authorization": None}, raw=b"{nope", content_type="")


class Test402:
    left = r"this request needs up to 0\.\d+ USD and 0 USD is left; lower max_tokens or "

    def test_no_credits(self, caller: Caller) -> None:
        change(caller.key.project.organization, credits=0)
        words = "Insufficient credits: " + self.left + "add credits under Billing"
        refused_everywhere(caller, 402, "billing_error", "insufficient_credits", words, None)
        assert Organization.objects.get(pk=caller.organization_id).credits == 0

    def test_a_key_over_its_limit(self, caller: Caller) -> None:
        change(caller.key, usage_limit=Decimal("0.5"), usage=Decimal("0.5"))
        words = r"The key's usage limit of 0\.5 USD is too low: " + self.left + "raise the key's limit"
        refused_everywhere(caller, 402, "billing_error", "usage_limit_exceeded", words, None)
        assert ApiKey.objects.get(pk=caller.key.pk).usage == Decimal("0.5")


def test_403_names_the_rule(caller: Caller) -> None:
    value = {"providers": ["sandbox"]}
    rule = IamRule.objects.create(api_key=caller.key, rule_type="deny_providers", rule_value=value)
    policy.forget_all()
    words = rf"Access denied by IAM rule {rule.id} \(deny_providers\) of this API key"
    refused_everywhere(caller, 403, "permission_error", "access_denied", words, "model")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_405_for_another_method(caller: Caller, method: str) -> None:
    for route in ROUTES:
        answer = post(
            caller, route, environ={"REQUEST_METHOD": method, "SERVER_NAME": "localhost", "SERVER_PORT": "80"}
        )
        told = answer.json()
        assert (answer.status, answer.headers["allow"], told["message"]) == (405, "POST", NO_SUCH_METHOD)
        assert told["error"]["type"] == INVALID
        assert answer.headers["x-request-id"]
    assert nothing_happened(caller)


def test_408_for_a_body_that_does_not_come(caller: Caller, settings: Any) -> None:
    settings.BODY_TIMEOUT = 0.05

    class Slow:
        def read(self, _size: int) -> bytes:
            gevent.sleep(5)
            return b""

    environ = {"CONTENT_LENGTH": "100", "wsgi.input": Slow()}
    words = "The request body did not arrive within 0.05 s"
    headers = refused_everywhere(caller, 408, INVALID, "request_timeout", words, None, environ=environ)
    assert [one["connection"] for one in headers] == ["close"] * 4


class Test410:
    @pytest.mark.parametrize("status", ["archived", "deleted"])
    def test_a_project_that_is_no_more(self, caller: Caller, status: str) -> None:
        change(caller.key.project, status=status)
        refused_everywhere(caller, 410, INVALID, "gone", f"This project has been {status}", None)

    @pytest.mark.parametrize("status", ["inactive", "deleted"])
    def test_an_organization_that_is_no_more(self, caller: Caller, status: str) -> None:
        change(caller.key.project.organization, status=status)
        refused_everywhere(caller, 410, INVALID, "gone", "This organization is no longer active", None)

    def test_a_model_that_nobody_serves_any_more(self, caller: Caller) -> None:
        ModelProvider.objects.filter(provider_id="sandbox").update(deactivated_at=date(2026, 1, 1))
        generation.bump(generation.CATALOG)
        words = "(echo|painter) is no longer served by any provider"
        refused_everywhere(caller, 410, INVALID, "gone", words, "model")


@pytest.mark.parametrize("chunked", [False, True])
def test_413_for_a_body_over_the_limit(caller: Caller, settings: Any, chunked: bool) -> None:
    settings.BODY_LIMIT = 2_000
    environ = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True} if chunked else {}
    words = "The request body is larger than 2000 bytes"
    expected = (413, INVALID, "request_too_large", words, None)
    headers = refused_everywhere(caller, *expected, raw=b"{".ljust(2_001), environ=environ)
    # The unsent rest of the body must not be taken for the client's next request.
    assert [one["connection"] for one in headers] == ["close"] * 4
    words = "The request body is not valid JSON.*"
    refused_everywhere(caller, 400, INVALID, "invalid_json", words, None, raw=b"{".ljust(2_000), environ=environ)


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
def test_415_for_a_post_that_is_not_json(caller: Caller, content_type: str) -> None:
    words = "Content-Type must be application/json( or multipart/form-data)?"
    refused_everywhere(caller, 415, INVALID, "unsupported_media_type", words, None, content_type=content_type)


def test_429_for_too_many_requests(caller: Caller, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "enterprise": 1}
    assert [post(caller, route).status for route in ROUTES[:3]] == [200] * 3
    settle_all()
    words = r"More than 1 requests a minute; try again in (5\d\.\d|60\.0) s"
    headers = refused_everywhere(caller, 429, "rate_limit_error", "rate_limit_exceeded", words, None)
    assert all(50 <= int(one["retry-after"]) <= 60 for one in headers)


def test_499_for_a_client_that_left_before_its_request_was_complete(caller: Caller) -> None:
    words = "The client closed the connection before its request was complete"
    expected = (499, "request_cancelled", "request_cancelled", words, None)
    refused_everywhere(caller, *expected, raw=b'{"model": ', environ={"CONTENT_LENGTH": "1000"})


def test_500_says_nothing_of_the_inside(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **_named: Any) -> None:
        raise RuntimeError("the secret is 4711")

    monkeypatch.setattr(preferences, "choose_order", break_down)
    words = "The gateway failed to answer this request"
    refused_everywhere(caller, 500, "api_error", "internal_error", words, None)


def test_503_while_nobody_can_tell_whose_key_it_is(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_away(*_: Any, **__: Any) -> None:
        raise OperationalError("connection to 10.1.2.3 refused")

    monkeypatch.setattr(database, "read", be_away)
    words = "The gateway cannot check API keys right now; try again shortly"
    refused_everywhere(caller, 503, "api_error", "overloaded", words, None)


def test_a_request_id_that_is_not_sane_is_replaced(caller: Caller) -> None:
    for route in ROUTES:
        answer = post(caller, route, raw=b"{", headers={"x-request-id": "a b"})
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", answer.headers["x-request-id"])


def test_both_doors_say_the_same(caller: Caller) -> None:
    """The server's own, which `post` uses, and that of Django's URL map."""
    for route in ROUTES:
        response = caller.client.post(PATHS[route], {}, content_type="application/json")
        assert (response.status_code, response.json()) == (401, error_of(route, *NOT_AUTHENTICATED))
        answer = post(caller, route, headers={"authorization": None})
        assert (answer.status, answer.json()) == (response.status_code, response.json())
