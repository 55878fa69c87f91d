"""`/logs/sessions`: sessions of the caller's logs with their sums, and the requests of one, page by page."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from django.http import HttpResponse

from apps.kernel.ids import time_of
from apps.keys.actions import CreatedKey
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import Caller, World, make_key, make_management_key, signed_in
from tests.support.upstream import Caller as GatewayCaller
from tests.support.upstream import chunks_of, settle_all

MARK = {"tool": "send_mail", "argument": "to", "kind": "email", "source": "read_mail"}


@pytest.fixture
def created(world: World) -> CreatedKey:
    """A key of Acme's default project."""
    return make_key(world.olivia, world.project)


@pytest.fixture
def key(created: CreatedKey) -> ApiKey:
    """The same, as a row."""
    return created.key


def body(response: HttpResponse) -> Any:
    assert response.status_code == 200, response.content
    return json.loads(response.content, parse_float=Decimal)


def run(key: ApiKey, session: str, *minutes: float, **fields: Any) -> list[Any]:
    """Write requests of a session so many minutes ago; return their ids."""
    made = [entry(key, id=id_at(ago(minutes=one)), session_id=session, **fields) for one in minutes]
    return list(write(*made))


def moment(identifier: Any) -> str:
    return time_of(identifier).isoformat().replace("+00:00", "Z")


def test_a_session_has_its_sums_and_its_requests(created: CreatedKey, key: ApiKey) -> None:
    sums = {"cost": Decimal("0.000000000001"), "prompt_tokens": 900, "completion_tokens": 7, "cached_tokens": 300}
    tools = {"unified_finish_reason": "tool_calls", "tool_call_counts": {"Read": 2}}
    [first] = run(key, "a/b", 5, duration=0, user_agent="claude-cli/2.1", **sums, **tools)
    marked = {"provider": "openai", "tool_argument_origins": [MARK]}
    [second] = run(key, "a/b", 4, duration=0, time_to_first_token=3, routing_metadata=marked, **sums)
    run(key, "else", 9)
    caller = Caller(created.token)

    session = {
        "id": "a/b",
        "organizationId": str(key.project.organization_id),
        "userAgent": "claude-cli/2.1",
        "startedAt": moment(first),
        "endedAt": moment(second),
        "duration": round((time_of(second) - time_of(first)).total_seconds() * 1000),
        "models": ["gpt-5"],
        "requestCount": 2,
        "turnCount": 1,
        "errorCount": 0,
        "inputTokens": 1800,
        "outputTokens": 14,
        "cachedTokens": 600,
        "cost": Decimal("0.000000000002"),
        "tools": {"Read": 2},
        "isPartial": False,
    }
    listed = body(caller.get("/logs/sessions"))
    assert [one["id"] for one in listed["sessions"]] == ["a/b", "else"]
    assert listed["sessions"][0] == session
    assert listed["pagination"] == {"nextCursor": None, "hasMore": False, "limit": 50}

    shown = body(caller.get("/logs/sessions/a%2Fb"))
    assert shown["session"] == session
    usual = {
        "route": "chat_completions",
        "duration": 0,
        "requestedModel": "gpt-5",
        "usedModel": "gpt-5",
        "usedProvider": "openai",
        "statusCode": 200,
        "hasError": False,
        "canceled": None,
        "cached": None,
        "inputTokens": 900,
        "outputTokens": 7,
        "cachedTokens": 300,
        "cost": Decimal("0.000000000001"),
    }
    assert shown["requests"] == [
        {
            **usual,
            "id": str(first),
            "createdAt": moment(first),
            "timeToFirstToken": None,
            "unifiedFinishReason": "tool_calls",
            "tools": {"Read": 2},
            "markedArguments": None,
            "runningCost": Decimal("0.000000000001"),
        },
        {
            **usual,
            "id": str(second),
            "createdAt": moment(second),
            "timeToFirstToken": 3,
            "unifiedFinishReason": "completed",
            "tools": None,
            "markedArguments": [MARK],
            "runningCost": Decimal("0.000000000002"),
        },
    ]


def test_lists_and_requests_come_in_pages(created: CreatedKey, key: ApiKey) -> None:
    ids = run(key, "long", 30, 20, 10)
    run(key, "old", 60)
    caller = Caller(created.token)
    first = body(caller.get("/logs/sessions", limit="1"))
    assert ([one["id"] for one in first["sessions"]], first["pagination"]["hasMore"]) == (["long"], True)
    second = body(caller.get("/logs/sessions", limit="1", cursor=first["pagination"]["nextCursor"]))
    assert ([one["id"] for one in second["sessions"]], second["pagination"]["hasMore"]) == (["old"], False)

    page = body(caller.get("/logs/sessions/long", limit="2"))
    assert [one["id"] for one in page["requests"]] == [str(one) for one in ids[:2]]
    rest = body(caller.get("/logs/sessions/long", limit="2", cursor=page["pagination"]["nextCursor"]))
    assert ([one["id"] for one in rest["requests"]], rest["pagination"]["nextCursor"]) == ([str(ids[2])], None)
    assert rest["session"]["requestCount"] == 3


def test_the_log_is_filtered_by_a_session(created: CreatedKey, key: ApiKey) -> None:
    ids = run(key, "mine", 2, 1)
    run(key, "other", 1)
    caller = Caller(created.token)
    logs = body(caller.get("/logs", sessionId="mine", orderBy="createdAt_asc"))["logs"]
    assert [(log["id"], log["sessionId"]) for log in logs] == [(str(one), "mine") for one in ids]


@pytest.mark.parametrize("path", ["/logs/sessions", "/logs/sessions/run"])
def test_only_those_who_see_the_log_see_its_sessions(world: World, created: CreatedKey, key: ApiKey, path: str) -> None:
    run(key, "run", 1)
    theirs = make_key(world.sam, world.elsewhere_project)
    missing = {"/logs/sessions": (200, []), "/logs/sessions/run": (404, None)}[path]
    for other in (Caller(theirs.token), signed_in(world.sam)):
        answer = other.get(path)
        assert (answer.status_code, answer.json().get("sessions")) == missing
        assert other.get(path, orgId=str(world.acme.id)).status_code == 403
    for own in (Caller(created.token), signed_in(world.dana)):
        assert own.get(path, orgId=str(world.acme.id)).status_code == 200
    assert Caller("gw_live_nonsense").get(path).status_code == 401
    assert Caller(make_management_key(world.olivia, world.acme, "logs").token).get(path).status_code == 200
    assert Caller(make_management_key(world.olivia, world.acme, "read").token).get(path).status_code == 403


@pytest.mark.parametrize(
    ("query", "named"),
    [({"limit": "0"}, "limit"), ({"cursor": "x"}, "cursor"), ({"startDate": "soon"}, "startDate")],
)
def test_a_query_that_makes_no_sense_is_refused_by_its_field(
    created: CreatedKey, key: ApiKey, query: dict[str, str], named: str
) -> None:
    answer = Caller(created.token).get("/logs/sessions", **query)
    assert answer.status_code == 400
    assert named in answer.json()["message"]


@pytest.mark.parametrize("name", ["none", "%00", "x" * 300, "run%0A"])
def test_an_unknown_session_is_not_found(created: CreatedKey, key: ApiKey, name: str) -> None:
    run(key, "run", 1)
    assert Caller(created.token).get(f"/logs/sessions/{name}").status_code == 404


HEADERS = {"x-session-id": "agent-7", "user-agent": "claude-cli/2.1.197 (external, cli)"}


@pytest.mark.parametrize(("level", "kept"), [("none", (None, None)), ("metadata", ("agent-7", "claude-cli/2.1.197"))])
def test_a_session_is_recorded_only_where_metadata_is(
    caller: GatewayCaller, level: str, kept: tuple[str | None, str | None]
) -> None:
    Organization.objects.update(retention_level=level)
    caller.chat(headers=HEADERS)
    chunks_of(caller.chat(headers=HEADERS, stream=True))
    settle_all()
    assert [(row.session_id, row.user_agent) for row in RequestLog.objects.all()] == [kept, kept]
