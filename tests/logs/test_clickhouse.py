"""Older days in ClickHouse: every question is answered as PostgreSQL would answer it.

Needs `chdb`, ClickHouse in this process (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from apps.kernel.errors import Overloaded
from apps.kernel.ids import new_id, time_of
from apps.kernel.postgres.advisory_lock import AdvisoryLock, hold_lock
from apps.keys.models import ApiKey
from apps.logs import archive, hooks, partitions, search, tasks
from apps.logs.access import LogScope
from apps.logs.models import LogRetention, RequestLog
from apps.logs.query import LogFilters, LogRow
from apps.organizations.models import Plan
from tests.logs.entries import FULL, entry, id_at, write
from tests.support.cast import World, default_project, make_key, make_organization

pytest.importorskip("chdb", reason="chdb is not installed: pip install chdb")
exceptions = pytest.importorskip(
    "clickhouse_connect.driver.exceptions", reason="clickhouse-connect is not installed: the extra `clickhouse`"
)

URL = "chdb://memory"
NOW = datetime.now(UTC)
TODAY = NOW.date()


@pytest.fixture(autouse=True)
def _clickhouse(db: None, settings: Any) -> Iterator[None]:
    partitions.drop_before(date.max)
    settings.CLICKHOUSE_URL = URL
    yield
    settings.CLICKHOUSE_URL = URL
    client()._client(30).command("TRUNCATE TABLE IF EXISTS request_log")


def client() -> Any:
    """Return the store that is configured."""
    from apps.logs.clickhouse import ClickHouse

    older = archive.find_archive()
    assert isinstance(older, ClickHouse)
    return older


def moved() -> int:
    """Return how many rows are in ClickHouse, one of each."""
    [(count,)] = client()._read("SELECT count() FROM request_log", {})
    return int(count)


@pytest.fixture
def keys(world: World) -> list[ApiKey]:
    """Three keys: two of one organization's projects, one of another's."""
    acme, other = (make_organization(owner=world.sam, name=name, plan=Plan.ENTERPRISE) for name in ("one", "two"))
    second = acme.projects.create(name="second")
    return [make_key(world.sam, project).key for project in (default_project(acme), second, default_project(other))]


@pytest.fixture
def ids(keys: list[ApiKey]) -> list[UUID]:
    """Rows of 20 days, several in one millisecond, of every kind that a filter tells apart."""
    entries = []
    for number in range(60):
        moment = NOW - timedelta(days=number // 3, seconds=number % 2)
        unusual = {
            0: {},
            1: {"used_model": "rare", "source": "back\\slash 'quote' \t tab"},
            2: {"custom_headers": {"team": "blue", "note": 'he said "hi"'}, "finish_reason": "length"},
            3: {"unified_finish_reason": "upstream_error", "has_error": True, "used_provider": "azure"},
            4: {"custom_headers": {"team": ""}, "source": "web", "provider_key_id": FULL["provider_key_id"]},
        }[number % 5]
        content = FULL if number % 7 == 0 else {}
        fields = {**content, "cost": Decimal(number) / 1_000_000_000, **unusual}
        entries.append(entry(keys[number % 3], id=id_at(moment), **fields))
    return write(*entries)


def pages(scope: LogScope, filters: LogFilters, *, count: int, ascending: bool) -> list[LogRow]:
    """Return all rows, read page by page."""
    rows: list[LogRow] = []
    while True:
        after = rows[-1]["id"] if rows else None
        page = search.find_page(scope, filters, count=count, after=after, ascending=ascending)
        rows += page
        if len(page) < count:
            return rows


FILTERS = [
    LogFilters(),
    LogFilters(start=NOW - timedelta(days=12), end=NOW - timedelta(days=3)),
    LogFilters(end=NOW - timedelta(days=10)),
    LogFilters(model="rare"),
    LogFilters(model="openai/gpt-5"),
    LogFilters(model="azure/rare"),
    LogFilters(provider="azure"),
    LogFilters(finish_reason="length"),
    LogFilters(unified_finish_reason="upstream_error"),
    LogFilters(source="back\\slash 'quote' \t tab"),
    LogFilters(source="web", provider="openai"),
    LogFilters(header_key="Team"),
    LogFilters(header_key="team", header_value="blue"),
    LogFilters(header_key="team", header_value=""),
    LogFilters(header_key="nothing", header_value=""),
    LogFilters(header_value='he said "hi"'),
    LogFilters(model="never"),
]


@pytest.mark.parametrize("ascending", [True, False])
def test_the_same_rows_in_the_same_order(keys: list[ApiKey], ids: list[UUID], ascending: bool) -> None:
    organization, other = keys[0].project.organization_id, keys[2].project.organization_id
    since = {organization: NOW - timedelta(days=300), other: NOW - timedelta(days=15)}
    scopes = [
        LogScope(since),
        LogScope({organization: since[organization]}),
        LogScope({organization: since[organization]}, keys[1].project_id),
        LogScope({organization: since[organization]}, keys[0].project_id, keys[0].id),
        LogScope(since, provider_key_id=FULL["provider_key_id"]),
        # The keys of a team, and of a team without any.
        LogScope({organization: since[organization]}, key_ids=frozenset({keys[1].id, keys[2].id})),
        LogScope({organization: since[organization]}, keys[0].project_id, key_ids=frozenset({keys[0].id, keys[1].id})),
        LogScope({organization: since[organization]}, key_ids=frozenset()),
        LogScope({new_id(): NOW - timedelta(days=300)}),
        LogScope({}),
    ]
    questions = [
        (scope, filters, count)
        for scope in scopes
        for filters in FILTERS
        for count in ((7, 100) if filters == LogFilters() else (30,))
    ]
    before = [pages(scope, filters, count=count, ascending=ascending) for scope, filters, count in questions]
    one_by_one = [search.find_row(scopes[0], identifier) for identifier in ids]
    assert (len(before[0]), len(before[1])) == (55, 55)
    assert archive.archive_closed_days(NOW) == [
        TODAY - timedelta(days=age) for age in range(19, archive.KEPT_DAYS - 1, -1)
    ]
    assert RequestLog.objects.count() + moved() == 60
    assert moved() == 39
    after = [pages(scope, filters, count=count, ascending=ascending) for scope, filters, count in questions]
    assert after == before
    assert [search.find_row(scopes[0], identifier) for identifier in ids] == one_by_one


def test_recent_pages_do_not_ask_it(keys: list[ApiKey], ids: list[UUID], monkeypatch: pytest.MonkeyPatch) -> None:
    """They work while it is away."""
    archive.archive_closed_days(NOW)
    scope = LogScope({keys[0].project.organization_id: NOW - timedelta(days=300)})

    def away(*_: object, **__: object) -> None:
        raise exceptions.OperationalError("no route to host")

    monkeypatch.setattr(client()._client(30), "query", away)
    assert len(search.find_page(scope, LogFilters(), count=5, after=None, ascending=False)) == 5
    assert search.find_row(scope, ids[0]) is not None
    recent = LogFilters(start=NOW - timedelta(days=5))
    assert len(search.find_page(scope, recent, count=100, after=None, ascending=True)) == 10
    with pytest.raises(Overloaded, match="older days"):
        search.find_page(scope, LogFilters(), count=100, after=None, ascending=False)


def test_a_move_that_is_cut_short_is_repeated_and_every_row_is_seen_once(
    keys: list[ApiKey], ids: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    scope = LogScope({key.project.organization_id: NOW - timedelta(days=300) for key in keys})
    before = pages(scope, LogFilters(), count=7, ascending=False)
    drop = partitions.drop
    monkeypatch.setattr(partitions, "drop", lambda day, may_go: False)
    assert archive.archive_closed_days(NOW) == []
    assert (RequestLog.objects.count(), moved()) == (60, 39)
    assert pages(scope, LogFilters(), count=7, ascending=False) == before
    monkeypatch.setattr(partitions, "drop", drop)
    assert len(archive.archive_closed_days(NOW)) == 13
    assert (RequestLog.objects.count(), moved()) == (21, 39)
    assert pages(scope, LogFilters(), count=7, ascending=False) == before
    assert archive.archive_closed_days(NOW) == []


@pytest.mark.parametrize("change", ["written", "replaced", "removed"])
def test_a_day_that_changes_while_it_is_moved_stays_until_the_next_run(
    keys: list[ApiKey], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    moment = NOW - timedelta(days=9)
    swept = entry(keys[0], id=id_at(moment), swept=True, content=None)
    write(swept)
    drop = partitions.drop

    def drop_after_a_change(day: date, may_go: Any) -> bool:
        match change:
            case "written":
                write(entry(keys[0], id=id_at(moment)))
            case "replaced":
                write(entry(keys[0], id=swept.id, content="its own word"))
            case _:
                RequestLog.objects.filter(id=swept.id).delete()
        return drop(day, may_go)

    monkeypatch.setattr(partitions, "drop", drop_after_a_change)
    assert archive.archive_closed_days(NOW) == []
    monkeypatch.setattr(partitions, "drop", drop)
    assert archive.archive_closed_days(NOW) == [moment.date()]
    scope = LogScope({keys[0].project.organization_id: NOW - timedelta(days=300)})
    rows = pages(scope, LogFilters(), count=10, ascending=False)
    assert len(rows) == {"written": 2, "replaced": 1, "removed": 1}[change]
    if change == "replaced":
        assert [row["content"] for row in rows] == ["its own word"]


def test_a_record_that_comes_late_is_found_and_moved_to_the_others(keys: list[ApiKey], ids: list[UUID]) -> None:
    archive.archive_closed_days(NOW)
    moment = time_of(ids[-1]) + timedelta(milliseconds=1)
    [late] = write(entry(keys[0], id=id_at(moment)))
    scope = LogScope({key.project.organization_id: NOW - timedelta(days=300) for key in keys})
    for _ in range(2):
        rows = pages(scope, LogFilters(), count=7, ascending=True)
        assert {row["id"] for row in rows} == {late, *ids}
        assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
        archive.archive_closed_days(NOW)
    assert moved() == 40


def test_retention_goes_on_there(keys: list[ApiKey], ids: list[UUID]) -> None:
    archive.archive_closed_days(NOW)
    organization = keys[0].project.organization
    LogRetention.objects.create(organization=organization, days=10)
    tasks.expire()
    left = [time_of(UUID(int=identifier)) for (identifier,) in client()._read("SELECT id FROM request_log", {})]
    others = [one for number, one in enumerate(ids) if number % 3 == 2 and number // 3 >= archive.KEPT_DAYS]
    own = [one for number, one in enumerate(ids) if number % 3 != 2 and archive.KEPT_DAYS <= number // 3 < 10]
    assert sorted(left) == sorted(time_of(one) for one in (*others, *own))
    LogRetention.objects.create(organization=keys[2].project.organization, days=10)
    tasks.expire()
    assert moved() == len(own) + 3
    days = "SELECT DISTINCT partition FROM system.parts WHERE active AND table = 'request_log' ORDER BY 1"
    assert len(client()._client(30).query(days).result_rows) == 4


def test_a_lowered_level_blanks_there_as_it_does_here(keys: list[ApiKey]) -> None:
    full = {**FULL, "retention_level": "retain", "error_details": {"status": 502, "message": "words", "n": [1, "x"]}}
    old, neighbor = write(*(entry(keys[place], id=id_at(NOW - timedelta(days=9)), **full) for place in (0, 2)))
    [recent] = write(entry(keys[0], id=id_at(NOW - timedelta(days=1)), **full))
    scope = LogScope({key.project.organization_id: NOW - timedelta(days=300) for key in keys})
    for key in keys[1:]:
        organization = key.project.organization
        organization.retention_level = "retain"
        organization.save()
    untouched = search.find_row(scope, neighbor)
    archive.archive_closed_days(NOW)
    organization = keys[0].project.organization
    for level in ("metadata", "none"):
        organization.retention_level = level
        organization.save()
        tasks.blank()
        here, there = (search.find_row(scope, identifier) for identifier in (recent, old))
        assert here is not None
        assert there is not None
        blanked = {name for name, value in here.items() if value is None}
        assert {"messages", "content", "tool_results"} <= blanked
        assert {name for name, value in there.items() if value is None} == blanked
        assert "message" not in str(there["error_details"])
        # A boolean stays one.
        assert {name: type(value) for name, value in there.items()} == {name: type(here[name]) for name in here}
        assert {name for name in here if here[name] != there[name]} <= {"id", "created_at", "error_details"}
    assert search.find_row(scope, neighbor) == untouched


def test_an_erased_organization_is_gone_there_too(keys: list[ApiKey], ids: list[UUID]) -> None:
    archive.archive_closed_days(NOW)
    hooks.erase(keys[0].project.organization_id)
    scope = LogScope({key.project.organization_id: NOW - timedelta(days=300) for key in keys})
    left = pages(scope, LogFilters(), count=100, ascending=False)
    assert {row["organization_id"] for row in left} == {keys[2].project.organization_id}
    assert len(left) == 20
    assert moved() == 13


def test_without_it_nothing_is_moved(keys: list[ApiKey], ids: list[UUID], settings: Any) -> None:
    settings.CLICKHOUSE_URL = ""
    tasks.move()
    assert RequestLog.objects.count() == 60


def test_two_do_not_change_it_at_once(transactional_db: None) -> None:
    with hold_lock(AdvisoryLock.CHANGE_OLDER_LOGS):
        other = connection.copy()
        try:
            with other.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(%s)", [AdvisoryLock.CHANGE_OLDER_LOGS.value])
                assert cursor.fetchone() == (False,)
        finally:
            other.close()
