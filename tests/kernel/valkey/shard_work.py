"""Work of a process on the shards of a test: `python -m tests.kernel.valkey.shard_work WORK` prints the results."""

from __future__ import annotations

from tests.kernel.valkey.cluster_work import PORTS, organization_of_shard  # isort: skip # it patches, and sets Django up

import json
import os
import sys
from collections import Counter
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
from redis import Redis

from apps.billing import balance_copies, balances, reservations, worker_leases
from apps.billing.ledger import Charge
from apps.gateway.settlement import outbox, settle, worker_lease
from apps.gateway.settlement.outbox import OutboxReader
from apps.kernel.valkey import generation, shards
from apps.kernel.valkey.redis import SHARD_COUNT, SHARDS, client, shard_of
from apps.logs.entry import Entry
from gateway_project.diagnosis import valkey


def claim_shards() -> Any:
    """Return how many shards the cluster has, the messages about it, and whether they keep a process from going on."""
    told = [[one.code, one.message] for one in valkey.find_misplaced()]
    try:
        shards.require()
    except shards.OtherShards as error:
        return [shards.claim(), told, str(error)]
    return [shards.claim(), told, None]


def beat_once() -> Any:
    """Send a heartbeat, as a worker does with its first."""
    return worker_lease._beat()


def begin_with_the_only_shard() -> Any:
    """Keep an epoch as clusters of one shard do that have no mark yet."""
    client().set("{gateway}:ledger:epoch", 1)
    return claim_shards()


def compare_generations() -> Any:
    """Return what reservations in every shard say before the catalog changes, after it, and after a shard forgot."""
    organizations = [organization_of_shard(shard) for shard in SHARDS]
    let_spend(organizations)
    token = generation.read_generation_token(generation.CATALOG)
    told = [Counter(reserve(one, token).outcome for one in organizations)]
    generation.bump(generation.CATALOG)
    changed = [reserve(one, token) for one in organizations]
    told.append(Counter(one.outcome for one in changed))
    now = generation.read_generation_token(generation.CATALOG)
    # Each shard's answer is part of the current answer of all, and of nothing that was read before.
    covered = {generation.covers(now, str((one.generation_tokens or ("", ""))[0])) for one in changed}
    stale = {generation.covers(token, str((one.generation_tokens or ("", ""))[0])) for one in changed}
    client().delete(generation.keys_of(generation.CATALOG)[5])
    told.append(Counter(reserve(one, now).outcome for one in organizations))
    # For an organization that changed, the known catalog stays.
    generation.bump(generation.organization_scope(organizations[0]))
    tokens = reserve(organizations[0], now, "old").generation_tokens or ("", "")
    return {"outcomes": told, "covered": list(covered), "stale": list(stale), "catalog_stands": tokens[0] == now}


def read_in_turn() -> Any:
    """Return what a reader is given, batch by batch, where one shard has much and others little."""
    push(organization_of_shard(2), 25)
    push(organization_of_shard(9), 1)
    push(organization_of_shard(14), 2)
    depth = outbox.depth()[0]
    reader = OutboxReader("one")
    batches, ids = [], []
    while found := reader.read(10, 1):
        batches.append(sorted(Counter(one.shard for one in found).items()))
        ids += [(one.shard, one.id) for one in found]
        outbox.acknowledge(found)
    return {"depth": depth, "batches": batches, "distinct": len(set(ids)), "left": outbox.depth()[0]}


def share_streams() -> Any:
    """Return how many records each of two readers got that ask by turns, and whether any got what the other had."""
    for shard in SHARDS:
        push(organization_of_shard(shard), 3)
    readers = OutboxReader("one"), OutboxReader("two")
    found = [[(one.shard, one.id) for one in reader.read(12, 1)] for reader in readers * 2]
    every = [one for some in found for one in some]
    return {"counts": list(map(len, found)), "distinct": len(set(every))}


def sweep_a_dead_worker() -> Any:
    """Return what becomes of what a dead worker held in several shards; another holds in one of them as well."""
    organizations = [organization_of_shard(shard) for shard in (1, 7, 13)]
    let_spend(organizations)
    token = generation.read_generation_token(generation.CATALOG)
    for one in organizations:
        assert reserve(one, token, worker="dead", payload=_payload(one)).hold is not None
    assert reserve(organizations[1], token, worker="alive", payload=_payload(organizations[1])).hold is not None
    outbox.prepare()
    worker_leases.send_heartbeat("alive")
    worker_leases.expire_lease("dead")
    swept, again = settle.sweep(), settle.sweep()
    reader = OutboxReader("one")
    found = reader.read(100, 1)
    records = [msgspec.json.decode(one.record, type=Entry) for one in found]
    assert all(one.shard == shard_of(record.organization_id) for one, record in zip(found, records, strict=True))
    for one, record in zip(found, records, strict=True):
        reservations.release([(one.worker, record.id)], one.shard)
    outbox.acknowledge(found)
    settle.sweep()
    held = [client().hget(balances.key("organization", one), "held") for one in organizations]
    return {
        "swept": [swept, again],
        "shards": sorted(one.shard for one in found),
        "workers": sorted({one.worker for one in found}),
        "requests": len({record.id for record in records}),
        "held": held,
        "listed": sorted(
            Counter(name for names in worker_leases.WORKERS for name in client().zrange(names, 0, -1)).items()
        ),
    }


def spread_load() -> Any:
    """Return how many scripts each primary ran for reservations and records of organizations of all shards."""
    organizations = [organization_of_shard(shard) for shard in SHARDS for _ in range(4)]
    let_spend(organizations)
    token = generation.read_generation_token(generation.CATALOG)
    before = _scripts_run()
    for _ in range(5):
        for one in organizations:
            result = reserve(one, token)
            assert result.hold is not None, result
            charge = Charge(one, one, UUID(result.hold.id), Decimal(0), Decimal(0))
            outbox.push("w", b"{}", reservations.reduce_to_cost(result.hold, charge))
            reservations.release([("w", UUID(result.hold.id))], shard_of(one))
    after = _scripts_run()
    return {"organizations": len(organizations), "scripts": sorted(after[port] - before[port] for port in after)}


def void_everywhere() -> Any:
    """Return the epochs of all shards after another began, and those that copies in two shards then have."""
    balances.void_epochs_before(7)
    before = set(balance_copies.read_epochs_in_redis())
    let_spend([organization_of_shard(3)], epoch=9)
    return [sorted(before), sorted(Counter(balance_copies.read_epochs_in_redis()).items())]


def _scripts_run() -> dict[int, int]:
    found = {}
    for port in PORTS:
        node: Any = Redis(port=port, decode_responses=True)
        if node.role()[0] == "master":
            told = node.info("commandstats")
            found[port] = sum(told.get(f"cmdstat_{word}", {"calls": 0})["calls"] for word in ("eval", "evalsha"))
    return found


def let_spend(organizations: list[UUID], epoch: int = 1) -> None:
    """Give organizations credits to spend."""
    balances.publish_or_raise([balances.Balance("organization", one, Decimal(1), 1, epoch) for one in organizations])


def _payload(organization: UUID) -> str:
    entry = Entry(
        id=uuid4(),
        request_id="one",
        organization_id=organization,
        project_id=organization,
        api_key_id=organization,
        route="/v1/chat/completions",
        requested_model="echo",
        mode="credits",
        used_mode="credits",
    )
    return msgspec.json.encode(entry).decode()


def reserve(
    organization: UUID,
    catalog: str,
    own: str | None = None,
    *,
    worker: str = "w",
    payload: str = "{}",
    amount: int = 5,
) -> reservations.ReservationResult:
    """Ask for a reservation of an organization."""
    return reservations.reserve(
        reservations.ReservationRequest(
            id=uuid4() if payload == "{}" else UUID(json.loads(payload)["id"]),
            worker=worker,
            organization_id=organization,
            api_key_id=organization,
            amount_nanos=amount,
            from_credits=True,
            catalog_token=catalog,
            organization_token=own or generation.read_generation_token(generation.organization_scope(organization)),
            payload=payload,
        )
    )


def push(organization: UUID, count: int) -> None:
    """Put records of an organization into the outbox."""
    for _ in range(count):
        outbox.push("w", msgspec.json.encode({"id": uuid4(), "organization_id": organization}))
    outbox.prepare()


if __name__ == "__main__":
    assert int(os.environ["VALKEY_SHARDS"]) == SHARD_COUNT
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()) + "\n")
