"""Teams and service accounts in the console: admins manage them, leads manage keys and limits of their teams."""

from __future__ import annotations

import pytest

from apps.keys.models import ApiKey
from apps.limits.models import Limit
from apps.organizations.models import Project, ServiceAccount, Team, TeamMember
from apps.organizations.teams.actions import create_service_account
from tests.logs.entries import entry, write
from tests.organizations.teams.cast import Teams, make_teams
from tests.support.cast import World
from tests.support.console_client import Visitor, page, words

LIMIT = {
    "action_name": "new-limit",
    "name": "Monthly budget",
    "model": "",
    "counts": "usd",
    "amount": "500",
    "window": "month",
    "timeZone": "UTC",
    "action": "refuse",
}


@pytest.fixture
def teams(world: World) -> Teams:
    return make_teams(world)


def test_an_admin_creates_a_team_once_and_fills_it(world: World) -> None:
    adam = Visitor(world.adam)
    assert "No teams" in words(adam.open(page(world.acme, "teams")))
    for _ in range(2):
        answer = adam.send(page(world.acme, "teams"), {"name": "Search", "parentId": ""}, once="one-click")
        team = Team.objects.get()
        assert (answer.status_code, answer["Location"]) == (302, page(world.acme, f"teams/{team.id}"))
    path = page(world.acme, f"teams/{team.id}")
    dana = world.acme.memberships.get(user=world.dana)
    for fields in (
        {"action_name": "add-member", "memberId": str(dana.id), "isLead": "false"},
        {"action_name": "change-member", "id": str(dana.id), "isLead": "true"},
        {"action_name": "add-project", "projectId": str(world.project.id)},
        LIMIT,
        {"action_name": "change", "name": "Research", "parentId": ""},
    ):
        assert adam.send(path, fields)["Location"] == path, fields
    shown = words(adam.open(path))
    for text in ("Research", "dana@example.com lead", "Default Project", "Monthly budget Team Research USD a month"):
        assert text in shown
    assert TeamMember.objects.get().is_lead
    assert "Research – 1 1" in words(adam.open(page(world.acme, "teams")))
    adam.send(path, {"action_name": "remove-project", "projectId": str(world.project.id)})
    adam.send(path, {"action_name": "remove-member", "id": str(dana.id)})
    assert (Project.objects.get(pk=world.project.id).team_id, TeamMember.objects.count()) == (None, 0)
    assert adam.send(path, {"action_name": "delete", "confirmation": "Search"}).status_code == 400
    assert Team.objects.exists()
    gone = adam.send(path, {"action_name": "delete", "confirmation": "Research"})
    assert gone["Location"] == page(world.acme, "teams")
    assert not Team.objects.exists()


def test_a_refused_form_names_the_field_and_changes_nothing(world: World, teams: Teams) -> None:
    adam = Visitor(world.adam)
    path = page(world.acme, f"teams/{teams.search.id}")
    refused = adam.send(path, {"action_name": "change", "name": "Support", "parentId": str(teams.support.id)})
    assert (refused.status_code, "teams nest one level deep" in words(refused)) == (400, True)
    limited = adam.send(path, {**LIMIT, "amount": "-1"})
    assert (limited.status_code, Limit.objects.count()) == (400, 0)
    # The name of the refused limit is not in the form of the team's name.
    assert 'name="name" value="Search"' in limited.content.decode()
    assert adam.send(path, {"action_name": "explode"}).status_code == 400
    assert Team.objects.get(pk=teams.search.id).name == "Search"


def test_a_lead_sees_the_page_and_manages_keys_and_limits_alone(world: World, teams: Teams) -> None:
    dana = Visitor(world.dana)
    write(entry(teams.crawler_key), entry(teams.support_key))
    path = page(world.acme, f"teams/{teams.search.id}")
    shown = words(dana.open(path))
    assert "nightly crawl" in shown
    assert "help desk" not in shown
    assert "Requests 1 " in shown
    assert "Put into the team" not in shown
    assert dana.send(path, LIMIT)["Location"] == path
    limit = Limit.objects.get()
    assert limit.team == teams.search
    one = page(world.acme, f"limits/{limit.id}")
    assert dana.open(one).status_code == 200
    change = {"action_name": "change", "name": "Budget", "amount": "9", "action": "warn"}
    assert dana.send(one, {**change, "raisedAmount": "", "raisedUntil": "", "raiseReason": ""})["Location"] == one
    assert dana.send(one, {"action_name": "delete"})["Location"] == path
    assert not Limit.objects.exists()
    assert dana.open(page(world.acme, f"keys/{teams.crawler_key.id}")).status_code == 200
    assert dana.open(page(world.acme, "limits")).status_code == 403
    for fields in (
        {"action_name": "change", "name": "Mine"},
        {"action_name": "delete", "confirmation": "Search"},
        {"action_name": "remove-member", "id": str(world.acme.memberships.get(user=teams.tom).id)},
        {"action_name": "add-project", "projectId": str(world.project.id)},
    ):
        assert dana.send(path, fields).status_code in {400, 403}
    assert (Team.objects.get(pk=teams.search.id).name, TeamMember.objects.count()) == ("Search", 4)


def test_other_teams_are_closed(world: World, teams: Teams) -> None:
    limit = Limit.objects.create(
        organization=world.acme, name="s", scope="team", team=teams.support, counts="usd", window="day", amount=1
    )
    for visitor in (Visitor(world.dana), Visitor(teams.tom)):
        path = page(world.acme, f"teams/{teams.support.id}")
        assert visitor.open(path).status_code == 403
        assert visitor.send(path, LIMIT).status_code == 403
        assert visitor.open(page(world.acme, f"limits/{limit.id}")).status_code == 403
        assert visitor.open(page(world.acme, f"keys/{teams.support_key.id}")).status_code == 403
        assert visitor.open(page(world.acme, "logs"), teamId=str(teams.support.id)).status_code == 400
        assert visitor.open(page(world.acme, "usage"), teamId=str(teams.support.id)).status_code == 400
    tom = Visitor(teams.tom)
    path = page(world.acme, f"teams/{teams.search.id}")
    assert "nightly crawl" not in words(tom.open(path))
    assert tom.send(path, LIMIT).status_code in {400, 403}
    assert Limit.objects.count() == 1


def test_keys_are_listed_created_and_changed_with_their_team(world: World, teams: Teams) -> None:
    dana = Visitor(world.dana)
    assert "nightly crawl" in words(dana.open(page(world.acme, "keys")))
    assert "nightly crawl" not in words(dana.open(page(world.acme, "keys"), show="mine"))
    account = create_service_account(organization=world.acme, name="Crawler", team_id=str(teams.search.id))
    form = {"description": "fresh", "projectId": str(world.project.id), "usageLimit": "", "teamId": ""}
    chosen = {"teamId": str(teams.search.id), "serviceAccountId": str(account.id)}
    assert dana.send(page(world.acme, "keys/new"), {**form, **chosen}).status_code == 200
    key = ApiKey.objects.get(description="fresh")
    assert (key.team, key.created_by) == (teams.search, account.account)
    path = page(world.acme, f"keys/{key.id}")
    assert "Team Search" in words(dana.open(path))
    change = {"action": "change", "description": "moved", "usageLimit": ""}
    assert dana.send(path, {**change, "teamId": str(teams.ranking.id)})["Location"] == path
    # The form of a key sends the team that it has.
    assert dana.send(path, {**change, "teamId": str(teams.ranking.id), "description": "same"})["Location"] == path
    key.refresh_from_db()
    assert (key.team, key.description) == (teams.ranking, "same")


def test_usage_and_logs_are_narrowed_to_a_team(world: World, teams: Teams) -> None:
    write(entry(teams.crawler_key), entry(teams.support_key))
    dana = Visitor(world.dana)
    for by in ("model", "project", "key", "tag"):
        assert dana.open(page(world.acme, "usage"), teamId=str(teams.search.id), by=by).status_code == 200
    shown = words(dana.open(page(world.acme, "usage"), teamId=str(teams.search.id), by="key"))
    assert "nightly crawl" in shown
    assert "help desk" not in shown
    listed = dana.open(page(world.acme, "logs"), teamId=str(teams.search.id)).content.decode()
    assert (str(teams.crawler_key.project_id) in listed, listed.count('class="log-row"') <= 1) == (True, True)


def test_service_accounts_are_managed_by_admins(world: World, teams: Teams) -> None:
    adam, path = Visitor(world.adam), page(world.acme, "service-accounts")
    assert "No service accounts" in words(adam.open(path))
    for _ in range(2):
        assert adam.send(path, {"action": "create", "name": "Web shop", "teamId": ""}, once="one")["Location"] == path
    account = ServiceAccount.objects.get()
    change = {"action": "change", "id": str(account.id), "name": "Shop", "teamId": str(teams.search.id)}
    assert adam.send(path, change)["Location"] == path
    account.refresh_from_db()
    assert (account.name, account.team) == ("Shop", teams.search)
    refused = adam.send(path, {**change, "name": "x" * 101})
    assert (refused.status_code, ServiceAccount.objects.get().name) == (400, "Shop")
    assert adam.send(path, {"action": "delete", "id": str(account.id)})["Location"] == path
    assert ServiceAccount.objects.get().deleted_at is not None
    assert Visitor(world.dana).open(path).status_code == 403
