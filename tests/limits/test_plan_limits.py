"""Limits of plans: every organization of a plan has them, counted apart, unless an own limit takes the place of one."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.alerts.counted import limits_used
from apps.gateway.access import policy
from apps.kernel.errors import InvalidRequest
from apps.kernel.valkey import generation
from apps.kernel.valkey import redis as kernel_redis
from apps.limits import actions
from apps.limits.models import Limit, LimitCounter, PlanLimit
from apps.limits.plan_limits import find_plan_limits, limit_of, plan_limits_of
from apps.organizations.models import Organization, Plan
from tests.limits.test_limited_requests import limit
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, nothing_happened, settle_all


def plan_limit(plan: str = "free", **fields: Any) -> PlanLimit:
    """Create a limit of a plan: two requests a day."""
    known = {"name": "Fair use", "counts": "requests", "window": "day", "amount": Decimal(2), **fields}
    made = PlanLimit.objects.create(plan=plan, **known)
    # Nothing is committed here, so that no policy is replaced.
    policy.forget_all()
    return made


def own(caller: Caller, **fields: Any) -> Limit:
    made = limit(caller, **{"name": "ours", "window": "day", "amount": Decimal(4), **fields})
    policy.forget_all()
    return made


@pytest.fixture
def organization(caller: Caller) -> Organization:
    """The caller's organization, on the plan pro."""
    found = caller.key.project.organization
    found.plan = Plan.PRO
    found.save()
    policy.forget_all()
    return found


def admitted(caller: Caller, most: int = 6) -> int:
    """Ask until a request is refused by the limit; return how many were not."""
    for number in range(most):
        answer = caller.chat("hi")
        if answer.status_code != 200:
            assert (answer.status_code, answer.json()["error"]["code"]) == (429, "limit_reached")
            return number
    return most


def test_each_organization_of_the_plan_has_it_counted_apart(caller: Caller, organization: Organization) -> None:
    plan_limit("pro")
    plan_limit("free", amount=Decimal(0))
    assert admitted(caller) == 2
    settle_all()
    refused = caller.chat("hi")
    assert refused.json()["error"]["message"].startswith(
        'The limit "Fair use" of the organization, 2 requests a day, does not cover this request: 2 used'
    )
    assert nothing_happened(caller)
    [counter] = LimitCounter.objects.all()
    [derived] = plan_limits_of(organization, [])
    assert (counter.limit_id, counter.organization_id, counter.used) == (derived.id, organization.id, 2)
    other = Organization.objects.create(name="Other", plan=Plan.PRO)
    assert [one.id for one in plan_limits_of(other, [])] != [derived.id]
    call_command("check_limits")


@pytest.mark.parametrize(
    ("fields", "fixed", "expected"),
    [
        ({}, False, 4),
        ({"action": "warn", "amount": Decimal(0)}, False, 6),
        ({}, True, 2),
        # Another window, count, model or part of the organization is another kind.
        ({"window": "hour"}, False, 2),
        ({"rolling": 7}, False, 2),
        ({"counts": "usd"}, False, 2),
        ({"scope": "model", "model": "echo"}, False, 2),
        ({"scope": "project", "scope_id": "<project>"}, False, 2),
    ],
)
def test_an_own_limit_of_the_same_kind_takes_its_place_unless_it_is_fixed(
    caller: Caller, organization: Organization, fields: dict[str, Any], fixed: bool, expected: int
) -> None:
    plan_limit("pro", is_fixed=fixed)
    project = str(caller.key.project_id)
    own(caller, **{name: value if value != "<project>" else project for name, value in fields.items()})
    assert admitted(caller) == expected


def test_it_may_be_on_a_model_or_a_provider_and_reroute(caller: Caller, organization: Organization) -> None:
    plan_limit("pro", name="fast", model="echo", action="reroute", reroute_models=["echo-fast"])
    found = [caller.chat("hi", model="echo").json()["metadata"]["used_model"] for _ in range(3)]
    assert found == ["echo", "echo", "echo-fast"]
    assert caller.chat("hi", model="json").status_code == 200
    plan_limit("pro", name="vendor", provider="sandbox", amount=Decimal(0))
    assert caller.chat("hi", model="json").status_code == 429


def test_a_warm_request_makes_no_query_and_no_trip_more(
    caller: Caller, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_limit("pro", amount=Decimal(10))
    assert caller.chat("hi").status_code == 200
    settle_all()
    trips = round_trips(monkeypatch, kernel_redis.client())
    with CaptureQueriesContext(connection) as queries:
        assert caller.chat("hi").status_code == 200
    assert (len(queries), trips) == (0, ["EVALSHA"] * 2)


def test_a_change_and_a_deletion_replace_policies_of_that_plan_alone(
    caller: Caller, organization: Organization, django_capture_on_commit_callbacks: Any
) -> None:
    other = Organization.objects.create(name="Other", plan=Plan.FREE)

    def tokens() -> list[str]:
        scopes = (generation.organization_scope(one.id) for one in (organization, other))
        return [generation.read_generation_token(scope) for scope in scopes]

    before = tokens()
    with django_capture_on_commit_callbacks(execute=True):
        made = PlanLimit.objects.create(plan="pro", name="a", counts="requests", window="day", amount=1)
    after = tokens()
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True]
    assert admitted(caller) == 1
    with django_capture_on_commit_callbacks(execute=True):
        made.delete()
    assert tokens()[0] != after[0]
    assert admitted(caller) == 6


def test_alerts_and_lists_of_several_organizations_have_it(caller: Caller, organization: Organization) -> None:
    one = plan_limit("pro")
    plan_limit("pro", name="a minute", window="minute")
    other = Organization.objects.create(name="Other", plan=Plan.PRO)
    free = Organization.objects.create(name="Free", plan=Plan.FREE)
    every = (organization.id, other.id, free.id)
    assert {(row.organization_id, row.name) for row in find_plan_limits(every)} == {
        (row.id, name) for row in (organization, other) for name in ("Fair use", "a minute")
    }
    own(caller, window="minute")
    assert {row.name for row in find_plan_limits([organization.id])} == {"Fair use"}
    assert admitted(caller) == 2
    settle_all()
    shares = limits_used(every, Decimal(1), timezone.now())
    assert [(use.organization_id, use.words, use.text) for use in shares] == [
        (organization.id, 'the limit "Fair use" of the organization, 2 requests a day,', "2 of 2 requests are used")
    ]
    assert limit_of(one, organization).id == plan_limits_of(organization, [])[0].id


def test_an_organization_has_room_for_fewer_limits_beside_those_of_its_plan(
    caller: Caller, organization: Organization, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "MAX_APPLYING", 2)
    plan_limit("pro")
    own(caller, name="first", window="hour")
    with pytest.raises(InvalidRequest, match="More than 2 limits would hold for one request"):
        own(caller, name="second", window="minute")
    # It takes the place of the plan's.
    own(caller, name="third", window="day")
    assert set(Limit.objects.values_list("name", flat=True)) == {"first", "third"}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"amount": Decimal("1.5")}, "amount"),
        ({"action": "reroute"}, "rerouteModels"),
        ({"reroute_models": ["echo"]}, "rerouteModels"),
        ({"name": "Fair use"}, "name"),
    ],
)
def test_one_that_contradicts_itself_is_refused(caller: Caller, fields: dict[str, Any], path: str) -> None:
    plan_limit()
    known = {"plan": "free", "name": "other", "counts": "requests", "window": "day", "amount": Decimal(2), **fields}
    with pytest.raises(InvalidRequest) as refused:
        actions.check_plan_limit(PlanLimit(**known))
    assert refused.value.param == path
