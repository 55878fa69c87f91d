"""Limits of teams: a request counts for the team of its key, for that of its project, and for the wholes of both."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.gateway.access.policy import find_current_policy
from apps.kernel.errors import InvalidRequest
from apps.kernel.valkey import redis as kernel_redis
from apps.keys.actions import change_api_key
from apps.limits import actions
from apps.limits.models import Limit, LimitCounter
from apps.logs.models import RequestLog
from apps.organizations.actions import change_project
from apps.organizations.models import Team
from apps.organizations.teams.actions import change_team, create_team, delete_team
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, nothing_happened, settle_all


def team(caller: Caller, name: str, parent: Team | None = None) -> Team:
    organization = caller.key.project.organization
    return create_team(organization=organization, name=name, parent_id=None if parent is None else str(parent.pk))


def limit(one: Team, **fields: Any) -> Limit:
    """Create a limit of a team: ten requests in all."""
    known = {"name": f"of {one.name}", "scope": "team", "scope_id": str(one.pk), "counts": "requests"}
    known |= {"window": "lifetime", "amount": Decimal(10), **fields}
    return actions.create_limit(organization=one.organization, fields=known)


def move_project(caller: Caller, one: Team | None) -> None:
    change_project(project=caller.key.project, changes={"team_id": None if one is None else str(one.pk)})


def move_key(caller: Caller, one: Team | None) -> None:
    change_api_key(key=caller.key, changes={"team_id": None if one is None else one.pk})


def used(limits: dict[str, Limit]) -> dict[str, int]:
    counters = dict(LimitCounter.objects.values_list("limit_id", "used"))
    return {name: int(counters.get(one.id, 0)) for name, one in limits.items()}


@pytest.fixture
def commits(django_capture_on_commit_callbacks: Callable[..., Any]) -> Callable[[], Any]:
    """A context that runs what waits for a commit when it ends."""
    return partial(django_capture_on_commit_callbacks, execute=True)


def test_a_request_counts_for_each_team_of_its_key_and_project_once(caller: Caller, commits: Callable[[], Any]) -> None:
    search, support = team(caller, "Search"), team(caller, "Support")
    teams = [search, support, team(caller, "Ranking", search), team(caller, "Desk", support), team(caller, "Other")]
    limits = {one.name: limit(one) for one in teams}
    ranking, desk = teams[2:4]
    steps = [
        (None, None, {}),
        (None, ranking, {"Ranking", "Search"}),
        (search, None, {"Search"}),
        # The same whole twice counts once.
        (ranking, search, {"Ranking", "Search"}),
        (desk, ranking, {"Desk", "Support", "Ranking", "Search"}),
    ]
    expected = dict.fromkeys(limits, 0)
    for of_key, of_project, counted in steps:
        with commits():
            move_key(caller, of_key)
            move_project(caller, of_project)
        assert caller.chat().status_code == 200
        settle_all()
        expected = {name: number + (name in counted) for name, number in expected.items()}
        assert used(limits) == expected
    assert nothing_happened(caller)


def test_a_request_beyond_the_limit_of_the_whole_is_refused(caller: Caller) -> None:
    search = team(caller, "Search")
    ranking = team(caller, "Ranking", search)
    limits = {"Search": limit(search, name="Whole", amount=Decimal(1)), "Ranking": limit(ranking)}
    move_project(caller, ranking)
    assert caller.chat().status_code == 200
    settle_all()
    refused = caller.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "limit_reached")
    assert refused.json()["error"]["message"] == (
        'The limit "Whole" of the team, 1 request in all, does not cover this request: 1 used and 0 held by requests '
        "in progress, and it needs 1; it does not reset"
    )
    assert nothing_happened(caller)
    assert (RequestLog.objects.count(), used(limits)) == (1, {"Search": 1, "Ranking": 1})


def test_a_change_of_teams_holds_for_the_next_request(caller: Caller, commits: Callable[[], Any]) -> None:
    search, closed = team(caller, "Search"), team(caller, "Closed")
    limit(closed, amount=Decimal(0))
    move_project(caller, search)
    assert caller.chat().status_code == 200
    for change, status in (
        (lambda: change_team(team=search, changes={"parent_id": str(closed.pk)}), 429),
        (lambda: change_team(team=search, changes={"parent_id": None}), 200),
        (lambda: move_key(caller, closed), 429),
        (lambda: delete_team(team=closed), 200),
    ):
        with commits():
            change()
        assert caller.chat().status_code == status
    with commits():
        move_project(caller, None)
    assert find_current_policy(caller.token).limits is None


def test_a_limit_of_a_team_on_a_model_counts_that_model_alone(caller: Caller) -> None:
    search = team(caller, "Search")
    limits = {"echo": limit(search, name="echo", model="ec*"), "other": limit(search, name="other", model="gpt-5")}
    move_key(caller, search)
    assert caller.chat().status_code == 200
    settle_all()
    assert used(limits) == {"echo": 1, "other": 0}


def test_a_warm_request_of_nested_teams_makes_no_query_and_two_round_trips(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = team(caller, "Search")
    ranking = team(caller, "Ranking", search)
    for one in (search, ranking):
        limit(one)
    move_project(caller, search)
    move_key(caller, ranking)
    assert caller.chat().status_code == 200
    trips = round_trips(monkeypatch, kernel_redis.client())
    with CaptureQueriesContext(connection) as queries:
        assert caller.chat().status_code == 200
    assert len(queries) == 0
    assert trips == ["EVALSHA", "EVALSHA"]


def test_limits_of_the_four_fullest_teams_count_for_the_most_that_hold(caller: Caller) -> None:
    teams = [team(caller, f"Team {number}") for number in range(6)]
    for one in teams:
        for number in range(4):
            limit(one, name=f"{one.name} {number}")
    assert actions.most_applying(Limit.objects.all()) == 16
    with pytest.raises(InvalidRequest, match="More than 16 limits would hold for one request"):
        limit(teams[0], name="one more")
    assert Limit.objects.count() == 24
