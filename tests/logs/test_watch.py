"""The watch of a log: new rows for its readers, one query for all of them, and the end of their sessions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from knox.crypto import hash_token

from apps.kernel.ids import new_id
from apps.logs import watch as watching
from apps.logs.access import LogScope
from apps.logs.query import LogFilters
from apps.logs.search import find_page
from apps.logs.watch import SESSION_TURN, LogWatch, NewRows, join_watch, leave_watch, matches
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Membership, User
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project).key


@pytest.fixture
def watch(world: World) -> Iterator[LogWatch]:
    """A watch of Acme with a reader."""
    joined = join_watch(world.acme.id, "reader")
    yield joined
    leave_watch(joined, "reader")


def whole(world: World) -> LogScope:
    return LogScope({world.acme.id: ago(days=1)})


def look_now(watch: LogWatch) -> None:
    """Look although less than a second has passed."""
    watch._next_look = 0.0
    watch.look()


def test_a_reader_counts_the_rows_that_appear_after_those_of_its_page(world: World, key: Any, watch: LogWatch) -> None:
    old, newest = write(entry(key, id=id_at(ago(minutes=2))), entry(key, id=id_at(ago(minutes=1))))
    meanwhile = write(entry(key))
    of_page, from_now = (NewRows(whole(world), LogFilters(), one) for one in (newest, None))
    look_now(watch)
    assert set(watch.rows) == {old, newest, *meanwhile}
    assert (of_page.add(watch), of_page.count) == (True, 1)
    assert (from_now.add(watch), from_now.count) == (False, 0)
    # A request that began before the newest row and ended after it counts too.
    write(entry(key, id=id_at(ago(minutes=1.5))), entry(key, id=id_at(ago(hours=1))))
    look_now(watch)
    assert [one.add(watch) for one in (of_page, from_now)] == [True, True]
    assert [one.count for one in (of_page, from_now)] == [2, 1]
    look_now(watch)
    assert not of_page.add(watch)


def test_rows_of_other_organizations_are_not_seen(world: World, watch: LogWatch) -> None:
    write(entry(make_key(world.sam, world.elsewhere_project).key))
    look_now(watch)
    assert watch.rows == {}


def test_all_readers_together_run_one_query_a_second(world: World, watch: LogWatch) -> None:
    others = [join_watch(world.acme.id, f"session-{number}") for number in range(5)]
    assert all(one is watch for one in others)
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for one in [watch, *others] * 3:
            one.look()
    assert len(queries) == 1
    for number, one in enumerate(others):
        leave_watch(one, f"session-{number}")


def test_a_watch_ends_with_its_last_reader(world: World) -> None:
    first, second = join_watch(world.acme.id, "a"), join_watch(world.acme.id, "a")
    leave_watch(first, "a")
    assert watching._watches[world.acme.id] is second
    leave_watch(second, "a")
    assert world.acme.id not in watching._watches
    again = join_watch(world.acme.id, "a")
    assert again is not first
    leave_watch(again, "a")


@pytest.mark.parametrize("end", ["signed_out", "expired", "removed", "deactivated", "deleted"])
def test_an_ended_session_or_membership_is_seen_at_the_tenth_look(world: World, end: str) -> None:
    digests = [hash_token(start_session(user)) for user in (world.dana, world.olivia)]
    watch = join_watch(world.acme.id, digests[0])
    join_watch(world.acme.id, digests[1])
    for _ in range(SESSION_TURN):
        look_now(watch)
    assert watch.ended == set()
    ended = {digests[0]}
    if end == "signed_out":
        world.dana.auth_token_set.all().delete()
    elif end == "expired":
        world.dana.auth_token_set.update(expiry=ago(seconds=1))
    elif end == "removed":
        Membership.objects.filter(user=world.dana).delete()
    elif end == "deactivated":
        User.objects.filter(pk=world.dana.pk).update(is_active=False)
    else:
        world.acme.status = "deleted"
        world.acme.save()
        ended = set(digests)
    for _ in range(SESSION_TURN):
        look_now(watch)
    assert watch.ended == ended
    for digest in digests:
        leave_watch(watch, digest)


def test_filters_match_as_the_list_does(world: World, key: Any, watch: LogWatch) -> None:
    other = make_key(world.olivia, world.acme.projects.create(name="Other")).key
    provider_key = new_id()
    write(
        entry(key, custom_headers={"team": "red"}, source="web", finish_reason="stop"),
        entry(other, used_model="claude", used_provider="anthropic", unified_finish_reason="upstream_error"),
        entry(key, provider_key_id=provider_key, custom_headers={"team": "blue"}, session_id="mine"),
    )
    look_now(watch)
    since, now = {world.acme.id: ago(days=1)}, datetime.now(UTC)
    scopes = [
        LogScope(since),
        LogScope(since, project_id=other.project_id),
        LogScope(since, project_id=key.project_id, api_key_id=key.id),
        LogScope(since, provider_key_id=provider_key),
    ]
    filters = [
        LogFilters(),
        *(LogFilters(model=name) for name in ("gpt-5", "openai/gpt-5", "anthropic/gpt-5")),
        LogFilters(provider="anthropic"),
        LogFilters(finish_reason="stop"),
        LogFilters(unified_finish_reason="upstream_error"),
        LogFilters(source="web"),
        LogFilters(session_id="mine"),
        LogFilters(header_key="Team"),
        LogFilters(header_key="team", header_value="blue"),
        LogFilters(header_value="red"),
        LogFilters(start=now + timedelta(minutes=1)),
        LogFilters(end=now - timedelta(minutes=1)),
    ]
    for scope in scopes:
        for one in filters:
            listed = find_page(scope, one, count=10, after=None, ascending=True)
            seen: set[UUID] = {row.id for row in watch.rows.values() if matches(row, scope, one)}
            assert seen == {row["id"] for row in listed}, (scope, one)


def test_readers_who_want_the_same_rows_share_one_count(
    world: World, key: Any, watch: LogWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[UUID]()
    monkeypatch.setattr(watching, "matches", lambda row, *rest: compared.append(row.id) or matches(row, *rest))
    look_now(watch)
    today = LogFilters(start=ago(hours=1))
    # A period of one's own does not keep readers from sharing; other filters do, and rows before the period.
    filters = [LogFilters(), LogFilters(), today, LogFilters(model="gpt-5"), LogFilters(start=datetime.now(UTC))]
    readers = [NewRows(whole(world), one, None) for one in filters]
    for one in readers:
        one.add(watch)
    write(entry(key, used_model="gpt-5"), entry(key, id=id_at(ago(seconds=1)), used_model="other"))
    look_now(watch)
    compared.clear()
    assert [one.add(watch) for one in readers] == [True, True, True, True, False]
    assert [one.count for one in readers] == [2, 2, 2, 1, 0]
    # Two rows for those without filters, two for the model, two for the period that begins later.
    assert len(compared) == 6
    assert not any(one.add(watch) for one in readers)
    assert len(compared) == 6


def test_a_reader_who_missed_a_look_counts_the_rows_of_both(world: World, key: Any, watch: LogWatch) -> None:
    look_now(watch)
    reader = NewRows(whole(world), LogFilters(), None)
    reader.add(watch)
    for _ in range(2):
        write(entry(key))
        look_now(watch)
    assert (reader.add(watch), reader.count) == (True, 2)
