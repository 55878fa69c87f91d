"""Teams by the API: created, nested once, changed, deleted; members and projects; bounds and names of fields."""

from __future__ import annotations

from typing import Any

import pytest

from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.limits.models import Limit
from apps.organizations import actions as organization_actions
from apps.organizations.models import AuditEntry, Membership, Project, Team, TeamMember
from apps.organizations.teams import actions
from tests.organizations.teams.cast import key_in, make_team, make_teams, put_in
from tests.support.cast import Caller, World, make_management_key, signed_in


@pytest.fixture
def adam(world: World) -> Caller:
    return signed_in(world.adam)


def base(world: World) -> str:
    return f"/organization/{world.acme.id}/teams"


def membership_of(world: World, user: Any) -> Membership:
    return Membership.objects.get(organization=world.acme, user=user)


def test_a_team_is_created_shown_changed_and_deleted(world: World, adam: Caller) -> None:
    created = adam.post(base(world), {"name": "Search"})
    assert created.status_code == 200, created.content
    team = Team.objects.get()
    shown = created.json()["team"]
    assert {name: value for name, value in shown.items() if name not in {"createdAt", "updatedAt"}} == {
        "id": str(team.id),
        "organizationId": str(world.acme.id),
        "name": "Search",
        "parentId": None,
    }
    assert adam.get(base(world)).json() == {"teams": [shown]}
    part = adam.post(base(world), {"name": "Ranking", "parentId": str(team.id)}).json()["team"]
    assert part["parentId"] == str(team.id)
    changed = adam.send("PATCH", f"{base(world)}/{part['id']}", {"parentId": None, "name": "Sorting"}).json()["team"]
    assert (changed["name"], changed["parentId"]) == ("Sorting", None)
    assert adam.get(f"{base(world)}/{part['id']}").json() == {"team": changed}
    assert adam.send("DELETE", f"{base(world)}/{part['id']}", {}).json() == {"message": "Team deleted"}
    assert list(Team.objects.all()) == [team]
    entries = AuditEntry.objects.filter(resource_type="team").order_by("id")
    assert [(one.action, one.details) for one in entries] == [
        ("team.create", {"name": "Search", "parentId": None}),
        ("team.create", {"name": "Ranking", "parentId": str(team.id)}),
        (
            "team.update",
            {
                "changes": {
                    "parent_id": {"from": str(team.id), "to": None},
                    "name": {"from": "Ranking", "to": "Sorting"},
                }
            },
        ),
        ("team.delete", {"name": "Sorting"}),
    ]


def test_a_third_level_a_cycle_and_a_stranger_as_parent_are_refused(world: World, adam: Caller) -> None:
    search = make_team(world.acme, "Search")
    ranking, support = make_team(world.acme, "Ranking", search), make_team(world.acme, "Support")
    elsewhere = make_team(world.elsewhere, "Search")
    before = list(Team.objects.order_by("id").values())
    itself = "A team cannot be its own parent"
    is_part = "Must be a team that is part of no other: teams nest one level deep"
    has_parts = "This team has parts, so it cannot be part of another: teams nest one level deep"
    unknown = "Must be the id of a team of this organization"
    for team, parent, message in (
        (search, search.id, itself),
        (search, ranking.id, is_part),
        (support, ranking.id, is_part),
        (search, support.id, has_parts),
        (support, elsewhere.id, unknown),
        (support, new_id(), unknown),
        (support, "nonsense", unknown),
    ):
        answer = adam.send("PATCH", f"{base(world)}/{team.id}", {"parentId": str(parent)})
        assert (answer.status_code, answer.json()["issues"]) == (400, [{"path": "parentId", "message": message}])
    answer = adam.post(base(world), {"name": "Deep", "parentId": str(ranking.id)})
    assert (answer.status_code, answer.json()["issues"]) == (400, [{"path": "parentId", "message": is_part}])
    assert list(Team.objects.order_by("id").values()) == before


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "a\u202eb"}, "name"),
        ({"name": 1}, "name"),
        ({"name": "Search"}, "name"),
        ({"name": "Other", "parentId": 5}, "parentId"),
        ({"name": "Other", "parentId": "x" * 101}, "parentId"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_created(
    world: World, adam: Caller, body: dict[str, Any], path: str
) -> None:
    make_team(world.acme, "Search")
    answer = adam.post(base(world), body)
    assert (answer.status_code, [issue["path"] for issue in answer.json()["issues"]]) == (400, [path])
    assert Team.objects.count() == 1


def test_a_name_may_be_taken_in_another_organization_and_not_by_a_rename(world: World, adam: Caller) -> None:
    make_team(world.elsewhere, "Search")
    search, support = make_team(world.acme, "Search"), make_team(world.acme, "Support")
    answer = adam.send("PATCH", f"{base(world)}/{support.id}", {"name": "Search"})
    assert (answer.status_code, answer.json()["issues"][0]["path"]) == (400, "name")
    assert adam.send("PATCH", f"{base(world)}/{search.id}", {"name": "Search"}).status_code == 200
    assert adam.send("PATCH", f"{base(world)}/{search.id}", {}).json()["issues"][0]["path"] == "name"
    support.refresh_from_db()
    assert support.name == "Support"


def test_an_organization_has_a_bounded_number_of_teams(
    world: World, adam: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MAX_TEAMS", 1)
    make_team(world.elsewhere, "Theirs")
    assert adam.post(base(world), {"name": "Search"}).status_code == 200
    assert adam.post(base(world), {"name": "Support"}).status_code == 400
    assert Team.objects.filter(organization=world.acme).count() == 1


def test_members_are_added_made_leads_and_taken_out(world: World, adam: Caller) -> None:
    team = make_team(world.acme, "Search")
    dana = membership_of(world, world.dana)
    path = f"{base(world)}/{team.id}/members"
    added = adam.post(path, {"memberId": str(dana.id)})
    assert added.status_code == 200, added.content
    shown = added.json()["member"]
    assert {name: value for name, value in shown.items() if name != "createdAt"} == {
        "id": str(dana.id),
        "teamId": str(team.id),
        "userId": str(world.dana.id),
        "name": "Dana",
        "email": "dana@example.com",
        "isLead": False,
    }
    again = adam.post(path, {"memberId": str(dana.id), "isLead": True})
    assert (again.status_code, again.json()["message"]) == (409, "This member already is in the team")
    assert not TeamMember.objects.get().is_lead
    assert adam.send("PATCH", f"{path}/{dana.id}", {"isLead": True}).json()["member"]["isLead"] is True
    assert adam.get(path).json() == {"members": [{**shown, "isLead": True}]}
    assert adam.send("DELETE", f"{path}/{dana.id}", {}).json() == {"message": "Member removed from the team"}
    assert adam.send("DELETE", f"{path}/{dana.id}", {}).json() == {"message": "Team member not found"}
    named = AuditEntry.objects.filter(resource_type="team_member").order_by("id")
    assert [one.action for one in named] == ["team_member.create", "team_member.update", "team_member.delete"]
    assert named[0].details == {
        "teamId": str(team.id),
        "team": "Search",
        "email": "dana@example.com",
        "isLead": False,
    }


def test_strangers_and_programs_are_no_members_of_a_team(world: World, adam: Caller) -> None:
    team = make_team(world.acme, "Search")
    program = make_management_key(world.olivia, world.acme, "read").key.account
    strangers = [
        Membership.objects.get(organization=world.elsewhere, user=world.sam).id,
        membership_of(world, program).id,
        new_id(),
        "nonsense",
    ]
    for identifier in strangers:
        answer = adam.post(f"{base(world)}/{team.id}/members", {"memberId": str(identifier)})
        assert (answer.status_code, answer.json()["issues"]) == (
            400,
            [{"path": "memberId", "message": "Must be the id of a member of this organization"}],
        )
    assert not TeamMember.objects.exists()


def test_whoever_leaves_the_organization_leaves_its_teams(world: World) -> None:
    team = make_team(world.acme, "Search")
    put_in(team, world.dana, is_lead=True)
    organization_actions.remove_member(membership=membership_of(world, world.dana))
    assert not TeamMember.objects.exists()


def test_projects_are_put_into_a_team_and_taken_out(world: World, adam: Caller) -> None:
    team = make_team(world.acme, "Search")
    path = f"/projects/{world.project.id}"
    shown = adam.send("PATCH", path, {"teamId": str(team.id)}).json()["project"]
    assert shown["teamId"] == str(team.id)
    assert adam.send("PATCH", path, {"name": "Renamed"}).json()["project"]["teamId"] == str(team.id)
    for wrong in (str(make_team(world.elsewhere, "Search").id), "nonsense", str(new_id())):
        answer = adam.send("PATCH", path, {"teamId": wrong, "name": "Other"})
        assert (answer.status_code, answer.json()["issues"]) == (
            400,
            [{"path": "teamId", "message": "Must be the id of a team of this organization"}],
        )
    assert Project.objects.get(pk=world.project.id).name == "Renamed"
    assert adam.send("PATCH", path, {"teamId": None}).json()["project"]["teamId"] is None
    body = {"name": "New", "organizationId": str(world.acme.id), "teamId": str(team.id)}
    assert adam.post("/projects", body).json()["project"]["teamId"] == str(team.id)
    refused = adam.post("/projects", {**body, "name": "Refused", "teamId": "nonsense"})
    assert (refused.status_code, Project.objects.filter(name="Refused").exists()) == (400, False)


def test_a_deleted_team_leaves_its_projects_and_keys_and_takes_its_limits(world: World, adam: Caller) -> None:
    teams = make_teams(world)
    Limit.objects.create(
        organization=world.acme, name="t", scope="team", team=teams.support, counts="usd", window="day", amount=1
    )
    held = adam.send("DELETE", f"{base(world)}/{teams.search.id}", {})
    assert (held.status_code, held.json()) == (
        400,
        {"message": "Other teams are part of this team; move or delete them first"},
    )
    assert Team.objects.count() == 3
    assert adam.send("DELETE", f"{base(world)}/{teams.ranking.id}", {}).status_code == 200
    assert adam.send("DELETE", f"{base(world)}/{teams.search.id}", {}).status_code == 200
    assert adam.send("DELETE", f"{base(world)}/{teams.support.id}", {}).status_code == 200
    assert Project.objects.get(pk=teams.crawler.id).team_id is None
    assert list(ApiKey.objects.values_list("status", "team_id").distinct()) == [("active", None)]
    assert not Limit.objects.exists()
    assert not TeamMember.objects.exists()


def test_members_see_their_teams_and_no_others(world: World) -> None:
    teams = make_teams(world)
    seen = {
        world.olivia: {"Search", "Ranking", "Support"},
        world.dana: {"Search", "Ranking"},
        teams.rita: {"Ranking"},
        teams.sven: {"Support"},
        teams.tom: {"Search"},
    }
    for user, names in seen.items():
        caller = signed_in(user)
        assert {one["name"] for one in caller.get(base(world)).json()["teams"]} == names
        for team in (teams.search, teams.ranking, teams.support):
            for path in (f"{base(world)}/{team.id}", f"{base(world)}/{team.id}/members"):
                assert caller.get(path).status_code == (200 if team.name in names else 403), (user, path)
    assert signed_in(world.sam).get(base(world)).status_code == 403


def test_a_management_key_manages_teams_with_the_scope_members(world: World) -> None:
    allowed = Caller(make_management_key(world.olivia, world.acme, "read", "members").token)
    reading = Caller(make_management_key(world.olivia, world.acme, "read", "keys").token)
    team = allowed.post(base(world), {"name": "Search"}).json()["team"]
    assert reading.get(base(world)).json() == {"teams": [team]}
    refused = reading.post(base(world), {"name": "Support"})
    assert (refused.status_code, Team.objects.count()) == (403, 1)


def test_erasure_deletes_teams(world: World) -> None:
    from apps.organizations.deletion import erase_deleted

    team = make_team(world.acme, "Search")
    key_in(team, world.olivia, world.project, "a key")
    actions.create_service_account(organization=world.acme, name="Web shop")
    organization_actions.delete_organization(organization=world.acme)
    assert erase_deleted() == [world.acme.id]
    assert not Team.objects.exists()
    assert ApiKey.objects.get().team_id is None
    assert world.acme.service_accounts.count() == 0
    assert not Membership.objects.filter(user__name="Web shop").exists()
