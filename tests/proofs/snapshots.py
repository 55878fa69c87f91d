"""Snapshots of the stores of this process, for the invariants."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
from django.db import connection

from apps.billing import balance_copies
from apps.billing.models import LedgerEntry
from apps.billing.reservations import Note
from apps.billing.worker_leases import LEASE_SECONDS, WORKERS, store_time
from apps.gateway.settlement import outbox
from apps.gateway.settlement.record_backlog import BACKLOG
from apps.kernel.valkey.redis import SHARDS, client, money_key
from apps.keys.models import ApiKey
from apps.logs.models import ActivityDay, ActivityDelta, RequestLog
from apps.organizations.models import Organization
from tests.proofs.invariants import ZERO, Answer, BalanceCopy, LogRow, Movement, OpenHold, Snapshot


def read_snapshot(*, answers: Sequence[Answer] = (), epochs: Sequence[int] = (), allowance: Decimal = ZERO) -> Snapshot:
    """Return the stores as they are now; `epochs` are those that were seen before."""
    store: Any = client()
    copies, holds, workers, waiting = [], [], set[str](), set[str]()
    for name in balance_copies.scan_copy_keys():
        fields = store.hgetall(name)
        amounts = (int(fields.get(field, 0)) for field in ("amount", "held", "version", "epoch"))
        copies.append(BalanceCopy(_owner_of(name), *amounts))
    for shard in SHARDS:
        alive = store_time(shard) - LEASE_SECONDS
        workers |= set(store.zrangebyscore(WORKERS[shard], alive, "+inf"))
        waiting |= {_request_of(fields["record"]) for _, fields in store.xrange(outbox.STREAMS[shard])}
        prefix = money_key("notes:", shard)
        for name in store.keys(f"{prefix}*"):
            for request, text in store.hgetall(name).items():
                note = msgspec.json.decode(text, type=Note)
                owners = tuple(map(_owner_of, note.holds))
                holds.append(OpenHold(request, name.removeprefix(prefix), int(note.amount), owners))
    waiting |= {_request_of(one.record) for one in BACKLOG.waiting}
    return Snapshot(
        credits={str(one): credits for one, credits in Organization.objects.values_list("id", "credits")},
        usage={str(one): usage for one, usage in ApiKey.objects.values_list("id", "usage")},
        limits={str(one): limit for one, limit in ApiKey.objects.values_list("id", "usage_limit") if limit is not None},
        movements=[
            Movement(kind, str(reference), str(organization), str(key) if key else None, credits, usage)
            for kind, reference, organization, key, credits, usage in LedgerEntry.objects.values_list(
                "kind", "reference", "organization_id", "api_key_id", "credits", "usage"
            )
        ],
        rows=_rows(),
        activity=_activity(),
        copies=copies,
        holds=holds,
        workers=frozenset(workers),
        waiting=frozenset(waiting),
        epochs=(*epochs, balance_copies.read_epoch()),
        store_epochs=tuple(balance_copies.read_epochs_in_redis()),
        answers=answers,
        allowance=allowance,
    )


def _rows() -> list[LogRow]:
    names = "id", "request_id", "organization_id", "api_key_id", "cost", "data_storage_cost", "used_mode"
    rows: Any = RequestLog.objects.values_list(*names)
    return [
        LogRow(str(row), request, str(organization), str(key), cost or ZERO, storage or ZERO, mode == "credits")
        for row, request, organization, key, cost, storage, mode in rows
    ]


def _activity() -> dict[str, Decimal]:
    """Return the cost of each key: its days, and the deltas that are not folded yet."""
    question = f"""
        SELECT api_key_id, sum(cost) FROM (
            SELECT api_key_id, cost FROM {ActivityDay._meta.db_table} WHERE api_key_id <> '{ActivityDay.EVERY}'
            UNION ALL SELECT api_key_id, cost FROM {ActivityDelta._meta.db_table}
        ) parts GROUP BY 1
    """
    with connection.cursor() as cursor:
        cursor.execute(question)
        return {str(key): cost for key, cost in cursor.fetchall()}


def _owner_of(name: str) -> str:
    return name.rpartition(":")[2]


def _request_of(record: str | bytes) -> str:
    """Return the id in a record; the record itself where it cannot be read."""
    try:
        return str(msgspec.json.decode(record)["id"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return str(record)
