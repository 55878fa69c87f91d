"""The route table: rows are found by method and path, parameters included, and no two rows are at one place."""

from __future__ import annotations

from typing import Any

import pytest

from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import Route, RouteTable
from gateway_project.routes import TABLE


def endpoint(request: Any) -> Any:
    """Do nothing."""


CREATE = Route("v1/things", endpoint, Family.OPENAI, "things", "POST")
READ = Route("v1/things/<str:thing_id>", endpoint, Family.OPENAI, method="GET")
DELETE = Route("v1/things/<str:thing_id>", endpoint, Family.OPENAI, method="DELETE")
GENERATE = Route("v1beta/models/<path:model>:generateContent", endpoint, Family.GOOGLE, "generate", "POST")
VIEW = Route("keys/<str:key_id>", endpoint, Family.MANAGEMENT)
UNKNOWN = {"v1": Family.ANTHROPIC}


def table(*rows: Route) -> RouteTable:
    """Return a table of the rows."""
    return RouteTable(rows, UNKNOWN, Family.LOGS)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/things", (CREATE, {})),
        ("GET", "/v1/things/a b", (READ, {"thing_id": "a b"})),
        ("DELETE", "/v1/things/x", (DELETE, {"thing_id": "x"})),
        ("POST", "/v1beta/models/openai/gpt-5:generateContent", (GENERATE, {"model": "openai/gpt-5"})),
        ("GET", "/v1/things", None),
        ("GET", "/v1/things/", None),
        ("GET", "/v1/things/a/b", None),
        ("POST", "/v1beta/models/:generateContent", None),
        ("POST", "/v1beta/models/x:generateContent/y", None),
        ("POST", "/v1beta/models/x:generateContent\n", None),
        ("GET", "/keys/x", None),
    ],
)
def test_a_model_endpoint_is_found_by_method_and_path(method: str, path: str, expected: object) -> None:
    assert table(CREATE, READ, DELETE, GENERATE, VIEW).find(method, path) == expected


API_VIEW = Route("v1/models/<path:model_id>", endpoint, Family.OPENAI)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/things", ["POST"]),
        ("/v1/things/x", ["GET", "DELETE", "HEAD"]),
        ("/v1beta/models/x:generateContent", ["POST"]),
        ("/v1", []),
        ("/v1/", []),
        ("/v1/things/", []),
        ("/v1/things/a/b", []),
        ("/v1beta/nothing", []),
        # Django decides about these.
        ("/v1/models/x", None),
        ("/keys/x", None),
        ("/v10/things", None),
        ("/nothing", None),
        ("/", None),
        ("", None),
    ],
)
def test_the_methods_of_a_path_of_the_model_apis_are_known(path: str, expected: list[str] | None) -> None:
    assert table(CREATE, READ, DELETE, GENERATE, VIEW, API_VIEW).methods(path) == expected


@pytest.mark.parametrize(
    "rows",
    [(CREATE, CREATE), (VIEW, VIEW), (READ, Route(READ.path, endpoint, Family.OPENAI))],
    ids=["model", "view", "both"],
)
def test_two_routes_at_one_place_are_refused(rows: tuple[Route, ...]) -> None:
    with pytest.raises(ValueError, match="the same path"):
        table(*rows)


def test_a_path_without_a_route_errs_as_the_routes_around_it() -> None:
    mixed = table(CREATE, Route("v1/other", endpoint, Family.GOOGLE, method="POST"), VIEW)
    assert [mixed.family_of(path) for path in ("/v1/things/x", "/v1/other/x/y", "/v1/x", "/keys", "/", "")] == [
        Family.OPENAI,
        Family.GOOGLE,
        Family.ANTHROPIC,
        Family.MANAGEMENT,
        Family.LOGS,
        Family.LOGS,
    ]


def test_every_model_route_that_admits_requests_has_a_rate_family() -> None:
    """A request of a route without one is never let in, nor counted: what counts no requests asks for nothing paid."""
    uncounted = {row.path for row in TABLE.rows if row.method == "POST" and row.rate_family is None}
    assert uncounted == {
        "v1/route/explain",
        "api/show",
        "v1/messages/count_tokens",
        "v1/responses/input_tokens",
        "v1/responses/<str:response_id>/cancel",
        "v1/conversations",
        "v1/conversations/<str:conversation_id>",
        "v1/conversations/<str:conversation_id>/items",
        "v1/files",
        "v1/uploads",
        "v1/uploads/<str:upload_id>/parts",
        "v1/uploads/<str:upload_id>/complete",
        "v1/uploads/<str:upload_id>/cancel",
        # Requests of tools to models and servers are counted.
        "mcp",
        "mcp/<str:server>",
        # Their lines are counted, one by one.
        "v1/batches",
        "v1/batches/<str:batch_id>/cancel",
        "v1/messages/batches",
        "v1/messages/batches/<str:batch_id>/cancel",
    }
