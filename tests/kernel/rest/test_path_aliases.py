"""Path aliases: each form in which clients write a model API's path leads to its route, and to no other route."""

from __future__ import annotations

from typing import Any

import pytest

from apps.kernel.rest.routes import DEPLOYMENT, CanonicalPath
from gateway_project.routes import TABLE

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/chat/completions", CHAT),
        ("/v1/v1/chat/completions", CHAT),
        ("/api/v1/chat/completions", CHAT),
        ("/api/v1/v1/chat/completions/", CHAT),
        ("/openai/v1/chat/completions", CHAT),
        ("/openai/chat/completions", CHAT),
        ("/v1/chat/completions/", CHAT),
        ("//v1///chat//completions//", CHAT),
        ("/v1/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("/messages", "/v1/messages"),
        ("/v1beta/openai/chat/completions", CHAT),
        ("/v1beta/openai/chat/completions/", CHAT),
        ("/v1beta/openai/models/gemini-2.5-pro", "/v1/models/gemini-2.5-pro"),
        ("/v1/projects/p/locations/global/endpoints/openapi/chat/completions", CHAT),
        ("/v1beta1/projects/p/locations/us-central1/endpoints/openapi/embeddings", "/v1/embeddings"),
        ("/models/", "/v1/models"),
        ("/models/openai/gpt-5", "/v1/models/openai/gpt-5"),
        ("/v1/models//openai/gpt-5/", "/v1/models/openai/gpt-5"),
    ],
)
def test_another_form_of_a_path_leads_to_its_route(path: str, expected: str) -> None:
    assert TABLE.canonical(path) == CanonicalPath(expected)


@pytest.mark.parametrize(
    ("path", "expected", "deployment"),
    [
        ("/openai/deployments/gpt-5/chat/completions", CHAT, "gpt-5"),
        ("/openai/deployments/openai/gpt-5/chat/completions/", CHAT, "openai/gpt-5"),
        ("/openai/deployments/d/images/generations", "/v1/images/generations", "d"),
        ("/openai/deployments/d/messages", "/v1/messages", "d"),
        ("/openai/deployments/d/completions", "/v1/completions", "d"),
        ("/openai/deployments/chat/completions", "/v1/completions", "chat"),
        ("/openai/deployments/caf\u00c3\u00a9/chat/completions", CHAT, "caf\u00e9"),
    ],
)
def test_azures_form_names_the_model(path: str, expected: str, deployment: str) -> None:
    environ: dict[str, Any] = {"PATH_INFO": path}
    TABLE.normalize(environ)
    assert environ == {"PATH_INFO": expected, DEPLOYMENT: deployment}


@pytest.mark.parametrize(
    "path",
    [
        CHAT,
        "/v1/models/openai/gpt-5",
        "/",
        "//",
        "",
        "*",
        "/v1",
        "/nowhere",
        "/v1/nowhere/",
        "/v2/chat/completions",
        "/v1/v1/v1/chat/completions",
        "/api/chat/completions",
        "/v1beta/openai",
        "/v1beta/openai/nowhere",
        "/v1beta/openai/organization",
        "/v1beta/openai/auth/sign-in/email",
        "/v1/projects/p/locations/l/endpoints/openapi",
        "/v1/projects/p/locations/l/endpoints/1234/chat/completions",
        "/v1/projects/p/endpoints/openapi/chat/completions",
        "/projects/p/locations/l/endpoints/openapi/chat/completions",
        "/api/v1/api/v1/chat/completions",
        "/openai/deployments/d/organization",
        # Dots lead nowhere, and double percent-encoding stays as it is.
        "/v1/x/../chat/completions",
        "/./v1/chat/completions",
        "/v1/chat%2Fcompletions",
        "/%76%31/chat/completions/",
        # The guards of the other routes look at the path as it was sent.
        "//auth/sign-in/email",
        "/auth/sign-in/email/",
        "/v1/auth/sign-in/email",
        "/api/v1/auth/sign-in/email",
        "/openai/auth/sign-in/email",
        "//keys/api",
        "/keys//api",
        "//admin/",
        "/v1/metrics/",
        "//metrics",
        "/" * 2_000 + "v1/chat/completions",
    ],
)
def test_no_other_path_is_led_anywhere(path: str) -> None:
    environ: dict[str, Any] = {"PATH_INFO": path}
    TABLE.normalize(environ)
    assert environ == {"PATH_INFO": path}


def test_only_routes_of_model_apis_have_aliases() -> None:
    for row in TABLE.rows:
        # LiteLLM's clients ask for a listing without a version, too; OpenRouter's have `/v1/keys/{hash}`.
        if row.prefix[:1] not in [("v1",), ("v1beta",)] and not TABLE.is_api_path(f"/v1/{row.path}"):
            for path in (f"//{row.path}", f"/v1/{row.path}", f"/api/v1/{row.path}", f"/openai/{row.path}"):
                canonical = TABLE.canonical(path)
                assert canonical is None, path


def test_a_canonical_path_is_its_own() -> None:
    # But for three, which are pages for browsers and the API's models for its clients (docs/adr/0119).
    others = [row.path for row in TABLE.rows if TABLE.canonical(f"/{row.path}") is not None]
    assert others == ["models", "models/compare", "models/<path:model_id>"]


def test_another_form_of_a_path_errs_as_its_route() -> None:
    paths = ["/messages", "/v1/v1/messages", "/openai/deployments/x/chat/completions", "/api/v1/messages/"]
    assert [TABLE.family_of(path).name for path in paths] == ["anthropic", "anthropic", "openai", "anthropic"]
