"""The document at `/openapi.json` knows every path, no other; the page at `/docs/api` loads nothing from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from jsonschema import Draft202012Validator

from apps.kernel.rest.envelopes import Family, camel
from apps.kernel.rest.routes import Route
from gateway_project.openapi.document import METHODS, tag_of
from gateway_project.routes import TABLE
from tests.support.cast import Caller, World, signed_in

# Pages for people, not programs: of the admin, and those that links of e-mails open.
PAGES = ("admin", "app", "verify-email", "reset-password", "change-email", "favicon.ico")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document, as a client gets it."""
    response = Client().get("/openapi.json")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    body: dict[str, Any] = response.json()
    return body


def paths() -> dict[str, list[Route]]:
    """Return the routes of every path of the table, in the document's spelling."""
    found: dict[str, list[Route]] = {}
    for route in TABLE.rows:
        if not route.path.startswith(PAGES) and route.family is not Family.PAGES and route.path != "docs":
            path = "/" + re.sub(r"<\w+:(\w+)>", lambda match: f"{{{camel(match[1])}}}", route.path)
            found.setdefault(path, []).append(route)
    return found


def methods_of(route: Route) -> set[str]:
    """Return the methods that a route takes, as the document writes them."""
    if route.method is not None:
        return {route.method.lower()}
    by_class = getattr(route.endpoint, "view_class", None)
    if by_class is not None:
        return {name for name in METHODS if hasattr(by_class, name)}
    return {"post" if getattr(route.endpoint, "csrf_exempt", False) else "get"}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and operation."""
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def test_every_path_is_in_it_and_no_other(document: dict[str, Any]) -> None:
    assert set(document["paths"]) == set(paths())


def test_every_method_is_in_it_and_no_other(document: dict[str, Any]) -> None:
    expected = {path: set().union(*(methods_of(route) for route in routes)) for path, routes in paths().items()}
    assert {path: set(methods) for path, methods in document["paths"].items()} == expected


def test_it_is_openapi_3_1_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(reference := value.get("$ref"), str):
                place: Any = document
                for name in reference.removeprefix("#/").split("/"):
                    place = place[name]
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(document)


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)


def test_every_operation_has_its_own_name_a_summary_and_answers(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for path, method, operation in operations(document):
        assert operation["summary"], (path, method)
        # RFC 7591 has a client registered with 201, OpenRouter a key created.
        assert {"200", "201" if path in {"/oauth/register", "/v1/keys"} else "200"} & set(operation["responses"]), (
            path,
            method,
        )
        assert {"500", "503"} <= set(operation["responses"])


def test_no_description_speaks_of_the_inside(document: dict[str, Any]) -> None:
    """Descriptions often come from docstrings: they must not tell callers what a function raises or returns."""
    inside = re.compile(r"\bRaises\b|^Return |\bapps[./]|\.py\b")

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, list):
            for inner in value:
                yield from texts(inner)
        elif isinstance(value, dict):
            for name, inner in value.items():
                if name in {"description", "summary"} and isinstance(inner, str):
                    yield inner
                else:
                    yield from texts(inner)

    said = list(texts(document))
    assert len(said) > 500
    assert [text for text in said if not text or inside.search(text)] == []


def test_every_name_in_a_path_is_a_parameter(document: dict[str, Any]) -> None:
    for path, _, operation in operations(document):
        stated = {one["name"] for one in operation["parameters"] if one.get("in") == "path"}
        assert stated == set(re.findall(r"\{(\w+)\}", path))


def admitted_paths() -> set[str]:
    """Return the paths of the routes whose requests are admitted."""
    return {path for path, routes in paths().items() if any(route.rate_family is not None for route in routes)}


def test_every_endpoint_of_models_has_a_tag_of_its_format_or_kind() -> None:
    """A path that no other tag begins is under `Operation`."""
    assert [path for path in admitted_paths() if tag_of(path) == "Operation"] == []


def test_each_family_states_its_own_errors(document: dict[str, Any]) -> None:
    stated = {
        path: document["paths"][path]["post"]["responses"]["401"]["content"]["application/json"]["schema"]["$ref"]
        for path in ("/v1/chat/completions", "/v1/messages", "/v1beta/models/{name}", "/keys/api")
    }
    assert stated == {
        "/v1/chat/completions": "#/components/schemas/OpenAIError",
        "/v1/messages": "#/components/schemas/AnthropicError",
        "/v1beta/models/{name}": "#/components/schemas/GoogleError",
        "/keys/api": "#/components/schemas/ManagementError",
    }


def test_who_is_asked_for_what(document: dict[str, Any]) -> None:
    asked = {(path, method): operation.get("security") for path, method, operation in operations(document)}
    keys = [{"apiKey": []}, {"xApiKey": []}]
    admitted = admitted_paths()
    for (path, method), security in asked.items():
        public = {
            "/",
            "/openapi.json",
            "/docs/api",
            "/docs/api/{section}",
            "/auth/verify-email",
            "/auth/send-verification-email",
            "/auth/request-password-reset",
        }
        public |= {"/livez", "/readyz"}
        # A link is its own key.
        public |= {"/auth/reset-password", "/auth/change-email/confirm", "/v1/images/files/{fileId}"}
        # A code or token is its own key.
        oauth = ("/oauth/", "/.well-known/", "/v1/auth/")
        if path in public or path.startswith(("/auth/sign-up", "/auth/sign-in", *oauth)):
            assert security == [], path
        elif path.startswith("/v1beta") or "generateContent" in path or "publishers" in path or ":" in path:
            assert security == [*([] if method == "post" else [{}]), *keys, {"xGoogApiKey": []}, {"keyInQuery": []}]
        elif path.startswith("/v1/models") or path.endswith("/model/info"):
            assert security == [{}, *keys], path
        elif path == "/metrics":
            assert security == [{}, {"metricsToken": []}]
        elif path.startswith("/api/") and method == "get":
            assert security == [{}, *keys], path
        elif path.startswith("/v1/keys"):
            assert security == [{"session": []}], path
        elif path in {"/v1/key", "/v1/credits"}:
            # A management key asks as well.
            assert security == [*keys, {"session": []}], path
        elif path in admitted or path.startswith(("/v1/", "/v2/", "/api/", "/mcp/", "/model/")) or path == "/mcp":
            assert security == keys, path
        elif path.startswith("/logs"):
            assert security == [*keys, {"session": []}]
        else:
            assert security == [{"session": []}], path


def test_every_post_of_people_takes_an_idempotency_key(document: dict[str, Any]) -> None:
    key = {"$ref": "#/components/parameters/IdempotencyKey"}
    for path, method, operation in operations(document):
        expected = method == "post" and operation.get("security") == [{"session": []}]
        assert (key in operation["parameters"]) == expected, path


def test_answers_are_as_it_says(world: World, document: dict[str, Any]) -> None:
    olivia = signed_in(world.olivia)
    asked = {
        "/organization": "/organization",
        "/organization/{organizationId}/members": f"/organization/{world.acme.id}/members",
        "/organization/{organizationId}/projects": f"/organization/{world.acme.id}/projects",
        "/organization/{organizationId}/transactions": f"/organization/{world.acme.id}/transactions",
        "/organization/{organizationId}/referral-stats": f"/organization/{world.acme.id}/referral-stats",
        "/keys/api": f"/keys/api?projectId={world.project.id}",
        "/auth/get-session": "/auth/get-session",
        "/v1/models": "/v1/models",
        "/v1beta/models": "/v1beta/models",
        "/": "/",
    }
    for path, real in asked.items():
        asking = Caller() if path.startswith("/v1") else olivia
        schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        Draft202012Validator(whole, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
            asking.get(real).json()
        )


class TestAPart:
    def test_has_a_tags_operations_and_what_they_need(self, document: dict[str, Any]) -> None:
        whole = {(path, method, tag) for path, method, operation in operations(document) for tag in operation["tags"]}
        for tag in document["tags"]:
            part = Client().get("/openapi.json", {"tag": tag["name"].lower().replace(" ", "-")}).json()
            assert part["tags"] == [tag]
            assert {(path, method, tag["name"]) for path, method, _ in operations(part)} == {
                one for one in whole if one[2] == tag["name"]
            }
            for path, method, operation in operations(part):
                assert operation == document["paths"][path][method]
            for reference in re.findall(r'"\$ref": "#/components/(\w+)/([^"]+)"', json.dumps(part)):
                kind, name = reference
                assert part["components"][kind][name] == document["components"][kind][name]
            used = {name for _, name in re.findall(r'"\$ref": "#/components/(\w+)/([^"]+)"', json.dumps(part))}
            assert set(part["components"]["schemas"]) <= used

    def test_that_is_unknown_is_not_found(self) -> None:
        for path in ("/openapi.json?tag=chats", "/openapi.json?tag=", "/docs/api/chats"):
            assert Client().get(path).status_code == 404


class TestThePages:
    def test_list_every_operation_and_lead_to_it(self, document: dict[str, Any]) -> None:
        page = Client().get("/docs/api").content.decode()
        links = re.findall(r'data-operation><a href="([^"]+)"', page)
        expected = {
            f"/docs/api/{tag.lower().replace(' ', '-')}#/{quote(tag)}/{operation['operationId']}"
            for _, _, operation in operations(document)
            for tag in operation["tags"]
        }
        assert (len(links), set(links)) == (len(expected), expected)
        assert "`" not in page

    def test_of_a_part_loads_that_alone(self) -> None:
        page = Client().get("/docs/api/api-keys").content.decode()
        assert 'data-document="/openapi.json?tag=api-keys"' in page
        assert '<h1 id="part-name">API keys</h1>' in page

    @pytest.mark.parametrize(("path", "count"), [("/docs/api", 9), ("/docs/api/chat", 11)])
    def test_load_nothing_from_elsewhere(self, path: str, count: int) -> None:
        response = Client().get(path)
        assert response.status_code == 200
        page = response.content.decode()
        addresses = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert all(address.startswith(("/", "#")) and not address.startswith("//") for address in addresses)
        files = [address.removeprefix("/static/") for address in addresses if address.startswith("/static/")]
        assert len(files) == count
        assert all(finders.find(file) for file in files)

    def test_stand_in_the_frame_of_the_open_pages(self) -> None:
        pages = {path: Client().get(path).content.decode() for path in ("/docs/api", "/docs/api/chat")}
        (listed,), (part,) = (re.findall(r"<header .*?</header>", text, re.DOTALL) for text in pages.values())
        assert 'href="/docs/api" aria-current="page"' in listed
        assert part == listed.replace('aria-current="page"', 'aria-current="true"')
        assert "<title>API reference · Model gateway</title>" in pages["/docs/api"]
        assert "<title>Chat · API reference · Model gateway</title>" in pages["/docs/api/chat"]

    @pytest.mark.parametrize("path", ["/docs/api", "/docs/api/chat"])
    def test_forbid_the_browser_to(self, path: str) -> None:
        policy = Client().get(path).headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "http" not in policy
        assert "unsafe" not in policy

    @pytest.mark.parametrize("path", ["/docs/api", "/docs/api/chat", "/openapi.json"])
    @pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
    def test_are_read_alone(self, path: str, method: str) -> None:
        response = Client().generic(method, path)
        assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")
