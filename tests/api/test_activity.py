"""Activity, day by day (sections 4.5 and 2.13)."""

# length: one section of the specification, clause by clause; windows, scopes and files share their set-up.

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.logs import rollup
from apps.organizations.models import Organization, Role
from tests.logs.entries import entry, id_at, write
from tests.support.cast import Caller, World, default_project, join, make_key, make_organization, signed_in

# Specification 2.13, every name of it.
SPECIFIED = {
    *("date", "requestCount", "inputTokens", "outputTokens", "cachedTokens", "totalTokens", "errorCount", "cacheCount"),
    *("creditsRequestCount", "apiKeysRequestCount", "cost", "inputCost", "outputCost", "requestCost"),
    *("dataStorageCost", "imageInputCost", "imageOutputCost", "cachedInputCost", "discountSavings"),
    *("creditsCost", "apiKeysCost", "creditsDataStorageCost", "apiKeysDataStorageCost"),
    *("errorRate", "cacheRate", "modelBreakdown"),
}


def midnight() -> datetime:
    """Return the start of the current day; not a constant, for a whole run of tests may pass midnight."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def at(days_ago: int, hours: float = 0) -> UUID:
    """Return an id made so many hours into the day so many days ago."""
    return id_at(midnight() - timedelta(days=days_ago) + timedelta(hours=hours))


def day(days_ago: int) -> str:
    """Return the day so many days ago."""
    return (midnight() - timedelta(days=days_ago)).date().isoformat()


@pytest.fixture
def key(world: World) -> ApiKey:
    """A key of Acme's default project."""
    return make_key(world.olivia, world.project).key


@pytest.fixture
def olivia(world: World) -> Caller:
    """Olivia, signed in."""
    return signed_in(world.olivia)


def activity(caller: Caller, **query: str) -> list[dict[str, Any]]:
    """Return the days of a successful answer; decimals stay decimals."""
    response = caller.get("/activity", **query)
    assert response.status_code == 200, response.content
    assert response["Content-Type"] == "application/json"
    body = json.loads(response.content, parse_float=Decimal)
    assert set(body) == {"activity"}
    return list(body["activity"])


def counts(caller: Caller, **query: str) -> dict[str, int]:
    """Return the number of requests by day."""
    return {one["date"]: one["requestCount"] for one in activity(caller, **query)}


def test_a_day_has_every_field_of_2_13(olivia: Caller, key: ApiKey) -> None:
    write(
        entry(
            key,
            id=at(0),
            prompt_tokens=1000,
            completion_tokens=200,
            cached_tokens=300,
            total_tokens=1200,
            cost=Decimal("0.000000000028"),
            input_cost=Decimal("0.000000000001"),
            output_cost=Decimal("0.000000000002"),
            cached_input_cost=Decimal("0.000000000003"),
            cache_write_cost=Decimal("0.000000000004"),
            request_cost=Decimal("0.000000000005"),
            web_search_cost=Decimal("0.000000000006"),
            image_input_cost=Decimal("0.000000000003"),
            image_output_cost=Decimal("0.000000000004"),
            data_storage_cost=Decimal("0.000012"),
            discount_savings=Decimal("0.5"),
            cached=True,
        ),
        entry(
            key,
            id=at(0),
            used_model="claude",
            used_provider="anthropic",
            prompt_tokens=10,
            completion_tokens=5,
            total_tokens=15,
            cost=Decimal("1.5"),
            input_cost=Decimal("1.5"),
            data_storage_cost=Decimal("0.00000015"),
            used_mode="api-keys",
            has_error=True,
        ),
        entry(key, id=at(0), cost=Decimal(0), canceled=True),
    )
    [today] = activity(olivia)
    assert set(today) == SPECIFIED
    assert today == {
        "date": day(0),
        "requestCount": 3,
        "inputTokens": 1010,
        "outputTokens": 205,
        "cachedTokens": 300,
        "totalTokens": 1215,
        "errorCount": 1,
        "cacheCount": 1,
        "creditsRequestCount": 2,
        "apiKeysRequestCount": 1,
        "cost": Decimal("1.500012150028"),
        "inputCost": Decimal("1.500000000005"),
        "outputCost": Decimal("0.000000000002"),
        "cachedInputCost": Decimal("0.000000000003"),
        "requestCost": Decimal("0.000000000011"),
        "dataStorageCost": Decimal("0.00001215"),
        "imageInputCost": Decimal("0.000000000003"),
        "imageOutputCost": Decimal("0.000000000004"),
        "discountSavings": Decimal("0.5"),
        "creditsCost": Decimal("0.000012000028"),
        "apiKeysCost": Decimal("1.50000015"),
        "creditsDataStorageCost": Decimal("0.000012"),
        "apiKeysDataStorageCost": Decimal("0.00000015"),
        "errorRate": pytest.approx(Decimal(100) / 3),
        "cacheRate": pytest.approx(Decimal(100) / 3),
        "modelBreakdown": [
            {
                "id": "claude",
                "provider": "anthropic",
                "requestCount": 1,
                "inputTokens": 10,
                "outputTokens": 5,
                "totalTokens": 15,
                "cost": Decimal("1.50000015"),
            },
            {
                "id": "gpt-5",
                "provider": "openai",
                "requestCount": 2,
                "inputTokens": 1000,
                "outputTokens": 200,
                "totalTokens": 1200,
                "cost": Decimal("0.000012000028"),
            },
        ],
    }
    parts = ("inputCost", "outputCost", "requestCost", "dataStorageCost", "imageInputCost", "imageOutputCost")
    assert today["cost"] == sum(today[name] for name in (*parts, "cachedInputCost"))
    assert today["cost"] == today["creditsCost"] + today["apiKeysCost"]


def test_days_are_newest_first_and_those_without_requests_are_left_out(olivia: Caller, key: ApiKey) -> None:
    assert activity(olivia) == []
    write(*(entry(key, id=at(days)) for days in (3, 0, 1)))
    assert [one["date"] for one in activity(olivia)] == [day(0), day(1), day(3)]


def test_the_last_seven_days_unless_it_says_otherwise(olivia: Caller, key: ApiKey) -> None:
    write(*(entry(key, id=at(days)) for days in (0, 6, 7, 364, 365)))
    assert list(counts(olivia)) == [day(0), day(6)]
    assert list(counts(olivia, days="1")) == [day(0)]
    assert list(counts(olivia, days="8")) == [day(0), day(6), day(7)]
    # No further back than a year.
    assert list(counts(olivia, days="365")) == [day(0), day(6), day(7), day(364)]
    assert list(counts(olivia, **{"from": "2001-01-01", "to": day(0)})) == [day(0), day(6), day(7), day(364)]


def test_from_and_to_are_included_and_days_is_ignored(olivia: Caller, key: ApiKey) -> None:
    write(*(entry(key, id=at(days)) for days in (1, 2, 3, 4)))
    for days in ("1", "nonsense", "0"):
        assert list(counts(olivia, **{"from": day(3), "to": day(2), "days": days})) == [day(2), day(3)]
    assert list(counts(olivia, **{"from": day(3)})) == [day(1), day(2), day(3)]
    assert list(counts(olivia, to=day(2), days="2")) == [day(2), day(3)]


def test_days_that_are_still_to_come_are_an_empty_list(olivia: Caller, key: ApiKey) -> None:
    """A client east of Greenwich is in tomorrow for hours before UTC is."""
    write(entry(key))
    tomorrow = (datetime.now(UTC).date() + timedelta(days=1)).isoformat()
    for query in ({"from": tomorrow}, {"from": tomorrow, "to": tomorrow}, {"from": tomorrow, "to": "2999-01-01"}):
        response = olivia.get("/activity", **query)
        assert (response.status_code, response.json()) == (200, {"activity": []}), query


def test_days_are_those_of_utc(olivia: Caller, key: ApiKey) -> None:
    start = midnight() - timedelta(days=1)
    write(entry(key, id=id_at(start - timedelta(milliseconds=1))), entry(key, id=id_at(start)))
    assert counts(olivia) == {day(1): 1, day(2): 1}


@pytest.mark.parametrize("folded", [False, True])
def test_today_is_included_before_and_after_it_is_rolled_up(olivia: Caller, key: ApiKey, folded: bool) -> None:
    for number in (1, 2, 3):
        write(entry(key, id=at(0)))
        if folded:
            assert rollup.roll_up() == 1
        assert counts(olivia) == {day(0): number}
    assert rollup.roll_up() == (0 if folded else 3)
    assert counts(olivia) == {day(0): 3}


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"days": "0"}, "days"),
        ({"days": "366"}, "days"),
        ({"days": "1.5"}, "days"),
        ({"days": "nonsense", "from": "2026-01-01"}, "days"),
        ({"from": "yesterday"}, "from"),
        ({"from": "20260101"}, "from"),
        ({"to": "2026-02-30"}, "to"),
        ({"to": "2026-1-1"}, "to"),
        ({"from": "2026-01-02", "to": "2026-01-01"}, "from"),
        ({"projectId": ""}, "projectId"),
    ],
)
def test_a_wrong_query_is_refused_by_name(olivia: Caller, query: dict[str, str], path: str) -> None:
    response = olivia.get("/activity", **query)
    assert response.status_code == 400
    assert [issue["path"] for issue in response.json()["issues"]] == [path]


def test_the_first_and_the_last_day_there_are(olivia: Caller) -> None:
    assert activity(olivia, **{"from": date.min.isoformat(), "to": date.max.isoformat()}) == []
    assert activity(olivia, to=date.min.isoformat(), days="365") == []


@pytest.mark.parametrize("folded", [False, True])
def test_a_project_and_a_key_narrow_it(world: World, olivia: Caller, key: ApiKey, folded: bool) -> None:
    other_key = make_key(world.dana, world.project).key
    project = world.acme.projects.create(name="Second")
    elsewhere_in_acme = make_key(world.olivia, project).key
    write(entry(key, id=at(0)), entry(other_key, id=at(0)), entry(other_key, id=at(0)))
    write(*(entry(elsewhere_in_acme, id=at(0)) for _ in range(4)))
    if folded:
        rollup.roll_up()
    assert counts(olivia) == {day(0): 7}
    assert counts(olivia, orgId=str(world.acme.id)) == {day(0): 7}
    assert counts(olivia, projectId=str(world.project.id)) == {day(0): 3}
    assert counts(olivia, apiKeyId=str(other_key.id)) == {day(0): 2}
    assert counts(olivia, apiKeyId=str(other_key.id), projectId=str(world.project.id)) == {day(0): 2}
    assert counts(olivia, apiKeyId=str(other_key.id), projectId=str(project.id)) == {}


def test_it_is_that_of_the_callers_organizations(world: World, olivia: Caller, key: ApiKey) -> None:
    sams = make_key(world.sam, world.elsewhere_project).key
    shared = make_organization(owner=world.sam, name="Shared")
    join(shared, world.olivia, Role.DEVELOPER)
    write(
        entry(key, id=at(0)), entry(sams, id=at(0)), entry(make_key(world.sam, default_project(shared)).key, id=at(0))
    )
    assert counts(olivia) == {day(0): 2}
    assert counts(signed_in(world.sam)) == {day(0): 2}
    for query in (
        {"projectId": str(world.elsewhere_project.id)},
        {"apiKeyId": str(sams.id)},
        {"orgId": str(world.elsewhere.id)},
    ):
        response = olivia.get("/activity", **query)
        assert (response.status_code, response.json()) == (
            403,
            {"message": "You are not a member of this organization"},
        )
    for query in ({"projectId": str(new_id())}, {"apiKeyId": str(new_id())}, {"orgId": "nonsense"}):
        assert olivia.get("/activity", **query).status_code == 404


def test_what_a_deleted_key_did_stays(world: World, olivia: Caller, key: ApiKey) -> None:
    write(entry(key, id=at(0)))
    assert olivia.send("DELETE", f"/keys/api/{key.id}", {}).status_code == 200
    assert counts(olivia, apiKeyId=str(key.id)) == {day(0): 1}


def test_a_deleted_organization_is_not_seen(world: World, olivia: Caller, key: ApiKey) -> None:
    write(entry(key, id=at(0)))
    Organization.objects.filter(id=world.acme.id).update(status=Organization.Status.DELETED)
    assert activity(olivia) == []


def test_an_api_key_does_not_do(world: World) -> None:
    caller = Caller(make_key(world.olivia, world.project).token)
    assert caller.get("/activity").status_code == 401
    assert caller.get("/activity/export").status_code == 401


def test_a_request_that_nobody_answered_counts_for_the_model_it_named(olivia: Caller, key: ApiKey) -> None:
    write(entry(key, id=at(0), requested_model="gpt-9", used_model="", used_provider="", has_error=True))
    [today] = activity(olivia)
    assert [(one["id"], one["provider"]) for one in today["modelBreakdown"]] == [("gpt-9", "")]
    assert (today["errorCount"], today["errorRate"]) == (1, 100)


def test_the_same_as_a_file(olivia: Caller, key: ApiKey) -> None:
    write(entry(key, id=at(0), cost=Decimal("0.25")), entry(key, id=at(1), used_model="=HYPERLINK(1)"))
    listed = activity(olivia)
    lines = olivia.get("/activity/export", format="jsonl")
    assert (lines.status_code, lines["Content-Type"]) == (200, "application/jsonl")
    assert lines["Content-Disposition"] == 'attachment; filename="activity.jsonl"'
    assert [json.loads(line, parse_float=Decimal) for line in lines.getvalue().splitlines()] == listed
    table = olivia.get("/activity/export")
    assert (table.status_code, table["Content-Type"]) == (200, "text/csv; charset=utf-8")
    header, *rows = csv.reader(io.StringIO(table.getvalue().decode(), newline=""))
    assert set(header) == SPECIFIED
    assert [dict(zip(header, row, strict=True))["cost"] for row in rows] == ["0.25", "0"]
    assert json.loads(dict(zip(header, rows[0], strict=True))["modelBreakdown"])[0]["id"] == "gpt-5"
    assert olivia.get("/activity/export", format="xls").status_code == 400
