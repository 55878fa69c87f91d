"""Leads of teams: they manage the keys and limits of their teams, see their usage and logs, and nothing of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from apps.keys.models import ApiKey, IamRule
from apps.limits.models import Limit
from apps.logs import rollup
from apps.organizations.models import AuditEntry, User
from tests.api.test_permissions import state
from tests.logs.entries import entry, write
from tests.organizations.teams.cast import Teams, make_team, make_teams
from tests.support.cast import Caller, World, make_key, signed_in


@pytest.fixture
def teams(world: World) -> Teams:
    return make_teams(world)


def limit_of(team: Any, **fields: Any) -> Limit:
    known = {"scope": "team", "team": team, "counts": "usd", "window": "day", "amount": 10, **fields}
    return Limit.objects.create(organization=team.organization, **{"name": f"Budget of {team.name}", **known})


def tries(key: ApiKey, rule: IamRule) -> list[tuple[str, str, dict[str, Any]]]:
    """Return each request that manages a key."""
    path = f"/keys/api/{key.id}"
    return [
        ("GET", f"{path}/iam", {}),
        ("POST", f"{path}/iam", {"ruleType": "deny_models", "ruleValue": {"models": ["x"]}}),
        ("PATCH", f"{path}/iam/{rule.id}", {"status": "inactive"}),
        ("DELETE", f"{path}/iam/{rule.id}", {}),
        ("PATCH", path, {"description": "renamed"}),
        ("PATCH", f"/keys/api/limit/{key.id}", {"usageLimit": "5"}),
        ("POST", f"{path}/rotate", {}),
        ("GET", f"/v1/keys/{key.id}", {}),
        ("PATCH", f"/v1/keys/{key.id}", {"disabled": True}),
        ("DELETE", f"/v1/keys/{key.id}", {}),
        ("DELETE", path, {}),
    ]


@pytest.mark.parametrize("number", range(11))
@pytest.mark.parametrize("owner", ["support", "crawler", "ranking"])
def test_only_the_leads_of_a_key_s_team_manage_it(world: World, teams: Teams, owner: str, number: int) -> None:
    key: ApiKey = getattr(teams, f"{owner}_key")
    rule = IamRule.objects.create(api_key=key, rule_type="allow_models", rule_value={"models": ["echo"]})
    method, path, body = tries(key, rule)[number]
    may = {
        "support": [teams.sven],
        "crawler": [world.dana],
        # The lead of the whole leads the part.
        "ranking": [teams.rita, world.dana],
    }[owner]
    for user in (world.dana, teams.rita, teams.sven, teams.tom):
        if user in may:
            continue
        caller = signed_in(user)
        before, recorded = state(), AuditEntry.objects.count()
        answer = caller.send(method, path, body)
        assert answer.status_code == 403, (user, answer.content)
        assert (state(), AuditEntry.objects.count()) == (before, recorded)
    answer = signed_in(may[-1]).send(method, path, body)
    assert answer.status_code == 200, answer.content


def test_a_lead_lists_the_keys_of_the_team_and_their_own(world: World, teams: Teams) -> None:
    make_key(world.dana, world.project, "Dana's own")
    make_key(world.olivia, world.project, "in no team")

    def listed(user: User, **query: str) -> set[str] | int:
        answer = signed_in(user).get("/keys/api", **query)
        if answer.status_code != 200:
            return int(answer.status_code)
        return {one["description"] for one in answer.json()["apiKeys"]}

    assert listed(world.dana, filter="all") == {"nightly crawl", "ranking", "Dana's own"}
    assert listed(teams.rita, filter="all") == {"ranking"}
    assert listed(teams.sven, filter="all") == {"help desk"}
    assert listed(teams.tom, filter="all") == 403
    assert listed(world.dana, filter="all", teamId=str(teams.search.id)) == {"nightly crawl", "ranking"}
    assert listed(world.dana, filter="all", teamId=str(teams.ranking.id)) == {"ranking"}
    assert listed(world.dana, filter="all", teamId=str(teams.support.id)) == 403
    assert listed(teams.tom, teamId=str(teams.search.id)) == set()
    assert listed(world.dana, filter="all", teamId="nonsense") == 404
    # Everyone's keys of a project are for the leads of its team.
    assert listed(world.dana, filter="all", projectId=str(teams.crawler.id)) == {"nightly crawl"}
    assert listed(world.dana, filter="all", projectId=str(world.project.id)) == 403
    assert listed(teams.sven, filter="all", projectId=str(teams.crawler.id)) == 403
    assert listed(world.olivia, filter="all", teamId=str(teams.search.id)) == {"nightly crawl", "ranking"}


def test_a_key_is_put_into_a_team_by_who_is_in_it(world: World, teams: Teams) -> None:
    def create(user: User, team: Any) -> tuple[int, Any]:
        body = {"description": "new", "projectId": str(world.project.id), "teamId": str(team)}
        answer = signed_in(user).post("/keys/api", body)
        return answer.status_code, answer.json()

    for user, team, status in (
        (teams.tom, teams.search.id, 200),
        (teams.tom, teams.ranking.id, 403),
        (teams.tom, teams.support.id, 403),
        (world.dana, teams.ranking.id, 200),
        (teams.rita, teams.search.id, 403),
        (world.adam, teams.support.id, 200),
        (world.dana, make_team(world.elsewhere, "Search").id, 400),
        (world.dana, "nonsense", 400),
    ):
        count = ApiKey.objects.count()
        answer = create(user, team)
        assert answer[0] == status, answer
        assert ApiKey.objects.count() == count + (status == 200)
        if status == 200:
            assert answer[1]["apiKey"]["teamId"] == str(team)
        if status == 400:
            assert answer[1]["issues"][0]["path"] == "teamId"


def test_a_key_leaves_a_team_by_its_leads_alone(world: World, teams: Teams) -> None:
    own = make_key(teams.tom, world.project, "Tom's").key
    path = f"/keys/api/{own.id}"
    tom, dana = signed_in(teams.tom), signed_in(world.dana)
    assert tom.send("PATCH", path, {"teamId": str(teams.search.id)}).json()["apiKey"]["teamId"] == str(teams.search.id)
    for body in ({"teamId": None}, {"teamId": str(teams.support.id)}):
        before = state()
        refused = tom.send("PATCH", path, {**body, "description": "renamed"})
        assert (refused.status_code, state()) == (403, before)
    # The same team is no change.
    assert tom.send("PATCH", path, {"teamId": str(teams.search.id), "description": "same"}).status_code == 200
    assert dana.send("PATCH", path, {"teamId": str(teams.ranking.id)}).status_code == 200
    assert dana.send("PATCH", path, {"teamId": None}).json()["apiKey"]["teamId"] is None
    # It is in no team of Dana's now.
    assert dana.send("PATCH", path, {"description": "mine?"}).status_code == 403


def test_a_rotated_key_stays_in_its_team(world: World, teams: Teams) -> None:
    answer = signed_in(teams.sven).post(f"/keys/api/{teams.support_key.id}/rotate")
    assert answer.json()["apiKey"]["teamId"] == str(teams.support.id)
    assert answer.json()["apiKey"]["createdBy"] == str(teams.sven.id)


def test_leads_manage_the_limits_of_their_teams(world: World, teams: Teams) -> None:
    organization = {"organizationId": str(world.acme.id)}
    limits = {team.name: limit_of(team) for team in (teams.search, teams.ranking, teams.support)}
    of_all = limit_of(teams.search, name="of all", scope="organization")
    Limit.objects.filter(pk=of_all.pk).update(team=None)

    def seen(user: User) -> set[str] | int:
        answer = signed_in(user).get("/limits", **organization)
        found = answer.json().get("limits", [])
        return {one["name"] for one in found} if answer.status_code == 200 else int(answer.status_code)

    assert seen(world.dana) == {"Budget of Search", "Budget of Ranking"}
    assert seen(teams.rita) == {"Budget of Ranking"}
    assert seen(teams.tom) == 403
    assert seen(world.adam) == {*(f"Budget of {name}" for name in limits), "of all"}
    for user, may in (
        (world.dana, {"Search", "Ranking"}),
        (teams.rita, {"Ranking"}),
        (teams.sven, {"Support"}),
        (teams.tom, set[str]()),
    ):
        caller = signed_in(user)
        for name, limit in limits.items():
            before, recorded = state(), AuditEntry.objects.count()
            answer = caller.send("PATCH", f"/limits/{limit.id}", {"amount": str(100 + recorded)})
            assert answer.status_code == (200 if name in may else 403), (user, name)
            assert (state() != before) == (name in may)
            if name not in may:
                assert caller.send("DELETE", f"/limits/{limit.id}", {}).status_code == 403
                assert (state(), AuditEntry.objects.count()) == (before, recorded)
        assert caller.send("PATCH", f"/limits/{of_all.id}", {"amount": "1"}).status_code == 403
    assert signed_in(teams.sven).send("DELETE", f"/limits/{limits['Support'].id}", {}).status_code == 200


def test_leads_create_limits_of_their_teams_alone(world: World, teams: Teams) -> None:
    body = {"organizationId": str(world.acme.id), "counts": "usd", "window": "day", "amount": "5"}
    dana = signed_in(world.dana)
    for scope, scope_id in (
        ("team", teams.support.id),
        ("team", "nonsense"),
        ("organization", None),
        ("project", teams.crawler.id),
        ("key", teams.crawler_key.id),
        ("member", world.dana.id),
        ("end_user", teams.crawler.id),
    ):
        before = state()
        given = {} if scope_id is None else {"scopeId": str(scope_id)}
        answer = dana.post("/limits", {**body, "name": "New", "scope": scope, **given})
        assert (answer.status_code, state()) == (403, before), scope
    assert dana.post("/limits", {**body, "name": "New", "scope": "team"}).status_code == 403
    for team in (teams.search, teams.ranking):
        answer = dana.post("/limits", {**body, "name": team.name, "scope": "team", "scopeId": str(team.id)})
        assert (answer.status_code, answer.json()["limit"]["scopeId"]) == (200, str(team.id))
    foreign = make_team(world.elsewhere, "Search")
    answer = signed_in(world.adam).post(
        "/limits", {**body, "name": "Foreign", "scope": "team", "scopeId": str(foreign.id)}
    )
    assert (answer.status_code, answer.json()["issues"]) == (
        400,
        [{"path": "scopeId", "message": "Must be the id of a team of this organization"}],
    )


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "teams", {"name": "New"}),
        ("PATCH", "teams/<search>", {"name": "New"}),
        ("PATCH", "teams/<search>", {"parentId": None}),
        ("DELETE", "teams/<ranking>", {}),
        ("POST", "teams/<search>/members", {"memberId": "<adam>"}),
        ("PATCH", "teams/<search>/members/<tom>", {"isLead": True}),
        ("DELETE", "teams/<search>/members/<tom>", {}),
        ("POST", "service-accounts", {"name": "New"}),
        ("POST", "members", {"email": "nora@example.com", "role": "developer"}),
        ("PATCH", "members/<tom>", {"role": "admin"}),
        ("DELETE", "members/<tom>", {}),
    ],
)
def test_a_lead_manages_no_members_and_no_teams(
    world: World, teams: Teams, method: str, path: str, body: dict[str, Any]
) -> None:
    ids = {
        "<search>": teams.search.id,
        "<ranking>": teams.ranking.id,
        "<tom>": world.acme.memberships.get(user=teams.tom).id,
        "<adam>": world.acme.memberships.get(user=world.adam).id,
    }
    for name, identifier in ids.items():
        path = path.replace(name, str(identifier))
        body = {key: str(identifier) if value == name else value for key, value in body.items()}
    dana = signed_in(world.dana)
    before = state()
    answer = dana.send(method, f"/organization/{world.acme.id}/{path}", body)
    assert (answer.status_code, state()) == (403, before)
    moved = dana.send("PATCH", f"/projects/{teams.crawler.id}", {"teamId": None})
    assert (moved.status_code, state()) == (403, before)


def test_usage_and_logs_are_those_of_the_team(world: World, teams: Teams) -> None:
    other = make_key(world.olivia, world.project, "in no team").key
    both = ApiKey.objects.create(
        project=teams.crawler, created_by=world.olivia, team=teams.support, description="both", digest=b"both"
    )
    keys = (teams.support_key, teams.crawler_key, teams.ranking_key, other, both)
    write(*(entry(key, session_id=key.description) for key in keys))
    teams.crawler_key.status = ApiKey.Status.DELETED
    teams.crawler_key.save()
    of_search = {teams.crawler_key, teams.ranking_key, both}
    today = f"{datetime.now(UTC):%Y-%m-%d}"

    def seen(user: User, **query: str) -> tuple[int, set[str]]:
        answer = signed_in(user).get("/logs", **query)
        return answer.status_code, {one["apiKeyId"] for one in answer.json().get("logs", [])}

    def counted(user: User, **query: str) -> tuple[int, int]:
        answer = signed_in(user).get("/activity", **query)
        days = answer.json().get("activity", [])
        return answer.status_code, sum(one["requestCount"] for one in days if one["date"] == today)

    search, ranking, support = (str(team.id) for team in (teams.search, teams.ranking, teams.support))
    for _ in range(2):
        # Before and after the sums of the day are written.
        assert counted(world.dana, teamId=search) == (200, 3)
        assert counted(world.dana, teamId=ranking) == (200, 1)
        assert counted(teams.sven, teamId=support) == (200, 2)
        assert counted(world.adam, teamId=support, projectId=str(teams.crawler.id)) == (200, 1)
        assert counted(world.adam, teamId=search, apiKeyId=str(teams.support_key.id)) == (200, 0)
        assert counted(teams.rita, teamId=search) == (403, 0)
        assert counted(world.dana, teamId=support) == (403, 0)
        assert counted(world.sam, teamId=search) == (403, 0)
        assert counted(world.dana, teamId="nonsense")[0] == 404
        rollup.roll_up()
    assert seen(world.dana, teamId=search) == (200, {str(key.id) for key in of_search})
    assert seen(world.dana, teamId=search, projectId=str(teams.crawler.id)) == (
        200,
        {str(teams.crawler_key.id), str(both.id)},
    )
    assert seen(world.dana, teamId=ranking, sessionId="ranking") == (200, {str(teams.ranking_key.id)})
    assert seen(world.adam, teamId=search, sessionId="in no team") == (200, set())
    assert seen(world.adam, teamId=str(make_team(world.acme, "Empty").id)) == (200, set())
    assert seen(teams.sven, teamId=search) == (403, set())
    listed = signed_in(world.dana).get("/logs/sessions", teamId=search)
    assert {one["id"] for one in listed.json()["sessions"]} == {key.description for key in of_search}
    assert signed_in(teams.sven).get("/logs/sessions", teamId=search).status_code == 403
    assert seen(teams.rita, teamId=search) == (403, set())
    assert seen(world.sam, teamId=search) == (403, set())
    assert seen(world.dana, teamId="nonsense") == (403, set())


def test_an_api_key_names_no_team(world: World, teams: Teams) -> None:
    token = make_key(world.olivia, teams.crawler).token
    answer = Caller(token).get("/logs", teamId=str(teams.search.id))
    assert answer.status_code == 403
