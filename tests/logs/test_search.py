"""Every question to the log is answered from an index, in the index's order."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.kernel.ids import new_id
from apps.logs import search
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.query import LogFilters
from tests.logs.entries import entry, id_at, write

ORGANIZATION, PROJECT, KEY = new_id(), new_id(), new_id()


def plan_of(question: Callable[[], object]) -> str:
    """Return how the database answers the first query of a question when sorting and reading all are no way out."""
    with CaptureQueriesContext(connection) as captured:
        question()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {captured.captured_queries[0]['sql']}")
        return "\n".join(line for (line,) in cursor.fetchall())


@pytest.fixture(autouse=True)
def _rows(db: None) -> None:
    write(*(entry(organization_id=ORGANIZATION, project_id=PROJECT, api_key_id=KEY) for _ in range(3)))


@pytest.mark.parametrize(
    ("narrowed", "filters", "index"),
    [
        ({}, {}, "organization_id_created_at_id"),
        ({"project_id": PROJECT}, {}, "project_id_created_at_id"),
        ({"project_id": PROJECT, "api_key_id": KEY}, {}, "api_key_id_created_at_id"),
        ({"project_id": PROJECT}, {"finish_reason": "length"}, "project_id_finish_reason_created_at_id"),
        ({"project_id": PROJECT}, {"source": "web"}, "project_id_source_created_at_id"),
        (
            {"project_id": PROJECT},
            {"unified_finish_reason": "upstream_error"},
            "project_id_unified_finish_reason_creat",
        ),
    ],
)
@pytest.mark.parametrize("ascending", [True, False])
def test_a_page_is_read_off_an_index(
    narrowed: dict[str, UUID], filters: dict[str, Any], index: str, ascending: bool
) -> None:
    scope = LogScope({ORGANIZATION: datetime.now(UTC) - timedelta(days=3)}, **narrowed)
    after = new_id()
    plan = plan_of(lambda: search.find_page(scope, LogFilters(**filters), count=51, after=after, ascending=ascending))
    assert set(re.findall(r"using request_log_\d+_(\w+?)_idx", plan)) == {index}
    assert "Sort" not in plan


def test_several_organizations_are_merged_not_sorted() -> None:
    since = datetime.now(UTC) - timedelta(days=3)
    scope = LogScope({ORGANIZATION: since, new_id(): since})
    plan = plan_of(lambda: search.find_page(scope, LogFilters(), count=51, after=None, ascending=False))
    assert "Merge Append" in plan
    assert set(re.findall(r"using request_log_\d+_(\w+?)_idx", plan)) == {"organization_id_created_at_id"}
    assert "Sort  (" not in plan


def test_only_the_days_in_question_are_looked_at() -> None:
    now = datetime.now(UTC)
    scope = LogScope({ORGANIZATION: now - timedelta(days=365)})
    today = LogFilters(start=now.replace(hour=0, minute=0, second=0, microsecond=0), end=now)
    plan = plan_of(lambda: search.find_page(scope, today, count=51, after=None, ascending=False))
    assert set(re.findall(r"request_log_(\d+)", plan)) == {f"{now:%Y%m%d}"}


def test_one_row_is_found_in_one_day() -> None:
    [identifier] = write(entry(organization_id=ORGANIZATION))
    scope = LogScope({ORGANIZATION: datetime.now(UTC) - timedelta(days=365)})
    plan = plan_of(lambda: search.find_row(scope, identifier))
    assert len(set(re.findall(r"request_log_(\d+)", plan))) == 1


def test_an_id_alone_finds_its_row_in_one_day_wherever_it_is_asked_for() -> None:
    """As the admin does."""
    [identifier] = write(entry())
    assert RequestLog.objects.get(pk=identifier).id == identifier
    plan = RequestLog.objects.filter(id=identifier).explain()
    assert len(set(re.findall(r"request_log_(\d+)", plan))) == 1
    assert not RequestLog.objects.filter(id=UUID(int=identifier.int ^ (0x7 << 76))).exists()


def test_custom_headers_have_an_index_of_their_own() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        # Where there are few rows, all that have headers are as quickly looked through.
        cursor.execute("DROP INDEX log_with_headers")
        for condition in (
            """custom_headers @> '{"team": "blue"}'""",
            "custom_headers ? 'team'",
            """custom_headers @? '$.* ? (@ == "blue")'""",
        ):
            cursor.execute(f"EXPLAIN SELECT id FROM request_log WHERE {condition}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "custom_headers_idx" in plan


def test_models_in_use_are_found_without_reading_rows() -> None:
    scope = LogScope({ORGANIZATION: datetime.now(UTC) - timedelta(days=3)}, PROJECT)
    with CaptureQueriesContext(connection) as captured:
        assert search.find_used_models(scope) == (["gpt-5"], ["openai"])
    assert [query["sql"] for query in captured.captured_queries if "request_log" in query["sql"]] == []


def test_many_organizations_are_looked_for_at_once_where_rows_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    other, late = new_id(), new_id()
    written = [write(entry(organization_id=one, id=id_at(now - timedelta(hours=5))))[0] for one in (other, late)]
    # Rows from before an organization's own beginning are not seen, though another organization's begins earlier.
    scope = LogScope({ORGANIZATION: now - timedelta(days=30), other: now - timedelta(days=30), late: now})
    pages = {}
    for walks in (0, 1_000):
        monkeypatch.setattr(search, "_MAX_WALKS", walks)
        pages[walks] = [
            search.find_page(scope, LogFilters(), count=count, after=None, ascending=ascending)
            for count in (2, 50)
            for ascending in (True, False)
        ]
    assert pages[0] == pages[1_000]
    assert pages[0][2][0]["id"] == written[0]
    assert [len(page) for page in pages[0]] == [2, 2, 4, 4]
