"""Another password over the API: with proof of who asks, held to the rules, and nothing of the old one lives on."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.hashers import check_password

from apps.organizations.credentials.sessions import find_session, start_session
from apps.organizations.models import AuditEntry
from tests.support.cast import PASSWORD, World, signed_in

NEW = "nine blue lanterns"


def change(caller: Any, **body: str) -> Any:
    return caller.post("/auth/change-password", {"password": PASSWORD, "newPassword": NEW, **body})


def test_another_password_ends_every_session_and_begins_one(world: World) -> None:
    caller, elsewhere, strangers = signed_in(world.olivia), start_session(world.olivia), start_session(world.sam)
    answer = change(caller)
    assert (answer.status_code, answer.json()["message"]) == (200, "The password was changed")
    world.olivia.refresh_from_db()
    assert check_password(NEW, world.olivia.password)
    assert find_session(elsewhere) is None
    assert find_session(strangers) is not None
    assert caller.get("/auth/get-session").status_code == 401
    begun = find_session(answer.json()["token"])
    assert begun is not None
    assert begun.user == world.olivia
    taken = AuditEntry.objects.get(action="password.change", organization_id=world.acme.id)
    assert (taken.actor_id, taken.resource_id) == (world.olivia.id, str(world.olivia.id))
    assert NEW not in str(taken.details)


def test_without_proof_or_against_the_rules_nothing_changes(world: World) -> None:
    caller, elsewhere, before = signed_in(world.olivia), start_session(world.olivia), world.olivia.password
    told = [
        change(caller, password="not this one"),
        change(caller, newPassword="12345"),
        change(caller, newPassword="olivia@example.com"),
        caller.post("/auth/change-password", {"newPassword": NEW}),
    ]
    assert [one.status_code for one in told] == [401, 400, 400, 400]
    world.olivia.refresh_from_db()
    assert world.olivia.password == before
    assert find_session(elsewhere) is not None
    assert not AuditEntry.objects.filter(action="password.change").exists()


def test_guesses_are_counted_and_the_right_one_comes_too_late(world: World) -> None:
    caller, before = signed_in(world.olivia), world.olivia.password
    assert {change(caller, password="not this one").status_code for _ in range(10)} == {401}
    refused = change(caller)
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    world.olivia.refresh_from_db()
    assert world.olivia.password == before
