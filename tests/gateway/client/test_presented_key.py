"""A request's API key: in which headers it is looked for, and where in the query too."""

from __future__ import annotations

from typing import Any

import pytest

from apps.gateway.client.http_request import ClientRequest
from apps.kernel.errors import Unauthenticated
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import Route


def request_of(family: Family, **environ: str) -> ClientRequest:
    """Return a request to a route of a family."""
    route: Any = Route("v1/things", None, family, "things", "POST")
    return ClientRequest(environ, route)


@pytest.mark.parametrize("family", [Family.OPENAI, Family.ANTHROPIC, Family.GOOGLE])
@pytest.mark.parametrize("header", ["HTTP_X_API_KEY", "HTTP_API_KEY", "HTTP_X_GOOG_API_KEY"])
def test_every_kind_of_header_is_read_on_every_route(family: Family, header: str) -> None:
    assert request_of(family, **{header: "gw_dev_x"}).presented_key == "gw_dev_x"
    assert request_of(family, HTTP_AUTHORIZATION="Bearer gw_dev_x").presented_key == "gw_dev_x"


def test_the_query_is_read_on_routes_of_google_alone() -> None:
    assert request_of(Family.GOOGLE, QUERY_STRING="alt=sse&key=gw_dev_x").presented_key == "gw_dev_x"
    for family in (Family.OPENAI, Family.ANTHROPIC):
        with pytest.raises(Unauthenticated, match="Missing or invalid API key"):
            _ = request_of(family, QUERY_STRING="alt=sse&key=gw_dev_x").presented_key


def test_a_query_that_names_another_key_than_a_header_is_refused() -> None:
    request = request_of(Family.GOOGLE, QUERY_STRING="key=gw_dev_x", HTTP_AUTHORIZATION="Bearer gw_dev_y")
    with pytest.raises(Unauthenticated, match="Authorization and key carry different keys"):
        _ = request.presented_key
