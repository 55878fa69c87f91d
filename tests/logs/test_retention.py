"""How long logs are kept: free 3 days, pro 90, enterprise a year (specification, section 8)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pytest

from apps.keys.models import ApiKey
from apps.logs import partitions, retention
from apps.logs.activity import ActivityScope, ActivityWindow, find_days
from apps.logs.models import LogRetention, RequestLog
from apps.logs.retention import ExpiredLogs
from apps.logs.tasks import expire
from apps.organizations.models import Plan
from tests.logs.entries import FULL, ago, entry, id_at, write
from tests.support.cast import World, default_project, make_key, make_organization

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
    assert retention.expire(NOW) == ExpiredLogs([], 1)
    assert kept() == {younger, longest}
    assert older not in kept()
    assert retention.expire(NOW) == ExpiredLogs([], 0)


def test_a_day_that_no_plan_keeps_is_dropped_whole(keys: dict[Plan, ApiKey]) -> None:
    gone, edge = (written(keys[Plan.ENTERPRISE], timedelta(days=days)) for days in (366, 365))
    assert retention.expire(NOW) == ExpiredLogs([(NOW - timedelta(days=366)).date()], 0, activity=2)
    assert kept() == {edge}
    assert gone not in kept()
    assert partitions.existing() == [(NOW - timedelta(days=365)).date()]


def test_rows_go_in_batches_until_none_is_left(keys: dict[Plan, ApiKey], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    moment = NOW - timedelta(days=10)
    write(*(entry(keys[Plan.FREE], id=id_at(moment - timedelta(minutes=number))) for number in range(7)))
    stays = written(keys[Plan.PRO], timedelta(days=10))
    assert retention.expire(NOW) == ExpiredLogs([], 7)
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


def test_an_agreed_number_of_days_goes_before_the_plans(keys: dict[Plan, ApiKey]) -> None:
    LogRetention.objects.create(organization=keys[Plan.FREE].project.organization, days=10)
    LogRetention.objects.create(organization=keys[Plan.ENTERPRISE].project.organization, days=400)
    past, kept_long = (
        written(keys[Plan.FREE], timedelta(days=10, minutes=1)),
        written(keys[Plan.FREE], timedelta(days=9)),
    )
    oldest = written(keys[Plan.ENTERPRISE], timedelta(days=399))
    assert retention.expire(NOW).rows == 1
    assert kept() == {kept_long, oldest}
    assert past not in kept()
    seen = retention.visible_to([keys[plan].project.organization_id for plan in Plan], NOW)
    assert {(NOW - moment).days for moment in seen.values()} == {10, 90, 400}


def test_a_day_is_dropped_when_it_is_past_for_everybody_in_it(keys: dict[Plan, ApiKey]) -> None:
    for days in (4, 5):
        written(keys[Plan.FREE], timedelta(days=days))
    stays = written(keys[Plan.PRO], timedelta(days=5))
    assert retention.expire(NOW) == ExpiredLogs([(NOW - timedelta(days=4)).date()], 1)
    assert kept() == {stays}
    assert partitions.existing() == [(NOW - timedelta(days=5)).date()]


def test_a_day_that_somebody_has_come_to_meanwhile_is_not_dropped(
    keys: dict[Plan, ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(keys[Plan.FREE], timedelta(days=4))
    late: list[UUID] = []
    drop = partitions.drop

    def drop_after_a_late_record(day: date, may_go: Callable[[], bool]) -> bool:
        late.append(written(keys[Plan.PRO], timedelta(days=4)))
        return drop(day, may_go)

    monkeypatch.setattr(partitions, "drop", drop_after_a_late_record)
    assert retention.expire(NOW) == ExpiredLogs([], 1)
    assert kept() == set(late)


def test_activity_stays_a_year_and_then_goes(keys: dict[Plan, ApiKey]) -> None:
    for days in (4, 364, 365):
        written(keys[Plan.FREE], timedelta(days=days))
    scope = ActivityScope(frozenset({keys[Plan.FREE].project.organization_id}))
    since = (NOW - timedelta(days=500)).date()
    assert retention.expire(NOW).activity == 1
    assert kept() == set()
    days_left = [(NOW.date() - day.date).days for day in find_days(scope, ActivityWindow(since, NOW.date()))]
    assert days_left == [4, 364]


CONTENT = {
    *("messages", "content", "reasoning_content", "tools", "tool_results", "response_format"),
    *("refusal", "tool_calls", "choices", "citations", "media", "media_data"),
}
METADATA = {
    *("finish_reason", "temperature", "max_tokens", "top_p", "frequency_penalty", "presence_penalty", "tool_choice"),
    *("reasoning_effort", "reasoning_max_tokens", "custom_headers", "source", "routing_metadata"),
    *("tool_call_counts", "session_id", "user_agent"),
}


@pytest.mark.parametrize(
    ("written_as", "now", "gone"),
    [
        ("retain", "retain", set()),
        ("retain", "metadata", CONTENT),
        ("retain", "none", CONTENT | METADATA),
        ("metadata", "none", CONTENT | METADATA),
        ("metadata", "retain", set()),
        ("none", "none", set()),
    ],
)
def test_what_a_lowered_level_forbids_is_blanked(
    keys: dict[Plan, ApiKey], written_as: str, now: str, gone: set[str]
) -> None:
    organization = keys[Plan.PRO].project.organization
    organization.retention_level = now
    organization.save()
    others = entry(keys[Plan.FREE], **FULL, retention_level="none")
    details = {"status": 502, "message": "words"}
    write(entry(keys[Plan.PRO], **FULL | {"error_details": details}, retention_level=written_as), others)
    [row, neighbor] = (
        RequestLog.objects.filter(organization_id=keys[plan].project.organization_id) for plan in (Plan.PRO, Plan.FREE)
    )
    before, untouched = row.values().get(), neighbor.values().get()
    assert retention.blank() == (1 if gone else 0)
    after = row.values().get()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == gone | ({"retention_level", "error_details"} if gone else set())
    assert {after[name] for name in gone} <= {None}
    if gone:
        assert (after["retention_level"], after["error_details"]) == (now, {"status": 502})
    assert retention.blank() == 0
    assert neighbor.values().get() == untouched


def test_blanking_goes_on_until_nothing_is_left(keys: dict[Plan, ApiKey], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    write(*(entry(keys[plan], content="words", retention_level="retain") for plan in Plan for _ in range(5)))
    organization = keys[Plan.PRO].project.organization
    organization.retention_level = "retain"
    organization.save()
    assert retention.blank() == 10
    left = RequestLog.objects.exclude(content=None).values_list("organization_id", flat=True)
    assert list(left) == [organization.id] * 5
    # A record that was on its way is found by the next run.
    write(entry(keys[Plan.FREE], content="late", retention_level="retain"))
    assert retention.blank() == 1


@pytest.mark.django_db(transaction=True)
def test_a_day_that_somebody_else_drops_meanwhile_is_passed_over(
    keys: dict[Plan, ApiKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = written(keys[Plan.FREE], timedelta(days=4))
    there = partitions.existing()
    monkeypatch.setattr(partitions, "existing", lambda: [date(2020, 1, 1), *there])
    assert retention.blank() == 0
    assert kept() == {row}
    assert date(2020, 1, 1) not in retention.expire(NOW).days
    assert kept() == set()
