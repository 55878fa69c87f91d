"""Errors: one body for each family of routes, an id on every answer, 415, 413, and no internals (section 7)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from apps.catalog.models import Provider
from apps.kernel import errors
from apps.kernel.errors import ApiError
from apps.kernel.rest.envelopes import Family, InvalidFields, Issue
from apps.organizations import actions
from apps.organizations.actions import create_operator
from gateway_project.routes import TABLE
from tests.support.cast import PASSWORD, Caller, World, signed_in


class TestBodies:
    def test_the_openai_family(self) -> None:
        error = errors.InvalidRequest("temperature: must be at most 2", param="temperature")
        assert Family.OPENAI.body_of(error) == {
            "error": {
                "message": "temperature: must be at most 2",
                "type": "invalid_request_error",
                "param": "temperature",
                "code": "invalid_parameters",
            },
            "status": 400,
            "message": "temperature: must be at most 2",
        }

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (errors.InvalidRequest("x"), "invalid_request_error"),
            (errors.Unauthenticated("x"), "authentication_error"),
            (errors.PaymentRequired("x"), "billing_error"),
            (errors.Forbidden("x"), "permission_error"),
            (errors.NotFound("x"), "not_found_error"),
            (errors.Gone("x"), "not_found_error"),
            (errors.BodyTooLarge("x"), "request_too_large"),
            (errors.UnsupportedMediaType("x"), "invalid_request_error"),
            (errors.RateLimited("x"), "rate_limit_error"),
            (errors.InternalError("x"), "api_error"),
            (errors.AllProvidersFailed("x"), "api_error"),
            (errors.Overloaded("x"), "overloaded_error"),
            (errors.UpstreamTimeout("x"), "timeout_error"),
        ],
    )
    def test_the_anthropic_family(self, error: ApiError, expected: str) -> None:
        assert Family.ANTHROPIC.body_of(error) == {
            "type": "error",
            "error": {"type": expected, "message": "x"},
            "status": error.status,
            "message": "x",
        }

    def test_the_google_family(self) -> None:
        domain = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "gateway"}
        assert Family.GOOGLE.body_of(errors.InvalidRequest("contents: Required", param="contents")) == {
            "error": {
                "code": 400,
                "message": "contents: Required",
                "status": "INVALID_ARGUMENT",
                "details": [
                    {**domain, "reason": "INVALID_PARAMETERS"},
                    {
                        "@type": "type.googleapis.com/google.rpc.BadRequest",
                        "fieldViolations": [{"field": "contents", "description": "contents: Required"}],
                    },
                ],
            }
        }
        assert Family.GOOGLE.body_of(errors.RateLimited("slower", retry_after=1.2)) == {
            "error": {
                "code": 429,
                "message": "slower",
                "status": "RESOURCE_EXHAUSTED",
                "details": [
                    {**domain, "reason": "RATE_LIMIT_EXCEEDED"},
                    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2s"},
                ],
            }
        }

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (errors.Unauthenticated("x"), "UNAUTHENTICATED"),
            (errors.PaymentRequired("x"), "FAILED_PRECONDITION"),
            (errors.Forbidden("x"), "PERMISSION_DENIED"),
            (errors.NotFound("x"), "NOT_FOUND"),
            (errors.Gone("x"), "NOT_FOUND"),
            (errors.BodyTooLarge("x"), "INVALID_ARGUMENT"),
            (errors.ClientGone("x"), "CANCELLED"),
            (errors.InternalError("x"), "INTERNAL"),
            (errors.AllProvidersFailed("x"), "UNAVAILABLE"),
            (errors.Overloaded("x"), "UNAVAILABLE"),
            (errors.UpstreamTimeout("x"), "DEADLINE_EXCEEDED"),
        ],
    )
    def test_the_google_family_has_a_word_for_every_status(self, error: ApiError, expected: str) -> None:
        assert Family.GOOGLE.body_of(error)["error"]["status"] == expected

    def test_the_logs_family(self) -> None:
        assert Family.LOGS.body_of(errors.Gone("archived")) == {"error": True, "status": 410, "message": "archived"}

    def test_the_management_family_adds_issues_to_a_validation(self) -> None:
        error = InvalidFields([Issue("name", "Required"), Issue("items[0].id", "Required")])
        assert Family.MANAGEMENT.body_of(error) == {
            "message": "Invalid request parameters: name: Required",
            "issues": [{"path": "name", "message": "Required"}, {"path": "items[0].id", "message": "Required"}],
        }
        assert Family.MANAGEMENT.body_of(errors.Forbidden("no")) == {"message": "no"}

    @pytest.mark.parametrize(
        ("path", "family"),
        [
            ("/v1/chat/completions", Family.OPENAI),
            ("/v1/messages", Family.ANTHROPIC),
            ("/v1/messages/count_tokens", Family.ANTHROPIC),
            ("/v1/messagesomething", Family.OPENAI),
            ("/v1/images/generations", Family.OPENAI),
            ("/v1/models", Family.OPENAI),
            ("/v1/models/openai/gpt-5", Family.OPENAI),
            ("/v1/nothing", Family.OPENAI),
            ("/v1", Family.OPENAI),
            ("/v1beta/models/x:generateContent", Family.GOOGLE),
            ("/v1/models/x/y:streamGenerateContent", Family.GOOGLE),
            ("/models/x:generateContent", Family.GOOGLE),
            ("/v1/models/x:nothing", Family.OPENAI),
            ("/v1/images/nothing/" + "deeper/" * 50, Family.OPENAI),
            ("/v1x", Family.LOGS),
            ("/" * 100 + "keys", Family.LOGS),
            ("/logs/x", Family.LOGS),
            ("/", Family.LOGS),
            ("/metrics", Family.LOGS),
            ("/nowhere", Family.LOGS),
            ("/keysmith", Family.LOGS),
            ("/auth/sign-in/email", Family.MANAGEMENT),
            ("/keys/api", Family.MANAGEMENT),
            ("/keys", Family.MANAGEMENT),
            ("/keys/nothing/deeper", Family.MANAGEMENT),
            ("/organization", Family.MANAGEMENT),
            ("/guardrails/config/x", Family.MANAGEMENT),
            ("/activity", Family.MANAGEMENT),
            ("/audit-logs/x", Family.MANAGEMENT),
        ],
    )
    def test_which_path_is_of_which_family(self, path: str, family: Family) -> None:
        assert TABLE.family_of(path) is family


class TestEveryAnswer:
    def test_a_sane_request_id_is_taken_over(self) -> None:
        response = Client().get("/nowhere", headers={"x-request-id": "Trace-1.2_3"})
        assert response["x-request-id"] == "Trace-1.2_3"

    @pytest.mark.parametrize("sent", [None, "", "x" * 129, "a b", "a\tb", "ä", "<script>", "a,b"])
    def test_any_other_gets_a_new_one(self, sent: str | None) -> None:
        response = Client().get("/nowhere", headers={} if sent is None else {"x-request-id": sent})
        assert re.fullmatch(
            r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", response["x-request-id"]
        )

    @pytest.mark.parametrize("path", ["/", "/metrics", "/organization", "/v1/nothing", "/admin/", "/admin/nothing"])
    def test_has_an_id(self, db: None, path: str) -> None:
        response = Client().get(path, headers={"x-request-id": "Trace-1.2_3"})
        assert response["x-request-id"] == "Trace-1.2_3"

    def test_tells_its_length_to_get_and_head_alike(self, db: None) -> None:
        whole = Client().get("/nowhere")
        head = Client().head("/nowhere")
        assert whole["Content-Length"] == head["Content-Length"] == str(len(whole.content))
        assert (head.status_code, head.content) == (404, b"")


class TestStatuses:
    @pytest.mark.parametrize("path", ["/nowhere", "/v3/nothing", "/logs/nothing/deeper"])
    def test_404_for_an_unknown_path(self, path: str) -> None:
        for method in ("GET", "POST", "DELETE"):
            response = Client().generic(method, path)
            assert response.status_code == 404
            assert response.json() == {"error": True, "status": 404, "message": "There is nothing at this path"}

    def test_404_in_the_management_family(self, db: None) -> None:
        response = Client().get("/keys/nothing")
        assert (response.status_code, response.json()) == (404, {"message": "There is nothing at this path"})

    def test_405_for_a_method_a_path_does_not_take(self, world: World) -> None:
        management = signed_in(world.dana).send("DELETE", "/keys/api", {})
        assert (management.status_code, management["Allow"]) == (405, "GET, POST, HEAD, OPTIONS")
        assert management.json() == {"message": "This path does not take this method"}
        plain = Caller().send("PUT", "/", {})
        assert (plain.status_code, plain["Allow"]) == (405, "GET, HEAD")
        assert plain.json() == {"error": True, "status": 405, "message": "This path does not take this method"}

    @pytest.mark.parametrize(
        "content_type",
        ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"],
    )
    def test_415_for_a_post_that_is_not_json(self, db: None, content_type: str) -> None:
        body = b'{"email": "olivia@example.com", "password": "x"}'
        response = Client().generic("POST", "/auth/sign-in/email", body, content_type=content_type)
        assert response.status_code == 415
        assert response.json() == {"message": "Content-Type must be application/json"}

    @pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
    def test_json_by_any_spelling_is_read(self, world: World, content_type: str) -> None:
        body = f'{{"email": "olivia@example.com", "password": "{PASSWORD}"}}'.encode()
        response = Client().generic("POST", "/auth/sign-in/email", body, content_type=content_type)
        assert response.status_code == 200

    def test_413_for_a_body_over_the_limit(self, db: None, settings: Any) -> None:
        settings.BODY_LIMIT = 100
        response = Caller().post("/auth/sign-in/email", b"x" * 101)
        assert response.status_code == 413
        assert response.json() == {"message": "The request body is larger than 100 bytes"}
        assert Caller().post("/auth/sign-in/email", b"x" * 100).status_code == 400

    @pytest.mark.parametrize(
        "body",
        [b"{", b"nonsense", b'{"email": NaN}', b'{"email": "\xff"}', b"[" * 30, b'{"email": "\\ud800"}'],
    )
    def test_400_for_a_body_that_is_not_json(self, db: None, body: bytes) -> None:
        response = Caller().post("/auth/sign-in/email", body)
        assert response.status_code == 400
        assert response.json() == {"message": "The request body is not valid JSON"}

    def test_400_for_no_body_at_all(self, db: None) -> None:
        response = Client().generic("POST", "/auth/sign-in/email", headers={"content-type": "application/json"})
        assert response.status_code == 400
        assert [issue["path"] for issue in response.json()["issues"]] == ["email", "password"]

    @pytest.mark.parametrize("body", [b"[]", b'"text"', b"null", b"7"])
    def test_400_for_a_body_that_is_not_an_object(self, db: None, body: bytes) -> None:
        response = Caller().post("/auth/sign-in/email", body)
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": "", "message": "Must be a JSON object"}]

    def test_400_for_a_host_that_is_not_ours(self, db: None) -> None:
        response = Client().get("/organization", headers={"host": "evil.example"})
        assert response.status_code == 400
        assert response.json() == {"message": "This host is not one of ALLOWED_HOSTS"}
        assert Client().get("/", headers={"host": "10.0.0.7"}).status_code == 200

    @pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense", ""])
    def test_what_a_client_would_rather_have_is_no_reason_to_refuse(self, world: World, accept: str) -> None:
        caller = signed_in(world.dana)
        response = caller.client.get("/organization?format=xml", headers={**caller.headers, "accept": accept})
        assert (response.status_code, response["Content-Type"]) == (200, "application/json")

    def test_500_says_nothing_of_the_inside(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def break_down(**_fields: Any) -> None:
            raise RuntimeError("the secret is 4711")

        monkeypatch.setattr(actions, "sign_in", break_down)
        response = Caller().post(
            "/auth/sign-in/email", {"email": "olivia@example.com", "password": PASSWORD}, **{"x-request-id": "trace-1"}
        )
        assert (response.status_code, response.json()) == (500, {"message": "Internal server error"})
        [record] = [record for record in caplog.records if "request.failed" in record.getMessage()]
        assert "trace-1" in record.getMessage()


class TestTheAdminKeepsItsPages:
    def test_not_found_and_redirects_are_for_browsers(self, db: None) -> None:
        redirect = Client().get("/admin/")
        assert (redirect.status_code, redirect["Location"]) == (302, "/admin/login/?next=/admin/")
        missing = Client().get("/admin/nothing")
        assert missing["Content-Type"].startswith("text/html")

    def test_a_defect_is_logged_and_the_page_is_its_own(
        self, db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def break_down(*_args: Any) -> None:
            raise RuntimeError("the secret is 4711")

        monkeypatch.setattr(admin.site._registry[Provider], "get_queryset", break_down)
        client = Client(raise_request_exception=False)
        client.force_login(create_operator(email="op@example.com", password=PASSWORD))
        answer = client.get("/admin/catalog/provider/", headers={"x-request-id": "trace-2"})
        assert (answer.status_code, answer["Content-Type"]) == (500, "text/html; charset=utf-8")
        assert "4711" not in answer.content.decode()
        [record] = [record for record in caplog.records if "request.failed" in record.getMessage()]
        assert "trace-2" in record.getMessage()

    def test_its_forms_are_no_415(self, db: None) -> None:
        response = Client().post("/admin/login/", {"username": "nobody@example.com", "password": "x"})
        assert response.status_code == 200
        assert response["Content-Type"].startswith("text/html")
