"""How the settler paces itself, and for whom it does not wait."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from msgspec.structs import replace
from redis.exceptions import ConnectionError as RedisConnectionError
from structlog.testing import capture_logs

from apps.billing import balances, ledger, reservations, worker_leases
from apps.billing.models import LedgerEntry
from apps.billing.reservations import Hold, Note, ReservationRequest
from apps.gateway.management.commands.settler import BATCH, GATHER_SECONDS, PAUSE_SECONDS, gather_after
from apps.gateway.metrics import SETTLED, SWEPT
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import OutboxMessage, charge_of, encode
from apps.gateway.settlement.settle import settle, sweep
from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.guardrails.models import Violation
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from apps.limits import counters
from apps.limits.applied import apply_rule
from apps.log_sinks.models import WaitingRow
from apps.logs import partitions
from apps.logs.entry import Entry
from apps.logs.models import RequestLog
from tests.limits import limits
from tests.limits.limits import recorded, rule
from tests.log_sinks.sinks import make_sink
from tests.logs.entries import entry, id_at
from tests.support.cast import World, make_key, world
from tests.support.upstream import settle_all

__all__ = ["world"]

NOON = datetime(2031, 3, 4, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(0, 0.0), (1, PAUSE_SECONDS), (7, PAUSE_SECONDS), (8, GATHER_SECONDS), (BATCH - 1, GATHER_SECONDS), (BATCH, 0.0)],
)
def test_records_gather_and_neither_the_first_after_a_pause_nor_a_backlog_waits(count: int, seconds: float) -> None:
    assert gather_after(count) == seconds


@pytest.mark.django_db(transaction=True)
def test_who_makes_a_days_partition_holds_up_no_other_of_that_day(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions.drop_before(date.max)

    def message(number: int) -> OutboxMessage:
        return OutboxMessage(f"0-{number}", "worker-1", encode(entry(id=id_at(NOON))).decode())

    def settle_alone() -> int:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '3s'")
            return settle([message(2)])
        finally:
            connection.close()

    meanwhile: list[int] = []

    def charge(_: Any) -> list[Any]:
        # The first is in the middle of its transaction.
        if not meanwhile:
            meanwhile.append(0)
            with ThreadPoolExecutor(1) as pool:
                meanwhile[0] = pool.submit(settle_alone).result(timeout=20)
        return []

    monkeypatch.setattr(ledger, "charge", charge)
    assert settle([message(1)]) == 1
    assert meanwhile == [1]
    assert partitions.existing() == [NOON.date()]


@pytest.mark.django_db
def test_a_record_behind_a_crowd_of_another_organizations_is_settled_with_it() -> None:
    """Records come no faster than requests are answered, and one batch takes hundreds of them."""
    outbox.prepare()
    crowd = [entry(id=id_at(NOON)) for _ in range(100)]
    alone = entry(id=id_at(NOON))
    for one in (*crowd, alone):
        outbox.push("worker-1", encode(one))
    messages = outbox.read_batch("test", BATCH, 1)
    assert len(messages) == 101
    assert settle(messages) == 101
    assert RequestLog.objects.filter(pk=alone.id).exists()


def granted(world: World) -> Entry:
    """Give an organization 5 USD; return the record of a request that costs 1."""
    ledger.grant(world.acme.id, Decimal(5), "credits")
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    return entry(make_key(world.olivia, world.project).key, cost=Decimal(1))


def hold_of(record: Entry) -> Hold:
    """Reserve 2 USD for a request, as its worker does."""
    answer = reservations.reserve(
        ReservationRequest(
            id=record.id,
            worker="worker-1",
            organization_id=record.organization_id,
            api_key_id=record.api_key_id,
            amount_nanos=2 * NANO,
            from_credits=True,
            catalog_token=generation.read_generation_token(generation.CATALOG),
            organization_token=generation.read_generation_token(generation.organization_scope(record.organization_id)),
            payload=encode(replace(record, swept=True, cost=None)).decode(),
        )
    )
    assert answer.hold is not None
    return answer.hold


@pytest.mark.django_db
def test_what_a_worker_reserves_after_it_stood_still_is_not_swept_with_its_older_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper has found that its lease is over; it goes on before its next heartbeat."""
    record, notes_of = granted(world), reservations.notes_of

    def notes_after_a_reservation(worker: str, shard: int) -> dict[UUID, Note]:
        hold_of(record)
        return notes_of(worker, shard)

    worker_leases.expire_lease("worker-1")
    outbox.prepare()
    monkeypatch.setattr(reservations, "notes_of", notes_after_a_reservation)
    assert sweep() == 0
    assert client().xlen(outbox.STREAMS[0]) == 0
    assert list(notes_of("worker-1", 0)) == [record.id]
    assert client().hget(balances.key("organization", world.acme.id), "held") == str(2 * NANO)
    # When it dies after all, its hold comes back.
    worker_leases.expire_lease("worker-1")
    monkeypatch.setattr(reservations, "notes_of", notes_of)
    assert sweep() == 1
    assert settle_all() == 1
    assert client().hget(balances.key("organization", world.acme.id), "held") == "0"
    assert client().zcard(worker_leases.WORKERS[0]) == 1
    assert sweep() == 0
    assert client().zcard(worker_leases.WORKERS[0]) == 0


@pytest.mark.django_db
def test_a_hold_stays_while_its_record_arrives_during_a_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker only seemed dead, and records a request just after the sweeper has measured the stream."""
    record = granted(world)
    hold, depth_of = hold_of(record), outbox.depth_of

    def depth_before_the_record(shard: int) -> tuple[int, float]:
        depth = depth_of(shard)
        outbox.push("worker-1", encode(record), reservations.reduce_to_cost(hold, charge_of(record)))
        return depth

    worker_leases.expire_lease("worker-1")
    outbox.prepare()
    monkeypatch.setattr(outbox, "depth_of", depth_before_the_record)
    sweep()
    # Free is what credits and the cost leave.
    assert client().hget(balances.key("organization", world.acme.id), "held") == str(NANO)
    assert settle_all() == 1
    assert client().hget(balances.key("organization", world.acme.id), "held") == "0"
    assert reservations.notes_of("worker-1", 0) == {}
    row = RequestLog.objects.get(pk=record.id)
    assert (row.swept, row.cost) == (False, Decimal(1))
    assert [one.credits for one in LedgerEntry.objects.filter(reference=record.id)] == [Decimal(-1)]


def message_of(record: Entry) -> OutboxMessage:
    return OutboxMessage("0-1", "worker-1", encode(record).decode())


@pytest.mark.django_db
def test_findings_of_guardrails_and_rows_for_sinks_are_written_once(world: World) -> None:
    sink, before = make_sink(world, "webhook", "https://example.com/"), SETTLED._value.get()
    draft = ViolationDraft(
        rule_id="system:pii",
        rule_name="pii",
        category="privacy",
        action_taken="redacted",
        matched_pattern="email",
        matched_content="a***",
        content_hash="0" * 64,
    )
    record = replace(granted(world), violations=[draft], used_model="used")
    unanswered = replace(record, id=new_id(), used_model="")
    plain = replace(record, id=new_id(), violations=None)
    messages = [message_of(one) for one in (record, unanswered, plain)]

    def written() -> tuple[set[tuple[UUID, UUID]], set[tuple[UUID, str, str]]]:
        return (
            set(WaitingRow.objects.values_list("sink_id", "log_id")),
            set(Violation.objects.values_list("log_id", "model", "rule_name")),
        )

    assert (settle(messages), SETTLED._value.get()) == (3, before + 3)
    assert written() == (
        {(sink.id, one.id) for one in (record, unanswered, plain)},
        {(record.id, "used", "pii"), (unanswered.id, "gpt-5", "pii")},
    )
    # Delivered, and deleted by its organization.
    WaitingRow.objects.all().delete()
    Violation.objects.all().delete()
    assert (settle(messages), SETTLED._value.get()) == (0, before + 3)
    assert written() == (set(), set())


@pytest.mark.django_db
def test_who_settles_again_publishes_what_an_earlier_settlement_has_charged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died between its commit and the store."""
    [limit] = [apply_rule(rule("requests", organization_id=world.acme.id), "", limits.NOW)]
    counters.publish([limit])
    counted = recorded(
        [limit], model_id="echo", provider_id="sandbox", cost=Decimal(1), input_tokens=1, output_tokens=1
    )
    record = replace(granted(world), limits=counted)
    names = [
        balances.key("organization", record.organization_id),
        balances.key("key", record.api_key_id),
        limit.counter,
    ]

    def copies() -> list[str | None]:
        return [client().hget(name, "amount") for name in names]

    def away(_: Any) -> None:
        raise RedisConnectionError("away")

    with monkeypatch.context() as died:
        died.setattr(balances, "publish_or_raise", away)
        with pytest.raises(RedisConnectionError):
            settle([message_of(record)])
    before = copies()
    assert (before[0], before[2]) == (str(5 * NANO), "0")
    assert settle([message_of(record)]) == 0
    assert copies() == [str(4 * NANO), str(NANO), "1"]


@pytest.mark.django_db
def test_a_copy_that_claims_to_be_newer_is_repaired_by_the_next_settlement(world: World) -> None:
    record = granted(world)
    name = balances.key("organization", world.acme.id)
    client().hset(name, mapping={"amount": 7, "version": 1 << 40})
    assert settle([message_of(record)]) == 1
    assert client().hget(name, "amount") == str(4 * NANO)


@pytest.mark.django_db
def test_what_a_dead_worker_recorded_is_held_until_it_is_settled_or_waits_no_longer(world: World) -> None:
    record, swept, stream = granted(world), SWEPT._value.get(), outbox.STREAMS[0]
    hold = hold_of(record)
    outbox.prepare()
    outbox.push("worker-1", encode(record), reservations.reduce_to_cost(hold, charge_of(record)))
    # The store's clock was set back since: the record waits, and has no age.
    [(identifier, fields)] = client().xrange(stream)
    client().xdel(stream, identifier)
    client().xadd(stream, fields, id=f"{2 * int(identifier.partition('-')[0])}-0")
    worker_leases.expire_lease("worker-1")
    name = balances.key("organization", world.acme.id)
    with capture_logs() as logs:
        assert sweep() == 0
    assert (list(reservations.notes_of("worker-1", 0)), client().hget(name, "held")) == ([record.id], str(NANO))
    assert logs == [{"event": "sweep.worker", "log_level": "info", "worker": "worker-1", "requests": 0}]
    # An operator has put it aside.
    client().xtrim(stream, maxlen=0)
    with capture_logs() as logs:
        assert sweep() == 0
    assert (reservations.notes_of("worker-1", 0), client().hget(name, "held"), logs) == ({}, "0", [])
    assert (client().zcard(worker_leases.WORKERS[0]), SWEPT._value.get()) == (0, swept)


@pytest.mark.django_db
def test_requests_of_a_dead_worker_are_counted(world: World) -> None:
    records, swept = [granted(world) for _ in range(2)], SWEPT._value.get()
    for one in records:
        hold_of(one)
    worker_leases.expire_lease("worker-1")
    outbox.prepare()
    assert (sweep(), SWEPT._value.get()) == (2, swept + 2)
    assert settle_all() == 2
    assert RequestLog.objects.filter(swept=True).count() == 2
