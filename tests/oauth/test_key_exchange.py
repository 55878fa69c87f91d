"""A program is given an API key: the page, the code, the exchange, and thieves of it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from django.test import Client as Web
from django.utils import timezone

from apps.kernel.rest.routes import route_table
from apps.keys.authenticate import find_api_key, works
from apps.keys.models import ApiKey
from apps.oauth.models import KeyCode
from apps.organizations.models import AuditEntry
from tests.support.cast import World
from tests.support.console_client import Visitor, words
from tests.support.oauth_client import challenge_of, query_of, send_form

CALLBACK = "https://app.example.com/done?from=gateway"
VERIFIER = "v" * 64


def asked(**changed: str) -> str:
    said = {"callback_url": CALLBACK, "code_challenge": challenge_of(VERIFIER), "code_challenge_method": "S256"}
    return "/oauth/key?" + urlencode({**said, **changed})


def allowed(world: World, **fields: str) -> Any:
    sent = {"decision": "allow", "projectId": str(world.project.id), "budget": "7.5", "period": "all", **fields}
    return send_form(Visitor(world.dana).client, asked(), sent)


def exchange(code: str, verifier: str = VERIFIER) -> Any:
    body = {"code": code, "code_verifier": verifier, "code_challenge_method": "S256"}
    return Web().post("/v1/auth/keys", body, content_type="application/json")


def test_a_program_is_given_a_key_with_the_budget(world: World) -> None:
    led = Web().get(asked().replace("/oauth/key", "/auth"))
    assert (led.status_code, led["Location"]) == (302, asked())
    page = words(Visitor(world.dana).client.get(asked()))
    assert "Give an API key to app.example.com?" in page
    answer = allowed(world)
    assert answer["Location"].startswith("https://app.example.com/done?from=gateway&code=gw_code_")
    made = exchange(query_of(answer)["code"])
    assert made.status_code == 200
    assert made.json()["user_id"] == str(world.dana.id)
    key = find_api_key(made.json()["key"])
    assert key is not None
    assert works(key)
    assert (key.created_by, key.project, key.usage_limit) == (world.dana, world.project, Decimal("7.5"))
    assert key.description == "Given to app.example.com"
    told = AuditEntry.objects.filter(action__in=("key_code.give", "api_key.create")).values_list(
        "actor_email", "action"
    )
    assert set(told) == {("dana@example.com", "key_code.give"), ("dana@example.com", "api_key.create")}


def test_openrouters_path_is_the_same_one() -> None:
    canonical = route_table().canonical("/api/v1/auth/keys")
    assert canonical is not None
    assert canonical.path == "/v1/auth/keys"


def test_a_stolen_code_is_nothing_without_its_verifier(world: World) -> None:
    code = query_of(allowed(world))["code"]
    for verifier in ("w" * 64, "", "v" * 63, "v" * 200, challenge_of(VERIFIER), "\x00" * 64):
        assert exchange(code, verifier).status_code in {400, 403}
    assert exchange(KeyCode.objects.get().code).status_code == 403
    assert ApiKey.objects.count() == 0
    assert exchange(code).status_code == 200


def test_a_code_that_comes_twice_ends_the_key(world: World) -> None:
    code = query_of(allowed(world))["code"]
    key = find_api_key(exchange(code).json()["key"])
    again = exchange(code)
    assert (again.status_code, again.json()["error"]["code"]) == (403, "bad_code")
    assert key is not None
    key.refresh_from_db()
    assert key.status == ApiKey.Status.DELETED
    assert ApiKey.objects.count() == 1


def test_an_old_code_is_none(world: World) -> None:
    code = query_of(allowed(world))["code"]
    KeyCode.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert exchange(code).status_code == 403
    assert ApiKey.objects.count() == 0


def test_who_was_switched_off_since_gives_nothing(world: World) -> None:
    code = query_of(allowed(world))["code"]
    world.dana.is_active = False
    world.dana.save()
    assert exchange(code).status_code == 403
    assert ApiKey.objects.count() == 0


def test_who_refuses_gives_nothing(world: World) -> None:
    answer = allowed(world, decision="refuse")
    assert answer["Location"] == "https://app.example.com/done?from=gateway&error=access_denied"
    assert (KeyCode.objects.count(), ApiKey.objects.count()) == (0, 0)


def test_hostile_requests_lead_nowhere(world: World) -> None:
    visitor = Visitor(world.dana)
    for changed in (
        {"callback_url": "javascript:alert(1)"},
        {"callback_url": "https://u@app.example.com/"},
        {"callback_url": "http://app.example.com/"},
        {"callback_url": ""},
        {"code_challenge": "x"},
        {"code_challenge_method": "plain"},
    ):
        for answer in (
            visitor.client.get(asked(**changed)),
            send_form(visitor.client, asked(**changed), {"decision": "refuse"}),
        ):
            assert (answer.status_code, "Location" in answer) == (400, False), changed
    assert KeyCode.objects.count() == 0
