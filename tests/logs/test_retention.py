"""How long logs are kept: free 3 days, pro 90, enterprise a year (specification, section 8)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from apps.keys.models import ApiKey
from apps.logs import partitions, retention
from apps.logs.models import RequestLog
from apps.logs.retention import Expired
from apps.logs.tasks import expire
from apps.organizations.models import Plan
from tests.logs.entries import ago, entry, id_at, write
from tests.world import World, default_project, make_key, make_organization

NOW = datetime(2031, 3, 4, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_partitions(db: None) -> None:
    partitions.drop_before(date.max)


@pytest.fixture
def keys(world: World) -> dict[Plan, ApiKey]:
    """A key of an organization on each plan."""
    organizations = {plan: make_organization(owner=world.sam, name=plan, plan=plan) for plan in Plan}
    return {plan: make_key(world.sam, default_project(one)).key for plan, one in organizations.items()}


def written(key: ApiKey, age: timedelta) -> UUID:
    """Write a row of that age and return its id."""
    return write(entry(key, id=id_at(NOW - age)))[0]


def kept() -> set[UUID]:
    """Return the ids of the rows there are."""
    return set(RequestLog.objects.values_list("id", flat=True))


@pytest.mark.parametrize(("plan", "days"), [(Plan.FREE, 3), (Plan.PRO, 90)])
def test_a_row_is_removed_when_its_plan_ends_to_the_minute(keys: dict[Plan, ApiKey], plan: Plan, days: int) -> None:
    older, younger = (written(keys[plan], timedelta(days=days, minutes=minutes)) for minutes in (1, -1))
    longest = written(keys[Plan.ENTERPRISE], timedelta(days=days, minutes=1))
    assert retention.expire(NOW) == Expired([], 1)
    assert kept() == {younger, longest}
    assert older not in kept()
    assert retention.expire(NOW) == Expired([], 0)


def test_a_day_that_no_plan_keeps_is_dropped_whole(keys: dict[Plan, ApiKey]) -> None:
    gone, edge = (written(keys[Plan.ENTERPRISE], timedelta(days=days)) for days in (366, 365))
    assert retention.expire(NOW) == Expired([(NOW - timedelta(days=366)).date()], 0)
    assert kept() == {edge}
    assert gone not in kept()
    assert partitions.existing() == [(NOW - timedelta(days=365)).date()]


def test_rows_go_in_batches_until_none_is_left(keys: dict[Plan, ApiKey], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    moment = NOW - timedelta(days=10)
    write(*(entry(keys[Plan.FREE], id=id_at(moment - timedelta(minutes=number))) for number in range(7)))
    stays = written(keys[Plan.PRO], timedelta(days=10))
    assert retention.expire(NOW) == Expired([], 7)
    assert kept() == {stays}


def test_another_plan_is_another_retention(keys: dict[Plan, ApiKey]) -> None:
    row = written(keys[Plan.PRO], timedelta(days=4))
    retention.expire(NOW)
    assert kept() == {row}
    organization = keys[Plan.PRO].project.organization
    organization.plan = Plan.FREE
    organization.save(update_fields=["plan"])
    retention.expire(NOW)
    assert kept() == set()


def test_the_task_expires_by_the_clock(keys: dict[Plan, ApiKey]) -> None:
    write(entry(keys[Plan.FREE], id=id_at(ago(days=3, minutes=1))))
    [stays] = write(entry(keys[Plan.FREE], id=id_at(ago(days=2, hours=23))))
    expire()
    assert kept() == {stays}
