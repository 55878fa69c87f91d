"""Which pages read the log and its sums from a replica: all of these, and none of what must see its own writes.

The replica is a second connection to the same database; `kernel/postgres/test_replica.py` has one that falls behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from django.db import connection, connections
from django.test import Client

from apps.kernel.postgres import replica
from apps.kernel.postgres.replica import Replica
from apps.logs.models import RequestLog
from apps.organizations.actions import create_operator
from apps.organizations.credentials.sessions import start_session
from tests.logs.entries import entry, write
from tests.support.cast import PASSWORD, World, make_key, world
from tests.support.console_client import Visitor, page

__all__ = ["world"]
ALIAS = "replica_of_readers"
# Queries that a replica answers; the primary says who may see the rows, and how far back.
LOGGED = re.compile(r'FROM "?(request_log|logs_(activity|traffic|performance|refused)\w+)"?')

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def asked(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[int, int]]]:
    """Tells how many statements on the log and its sums the replica and the primary were asked since the last time."""
    connections.settings[ALIAS] = {**connections.settings["default"], "NAME": connection.settings_dict["NAME"]}
    own = connections[ALIAS]
    # Tests may connect to what they were declared to use, by its name.
    own.alias = "default"
    monkeypatch.setattr(replica, "REPLICAS", [Replica(ALIAS, max_lag=5)])
    # It is no replica, and takes writes.
    monkeypatch.setattr(replica, "find_reason", lambda *_: None)
    for one in (own, connection):
        one.force_debug_cursor = True

    def count() -> tuple[int, int]:
        counts = []
        for one in (own, connection):
            counts.append(sum(1 for said in one.queries_log if LOGGED.search(said["sql"])))
            one.queries_log.clear()
        return counts[0], counts[1]

    yield count
    connection.force_debug_cursor = False
    own.close()
    del connections[ALIAS]
    del connections.settings[ALIAS]


def read_whole(answer: Any) -> None:
    assert answer.status_code == 200, answer
    with closing(answer):
        assert answer.getvalue() if answer.streaming else answer.content


@pytest.mark.parametrize(
    "path",
    [
        "",
        "logs",
        "logs?model=nothing",
        "logs/export?format=csv",
        "usage",
        "usage?by=tag",
        "usage/export?format=jsonl",
        "refusals",
        "sessions",
    ],
)
def test_pages_of_the_console(world: World, asked: Callable[[], tuple[int, int]], path: str) -> None:
    write(entry(make_key(world.olivia, world.project).key, source="web"))
    visitor = Visitor(world.olivia)
    asked()
    read_whole(visitor.open(page(world.acme, path)))
    of_replica, of_primary = asked()
    assert of_replica > 0
    # The primary says whether there is any request yet: a user who has just sent the first waits for that.
    assert of_primary == (1 if path == "" else 0)


@pytest.mark.parametrize(
    "path",
    ["/logs", "/logs/export", "/logs/unique-models", "/logs/sessions", "/activity?days=7", "/activity/export?days=7"],
)
def test_endpoints(world: World, asked: Callable[[], tuple[int, int]], path: str) -> None:
    write(entry(make_key(world.olivia, world.project).key))
    client, token = Client(), start_session(world.olivia)
    asked()
    read_whole(client.get(path, headers={"authorization": f"Bearer {token}"}))
    of_replica, of_primary = asked()
    assert (of_replica > 0, of_primary) == (True, 0)


def test_one_row_is_the_primarys_and_its_neighbors_are_the_replicas(
    world: World, asked: Callable[[], tuple[int, int]]
) -> None:
    write(entry(make_key(world.olivia, world.project).key))
    row = RequestLog.objects.get()
    visitor = Visitor(world.olivia)
    asked()
    read_whole(visitor.open(page(world.acme, f"logs/{row.id}")))
    of_replica, of_primary = asked()
    assert (of_replica > 0, of_primary) == (True, 1)


@pytest.mark.parametrize(
    "path",
    [
        "requestlog",
        "requestlog/?time=all&ended=completed",
        "activityday",
        "activitydelta",
        "trafficslot",
        "trafficdelta",
        "performanceslot",
        "performancedelta",
        "refusedhour",
    ],
)
def test_lists_of_the_admin(world: World, asked: Callable[[], tuple[int, int]], path: str) -> None:
    write(entry(make_key(world.olivia, world.project).key))
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    asked()
    read_whole(client.get(f"/admin/logs/{path}{'' if '?' in path else '/'}"))
    assert asked()[0] > 0


def test_the_dashboard(world: World, asked: Callable[[], tuple[int, int]]) -> None:
    write(entry(make_key(world.olivia, world.project).key))
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    asked()
    answer = client.get("/admin/")
    assert answer.context["traffic"]["empty"] is False
    assert asked()[0] > 0
