"""Settlement: move records from the outbox to the log and the ledger, each once, in one transaction, whatever dies.

The order makes it safe: commit, then publish balances, release reservations, and only then acknowledge the
message. Everything after the commit may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec
import structlog
from django.db import transaction

from apps.billing import balance_copies, balances, ledger, reservations, worker_leases
from apps.gateway.metrics import SETTLED, SWEPT
from apps.gateway.settlement import dead_letters, outbox
from apps.gateway.settlement.outbox import OutboxMessage, charge_of, encode
from apps.guardrails import stored_violations as violations
from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.kernel.concurrency.background import throttled
from apps.kernel.valkey.shards import ask_each
from apps.limits import counters
from apps.limits.applied import read_counted
from apps.log_sinks import queue as log_sinks
from apps.logs import writer
from apps.logs.entry import Entry

log = structlog.get_logger(__name__)


def settle(messages: Sequence[OutboxMessage]) -> int:
    """Write and charge a batch; return how many records were new. Raises DatabaseError and RedisError.

    A message seen before changes nothing: its row exists, so it is not charged again.
    """
    entries, counted = _read(messages)
    writer.prepare([entry for _, entry in entries])
    with transaction.atomic():
        written = writer.write([entry for _, entry in entries])
        log_sinks.enqueue([(entry.id, entry.organization_id) for _, entry in entries if entry.id in written])
        changed = ledger.charge([charge_of(entry) for _, entry in throttled(entries) if entry.id in written])
        changed += counters.charge([one for one in counted if one.reference in written])
        violations.write([_violations_of(entry) for _, entry in entries if entry.violations and entry.id in written])
    settled_before = [
        *_balances_of([entry for _, entry in entries if entry.id not in written]),
        *counters.counters_of([one for one in counted if one.reference not in written]),
    ]
    balance_copies.repair_copies(balances.publish_or_raise([*settled_before, *changed]))
    reserved: dict[int, list[tuple[str, UUID]]] = {}
    for message, entry in entries:
        reserved.setdefault(message.shard, []).append((message.worker, entry.id))
    for shard, pairs in reserved.items():
        reservations.release(pairs, shard)
    outbox.acknowledge(messages)
    SETTLED.inc(len(written))
    return len(written)


def _balances_of(seen_before: Sequence[Entry]) -> list[balances.Balance]:
    """Return the balances of records that an earlier settlement charged: it may have died before publishing them."""
    if not seen_before:
        return []
    return [
        *ledger.balances_of("organization", {entry.organization_id for entry in seen_before}),
        *ledger.balances_of("key", {entry.api_key_id for entry in seen_before}),
    ]


def sweep() -> int:
    """Turn what dead workers left into records that say so; return how many. Raises RedisError.

    Each shard is swept by itself, so that an unavailable one does not delay the others.
    """
    return sum(ask_each(_sweep))


def _sweep(shard: int) -> int:
    """Sweep a shard; return how many records that made. Raises RedisError.

    The stream keeps order: a record that its worker did push is settled before the sweeper's. Notes and holds go when
    the record is settled, so a sweep that dies half-way is repeated harmlessly.
    """
    swept = 0
    for worker in worker_leases.find_expired_workers(shard):
        notes, left = reservations.notes_of(worker, shard), []
        if not worker_leases.is_expired(worker, shard):
            # It stood still and goes on: the notes may be of reservations that it has made since.
            continue
        # After the notes, because a worker that only seems dead goes on to push: the record of a request whose note
        # says recorded was in the stream before. Where nothing waits now, it has been settled or put aside.
        waiting = outbox.depth_of(shard)[0]
        for identifier, note in notes.items():
            if not note.payload:
                left.append((worker, identifier))
                continue
            entry = msgspec.json.decode(note.payload, type=Entry)
            outbox.push(worker, encode(entry))
            swept += 1
        if not waiting:
            reservations.release(left, shard)
        if not worker_leases.remove_worker(worker, shard):
            log.info("sweep.worker", worker=worker, requests=swept)
    SWEPT.inc(swept)
    return swept


def _read(
    messages: Sequence[OutboxMessage],
) -> tuple[list[tuple[OutboxMessage, Entry]], list[counters.CounterCharge]]:
    """Return the records that can be read, and what they add to counters of limits; the others become dead letters."""
    entries, counted = [], []
    for message in throttled(messages):
        try:
            entry = msgspec.json.decode(message.record, type=Entry)
            if entry.limits:
                counted.append(counters.CounterCharge(entry.id, entry.organization_id, read_counted(entry.limits)))
        except (msgspec.MsgspecError, UnicodeError) as error:
            log.error("settle.unreadable", stream_id=message.id, error=str(error)[:200])
            dead_letters.add(message)
        else:
            entries.append((message, entry))
    return entries, counted


def _violations_of(entry: Entry) -> violations.ScreenedRequest:
    """Return what guardrails found in a request."""
    return violations.ScreenedRequest(
        log_id=entry.id,
        organization_id=entry.organization_id,
        api_key_id=entry.api_key_id,
        model=entry.used_model or entry.requested_model,
        noted=msgspec.convert(entry.violations, tuple[ViolationDraft, ...]),
    )
