"""Calls to the outside in management: so many a minute for an organization, and a few at a time; others go on."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import responses

from apps.kernel.errors import RateLimited
from apps.keys.models import ProviderKey
from apps.log_sinks.models import LogSink
from apps.mcp_servers.models import McpServer
from apps.organizations import outside_calls
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit
from apps.organizations.models import Plan
from apps.organizations.outside_calls import AT_ONCE, outside_call
from tests.log_sinks.sinks import SECRET
from tests.support.cast import Caller, World, signed_in

PUBLIC = "https://93.184.215.14"


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls a minute."""
    monkeypatch.setattr(outside_calls, "PER_ORGANIZATION", AttemptLimit(f"outside:{uuid4()}", 2))


@pytest.fixture
def adam(world: World) -> Caller:
    world.acme.plan = Plan.PRO
    world.acme.save()
    return signed_in(world.adam)


def bodies(world: World) -> dict[str, dict[str, Any]]:
    """Return what registers an address, by the path that it is sent to."""
    whose = {"organizationId": str(world.acme.id)}
    key = {"provider": "custom", "providerName": "own", "baseUrl": f"{PUBLIC}/v1", "token": "sk-of-acme"}
    return {
        "/mcp-servers?validate=false": {**whose, "name": "tickets", "url": f"{PUBLIC}/mcp"},
        "/log-sinks": {**whose, "name": "archive", "kind": "webhook", "url": f"{PUBLIC}/hook", "secret": SECRET},
        "/keys/provider?validate=false": {**whose, **key},
    }


@pytest.mark.parametrize("path", ["/mcp-servers?validate=false", "/log-sinks", "/keys/provider?validate=false"])
def test_beyond_its_rate_an_organization_has_no_address_looked_up_and_nothing_kept(
    world: World, adam: Caller, few: None, path: str
) -> None:
    body = bodies(world)[path]
    name = "providerName" if "providerName" in body else "name"
    answers = [adam.post(path, {**body, name: f"name-{number}"}) for number in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429], answers[-1].content
    assert 0 < int(answers[2].headers["Retry-After"]) <= 60
    kept = McpServer.objects.count() + LogSink.objects.count() + ProviderKey.objects.count()
    assert kept == 2


def test_a_live_check_counts_once_and_is_not_made_beyond_the_rate(world: World, adam: Caller, few: None) -> None:
    body = bodies(world)["/keys/provider?validate=false"]
    with responses.RequestsMock(assert_all_requests_are_fired=False) as web:
        web.get(f"{PUBLIC}/v1/models", json={"data": []})
        answers = [adam.post("/keys/provider", {**body, "providerName": f"own-{number}"}) for number in range(3)]
        assert ([answer.status_code for answer in answers], len(web.calls)) == ([200, 200, 429], 2)


def test_an_organization_has_a_few_under_way_and_others_have_theirs(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside_calls, "_PATIENCE", 0.0)
    ours, theirs = uuid4(), uuid4()
    held = [outside_call(theirs) for _ in range(AT_ONCE)]
    for one in held:
        one.__enter__()
    with pytest.raises(RateLimited) as refused, outside_call(theirs):
        pass
    assert refused.value.message.startswith("More than 4 addresses are being asked for this organization")
    with outside_call(ours):
        pass
    for one in held:
        one.__exit__(None, None, None)
    with outside_call(theirs):
        pass
