"""Audit logs, an enterprise extra: actor, action, target and origin, written with the change (section 8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client

from apps.keys import actions as key_actions
from apps.keys.models import ApiKey
from apps.organizations.actions import set_plan
from apps.organizations.deletion import erase_deleted
from apps.organizations.journal import audit
from apps.organizations.models import AuditEntry, Membership, Organization, Plan, User
from tests.support.cast import Caller, World, make_key, make_user, signed_in
from tests.support.deletions import end_waiting_period

WHERE = {"User-Agent": "curl/8", "x-request-id": "req-1"}


@pytest.fixture
def enterprise(world: World) -> World:
    """Acme is on the plan enterprise; nothing has been written down yet but its creation."""
    Organization.objects.filter(pk=world.acme.pk).update(plan=Plan.ENTERPRISE)
    return world


def logs_of(caller: Caller, world: World, query: str = "") -> list[dict[str, Any]]:
    """Return the entries that a query finds in Acme, newest first."""
    response = caller.get(f"/audit-logs/{world.acme.id}?{query}")
    assert response.status_code == 200, response.content
    return list(response.json()["auditLogs"])


class TestWhatIsWrittenDown:
    def test_who_did_what_to_which_thing_from_where(self, enterprise: World) -> None:
        adam = signed_in(enterprise.adam)
        key = make_key(enterprise.dana, enterprise.project).key
        adam.send("PATCH", f"/keys/api/{key.id}", {"status": "inactive", "description": "closed"}, **WHERE)
        entry = logs_of(adam, enterprise)[0]
        row = AuditEntry.objects.latest("id")
        assert entry == {
            "id": str(row.id),
            "organizationId": str(enterprise.acme.id),
            "action": "api_key.update",
            "actor": {"type": "session", "id": str(enterprise.adam.id), "email": "adam@example.com"},
            "resourceType": "api_key",
            "resourceId": str(key.id),
            "details": {
                "changes": {
                    "status": {"from": "active", "to": "inactive"},
                    "description": {"from": "a key", "to": "closed"},
                }
            },
            "ipAddress": "127.0.0.1",
            "userAgent": "curl/8",
            "requestId": "req-1",
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
        }

    def test_the_address_and_the_mail_of_that_time_stay(self, enterprise: World) -> None:
        signed_in(enterprise.adam).post(
            "/projects", {"name": "New", "organizationId": str(enterprise.acme.id)}, **WHERE
        )
        User.objects.filter(pk=enterprise.adam.pk).update(email="other@example.com")
        assert logs_of(signed_in(enterprise.olivia), enterprise)[0]["actor"]["email"] == "adam@example.com"

    def test_a_new_account_has_made_its_organization_itself(self, db: None) -> None:
        body = {"name": "Nora", "email": "nora@example.com", "password": "a long walk by the sea"}
        assert Caller().post("/auth/sign-up/email", body, **WHERE).status_code == 200
        row = AuditEntry.objects.get()
        assert (row.action, row.actor_type, row.actor_email, row.ip_address) == (
            "organization.create",
            "session",
            "nora@example.com",
            "127.0.0.1",
        )

    def test_what_the_operators_machine_does_has_no_person(self, enterprise: World) -> None:
        set_plan(organization=enterprise.elsewhere, plan=Plan.PRO)
        row = AuditEntry.objects.latest("id")
        assert (row.action, row.actor_type, row.actor_id, row.ip_address, row.request_id) == (
            "organization.update",
            "system",
            None,
            None,
            None,
        )
        assert row.details == {"changes": {"plan": {"from": "free", "to": "pro"}}}

    def test_an_operators_change_in_the_admin(self, enterprise: World) -> None:
        operator = User.objects.create_superuser("op@example.com", "a long walk by the sea", name="Op")
        client = Client()
        client.force_login(operator)
        member = Membership.objects.get(user=enterprise.dana)
        page = f"/admin/organizations/membership/{member.pk}"
        form = {"organization": enterprise.acme.pk, "user": enterprise.dana.pk, "role": "admin"}
        assert client.post(f"{page}/change/", form, headers=WHERE).status_code == 302
        assert client.post(f"{page}/delete/", {"post": "yes"}).status_code == 302
        deleted, changed = logs_of(signed_in(enterprise.olivia), enterprise)[:2]
        assert (changed["action"], changed["details"]) == (
            "member.update",
            {"email": enterprise.dana.email, "changes": {"role": {"from": "developer", "to": "admin"}}},
        )
        assert changed["actor"] == {"type": "admin", "id": str(operator.id), "email": "op@example.com"}
        assert (changed["userAgent"], changed["requestId"]) == ("curl/8", "req-1")
        assert (deleted["action"], deleted["resourceId"]) == ("member.delete", str(member.pk))

    def test_the_admins_bulk_deletion(self, enterprise: World) -> None:
        operator = User.objects.create_superuser("op@example.com", "a long walk by the sea", name="Op")
        client = Client()
        client.force_login(operator)
        member = Membership.objects.get(user=enterprise.dana)
        form = {"action": "delete_selected", "_selected_action": [str(member.pk)], "post": "yes"}
        assert client.post("/admin/organizations/membership/", form).status_code == 302
        assert not Membership.objects.filter(pk=member.pk).exists()
        assert logs_of(signed_in(enterprise.olivia), enterprise)[0]["action"] == "member.delete"

    def test_no_secret(self, enterprise: World) -> None:
        olivia = signed_in(enterprise.olivia)
        token = olivia.post("/keys/api", {"description": "secret", "projectId": str(enterprise.project.id)}).json()[
            "apiKey"
        ]["token"]
        credential = "a credential of ours"
        body = {
            "provider": "custom",
            "providerName": "ours",
            "baseUrl": "https://93.184.215.14/v1",
            "token": credential,
            "organizationId": str(enterprise.acme.id),
        }
        assert olivia.post("/keys/provider?validate=false", body).status_code == 200
        actions = [entry["action"] for entry in logs_of(olivia, enterprise)]
        assert actions[:2] == ["provider_key.create", "api_key.create"]
        with connection.cursor() as cursor:
            cursor.execute("SELECT row_to_json(a)::text FROM organizations_auditentry a")
            stored = "".join(text for (text,) in cursor.fetchall())
        assert token not in stored
        assert credential not in stored

    def test_on_every_plan(self, world: World) -> None:
        signed_in(world.olivia).send("PATCH", f"/organization/{world.acme.id}", {"name": "Acme & Co"})
        row = AuditEntry.objects.latest("id")
        assert (row.action, row.details) == (
            "organization.update",
            {"changes": {"name": {"from": "Acme", "to": "Acme & Co"}}},
        )

    def test_what_was_undone_was_not_done(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        key = make_key(world.dana, world.project).key
        before = AuditEntry.objects.count()

        def die(*_: Any, **__: Any) -> None:
            raise RuntimeError

        monkeypatch.setattr(ApiKey, "save", die)
        with pytest.raises(RuntimeError):
            key_actions.change_api_key(key=key, changes={"description": "other"})
        assert AuditEntry.objects.count() == before

    def test_what_cannot_be_written_down_is_not_done(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        key = make_key(world.dana, world.project).key

        def die(**_: Any) -> None:
            raise DatabaseError

        monkeypatch.setattr(AuditEntry.objects, "create", die)
        with pytest.raises(DatabaseError):
            key_actions.change_api_key(key=key, changes={"description": "other"})
        assert ApiKey.objects.get(pk=key.pk).description == "a key"


class TestForGood:
    @pytest.mark.parametrize(
        "statement", ["UPDATE organizations_auditentry SET action = 'x'", "DELETE FROM organizations_auditentry"]
    )
    def test_no_entry_is_changed_or_removed(self, world: World, statement: str) -> None:
        before = list(AuditEntry.objects.order_by("id").values())
        assert before
        with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
        assert list(AuditEntry.objects.order_by("id").values()) == before

    def test_erasing_an_organization_erases_its_entries_and_no_others(self, world: World) -> None:
        signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}", {})
        assert end_waiting_period() == [world.acme.id]
        own = AuditEntry.objects.filter(organization_id=world.acme.id)
        assert own.filter(action__in=("organization.request_deletion", "organization.delete")).count() == 2
        assert erase_deleted() == [world.acme.id]
        assert set(AuditEntry.objects.values_list("organization_id", flat=True)) == {world.elsewhere.id}


class TestReading:
    @pytest.mark.parametrize("plan", [Plan.FREE, Plan.PRO])
    def test_needs_an_enterprise_plan(self, world: World, plan: Plan) -> None:
        Organization.objects.filter(pk=world.acme.pk).update(plan=plan)
        response = signed_in(world.olivia).get(f"/audit-logs/{world.acme.id}")
        assert (response.status_code, response.json()) == (
            403,
            {"message": "Audit logs require an enterprise plan"},
        )

    def test_shows_nothing_of_other_organizations(self, enterprise: World) -> None:
        ids = {entry["organizationId"] for entry in logs_of(signed_in(enterprise.olivia), enterprise)}
        assert ids == {str(enterprise.acme.id)}

    def test_goes_by_pages_newest_first(self, enterprise: World) -> None:
        olivia = signed_in(enterprise.olivia)
        for number in range(4):
            olivia.send("PATCH", f"/organization/{enterprise.acme.id}", {"name": f"Acme {number}"})
        seen: list[str] = []
        cursor, pages = "", 0
        while True:
            body = olivia.get(f"/audit-logs/{enterprise.acme.id}?limit=2{cursor}").json()
            seen += [entry["id"] for entry in body["auditLogs"]]
            pages += 1
            if not body["pagination"]["hasMore"]:
                break
            cursor = f"&cursor={body['pagination']['nextCursor']}"
        rows = AuditEntry.objects.filter(organization_id=enterprise.acme.id).order_by("-id")
        assert seen == [str(row.id) for row in rows]
        assert (pages, body["pagination"]) == (3, {"nextCursor": None, "hasMore": False, "limit": 2})

    def test_is_filtered(self, enterprise: World) -> None:
        olivia, adam = signed_in(enterprise.olivia), signed_in(enterprise.adam)
        key = make_key(enterprise.dana, enterprise.project).key
        adam.send("PATCH", f"/keys/api/{key.id}", {"status": "inactive"})
        olivia.send("DELETE", f"/keys/api/{key.id}", {})
        found = {
            query: [entry["action"] for entry in logs_of(olivia, enterprise, query)]
            for query in (
                "action=api_key.update",
                "actor=ADAM@example.com",
                f"actor={enterprise.adam.id}",
                "actor=nobody",
                "resourceType=api_key",
                f"resourceId={key.id}&actor=olivia@example.com",
                "resourceType=project",
            )
        }
        assert found == {
            "action=api_key.update": ["api_key.update"],
            "actor=ADAM@example.com": ["api_key.update"],
            f"actor={enterprise.adam.id}": ["api_key.update"],
            "actor=nobody": [],
            "resourceType=api_key": ["api_key.delete", "api_key.update", "api_key.create"],
            f"resourceId={key.id}&actor=olivia@example.com": ["api_key.delete"],
            "resourceType=project": [],
        }

    def test_is_filtered_by_time(self, enterprise: World) -> None:
        olivia = signed_in(enterprise.olivia)
        now = datetime.now(UTC)
        count = AuditEntry.objects.filter(organization_id=enterprise.acme.id).count()
        assert count > 0
        past, future = ((now + timedelta(days=days)).isoformat().replace("+", "%2B") for days in (-1, 1))
        today = now.date().isoformat()
        counts = [
            len(logs_of(olivia, enterprise, query))
            for query in (
                f"startDate={past}&endDate={future}",
                f"startDate={future}",
                f"endDate={past}",
                f"startDate={today}&endDate={today}",
            )
        ]
        assert counts == [count, 0, 0, count]

    @pytest.mark.parametrize(
        ("query", "path"),
        [
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=ten", "limit"),
            ("cursor=x", "cursor"),
            ("startDate=yesterday", "startDate"),
            ("endDate=", "endDate"),
            ("startDate=2026-02-02&endDate=2026-02-01", "startDate"),
            ("action=%00", "action"),
        ],
    )
    def test_a_bad_query_is_refused_by_name(self, enterprise: World, query: str, path: str) -> None:
        response = signed_in(enterprise.olivia).get(f"/audit-logs/{enterprise.acme.id}?{query}")
        assert (response.status_code, [issue["path"] for issue in response.json()["issues"]]) == (400, [path])


def test_the_actor_of_one_request_is_not_that_of_the_next(world: World) -> None:
    signed_in(world.olivia).send("PATCH", f"/organization/{world.acme.id}", {"name": "Once"})
    audit.record("organization.update", organization_id=world.acme.id, resource=world.acme)
    assert list(AuditEntry.objects.order_by("-id").values_list("actor_type", flat=True)[:2]) == ["system", "session"]


def test_a_long_value_is_cut(world: World) -> None:
    make_user("Nora")
    audit.record("x.y", organization_id=world.acme.id, resource=world.acme, details={"text": "x" * 1000})
    assert AuditEntry.objects.latest("id").details == {"text": "x" * 300}
