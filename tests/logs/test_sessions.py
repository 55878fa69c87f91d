"""Sessions: which are listed when, what their sums count, their turns, and that every question is an index scan."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.kernel.ids import new_id
from apps.logs import sessions
from apps.logs.access import LogScope
from apps.logs.query import LogFilters
from apps.logs.search import find_page
from apps.logs.sessions import LogSession, find_session, find_sessions, find_steps, turns_of
from tests.logs.entries import ago, entry, id_at, write

pytestmark = pytest.mark.django_db

ORGANIZATION, PROJECT, KEY = new_id(), new_id(), new_id()
OWNED = {"organization_id": ORGANIZATION, "project_id": PROJECT, "api_key_id": KEY}


def scope(days: float = 30, **narrowed: Any) -> LogScope:
    return LogScope({ORGANIZATION: ago(days=days)}, **narrowed)


def request(session: str | None, minutes: float, **fields: Any) -> Any:
    return entry(**{**OWNED, "id": id_at(ago(minutes=minutes)), "session_id": session, **fields})


def listed(count: int = 50, after: UUID | None = None, where: LogScope | None = None, **bounds: Any) -> list[str]:
    bounds = {"start": None, "end": None, **bounds}
    return [one.id for one in find_sessions(where or scope(), after=after, count=count, **bounds).sessions]


def test_sums_of_a_session() -> None:
    began = ago(minutes=30)
    write(
        request(
            "run",
            30,
            id=id_at(began),
            user_agent="claude-cli/2.1",
            unified_finish_reason="tool_calls",
            tool_call_counts={"Read": 2, "Bash": 1},
            cost=Decimal("0.01"),
            prompt_tokens=1_000,
            completion_tokens=50,
            cached_tokens=0,
        ),
        request("run", 29, has_error=True, unified_finish_reason="upstream_error", status_code=502),
        request(
            "run",
            20,
            user_agent="claude-cli/2.2",
            used_model="claude",
            tool_call_counts={"Bash": 4},
            cost=Decimal("0.000000000001"),
            prompt_tokens=3_000,
            completion_tokens=7,
            cached_tokens=2_000,
        ),
        request("run", 19, route="mcp_tool_call", used_model="tickets/find", cost=Decimal(0)),
        request("other", 1, cost=Decimal(9)),
        request(None, 1, cost=Decimal(9)),
    )
    found = find_session(scope(), "run")
    assert found is not None
    milliseconds = timedelta(microseconds=began.microsecond % 1000)
    assert found == LogSession(
        id="run",
        organization_id=ORGANIZATION,
        started_at=began - milliseconds,
        ended_at=found.ended_at,
        user_agent="claude-cli/2.2",
        models=["claude", "gpt-5", "tickets/find"],
        requests=4,
        turns=1,
        errors=1,
        input_tokens=4_000,
        output_tokens=57,
        cached_tokens=2_000,
        cost=Decimal("0.010000000001"),
        tools={"Bash": 5, "Read": 2},
    )
    assert list(found.tools) == ["Bash", "Read"]
    assert (found.cached_share, found.is_partial) == (0.5, False)
    assert 660_000 <= found.duration <= 660_200


def test_the_newest_request_decides_the_place_in_the_list() -> None:
    write(request("a", 30), request("b", 20), request("c", 10), request("a", 5), request(None, 1))
    assert listed() == ["a", "c", "b"]


def test_pages_name_every_session_once() -> None:
    write(*(request(f"s{number % 7}", number) for number in range(40)))
    seen, after = list[str](), None
    while True:
        page = find_sessions(scope(), start=None, end=None, after=after, count=3)
        seen += [one.id for one in page.sessions]
        after = page.next_after
        if after is None:
            break
    assert seen == [f"s{number}" for number in range(7)]


def test_a_page_that_passed_over_too_much_ends_early_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_BATCH", 5)
    monkeypatch.setattr(sessions, "MAX_PASSED", 10)
    write(*(request("long", 1 + number / 100) for number in range(22)), request("short", 60))
    pages, after = list[list[str]](), None
    for _ in range(9):
        page = find_sessions(scope(), start=None, end=None, after=after, count=3)
        pages.append([one.id for one in page.sessions])
        after = page.next_after
        if after is None:
            break
    assert pages == [["long"], [], ["short"]]


def test_a_period_has_the_sessions_whose_newest_request_is_in_it() -> None:
    write(request("old", 300), request("lasting", 300), request("lasting", 5), request("new", 10))
    end = ago(minutes=100)
    assert listed(end=end) == ["old"]
    assert listed(start=end) == ["lasting", "new"]


def test_what_the_scope_leaves_out_is_not_counted() -> None:
    other = new_id()
    write(
        request("run", 3, cost=Decimal(1)),
        request("run", 2, cost=Decimal(2), project_id=other),
        request("run", 1, cost=Decimal(4), organization_id=other),
        request("theirs", 1, organization_id=other),
        request("expired", 60 * 24 * 3),
    )
    two_days = scope(2)
    assert listed(where=two_days) == ["run"]
    assert [find_session(two_days, name) for name in ("theirs", "expired", "\0")] == [None] * 3
    sums = [find_session(one, "run") for one in (two_days, scope(2, project_id=PROJECT), scope(2, project_id=other))]
    assert [one and one.cost for one in sums] == [Decimal(3), Decimal(1), Decimal(2)]
    assert listed(where=scope(2, api_key_id=new_id())) == []


def test_only_the_newest_requests_of_a_long_session_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SUMMED", 3)
    write(*(request("long", 10 - number, cost=Decimal(10**number)) for number in range(5)))
    found = find_session(scope(), "long")
    assert found is not None
    assert (found.requests, found.cost, found.is_partial) == (3, Decimal(11100), True)


def test_requests_come_in_order_with_the_cost_so_far() -> None:
    written = write(*(request("run", 10 - number, cost=Decimal(10**number)) for number in range(4)))
    found = find_session(scope(), "run")
    assert found is not None
    steps = find_steps(scope(), found, after=None, count=3)
    assert [step.id for step in steps] == written[:3]
    assert [step.running_cost for step in steps] == [Decimal(1), Decimal(11), Decimal(111)]
    [last] = find_steps(scope(), found, after=written[2], count=3)
    assert (last.id, last.running_cost) == (written[3], Decimal(1111))


def test_results_of_tools_continue_a_turn() -> None:
    tools = {"unified_finish_reason": "tool_calls"}
    write(
        request("run", 20, requested_model="big", cost=Decimal(1), **tools),
        request("run", 19, requested_model="small"),
        request("run", 18, route="mcp_tool_call", requested_model="tickets/find"),
        request("run", 17, requested_model="big", has_error=True, unified_finish_reason="upstream_error"),
        request("run", 16, requested_model="big", cost=Decimal(2), duration=60_000),
        request("run", 15, requested_model="big", **tools),
    )
    found = find_session(scope(), "run")
    assert found is not None
    turns = turns_of(find_steps(scope(), found, after=None, count=50))
    assert [(turn.model, [step.requested_model for step in turn.steps], turn.is_over) for turn in turns] == [
        ("big", ["big", "tickets/find", "big", "big"], True),
        ("small", ["small"], True),
        ("big", ["big"], False),
    ]
    assert (turns[0].cost, found.turns) == (Decimal(3), 2)
    assert 300_000 - 100 <= turns[0].duration <= 300_000 + 100


def test_the_log_is_filtered_by_session() -> None:
    mine = write(request("run", 2), request("run", 1))
    write(request("other", 1), request("run", 1, organization_id=new_id()))
    filters = LogFilters(session_id="run")
    rows = find_page(scope(), filters, count=9, after=None, ascending=True)
    assert [row["id"] for row in rows] == mine
    assert {row["session_id"] for row in rows} == {"run"}


def plans_of(question: Callable[[], object], *dropped: str) -> list[str]:
    """Return the plans of all queries to the log without these indexes, when reading all rows is no way out."""
    with CaptureQueriesContext(connection) as captured:
        question()
    plans = []
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        for name in dropped:
            cursor.execute(f"DROP INDEX IF EXISTS {name}")
        for query in captured.captured_queries:
            cursor.execute(f"EXPLAIN {query['sql']}")
            plans.append("\n".join(line for (line,) in cursor.fetchall()))
    return plans


def test_every_question_is_read_off_the_indexes_of_sessions() -> None:
    [newest, *_] = write(request("run", 1), request("run", 2), request("other", 3))
    near = LogScope({ORGANIZATION: ago(days=2)})
    found = find_session(near, "run")
    assert found is not None
    # Few rows are as quickly found by time.
    by_time = ("log_with_session", "log_organization")
    heads, *_ = plans_of(lambda: find_sessions(near, start=None, end=None, after=None, count=5), "log_organization")
    _, newer, sums = plans_of(lambda: find_sessions(near, start=None, end=None, after=newest, count=5), *by_time)
    [steps] = plans_of(lambda: find_steps(near, found, after=None, count=5), *by_time)
    [page, *_] = plans_of(
        lambda: find_page(near, LogFilters(session_id="run"), count=5, after=None, ascending=False), *by_time
    )
    plans = {"heads": heads, "newer": newer, "sums": sums, "steps": steps, "page": page}
    used = {
        name: set(re.findall(r"using request_log_\d+_(\w+?)(?:_created_\w+)?_idx1?", plan))
        for name, plan in plans.items()
    }
    by_session = {"organization_id_session_id"}
    others = dict.fromkeys(("newer", "sums", "steps", "page"), by_session)
    assert used == {"heads": {"organization_id"}, **others}, plans
    for name, plan in plans.items():
        assert "Seq Scan on request_log" not in plan, name
    for name in ("heads", "steps", "page"):
        assert "Sort  (" not in plans[name], name
