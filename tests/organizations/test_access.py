"""The door to organizations and projects, for each of the cast."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from apps.kernel.errors import Forbidden, NotFound
from apps.kernel.ids import new_id
from apps.organizations.access import access_organization, access_project, highest, roles_of
from apps.organizations.models import Organization, Project, Role
from tests.support.cast import World, signed_in

# The users who are let in, by the role that is needed.
RIGHTS = {
    "olivia": {Role.DEVELOPER: True, Role.ADMIN: True, Role.OWNER: True},
    "adam": {Role.DEVELOPER: True, Role.ADMIN: True, Role.OWNER: False},
    "dana": {Role.DEVELOPER: True, Role.ADMIN: False, Role.OWNER: False},
    "sam": {Role.DEVELOPER: False, Role.ADMIN: False, Role.OWNER: False},
}


@pytest.mark.parametrize(
    ("name", "needs", "may"), [(name, needs, may) for name, rights in RIGHTS.items() for needs, may in rights.items()]
)
def test_who_may_enter(world: World, name: str, needs: Role, may: bool) -> None:
    user = getattr(world, name)
    if may:
        assert access_organization(user, world.acme.id, needs).organization == world.acme
        assert access_project(user, str(world.project.id), needs).project == world.project
    else:
        for access, identifier in ((access_organization, world.acme.id), (access_project, world.project.id)):
            with pytest.raises(Forbidden):
                access(user, identifier, needs)


@pytest.mark.parametrize("identifier", ["", "nonsense", new_id(), str(new_id())])
def test_what_does_not_exist_is_404(world: World, identifier: UUID | str) -> None:
    with pytest.raises(NotFound):
        access_organization(world.olivia, identifier)
    with pytest.raises(NotFound):
        access_project(world.olivia, identifier)


def test_what_is_deleted_is_404(world: World) -> None:
    world.project.status = Project.Status.DELETED
    world.project.save()
    with pytest.raises(NotFound):
        access_project(world.olivia, world.project.id)
    world.acme.status = Organization.Status.DELETED
    world.acme.save()
    with pytest.raises(NotFound):
        access_organization(world.olivia, world.acme.id)
    assert roles_of(world.olivia) == {}


def test_a_users_highest_role_is_over_all_organizations(world: World) -> None:
    assert highest(roles_of(world.adam)) == Role.ADMIN
    assert highest({}) == Role.DEVELOPER


def test_organizations_are_listed_with_every_field(world: World) -> None:
    answer = signed_in(world.dana).get("/organization").json()
    row = world.acme
    assert answer == {
        "organizations": [
            {
                "id": str(row.id),
                "name": "Acme",
                "billingEmail": "olivia@example.com",
                "billingCompany": None,
                "billingAddress": None,
                "billingTaxId": None,
                "billingNotes": None,
                "credits": "0",
                "plan": "free",
                "planExpiresAt": None,
                "retentionLevel": "none",
                "status": "active",
                "deletionDueAt": None,
                "outagePolicy": "open",
                "autoTopUpEnabled": False,
                "autoTopUpThreshold": "10",
                "autoTopUpAmount": "10",
                "referralEarnings": "0",
                "isPersonal": False,
                "devPlan": "none",
                "devPlanCreditsUsed": "0",
                "devPlanCreditsLimit": "0",
                "devPlanBillingCycleStart": None,
                "devPlanExpiresAt": None,
                "devPlanAllowAllModels": False,
                "createdAt": row.created_at.isoformat().replace("+00:00", "Z"),
                "updatedAt": row.updated_at.isoformat().replace("+00:00", "Z"),
            }
        ]
    }


def test_only_ones_own_organizations_are_listed(world: World) -> None:
    def names(user: Any) -> list[str]:
        return [one["name"] for one in signed_in(user).get("/organization").json()["organizations"]]

    assert names(world.sam) == ["Elsewhere"]
    Organization.objects.filter(pk=world.acme.pk).update(status=Organization.Status.DELETED)
    assert names(world.dana) == []


def test_projects_are_listed_with_every_field(world: World) -> None:
    Project.objects.create(organization=world.acme, name="Gone", status=Project.Status.DELETED)
    row = world.project
    answer = signed_in(world.dana).get(f"/organization/{world.acme.id}/projects").json()
    assert answer == {
        "projects": [
            {
                "id": str(row.id),
                "name": "Default Project",
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
        ]
    }


def test_projects_of_others_are_not_listed(world: World) -> None:
    stranger = signed_in(world.sam)
    refused = stranger.get(f"/organization/{world.acme.id}/projects")
    assert (refused.status_code, refused.json()) == (403, {"message": "You are not a member of this organization"})
    for identifier in (str(new_id()), "nonsense"):
        missing = stranger.get(f"/organization/{identifier}/projects")
        assert (missing.status_code, missing.json()) == (404, {"message": "Organization not found"})
