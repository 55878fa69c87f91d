"""Management keys: what a program may do with one at each endpoint, and when it stops working."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.utils import timezone
from knox.models import AuthToken

from apps.keys.models import ApiKey
from apps.organizations.actions import remove_member
from apps.organizations.credentials import management_keys
from apps.organizations.credentials.management_scopes import SCOPES, scope_for
from apps.organizations.deletion import erase_deleted, request_deletion
from apps.organizations.models import AuditEntry, ManagementKey, ManagementScope, Membership, Organization, Role, User
from gateway_project.routes import TABLE
from tests.api.test_permissions import ROWS, Row, cards, send, state, things
from tests.stack.product import PROJECT
from tests.support.cast import PASSWORD, Caller, World, make_key, make_management_key, signed_in
from tests.support.mcp_stand_in import _mcp_server, mcp_server
from tests.support.own_servers import own_server
from tests.support.sink_receiver import _receiver, receiver

__all__ = ["_mcp_server", "_receiver", "cards", "mcp_server", "own_server", "receiver", "things"]
PERSON = "A management key cannot do this: a person has to sign in; docs/management-keys.md lists what keys can do"
_ROW = re.compile(r"^\| (GET|POST|PUT|PATCH|DELETE) \| `/([^`]*)` \| `(\w+)` \|$", re.MULTILINE)


def path(world: World, rest: str = "") -> str:
    return f"/organization/{world.acme.id}/management-keys{rest}"


def test_the_guide_has_the_table_of_scopes_and_every_route_exists() -> None:
    shown = [(method, route, scope) for method, route, scope in _ROW.findall(_guide())]
    named = [
        (method, re.sub(r"<\w+:(\w+)>", _camel, route), scope)
        for route, methods in SCOPES.items()
        for method, scope in methods.items()
    ]
    assert shown == named
    assert {route.path for route in TABLE.rows} >= set(SCOPES)


def _guide() -> str:
    return (PROJECT / "docs" / "management-keys.md").read_text()


def _camel(found: re.Match[str]) -> str:
    first, *rest = found[1].split("_")
    return "{" + first + "".join(word.title() for word in rest) + "}"


def _is_open_to_keys(row: Row) -> bool:
    """Return whether a key could come as far as its scope: keys of an organization to be deleted are refused before."""
    return "<registration>" not in row.body.values() and not row.route.endswith("cancel-deletion")


@pytest.mark.parametrize("row", [row for row in ROWS if _is_open_to_keys(row)], ids=str)
def test_a_key_may_do_what_its_scope_says_and_nothing_else(world: World, things: dict[str, str], row: Row) -> None:
    needed = scope_for(row.route, row.method)
    others = [scope for scope in ManagementScope if scope != needed]
    without = Caller(make_management_key(world.olivia, world.acme, *others).token)
    # The use of a key is noted once in five minutes.
    without.get("/organization")
    before, recorded = state(), AuditEntry.objects.count()
    response = send(without, row, things)
    assert response.status_code == 403
    if needed is None:
        assert response.json() == {"message": PERSON}
    else:
        assert response.json()["message"].startswith(f"This needs a management key with the scope `{needed}`; yours")
    assert state() == before
    assert AuditEntry.objects.count() == recorded
    if needed is None:
        return
    made = make_management_key(world.olivia, world.acme, needed)
    response = send(Caller(made.token), row, things)
    # As an admin: what only an owner may do stays refused.
    assert response.status_code == (row.success if "adam" in row.may else 403), response.content
    newest = AuditEntry.objects.order_by("-id")[0]
    if AuditEntry.objects.count() > recorded + 1:
        assert (newest.actor_type, newest.actor_id) == ("key", made.key.account_id)
        assert str(newest.actor_email).startswith("terraform.")


def test_a_key_sees_and_changes_its_own_organization_alone(world: World) -> None:
    elsewhere = make_key(world.sam, world.elsewhere_project).key
    caller = Caller(make_management_key(world.olivia, world.acme, *ManagementScope).token)
    assert [one["name"] for one in caller.get("/organization").json()["organizations"]] == ["Acme"]
    before = state()
    for response in (
        caller.get(f"/organization/{world.elsewhere.id}/projects"),
        caller.send("PATCH", f"/projects/{world.elsewhere_project.id}", {"name": "Taken"}),
        caller.send("DELETE", f"/keys/api/{elsewhere.id}", {}),
        caller.post("/keys/api", {"description": "mine", "projectId": str(world.elsewhere_project.id)}),
        caller.get("/logs", orgId=str(world.elsewhere.id)),
    ):
        assert response.status_code == 403, response.content
    assert state() == before


@pytest.mark.parametrize("path", ["/logs", "/logs/unique-models", "/logs/sessions", "/logs/export?format=csv"])
def test_the_log_needs_its_scope(world: World, path: str) -> None:
    assert Caller(make_management_key(world.olivia, world.acme, "logs").token).get(path).status_code == 200
    refused = Caller(make_management_key(world.olivia, world.acme, "read").token).get(path)
    assert refused.status_code == 403
    assert "This needs a management key with the scope `logs`; yours has `read`" in refused.content.decode()
    assert Caller("gw_mgmt_" + "0" * 40).get(path).status_code == 401


def test_its_account_is_no_member_to_people_and_cannot_sign_in(world: World) -> None:
    made = make_management_key(world.olivia, world.acme, "read")
    olivia, account = signed_in(world.olivia), made.key.account
    listed = olivia.get(f"/organization/{world.acme.id}/members").json()["members"]
    assert {one["email"] for one in listed} == {"olivia@example.com", "adam@example.com", "dana@example.com"}
    membership = Membership.objects.get(user=account)
    for method in ("PATCH", "DELETE"):
        answer = olivia.send(method, f"/organization/{world.acme.id}/members/{membership.id}", {"role": "owner"})
        assert (answer.status_code, answer.json()) == (404, {"message": "Member not found"})
    assert (account.is_active, account.has_usable_password(), membership.role) == (False, False, "admin")
    answer = Caller().post("/auth/sign-in/email", {"email": account.email, "password": PASSWORD})
    assert answer.status_code == 401
    Caller().post("/auth/request-password-reset", {"email": account.email})
    assert User.objects.get(pk=account.pk).password_reset_wanted_at is None
    assert signed_in(world.sam).post(
        f"/organization/{world.elsewhere.id}/members", {"email": account.email, "role": "admin"}
    ).status_code in {403, 404}
    assert Membership.objects.filter(user=account).count() == 1


class TestItStopsWorking:
    def ask(self, token: str) -> int:
        return int(Caller(token).get("/organization").status_code)

    def test_when_it_is_revoked_and_what_it_made_stays(self, world: World) -> None:
        made = make_management_key(world.adam, world.acme, "read", "keys")
        caller = Caller(made.token)
        body = {"description": "from CI", "projectId": str(world.project.id)}
        key_id = caller.post("/keys/api", body).json()["apiKey"]["id"]
        assert signed_in(world.olivia).send("DELETE", path(world, f"/{made.key.id}"), {}).status_code == 200
        assert self.ask(made.token) == 401
        assert ApiKey.objects.get(pk=key_id).status == "active"
        assert signed_in(world.olivia).get(path(world)).json() == {"managementKeys": []}
        again = signed_in(world.olivia).send("DELETE", path(world, f"/{made.key.id}"), {})
        assert (again.status_code, again.json()) == (404, {"message": "Management key not found"})

    def test_when_its_maker_leaves_and_the_api_keys_that_it_made_go_on(self, world: World) -> None:
        made = make_management_key(world.adam, world.acme, "keys")
        body = {"description": "a service", "projectId": str(world.project.id)}
        service = Caller(made.token).post("/keys/api", body).json()["apiKey"]
        own = make_key(world.adam, world.project)
        # A person rotates it: it does not become the person's.
        rotated = signed_in(world.adam).post(f"/keys/api/{service['id']}/rotate").json()["apiKey"]
        assert ApiKey.objects.get(pk=rotated["id"]).created_by_id == made.key.account_id
        assert remove_member(membership=Membership.objects.get(user=world.adam)) == 1
        assert self.ask(made.token) == 401
        assert Caller(rotated["token"]).get("/v1/key").status_code == 200
        assert Caller(own.token).get("/v1/key").status_code == 401

    def test_when_it_expires(self, world: World) -> None:
        made = make_management_key(world.adam, world.acme, "read")
        ManagementKey.objects.update(expires_at=timezone.now() + timedelta(minutes=1))
        assert self.ask(made.token) == 200
        ManagementKey.objects.update(expires_at=timezone.now())
        assert self.ask(made.token) == 401

    @pytest.mark.parametrize("how", ["removed", "demoted", "switched off"])
    def test_while_its_maker_is_no_admin_until_another_one_rotates_it(self, world: World, how: str) -> None:
        made = make_management_key(world.adam, world.acme, "read")
        membership = Membership.objects.get(user=world.adam)
        if how == "removed":
            remove_member(membership=membership)
        elif how == "demoted":
            Membership.objects.filter(pk=membership.pk).update(role=Role.DEVELOPER)
        else:
            User.objects.filter(pk=world.adam.pk).update(is_active=False)
        assert self.ask(made.token) == 401
        olivia = signed_in(world.olivia)
        assert [one["works"] for one in olivia.get(path(world)).json()["managementKeys"]] == [False]
        rotated = olivia.post(path(world, f"/{made.key.id}/rotate")).json()["managementKey"]
        assert (rotated["id"], rotated["createdBy"]) == (str(made.key.id), "olivia@example.com")
        assert (self.ask(made.token), self.ask(rotated["token"])) == (401, 200)

    def test_when_its_organization_is_deleted_and_erasure_leaves_no_name(self, world: World) -> None:
        made = make_management_key(world.olivia, world.acme, "read")
        request_deletion(organization=world.acme)
        refused = Caller(made.token).get(f"/organization/{world.acme.id}/members")
        assert (refused.status_code, "will be deleted on" in refused.json()["message"]) == (401, True)
        Organization.objects.filter(pk=world.acme.pk).update(status=Organization.Status.DELETED)
        assert self.ask(made.token) == 401
        erase_deleted()
        account = User.objects.get(pk=made.key.account_id)
        assert (ManagementKey.objects.get().name, account.name) == ("", "")
        assert "terraform" not in account.email


class TestMakingOne:
    BODY: dict[str, Any] = {"name": "Terraform", "scopes": ["keys", "read", "read"], "expiresAt": "2099-01-01"}

    def test_its_token_is_in_one_answer_alone_and_stored_as_a_digest(self, world: World) -> None:
        adam = signed_in(world.adam)
        made = adam.post(path(world), self.BODY).json()["managementKey"]
        token = made.pop("token")
        assert re.fullmatch(r"gw_mgmt_[0-9A-Za-z]{40}", token)
        assert made == {
            "id": made["id"],
            "name": "Terraform",
            "maskedToken": f"gw_mgmt_…{token[-4:]}",
            "scopes": ["keys", "read"],
            "works": True,
            "createdBy": "adam@example.com",
            "expiresAt": "2099-01-01T23:59:59.999999Z",
            "lastUsedAt": None,
            "createdAt": made["createdAt"],
        }
        assert adam.get(path(world)).json() == {"managementKeys": [made]}
        assert Caller(token).get("/organization").status_code == 200
        key = ManagementKey.objects.get()
        assert key.last_used_at is not None
        assert token not in str(state())
        entry = AuditEntry.objects.get(action="management_key.create")
        assert (entry.resource_id, entry.actor_email) == (str(key.id), "adam@example.com")
        assert token[8:-4] not in str(entry.details)

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"scopes": []}, "scopes"),
            ({"scopes": ["everything"]}, "scopes"),
            ({"scopes": "read"}, "scopes"),
            ({"scopes": ["read"] * 8}, "scopes"),
            ({"name": ""}, "name"),
            ({"name": "n" * 101}, "name"),
            ({"expiresAt": "2001-01-01"}, "expiresAt"),
        ],
    )
    def test_a_body_that_is_wrong_makes_nothing(self, world: World, changes: dict[str, Any], field: str) -> None:
        olivia = signed_in(world.olivia)
        before = state()
        answer = olivia.post(path(world), {**self.BODY, **changes})
        assert answer.status_code == 400
        assert field in str(answer.json()["issues"])
        assert state() == before

    def test_an_old_session_needs_the_password(self, world: World) -> None:
        olivia = signed_in(world.olivia)
        _age_sessions()
        before = ManagementKey.objects.count()
        assert olivia.post(path(world), self.BODY).status_code == 403
        assert olivia.post(path(world), {**self.BODY, "password": "wrong"}).status_code == 401
        assert ManagementKey.objects.count() == before
        assert olivia.post(path(world), {**self.BODY, "password": PASSWORD}).status_code == 200

    def test_an_organization_has_no_more_than_fifty(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(management_keys, "MAX_KEYS", 1)
        olivia = signed_in(world.olivia)
        first = UUID(olivia.post(path(world), self.BODY).json()["managementKey"]["id"])
        answer = olivia.post(path(world), self.BODY)
        assert (answer.status_code, ManagementKey.objects.count()) == (400, 1)
        olivia.send("DELETE", path(world, f"/{first}"), {})
        assert olivia.post(path(world), self.BODY).status_code == 200


def test_model_requests_refuse_it_and_say_what_they_need(world: World) -> None:
    token = make_management_key(world.olivia, world.acme, *ManagementScope).token
    answer = Caller(token).post("/v1/chat/completions", {"model": "sandbox/echo", "messages": []})
    assert answer.status_code == 401
    assert "management key" in answer.json()["error"]["message"]


def _age_sessions() -> None:
    AuthToken.objects.update(created=timezone.now() - timedelta(hours=1))
