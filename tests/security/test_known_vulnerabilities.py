"""Tries known attacks on gateways on this one. Each test is named after the attack that it prevents.

Where the test is in another file, docs/security.md names it.
"""

from __future__ import annotations

import json

import pytest
from django.test import Client

from apps.keys.models import ApiKey
from apps.organizations.credentials.sessions import find_session, start_session
from apps.organizations.models import Membership, User
from tests.security.entry_points import METHODS, closed
from tests.support import model_routes
from tests.support.cast import PASSWORD, World, make_key, signed_in
from tests.support.cast import Caller as Client_
from tests.support.upstream import Caller

SQL = [
    "' OR 1=1 --",
    "'; DROP TABLE keys_apikey; --",
    "' UNION SELECT digest FROM keys_apikey --",
    'gw_dev_" OR ""="',
    "gw_dev_%",
    "gw_dev_" + "_" * 40,
    "gw_dev_\\",
]


def counts() -> tuple[int, int]:
    """Return how many keys and users there are."""
    return ApiKey.objects.count(), User.objects.count()


# --- identity


@pytest.mark.parametrize("token", SQL)
@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
@pytest.mark.parametrize("route", model_routes.ROUTES)
def test_sql_in_an_api_key_is_an_unknown_key(caller: Caller, route: str, header: str, token: str) -> None:
    """CVE-2026-42208, PYSEC-2026-1550: a key that is looked up as a part of a statement."""
    before = counts()
    value = f"Bearer {token}" if header == "authorization" else token
    body = json.dumps(model_routes.body_of(route))
    headers = {header: value}
    answer = Client().generic("POST", model_routes.PATHS[route], body, content_type="application/json", headers=headers)
    assert answer.status_code == 401
    assert counts() == before


@pytest.mark.parametrize("text", SQL)
def test_sql_in_an_id_is_an_unknown_id(world: World, text: str) -> None:
    """CVE-2025-45809: the same in management."""
    before = counts()
    olivia = signed_in(world.olivia)
    for path in ("/keys/api/", "/projects/", "/organization/", "/logs/"):
        answer = olivia.send(
            "PATCH" if path != "/logs/" else "GET", path + text.replace("%", "%25"), {"status": "inactive"}
        )
        assert answer.status_code in {404, 405}, (path, answer.content)
    assert counts() == before
    assert set(ApiKey.objects.values_list("status", flat=True)) <= {"active"}


def test_keys_that_begin_alike_are_different_keys(caller: Caller) -> None:
    """CVE-2026-35030: a cache keyed by the beginning of a token takes one caller for another."""
    assert caller.chat().status_code == 200  # Now the worker knows the key.
    for other in (caller.token[:-1], caller.token[:-1] + "~", caller.token + "x", caller.token[:20] + "0" * 27):
        answer = caller.chat(headers={"Authorization": f"Bearer {other}"})
        assert answer.status_code == 401


def test_sessions_that_begin_alike_are_different_people(world: World) -> None:
    """CVE-2026-35030, for people."""
    session = start_session(world.dana)
    found = find_session(session)
    assert found is not None
    assert found.user == world.dana
    assert find_session(session[:-1] + ("0" if session[-1] != "0" else "1")) is None
    assert find_session(session[:20]) is None


def test_what_is_stored_of_a_credential_is_no_credential(world: World) -> None:
    """GHSA-69x8-hrgq-fjj8: digests that came back from the API were taken for passwords."""
    key, _ = make_key(world.dana, world.project)
    session = start_session(world.dana)
    found = find_session(session)
    assert found is not None
    stored = [key.digest if isinstance(key.digest, str) else bytes(key.digest).hex(), found.digest]
    for text in stored:
        assert Client_(text).get("/organization").status_code == 401
        assert Client_(text).get("/logs").status_code == 401
    words = {"email": world.dana.email, "password": world.dana.password}
    assert Client_().post("/auth/sign-in/email", words).status_code == 401
    assert Client_().post("/auth/sign-in/email", {**words, "password": PASSWORD}).status_code == 200


def test_no_answer_shows_a_digest_or_a_password(world: World) -> None:
    """GHSA-69x8-hrgq-fjj8: no answer contains a stored digest or password."""
    key, _ = make_key(world.olivia, world.project)
    olivia = signed_in(world.olivia)
    digest = key.digest if isinstance(key.digest, str) else bytes(key.digest).hex()
    for path in ("/organization", "/keys/api", f"/keys/api?projectId={world.project.id}", "/auth/get-session"):
        text = olivia.get(path).content.decode()
        assert digest not in text
        assert world.olivia.password not in text
        assert world.olivia.password.partition("$")[0] + "$" not in text


# --- doors


# The path of a model in Google's format may be read without a key, but a request to it needs one.
GENERATE = "/v1beta/models/echo:generateContent"


@pytest.mark.parametrize("path", [*closed(), GENERATE])
def test_no_door_opens_without_a_key(db: None, path: str) -> None:
    """CVE-2026-12795, CVE-2026-59822: a route that forgot to ask; an invalid key that stands for an empty caller."""
    credentials: list[dict[str, str]] = [
        {},
        {"authorization": "Bearer "},
        {"authorization": "Bearer nobody"},
        {"authorization": "Bearer gw_dev_" + "x" * 40},
        {"x-api-key": "gw_dev_" + "x" * 40},
        {"authorization": "Basic b2xpdmlhOng="},
    ]
    for headers in credentials:
        for method in ["POST"] if path == GENERATE else METHODS:
            data = b'{"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}]}'
            answer = Client().generic(method, path, data, content_type="application/json", headers=headers)
            assert answer.status_code in {401, 405}, (method, path, headers, answer.content)


HOSTS = [
    {"host": "localhost"},
    {"host": "127.0.0.1:8000"},
    {"x-forwarded-host": "admin"},
    {"x-original-url": "/"},
    {"x-rewrite-url": "/v1/models"},
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-prefix": "/v1/models"},
    {"forwarded": "for=127.0.0.1;host=localhost"},
    {"x-http-method-override": "GET"},
]


@pytest.mark.parametrize("headers", HOSTS, ids=[next(iter(one)) for one in HOSTS])
def test_no_host_or_forwarding_header_opens_a_door(caller: Caller, headers: dict[str, str]) -> None:
    """CVE-2026-49468: who may enter was decided by the Host header."""
    for path in ("/organization", "/logs", "/keys/api", "/activity"):
        assert Client().get(path, headers=headers).status_code == 401
    for route in model_routes.ROUTES:
        body = json.dumps(model_routes.body_of(route))
        answer = Client().generic(
            "POST", model_routes.PATHS[route], body, content_type="application/json", headers=headers
        )
        assert answer.status_code == 401


def test_no_host_but_ours_is_answered(caller: Caller) -> None:
    """CVE-2026-49468: the Host header is checked against ALLOWED_HOSTS before any other decision."""
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example"):
        answer = caller.client.get("/organization", headers={"host": host})
        assert answer.status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in closed()
        if not f"{path}/".startswith(("/v1", "/v2", "/api/", "/logs", "/activity", "/mcp/", "/model/"))
    ],
)
def test_an_api_key_manages_nothing(caller: Caller, path: str) -> None:
    """CVE-2025-0628, CVE-2026-47101, CVE-2026-35029: a key that is good for more than requests to models."""
    headers = {"Authorization": f"Bearer {caller.token}"}
    for method in METHODS:
        answer = caller.client.generic(method, path, b"{}", content_type="application/json", headers=headers)
        assert answer.status_code in {401, 405}, (method, answer.content)


def test_a_developer_makes_no_administrator_and_no_owner(world: World) -> None:
    """CVE-2025-0628, CVE-2026-47101: a member grants rights beyond their own."""
    dana, path = signed_in(world.dana), f"/organization/{world.acme.id}"
    before = counts()
    for role in ("developer", "admin", "owner"):
        assert dana.post(f"{path}/members", {"email": "sam@example.com", "role": role}).status_code == 403
    assert dana.send("PATCH", path, {"name": "Dana's"}).status_code == 403
    assert dana.send("PUT", f"/guardrails/config/{world.acme.id}", {"enabled": False}).status_code == 403
    assert counts() == before
    assert Membership.objects.filter(organization=world.acme).count() == 3


def test_a_field_that_nobody_asked_for_raises_nobody(world: World) -> None:
    """CVE-2026-35029: columns set by their names in a body."""
    more = {
        "is_staff": True,
        "is_superuser": True,
        "isStaff": True,
        "role": "owner",
        "credits": "1000",
        "plan": "enterprise",
    }
    words = {"name": "Eve", "email": "eve@example.com", "password": PASSWORD, **more}
    answer = Client_().post("/auth/sign-up/email", words)
    assert answer.status_code in {200, 400, 403}
    for user in User.objects.filter(email="eve@example.com"):
        assert (user.is_staff, user.is_superuser) == (False, False)
    olivia = signed_in(world.olivia)
    olivia.send("PATCH", f"/organization/{world.acme.id}", {"name": "Acme", **more})
    world.acme.refresh_from_db()
    assert (world.acme.credits, world.acme.plan) == (0, "free")


def test_a_session_ends_with_its_sign_out(world: World) -> None:
    """CVE-2026-12772: sessions that outlive their end."""
    dana = signed_in(world.dana)
    assert dana.get("/organization").status_code == 200
    assert dana.post("/auth/sign-out").status_code == 200
    assert dana.get("/organization").status_code == 401
