"""Service accounts: members for programs, whose API keys survive people."""

from __future__ import annotations

from typing import Any

import pytest

from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.organizations.actions import remove_member
from apps.organizations.models import AuditEntry, Membership, ServiceAccount, User
from apps.organizations.teams import actions
from tests.api.test_permissions import state
from tests.organizations.teams.cast import make_teams
from tests.support.cast import PASSWORD, Caller, World, signed_in


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


def base(world: World) -> str:
    return f"/organization/{world.acme.id}/service-accounts"


def create_key(caller: Caller, world: World, account: object) -> Any:
    body = {"description": "shop", "projectId": str(world.project.id), "serviceAccountId": str(account)}
    return caller.post("/keys/api", body)


def test_an_account_is_created_listed_changed_and_deleted_with_its_keys(world: World, adam: Caller) -> None:
    created = adam.post(base(world), {"name": "Web shop"})
    assert created.status_code == 200, created.content
    account = ServiceAccount.objects.get()
    shown = created.json()["serviceAccount"]
    assert {name: value for name, value in shown.items() if name not in {"createdAt", "updatedAt"}} == {
        "id": str(account.id),
        "organizationId": str(world.acme.id),
        "userId": str(account.account_id),
        "name": "Web shop",
        "teamId": None,
    }
    assert adam.get(base(world)).json() == {"serviceAccounts": [shown]}
    key = create_key(adam, world, account.id).json()["apiKey"]
    assert (key["createdBy"], key["creator"]["name"]) == (str(account.account_id), "Web shop")
    renamed = adam.send("PATCH", f"{base(world)}/{account.id}", {"name": "Shop"}).json()["serviceAccount"]
    assert (renamed["name"], User.objects.get(pk=account.account_id).name) == ("Shop", "Shop")
    deleted = adam.send("DELETE", f"{base(world)}/{account.id}", {})
    assert deleted.json() == {"message": "Service account deleted", "revokedApiKeys": 1}
    assert ApiKey.objects.get().status == ApiKey.Status.DELETED
    assert adam.get(base(world)).json() == {"serviceAccounts": []}
    assert adam.send("DELETE", f"{base(world)}/{account.id}", {}).status_code == 404
    assert create_key(adam, world, account.id).status_code == 400
    # Its name is free again.
    assert adam.post(base(world), {"name": "Shop"}).status_code == 200
    entries = AuditEntry.objects.filter(resource_type="service_account").order_by("id")
    assert [one.action for one in entries] == [
        *("service_account.create", "service_account.update", "service_account.delete", "service_account.create"),
    ]


def test_its_keys_survive_the_person_who_created_them(world: World, adam: Caller) -> None:
    account = actions.create_service_account(organization=world.acme, name="Web shop")
    assert create_key(adam, world, account.id).status_code == 200
    remove_member(membership=Membership.objects.get(organization=world.acme, user=world.adam))
    key = ApiKey.objects.get()
    assert key.status == ApiKey.Status.ACTIVE
    rotated = signed_in(world.olivia).post(f"/keys/api/{key.id}/rotate").json()["apiKey"]
    assert rotated["createdBy"] == str(account.account_id)


def test_it_does_not_sign_in_and_is_no_member(world: World, adam: Caller) -> None:
    account = actions.create_service_account(organization=world.acme, name="Web shop")
    email = account.account.email
    assert Caller().post("/auth/sign-in/email", {"email": email, "password": PASSWORD}).status_code == 401
    members = adam.get(f"/organization/{world.acme.id}/members").json()["members"]
    assert {one["email"] for one in members} == {f"{name}@example.com" for name in ("olivia", "adam", "dana")}
    added = adam.post(f"/organization/{world.acme.id}/members", {"email": email, "role": "owner"})
    assert added.status_code in {403, 404}
    assert not Membership.objects.filter(user=account.account).exists()


def test_leads_create_keys_for_accounts_of_their_teams(world: World) -> None:
    teams = make_teams(world)
    account = actions.create_service_account(organization=world.acme, name="Crawler", team_id=str(teams.search.id))
    free = actions.create_service_account(organization=world.acme, name="Web shop")
    for user, wanted, status in (
        (world.dana, account, 200),
        (world.adam, account, 200),
        (world.adam, free, 200),
        (world.dana, free, 403),
        (teams.sven, account, 403),
        (teams.tom, account, 403),
    ):
        caller = signed_in(user)
        before = state()
        answer = create_key(caller, world, wanted.id)
        assert answer.status_code == status, (user, answer.content)
        assert (state() == before) == (status != 200)
    assert [one["name"] for one in signed_in(world.dana).get(base(world)).json()["serviceAccounts"]] == ["Crawler"]
    assert signed_in(teams.sven).get(base(world)).json() == {"serviceAccounts": []}
    assert signed_in(teams.tom).get(base(world)).status_code == 403


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "Taken"}, "name"),
        ({"name": "New", "teamId": "nonsense"}, "teamId"),
        ({"name": "New", "teamId": str(new_id())}, "teamId"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_created(
    world: World, adam: Caller, body: dict[str, Any], path: str
) -> None:
    actions.create_service_account(organization=world.acme, name="Taken")
    before = state()
    answer = adam.post(base(world), body)
    assert (answer.status_code, [issue["path"] for issue in answer.json()["issues"]]) == (400, [path])
    assert state() == before


def test_an_unknown_account_is_named(world: World, adam: Caller) -> None:
    other = actions.create_service_account(organization=world.elsewhere, name="Theirs")
    for identifier in (other.id, new_id(), "nonsense"):
        answer = create_key(adam, world, identifier)
        assert (answer.status_code, answer.json()["issues"]) == (
            400,
            [{"path": "serviceAccountId", "message": "Must be the id of a service account of this organization"}],
        )
    assert not ApiKey.objects.exists()


def test_a_limit_of_a_member_may_be_of_a_service_account(world: World, adam: Caller) -> None:
    account = actions.create_service_account(organization=world.acme, name="Web shop")
    body = {"organizationId": str(world.acme.id), "name": "Shop", "scope": "member", "counts": "usd", "window": "day"}
    made = adam.post("/limits", {**body, "amount": "5", "scopeId": str(account.account_id)})
    assert (made.status_code, made.json()["limit"]["scopeId"]) == (200, str(account.account_id))
    refused = adam.post("/limits", {**body, "name": "Other", "amount": "5", "scopeId": str(world.sam.id)})
    assert refused.status_code == 400
