"""Projects and members of an organization (section 4.2)."""

from __future__ import annotations

from dataclasses import replace
from threading import Thread
from typing import Any

import pytest
from django.db import connection
from django.test import TestCase

from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.models import Membership, Plan, Project, Role, User
from tests.support.cast import Caller, World, join, make_organization, make_user, signed_in
from tests.support.upstream import Caller as ModelCaller
from tests.support.upstream import nothing_happened, settle_all


def create(user: User, world: World, **changes: Any) -> Any:
    """Ask for a project of Acme; return the response."""
    body = {"name": "New", "organizationId": str(world.acme.id), **changes}
    return signed_in(user).post("/projects", {name: value for name, value in body.items() if value is not ...})


class TestProjects:
    def test_creating_and_reading_one(self, world: World) -> None:
        response = create(world.adam, world)
        assert response.status_code == 200
        row = Project.objects.get(name="New")
        expected = {
            "id": str(row.id),
            "name": "New",
            "organizationId": str(world.acme.id),
            "teamId": None,
            "cachingEnabled": False,
            "cacheDurationSeconds": 60,
            "hedgingEnabled": False,
            "mode": "hybrid",
            "status": "active",
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
        }
        assert response.json() == {"project": expected}
        assert signed_in(world.dana).get(f"/projects/{row.id}").json() == {"project": expected}

    def test_every_setting_can_be_given_and_changed(self, world: World) -> None:
        given = {"mode": "credits", "cachingEnabled": True, "cacheDurationSeconds": 10}
        project = create(world.olivia, world, **given).json()["project"]
        assert {name: project[name] for name in given} == given
        changes = {"name": "Newer", "mode": "api-keys", "cachingEnabled": False, "cacheDurationSeconds": 31_536_000}
        response = signed_in(world.adam).send("PATCH", f"/projects/{project['id']}", changes)
        assert response.json()["message"] == "Project updated"
        assert {name: response.json()["project"][name] for name in changes} == changes

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("name", ..., "Required"),
            ("name", "", "Must not be blank"),
            ("organizationId", ..., "Required"),
            ("mode", "free", "Must be one of: api-keys, credits, hybrid"),
            ("cacheDurationSeconds", 9, "Must be at least 10"),
            ("cacheDurationSeconds", 31_536_001, "Must be at most 31536000"),
        ],
    )
    def test_a_bad_field_is_named(self, world: World, field: str, value: Any, message: str) -> None:
        response = create(world.olivia, world, **{field: value})
        assert response.status_code == 400
        assert response.json()["issues"] == [{"path": field, "message": message}]
        assert Project.objects.filter(organization=world.acme).count() == 1

    @pytest.mark.parametrize("plan", [Plan.FREE, Plan.PRO])
    def test_past_ten_projects_it_is_403(self, world: World, plan: Plan) -> None:
        world.acme.plan = plan
        world.acme.save()
        world.project.status = Project.Status.ARCHIVED
        world.project.save()
        Project.objects.create(organization=world.acme, name="Gone", status=Project.Status.DELETED)
        for _ in range(9):
            assert create(world.olivia, world).status_code == 200
        response = create(world.olivia, world)
        assert (response.status_code, response.json()) == (403, {"message": "Maximum 10 projects per organization"})
        assert Project.objects.filter(organization=world.acme, name="New").count() == 9

    def test_enterprise_has_no_greatest_number(self, world: World) -> None:
        world.acme.plan = Plan.ENTERPRISE
        world.acme.save()
        assert {create(world.olivia, world).status_code for _ in range(11)} == {200}

    def test_one_is_archived_and_taken_up_again(self, world: World) -> None:
        caller, path = signed_in(world.olivia), f"/projects/{world.project.id}"
        for status in ("archived", "active"):
            assert caller.send("PATCH", path, {"status": status}).json()["project"]["status"] == status
        response = caller.send("PATCH", path, {"status": "deleted"})
        assert response.json()["issues"] == [{"path": "status", "message": "Must be one of: active, archived"}]
        world.project.refresh_from_db()
        assert world.project.status == "active"

    def test_a_deleted_one_is_gone(self, world: World) -> None:
        caller, path = signed_in(world.olivia), f"/projects/{world.project.id}"
        assert caller.send("DELETE", path, {}).json() == {"message": "Project deleted"}
        assert Project.objects.get(pk=world.project.pk).status == "deleted"
        for method in ("GET", "PATCH", "DELETE"):
            assert caller.send(method, path, {"status": "active"}).status_code == 404
        assert caller.get(f"/organization/{world.acme.id}/projects").json() == {"projects": []}
        assert Project.objects.get(pk=world.project.pk).status == "deleted"

    @pytest.mark.parametrize(("method", "word"), [("PATCH", "archived"), ("DELETE", "deleted")])
    def test_its_keys_are_refused_on_a_warm_worker(self, caller: ModelCaller, method: str, word: str) -> None:
        assert caller.chat().status_code == 200
        settle_all()
        owner = User.objects.get(email="olivia@example.com")
        with TestCase.captureOnCommitCallbacks(execute=True):
            signed_in(owner).send(method, f"/projects/{caller.key.project_id}", {"status": "archived"})
        answer = caller.chat()
        assert (answer.status_code, answer.json()["message"]) == (410, f"This project has been {word}")
        assert nothing_happened(caller)


class TestMembers:
    def test_they_are_listed_in_the_order_they_came(self, world: World) -> None:
        answer = signed_in(world.dana).get(f"/organization/{world.acme.id}/members").json()
        assert [(one["name"], one["email"], one["role"]) for one in answer["members"]] == [
            ("Olivia", "olivia@example.com", "owner"),
            ("Adam", "adam@example.com", "admin"),
            ("Dana", "dana@example.com", "developer"),
        ]
        row = Membership.objects.get(user=world.dana)
        assert answer["members"][2] == {
            "id": str(row.id),
            "organizationId": str(world.acme.id),
            "userId": str(world.dana.id),
            "name": "Dana",
            "email": "dana@example.com",
            "role": "developer",
            "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
            "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
        }

    def test_one_is_added_by_address(self, world: World) -> None:
        path = f"/organization/{world.acme.id}/members"
        response = signed_in(world.adam).post(path, {"email": "Sam@Example.com", "role": "developer"})
        answer = response.json()
        assert (answer["message"], answer["member"]["userId"], answer["member"]["role"]) == (
            "Member added",
            str(world.sam.id),
            "developer",
        )
        assert signed_in(world.sam).get(path).status_code == 200

    def test_an_unknown_address_is_404_and_a_member_409(self, world: World) -> None:
        caller, path = signed_in(world.olivia), f"/organization/{world.acme.id}/members"
        for email, status, message in [
            ("nobody@example.com", 404, "There is no account with this e-mail address"),
            ("dana@example.com", 409, "This user already is a member of the organization"),
        ]:
            response = caller.post(path, {"email": email, "role": "admin"})
            assert (response.status_code, response.json()) == (status, {"message": message})
        assert Membership.objects.filter(organization=world.acme).count() == 3
        assert Membership.objects.get(user=world.dana).role == "developer"

    @pytest.mark.parametrize(
        ("body", "path"),
        [({"role": "admin"}, "email"), ({"email": "sam@example.com"}, "role")]
        + [({"email": "sam@example.com", "role": role}, "role") for role in ("king", None, 5)],
    )
    def test_a_bad_field_is_named(self, world: World, body: dict[str, Any], path: str) -> None:
        response = signed_in(world.olivia).post(f"/organization/{world.acme.id}/members", body)
        assert response.status_code == 400
        assert [issue["path"] for issue in response.json()["issues"]] == [path]
        assert Membership.objects.filter(organization=world.acme).count() == 3

    def test_another_role_counts_at_once(self, world: World) -> None:
        row = Membership.objects.get(user=world.dana)
        dana = signed_in(world.dana)
        assert create(world.dana, world).status_code == 403
        path = f"/organization/{world.acme.id}/members/{row.id}"
        response = signed_in(world.olivia).send("PATCH", path, {"role": "admin"})
        assert (response.json()["message"], response.json()["member"]["role"]) == ("Member updated", "admin")
        body = {"name": "Dana's", "organizationId": str(world.acme.id)}
        assert dana.post("/projects", body).status_code == 200

    def test_one_who_is_removed_is_out(self, world: World) -> None:
        row = Membership.objects.get(user=world.dana)
        dana = signed_in(world.dana)
        response = signed_in(world.adam).send("DELETE", f"/organization/{world.acme.id}/members/{row.id}", {})
        assert response.json() == {"message": "Member removed", "revokedApiKeys": 0}
        assert dana.get(f"/projects/{world.project.id}").status_code == 403

    def test_asking_who_has_an_account_is_counted(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        limit = replace(attempt_rate_limiter.INVITATIONS_PER_ORGANIZATION, count=2)
        monkeypatch.setattr(attempt_rate_limiter, "INVITATIONS_PER_ORGANIZATION", limit)
        caller, path = signed_in(world.olivia), f"/organization/{world.acme.id}/members"
        tries = [caller.post(path, {"email": f"no{i}@example.com", "role": "developer"}).status_code for i in range(2)]
        assert tries == [404, 404]
        assert caller.post(path, {"email": "sam@example.com", "role": "developer"}).status_code == 429
        assert not Membership.objects.filter(organization=world.acme, user=world.sam).exists()

    def test_nobody_raises_themselves(self, world: World) -> None:
        for user in (world.adam, world.dana):
            row = Membership.objects.get(user=user)
            path = f"/organization/{world.acme.id}/members/{row.id}"
            assert signed_in(user).send("PATCH", path, {"role": "owner"}).status_code == 403
            assert Membership.objects.get(pk=row.pk).role == row.role

    def test_the_last_owner_stays(self, world: World) -> None:
        row = Membership.objects.get(user=world.olivia, organization=world.acme)
        caller, path = signed_in(world.olivia), f"/organization/{world.acme.id}/members/{row.id}"
        for method in ("PATCH", "DELETE"):
            response = caller.send(method, path, {"role": "admin"})
            assert (response.status_code, response.json()) == (
                400,
                {"message": "The last owner of an organization stays its owner"},
            )
        assert Membership.objects.get(pk=row.pk).role == "owner"
        join(world.acme, make_user("Olga"), Role.OWNER)
        assert caller.send("DELETE", path, {}).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_of_two_owners_who_remove_each_other_at_once_one_stays() -> None:
    owners = [make_user("Olivia"), make_user("Olga")]
    organization = make_organization(owner=owners[0])
    join(organization, owners[1], Role.OWNER)
    callers = [signed_in(owner) for owner in owners]
    places = [Membership.objects.get(user=owner) for owner in reversed(owners)]

    def remove(caller: Caller, place: Membership) -> None:
        caller.send("DELETE", f"/organization/{organization.id}/members/{place.id}", {})
        connection.close()

    threads = [Thread(target=remove, args=pair) for pair in zip(callers, places, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Membership.objects.filter(organization=organization).count() == 1
