"""A tenant's provider that leads back here: the token in the request shows the loop and ends it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.client import http_request
from apps.gateway.upstream import open_exchange
from tests.gateway.access.test_custom_providers import MODEL, own
from tests.support.upstream import Caller, nothing_happened

__all__ = ["own"]
ELSEWHERE = "gw-" + "0f" * 12


@pytest.fixture(autouse=True)
def _forget() -> None:
    open_exchange.forget_addresses()


def hops_sent(caller: Caller, model: str, headers: dict[str, str] | None = None) -> str | None:
    """Return the hops that the provider's request stated."""
    tag = uuid4().hex
    assert caller.chat(f"hi [[sandbox tag={tag}]]", model=model, headers=headers or {}).status_code == 200
    (sent,) = caller.sent(tag)
    told: str | None = {name.lower(): value for name, value in sent["headers"].items()}.get("cdn-loop")
    return told


def test_a_request_that_comes_back_is_refused(caller: Caller, own: Any) -> None:
    told = hops_sent(caller, MODEL)
    assert told == http_request.own_token()
    response = caller.chat(model=MODEL, headers={"CDN-Loop": f"cloudflare; loops=1, {told}"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "loop_detected")
    assert "baseUrl leads back to it" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_it_is_refused_before_anything_is_held(caller: Caller, path: str) -> None:
    response = caller.client.post(
        path,
        {"model": "sandbox/echo", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}", "CDN-Loop": http_request.own_token()},
    )
    assert response.status_code == 400
    assert "passed through this gateway before" in response.json()["error"]["message"]
    assert nothing_happened(caller)


def test_a_circle_over_another_gateway_is_told_too(caller: Caller, own: Any) -> None:
    assert hops_sent(caller, MODEL, {"CDN-Loop": f"fastly, {ELSEWHERE}"}) == f"{ELSEWHERE}, {http_request.own_token()}"
    many = ", ".join(f"gw-{number:024x}" for number in range(http_request.MAX_HOPS + 1))
    response = caller.chat(model=MODEL, headers={"CDN-Loop": many})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "loop_detected")


def test_a_provider_of_the_catalog_is_told_nothing(caller: Caller) -> None:
    assert hops_sent(caller, "sandbox/echo", {"CDN-Loop": ELSEWHERE}) is None


def test_the_token_is_nobody_elses(settings: Any) -> None:
    ours = http_request.own_token()
    settings.SECRET_KEY = "another deployment's"
    assert http_request.own_token() != ours
    assert settings.SECRET_KEY not in http_request.own_token()
