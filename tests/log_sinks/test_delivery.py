"""Delivery to log sinks: each row at least once, whatever is late, fails or dies, and never what may not leave."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.utils import timezone

from apps.destinations import delivery as runs
from apps.log_sinks import queue
from apps.log_sinks.delivery import deliver, find_due
from apps.log_sinks.hooks import erase
from apps.log_sinks.models import LogSink, WaitingRow
from apps.logs import partitions
from apps.logs.models import RequestLog
from apps.organizations.models import AuditEntry, Organization
from tests.log_sinks.sinks import SECRET, log_row, make_sink, write_rows
from tests.logs.entries import FULL, ago, entry, id_at
from tests.support.cast import World
from tests.support.sink_receiver import Receiver


@pytest.fixture
def sink(world: World, receiver: Receiver) -> LogSink:
    return make_sink(world, "webhook", f"{receiver.origin}/hook")


def sent_ids(receiver: Receiver) -> list[list[UUID]]:
    """The ids of each request's rows."""
    return [[UUID(json.loads(line)["id"]) for line in one.body.splitlines()] for one in receiver.taken]


def make_due(sink: LogSink) -> None:
    LogSink.objects.filter(pk=sink.pk).update(next_attempt_at=timezone.now(), leased_until=None)


def test_rows_that_are_settled_are_sent_once_and_noted(world: World, sink: LogSink, receiver: Receiver) -> None:
    rows = [log_row(world), log_row(world)]
    log_row(world, world.elsewhere)
    assert find_due(timezone.now()) == [sink.pk]
    assert deliver(sink.pk) == 2
    assert sent_ids(receiver) == [sorted(row.id for row in rows)]
    assert (WaitingRow.objects.count(), find_due(timezone.now()), deliver(sink.pk)) == (0, [], 0)
    sink.refresh_from_db()
    assert (sink.delivered_rows, sink.last_batch, sink.failures, sink.last_error) == (2, 1, 0, "")
    assert sink.last_delivered_at is not None
    assert len(receiver.taken) == 1


def test_a_row_written_again_in_the_same_words_waits_once(world: World, sink: LogSink) -> None:
    record = log_row(world)
    assert write_rows([record]) == set()
    assert [one.log_id for one in WaitingRow.objects.all()] == [record.id]


def test_who_dies_before_a_delivery_is_noted_repeats_the_same_batch(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = make_sink(world, "s3", receiver.origin, options={"bucket": "acme", "region": "eu-central-1"})
    first = [log_row(world).id, log_row(world).id]
    with monkeypatch.context() as dying:
        dying.setattr(queue, "finish", _die)
        with pytest.raises(KeyboardInterrupt):
            deliver(sink.pk)
    assert WaitingRow.objects.filter(batch=1).count() == 2
    # Rows that come meanwhile are no part of it.
    later = log_row(world, id=id_at(ago(minutes=10))).id
    make_due(sink)
    assert deliver(sink.pk) == 3
    paths = [one.path for one in receiver.taken]
    assert (paths[0], len(set(paths)), len(receiver.objects)) == (paths[1], 2, 2)
    assert receiver.taken[0].body == receiver.taken[1].body
    kept = [
        [UUID(json.loads(line)["id"]) for line in gzip.decompress(body).splitlines()]
        for body in receiver.objects.values()
    ]
    assert kept == [sorted(first), [later]]
    assert not WaitingRow.objects.exists()


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_committed_late_is_not_skipped(world: World, receiver: Receiver) -> None:
    """Its ids, of the log and of the queue, are older than those that were sent before it was committed."""
    sink = make_sink(world, "webhook", f"{receiver.origin}/hook")
    partitions.ensure(partitions.upcoming(timezone.now()))
    late = entry(organization_id=world.acme.id, project_id=world.project.id)
    is_written, may_commit = Event(), Event()

    def write_slowly() -> None:
        with transaction.atomic():
            write_rows([late])
            is_written.set()
            may_commit.wait(60)
        connection.close()

    thread = Thread(target=write_slowly)
    thread.start()
    try:
        assert is_written.wait(60)
        early = log_row(world)
        assert deliver(sink.pk) == 1
    finally:
        may_commit.set()
        thread.join()
    assert late.id < early.id
    assert deliver(sink.pk) == 1
    assert sent_ids(receiver) == [[early.id], [late.id]]


def test_batches_are_bounded(world: World, sink: LogSink, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "MAX_ROWS", 3)
    monkeypatch.setattr(queue, "_AT_ONCE", 2)
    rows = [log_row(world).id for _ in range(7)]
    assert deliver(sink.pk) == 7
    assert [len(ids) for ids in sent_ids(receiver)] == [3, 3, 1]
    assert sorted(one for ids in sent_ids(receiver) for one in ids) == sorted(rows)
    monkeypatch.setattr(queue, "MAX_BYTES", 10)
    receiver.reset()
    for _ in range(2):
        log_row(world)
    assert deliver(sink.pk) == 2
    assert [len(ids) for ids in sent_ids(receiver)] == [1, 1]


def test_a_failure_pauses_and_the_next_success_ends_it(world: World, sink: LogSink, receiver: Receiver) -> None:
    record = log_row(world)
    receiver.status, receiver.answer = 503, f'{{"message": "no room for {SECRET}"}}'.encode()
    before = timezone.now()
    assert deliver(sink.pk) == 0
    sink.refresh_from_db()
    assert (sink.failures, sink.last_error) == (1, "It answered 503: no room for ...")
    assert before + runs.FIRST_PAUSE <= sink.next_attempt_at <= timezone.now() + runs.FIRST_PAUSE
    assert (find_due(timezone.now()), deliver(sink.pk), len(receiver.taken)) == ([], 0, 1)
    make_due(sink)
    receiver.headers = {"Retry-After": "120"}
    deliver(sink.pk)
    sink.refresh_from_db()
    assert (sink.failures, sink.next_attempt_at > timezone.now() + timedelta(seconds=110)) == (2, True)
    make_due(sink)
    receiver.status = 204
    assert deliver(sink.pk) == 1
    sink.refresh_from_db()
    assert (sink.failures, sink.failing_since, sink.delivered_rows) == (0, None, 1)
    assert sent_ids(receiver) == [[record.id]] * 3


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [
        (307, {"Location": "http://127.0.0.1:1/"}, "It redirects, which is not followed: register the final address"),
        (401, {}, "It answered 401"),
        (400, {}, "It answered 400"),
    ],
)
def test_what_is_not_taken_is_a_failure(
    world: World, sink: LogSink, receiver: Receiver, status: int, headers: dict[str, str], words: str
) -> None:
    log_row(world)
    receiver.status, receiver.headers = status, headers
    assert deliver(sink.pk) == 0
    sink.refresh_from_db()
    assert (sink.last_error, WaitingRow.objects.count(), len(receiver.taken)) == (words, 1, 1)


def test_a_private_address_is_not_called(world: World, sink: LogSink, receiver: Receiver, settings: Any) -> None:
    settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES = False
    log_row(world)
    assert (deliver(sink.pk), receiver.taken) == (0, [])
    sink.refresh_from_db()
    assert sink.last_error == (
        "Its address cannot be called: Must not lead to a private, loopback or link-local address"
    )


def test_a_sink_that_fails_for_days_is_switched_off(world: World, sink: LogSink, receiver: Receiver) -> None:
    record = log_row(world)
    receiver.status = 500
    begun = timezone.now() - runs.PATIENCE
    LogSink.objects.update(failing_since=begun + timedelta(minutes=5), failures=70)
    deliver(sink.pk)
    assert (LogSink.objects.get().status, AuditEntry.objects.filter(action="log_sink.disable").count()) == ("active", 0)
    LogSink.objects.update(failing_since=begun)
    make_due(sink)
    deliver(sink.pk)
    sink.refresh_from_db()
    note = AuditEntry.objects.get(action="log_sink.disable")
    assert (sink.status, note.actor_type, note.details["lastError"]) == ("failed", "system", "It answered 500")
    make_due(sink)
    assert (find_due(timezone.now()), deliver(sink.pk)) == ([], 0)
    # Nothing more is queued, and what waits is kept for who switches it on again.
    log_row(world)
    assert [one.log_id for one in WaitingRow.objects.all()] == [record.id]


def test_one_process_at_a_time_has_a_sink(world: World, sink: LogSink, receiver: Receiver) -> None:
    log_row(world)
    meanwhile: list[int] = []
    receiver.then = lambda: meanwhile.append(1)
    LogSink.objects.update(leased_until=timezone.now() + timedelta(seconds=5))
    assert (deliver(sink.pk), find_due(timezone.now()), receiver.taken) == (0, [], [])
    LogSink.objects.update(leased_until=timezone.now())
    assert (deliver(sink.pk), meanwhile) == (1, [1])


@pytest.mark.parametrize(
    ("include", "level", "content", "source"),
    [
        (True, "retain", FULL["content"], "web"),
        (False, "retain", None, "web"),
        (True, "metadata", None, "web"),
        (True, "none", None, None),
    ],
)
def test_content_leaves_as_far_as_it_is_kept_and_asked_for(
    world: World, sink: LogSink, receiver: Receiver, include: bool, level: str, content: str | None, source: str | None
) -> None:
    Organization.objects.filter(pk=world.acme.pk).update(retention_level=level)
    LogSink.objects.update(include_content=include)
    # Written while the organization retained everything.
    log_row(world, **{**FULL, "error_details": {"code": "x", "message": "what was said"}}, retention_level="retain")
    assert deliver(sink.pk) == 1
    (row,) = [json.loads(line) for line in receiver.taken[0].body.splitlines()]
    assert (row["content"], row["source"], row["promptTokens"]) == (content, source, "1")
    assert (row["messages"] is None, "message" in row["errorDetails"]) == (content is None, content is not None)


def test_rows_of_deleted_organizations_and_sinks_do_not_leave(world: World, sink: LogSink, receiver: Receiver) -> None:
    log_row(world)
    Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    assert (find_due(timezone.now()), deliver(sink.pk), receiver.taken) == ([], 0, [])
    Organization.objects.filter(pk=world.acme.pk).update(status="active")
    LogSink.objects.update(status="deleted")
    assert (find_due(timezone.now()), deliver(sink.pk), receiver.taken) == ([], 0, [])
    assert (queue.purge(timezone.now()), WaitingRow.objects.count()) == (1, 0)


def test_rows_that_left_the_log_are_not_missed(world: World, sink: LogSink, receiver: Receiver) -> None:
    gone, kept = log_row(world), log_row(world)
    RequestLog.objects.filter(id=gone.id).delete()
    assert (deliver(sink.pk), sent_ids(receiver), WaitingRow.objects.count()) == (1, [[kept.id]], 0)


def test_what_waits_for_too_long_is_dropped_and_counted(world: World, sink: LogSink) -> None:
    log_row(world)
    kept = log_row(world)
    first = WaitingRow.objects.order_by("id")[0]
    WaitingRow.objects.filter(pk=first.pk).update(queued_at=timezone.now() - queue.MAX_WAIT - timedelta(hours=1))
    assert queue.purge(timezone.now()) == 1
    assert ([one.log_id for one in WaitingRow.objects.all()], LogSink.objects.get().dropped_rows) == ([kept.id], 1)


def test_erasure_leaves_nothing(world: World, sink: LogSink) -> None:
    log_row(world)
    erase(world.acme.id)
    assert (LogSink.objects.count(), WaitingRow.objects.count()) == (0, 0)


def test_every_sink_of_an_organization_gets_every_row(world: World, sink: LogSink, receiver: Receiver) -> None:
    other = make_sink(world, "webhook", f"{receiver.origin}/other", name="other")
    off = make_sink(world, "webhook", f"{receiver.origin}/off", name="off", status="inactive")
    log_row(world)
    assert set(find_due(timezone.now())) == {sink.pk, other.pk}
    assert (deliver(sink.pk), deliver(other.pk), deliver(off.pk)) == (1, 1, 0)
    assert [one.path for one in receiver.taken] == ["/hook", "/other"]
