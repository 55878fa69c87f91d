"""Shards while a cluster loses a primary or moves a slot: `python -m tests.kernel.valkey.shard_faults WORK`."""

from __future__ import annotations

from tests.kernel.valkey.shard_work import let_spend, push, reserve  # isort: skip # it sets Django up

import json
import os
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from typing import Any

import gevent
from redis import Redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from apps.billing import balances, reservations, worker_leases
from apps.gateway.settlement import outbox
from apps.gateway.settlement.outbox import OutboxReader
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import SHARDS, client, money_key
from tests.kernel.valkey.cluster_work import PORTS, has_slot, organization_of_shard
from tests.stack.product import eventually


def lose_primary() -> Any:
    """Kill the primary of shard 0; return what another does meanwhile, and what both do once its replica took over."""
    lost, primary = 0, find_primary(0)
    living = next(shard for shard in SHARDS if not has_slot(primary, slot_of(shard), port_of(primary)))
    found: dict[str, Any] = {"living": living}
    organization = organization_of_shard(living)
    push(organization_of_shard(lost), 2)
    push(organization, 3)
    let_spend([organization])
    client().set(generation.keys_of(generation.CATALOG)[living], "c")
    eventually(lambda: has_replicated(primary))
    # On a busy machine the replica would be faster than the questions that its primary does not answer.
    allow_failover(False)
    os.kill(primary.info("server")["process_id"], signal.SIGKILL)
    found["read"] = [one.shard for one in OutboxReader("one").read(10, 1)]
    for name, ask in (("beat", lambda: worker_leases.send_heartbeat("w")), ("depth", outbox.depth)):
        try:
            ask()  # type: ignore[no-untyped-call] # a function or the other
            found[name] = "all"
        except RedisError as error:
            found[name] = type(error).__name__
    found["heard"] = client().zscore(worker_leases.WORKERS[living], "w") is not None
    catalog = ",".join("c" if shard == living else "away" for shard in SHARDS)
    found["reserved"] = reserve(organization, catalog).outcome
    try:
        reserve(organization_of_shard(lost), catalog, "any")
    except RedisError as error:
        found["not_reserved"] = type(error).__name__
    until, errors = time.monotonic() + 30, 0
    while time.monotonic() < until:
        try:
            found["read_again"] = sorted(one.shard for one in OutboxReader("one").read(10, 1) if one.shard == lost)
            worker_leases.send_heartbeat("w")
            if found["read_again"]:
                break
            # The reader passes over a shard that is away, and its replica took over only then.
            time.sleep(0.1)
        except RedisError:
            errors += 1
            allow_failover(True)
            time.sleep(0.1)
    found["failed_meanwhile"] = errors > 0
    found["heard_by_all"] = all(client().zscore(name, "w") is not None for name in worker_leases.WORKERS)
    return found


def slot_of(shard: int) -> int:
    """Return the slot of a shard's keys."""
    return key_slot(money_key("x", shard).encode())


def port_of(node: Any) -> int:
    """Return the port of a node's client."""
    return int(node.connection_pool.connection_kwargs["port"])


def find_primary(shard: int) -> Any:
    """Return a client of the node that is a shard's primary now: a busy machine may have made its replica one."""
    nodes = (Redis(port=port, decode_responses=True) for port in PORTS)
    return next(node for node in nodes if node.role()[0] == "master" and has_slot(node, slot_of(shard), port_of(node)))


def allow_failover(is_allowed: bool) -> None:
    """Set whether replicas may take the place of a primary that is lost."""
    for port in PORTS:
        with suppress(RedisError), Redis(port=port, decode_responses=True) as node:
            node.config_set("cluster-replica-no-failover", "no" if is_allowed else "yes")


def has_replicated(primary: Any) -> bool:
    """Return whether a replica has all that was written to a primary."""
    told = primary.info("replication")
    replica = told.get("slave0")
    return bool(replica) and replica["offset"] >= told["master_repl_offset"]


def spend_while_a_slot_moves() -> Any:
    """Return what an organization with 10 to spend was let have while its shard's slot moved between primaries, a key
    at a time, by two greenlets that each ask for 1 thirty times."""
    organization = organization_of_shard(4)
    balances.publish_or_raise([balances.Balance("organization", organization, Decimal(10) / 10**9, 1, 1)])
    token = generation.read_generation_token(generation.CATALOG)
    own = generation.read_generation_token(generation.organization_scope(organization))
    outcomes: Counter[str] = Counter()

    def spend() -> None:
        for _ in range(30):
            try:
                outcomes[reserve(organization, token, own, amount=1).outcome] += 1
            except RedisError as error:
                outcomes[type(error).__name__] += 1
            gevent.sleep(0.01)

    spenders = [gevent.spawn(spend) for _ in range(2)]
    slot = key_slot(money_key("x", 4).encode())
    moved = move_slot_slowly(slot)
    gevent.joinall(spenders)
    held = int(client().hget(balances.key("organization", organization), "held") or 0)
    notes = reservations.notes_of("w", 4)
    return {
        "moved": moved,
        "held": held,
        "noted": sum(int(note.amount) for note in notes.values()),
        "let_have": outcomes["held"],
        "others": sorted(outcomes.keys() - {"held", "no_credits"}),
    }


def move_slot_slowly(slot: int) -> bool:
    """Move a slot to another primary, key by key; return whether there was anything to move."""
    nodes: dict[int, Any] = {port: Redis(port=port, decode_responses=True) for port in PORTS}
    primaries = {port: node for port, node in nodes.items() if node.role()[0] == "master"}
    names = {port: node.execute_command("CLUSTER", "MYID") for port, node in primaries.items()}
    source = next(port for port, node in primaries.items() if has_slot(node, slot, port))
    target = next(port for port in primaries if port != source)
    nodes[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", names[source])
    nodes[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", names[target])
    moved = 0
    while keys := nodes[source].execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1):
        nodes[source].execute_command("MIGRATE", "127.0.0.1", target, keys[0], 0, 5000)
        moved += 1
        gevent.sleep(0.02)
    for port in (target, source, *(primaries.keys() - {source, target})):
        nodes[port].execute_command("CLUSTER", "SETSLOT", slot, "NODE", names[target])
    return moved > 0


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()) + "\n")
