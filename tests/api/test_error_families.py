"""Errors beside the model routes: the gateway's envelope, that of management, and unknown paths (section 7)."""

from __future__ import annotations

import pytest
from django.test import Client

from apps.kernel.rest.routes import route_table
from tests.support.model_routes import error_of
from tests.support.upstream import Caller

NO_SUCH_PATH, NO_SUCH_METHOD = "There is nothing at this path", "This path does not take this method"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nowhere", 404, NO_SUCH_PATH),
        ("GET", "/logs", 401, "Missing or invalid API key"),
        ("GET", "/logs/unique-models", 401, "Missing or invalid API key"),
        ("POST", "/metrics", 405, NO_SUCH_METHOD),
        ("DELETE", "/", 405, NO_SUCH_METHOD),
    ],
)
def test_the_gateway_envelope(db: None, method: str, path: str, status: int, message: str) -> None:
    headers = {"x-request-id": "trace-2"}
    response = Client().generic(method, path, "{}", content_type="application/json", headers=headers)
    assert (response.status_code, response.json()) == (status, {"error": True, "status": status, "message": message})
    assert response["x-request-id"] == "trace-2"


@pytest.mark.parametrize(
    ("path", "route", "near"),
    [
        ("/v1/messages/nothing", "messages", None),
        ("/v1/images/nothing", "edits", None),
        ("/v1/image/edits", "chat", "/v1/images/edits"),
        ("/v1/chat", "chat", None),
        ("/v1/chat/completions/more", "chat", None),
        ("/v1/nothing", "chat", None),
    ],
)
def test_an_unknown_path_below_a_family_has_its_envelope_and_names_a_path_near_it(
    db: None, path: str, route: str, near: str | None
) -> None:
    response = Client().post(path, {}, content_type="application/json")
    words = f"{NO_SUCH_PATH}; did you mean `{near}`?" if near else NO_SUCH_PATH
    assert (response.status_code, response.json()) == (
        404,
        error_of(route, 404, "invalid_request_error", "not_found", words),
    )


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/chat/completion", ["/v1/chat/completions"]),
        ("/v1/chat/compeltions", ["/v1/chat/completions"]),
        ("/v1/message", ["/v1/messages"]),
        ("/v1/messages/count_token", ["/v1/messages/count_tokens"]),
        ("/v1/embedding", ["/v1/embeddings"]),
        ("/v1/respones", ["/v1/responses"]),
        ("/v1/image/generations", ["/v1/images/generations"]),
        ("/v1/moderation", ["/v1/moderations"]),
        ("/v1/reranks", ["/v1/rerank"]),
        ("/v1/threads", []),
        ("/v1/assistants", []),
        ("/v1/fine_tuning/jobs", []),
        ("/v1/vector_stores", []),
        ("/v1/organization/costs", []),
    ],
)
def test_only_a_path_that_is_near_is_named(path: str, near: list[str]) -> None:
    assert route_table().near(path) == near


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "param", "message"),
    [
        ("POST", "/v1/models", 405, "method_not_allowed", None, NO_SUCH_METHOD),
        (
            "GET",
            "/v1/models?include_deactivated=maybe",
            400,
            "invalid_parameters",
            "include_deactivated",
            "include_deactivated must be true or false",
        ),
        ("GET", "/v1/models/qqqqqqqqqqqq", 404, "not_found", None, "The model `qqqqqqqqqqqq` does not exist"),
    ],
)
def test_the_list_of_models_errs_in_the_words_of_the_clients_that_read_it(
    db: None, method: str, path: str, status: int, code: str, param: str | None, message: str
) -> None:
    response = Client().generic(method, path, "{}", content_type="application/json")
    expected = error_of("chat", status, "invalid_request_error", code, message, param)
    assert (response.status_code, response.json()) == (status, expected)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/keys/api", 401, "Missing or invalid session token or management key"),
        ("GET", "/organization", 401, "Missing or invalid session token or management key"),
        ("POST", "/projects", 401, "Missing or invalid session token or management key"),
        ("GET", "/keys/nothing", 404, NO_SUCH_PATH),
        ("GET", "/auth/nothing", 404, NO_SUCH_PATH),
    ],
)
def test_the_management_envelope(caller: Caller, method: str, path: str, status: int, message: str) -> None:
    """An API key opens nothing there."""
    headers = {"x-request-id": "trace-3", "Authorization": f"Bearer {caller.token}"}
    response = caller.client.generic(method, path, "{}", content_type="application/json", headers=headers)
    assert (response.status_code, response.json()) == (status, {"message": message})
    assert response["x-request-id"] == "trace-3"


@pytest.mark.parametrize("header", ["x-goog-api-key", "x-goog-api-client"])
@pytest.mark.parametrize("path", ["/v1/cachedContents", "/v1beta/cachedContents", "/upload/v1beta/files"])
def test_googles_clients_are_told_of_an_unknown_path_in_googles_words(db: None, header: str, path: str) -> None:
    response = Client().post(path, {}, content_type="application/json", headers={header: "x"})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["status"]) == (404, 404, "NOT_FOUND")
    assert error["message"].startswith(NO_SUCH_PATH)
