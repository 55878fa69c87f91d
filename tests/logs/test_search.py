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
from apps.logs.access import Scope
from apps.logs.models import RequestLog
from apps.logs.search import Filters
from tests.logs.entries import entry, write

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
    scope = Scope({ORGANIZATION: datetime.now(UTC) - timedelta(days=3)}, **narrowed)
    after = new_id()
    plan = plan_of(lambda: search.find_page(scope, Filters(**filters), count=51, after=after, ascending=ascending))
    assert set(re.findall(r"using request_log_\d+_(\w+?)_idx", plan)) == {index}
    assert "Sort" not in plan


def test_several_organizations_are_merged_not_sorted() -> None:
    since = datetime.now(UTC) - timedelta(days=3)
    scope = Scope({ORGANIZATION: since, new_id(): since})
    plan = plan_of(lambda: search.find_page(scope, Filters(), count=51, after=None, ascending=False))
    assert "Merge Append" in plan
    assert set(re.findall(r"using request_log_\d+_(\w+?)_idx", plan)) == {"organization_id_created_at_id"}
    assert "Sort  (" not in plan


def test_only_the_days_in_question_are_looked_at() -> None:
    now = datetime.now(UTC)
    scope = Scope({ORGANIZATION: now - timedelta(days=365)})
    today = Filters(start=now.replace(hour=0, minute=0, second=0, microsecond=0), end=now)
    plan = plan_of(lambda: search.find_page(scope, today, count=51, after=None, ascending=False))
    assert set(re.findall(r"request_log_(\d+)", plan)) == {f"{now:%Y%m%d}"}


def test_one_row_is_found_in_one_day() -> None:
    [identifier] = write(entry(organization_id=ORGANIZATION))
    scope = Scope({ORGANIZATION: datetime.now(UTC) - timedelta(days=365)})
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
        for condition in ("""custom_headers @> '{"team": "blue"}'""", "custom_headers ? 'team'"):
            cursor.execute(f"EXPLAIN SELECT id FROM request_log WHERE {condition}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            assert "custom_headers_idx" in plan


def test_models_in_use_are_found_without_reading_rows() -> None:
    scope = Scope({ORGANIZATION: datetime.now(UTC) - timedelta(days=3)}, PROJECT)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
        cursor.execute(f"EXPLAIN {search._USED}", [[PROJECT], [scope.since[ORGANIZATION]]])
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert set(re.findall(r"using request_log_\d+_(\w+?)_idx", plan)) == {"project_id_used_model_used_provider"}
