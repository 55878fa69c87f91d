"""Descriptions of clients: whose address is fetched, for whom, and what of an answer is believed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
import responses
from django.core.cache import cache
from django.test import Client as Web
from django.utils import timezone

from apps.keys import ssrf_guard
from apps.oauth import registration
from apps.oauth.models import Consent, OAuthClient
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit
from tests.support.cast import World
from tests.support.console_client import Visitor, words
from tests.support.oauth_client import Program, query_of

URL = "https://client.example.com/program.json"
CALLBACK = "https://client.example.com/callback"


def described(**more: Any) -> dict[str, Any]:
    return {"client_id": URL, "client_name": "Described", "redirect_uris": [CALLBACK], **more}


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The internet: `client.example.com` is at a public address, other names at one of this machine's own networks."""
    monkeypatch.setattr(
        ssrf_guard,
        "_resolve",
        lambda host, port, owner: ["93.184.216.34" if host == "client.example.com" else "10.0.0.7"],
    )
    with responses.RequestsMock(assert_all_requests_are_fired=False) as mock:
        yield mock


def open_page(world: World, client_id: str = URL) -> Any:
    return Visitor(world.dana).client.get(Program(CALLBACK, client_id).authorization())


def test_a_described_program_signs_in_and_is_fetched_once(world: World, web: Any) -> None:
    web.get(URL, json=described(), headers={"Cache-Control": "max-age=600"})
    program = Program(CALLBACK, URL)
    page = words(open_page(world))
    assert "Allow Described to use this gateway?" in page
    assert "its description at client.example.com" in page
    answer = program.allowed_by(world.dana, world.project)
    assert program.exchange(query_of(answer)["code"]).status_code == 200
    assert len(web.calls) == 1
    assert Consent.objects.get().client.client_id == URL


def test_nobody_who_is_not_signed_in_has_anything_fetched(world: World, web: Any) -> None:
    web.get(URL, json=described())
    program = Program(CALLBACK, URL)
    assert Web().get(program.authorization()).status_code == 302
    assert program.exchange("x").json()["error"] == "invalid_client"
    assert program.refresh("x").json()["error"] == "invalid_client"
    assert (len(web.calls), OAuthClient.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    "address",
    [
        "https://inside.example.com/program.json",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/program.json",
        "https://127.0.0.1/program.json",
        "https://client.example.com:22/program.json",
        "https://user:pw@client.example.com/program.json",
        "http://client.example.com/program.json",
        "https://client.example.com/a/../program.json",
        "https://client.example.com",
    ],
)
def test_no_address_of_the_inside_is_fetched(
    world: World, monkeypatch: pytest.MonkeyPatch, web: Any, address: str
) -> None:
    inside = {"169.254.169.254": "169.254.169.254", "::1": "::1", "127.0.0.1": "127.0.0.1"}
    monkeypatch.setattr(
        ssrf_guard,
        "_resolve",
        lambda host, port, owner: [inside.get(host, "93.184.216.34" if host == "client.example.com" else "10.0.0.7")],
    )
    answer = open_page(world, address)
    assert (answer.status_code, "Location" in answer) == (400, False)
    assert (len(web.calls), OAuthClient.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    "document",
    [
        described(client_id="https://client.example.com/another.json"),
        described(redirect_uris=["javascript:alert(1)"]),
        described(redirect_uris=["https://a.example/#x"]),
        described(redirect_uris=[f"https://a.example/{n}" for n in range(21)]),
        described(client_secret="x"),
        described(client_name="x" * 101),
        described(grant_types=["client_credentials"]),
        ["no object"],
    ],
    ids=lambda value: str(len(str(value))),
)
def test_a_bad_description_makes_no_client(world: World, web: Any, document: Any) -> None:
    web.get(URL, json=document)
    assert open_page(world).status_code == 400
    assert OAuthClient.objects.count() == 0


def test_answers_are_bounded_and_lead_nowhere_else(world: World, web: Any) -> None:
    for more in (
        {"body": json.dumps(described(x="y" * 20_000)), "content_type": "application/json"},
        {"body": json.dumps(described()), "content_type": "text/html"},
        {"status": 302, "headers": {"Location": "http://169.254.169.254/"}},
    ):
        web.reset()
        web.get(URL, **more)
        # A refusal is remembered for a while; each of these is another address.
        assert open_page(world).status_code == 400
        assert len(web.calls) <= 1
        cache.clear()
    assert OAuthClient.objects.count() == 0


def test_a_description_that_is_old_is_read_again_and_a_failure_keeps_the_last(world: World, web: Any) -> None:
    web.get(URL, json=described())
    open_page(world)
    OAuthClient.objects.update(cimd_expires_at=timezone.now() - timedelta(seconds=1))
    web.reset()
    web.get(URL, status=500)
    assert open_page(world).status_code == 200
    web.reset()
    cache.clear()
    web.get(URL, json=described(redirect_uris=["https://client.example.com/moved"]))
    assert open_page(world).status_code == 400
    assert OAuthClient.objects.get().redirect_uris == "https://client.example.com/moved"


def test_where_descriptions_are_off_programs_are_told_to_register(world: World, web: Any, settings: Any) -> None:
    web.get(URL, json=described())
    open_page(world)
    known = OAuthClient.objects.get().client_id
    settings.OAUTH_CLIENT_DOCUMENTS = False
    said = Web().get("/.well-known/oauth-authorization-server").json()
    assert (said["client_id_metadata_document_supported"], "registration_endpoint" in said) == (False, True)
    # Neither one that was read before, nor a new one, which is not even fetched.
    for address in (known, "https://client.example.com/new.json"):
        assert open_page(world, address).status_code == 400
    assert (len(web.calls), OAuthClient.objects.count()) == (1, 1)


def test_a_flood_of_new_descriptions_is_told_when_to_come_back(
    world: World, web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "DESCRIBED_PER_ADDRESS", AttemptLimit("oauth-describe:address", 2, 600))
    web.get(URL, json=described())
    for address in (URL, "https://client.example.com/2.json", "https://client.example.com/3.json"):
        last = open_page(world, address)
    assert last.status_code == 429
    assert len(web.calls) == 2
    # One that is known is not asked for.
    assert open_page(world).status_code == 200
    assert len(web.calls) == 2
