"""Work of a process on a cluster of a test: `python -m tests.kernel.valkey.cluster_work WORK` prints the results."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - after the patches
import os  # noqa: E402 - after the patches
import sys  # noqa: E402 - after the patches
import time  # noqa: E402 - after the patches
from collections import defaultdict  # noqa: E402 - after the patches
from decimal import Decimal  # noqa: E402 - after the patches
from hashlib import sha1  # noqa: E402 - after the patches
from typing import Any  # noqa: E402 - after the patches
from uuid import UUID, uuid4  # noqa: E402 - after the patches

import django  # noqa: E402 - after the patches

os.environ["DJANGO_SETTINGS_MODULE"] = "gateway_project.settings"
django.setup()

from redis import Redis  # noqa: E402 - after the settings
from redis.crc import key_slot  # noqa: E402 - after the settings
from redis.exceptions import RedisError  # noqa: E402 - after the settings

from apps.billing import balance_copies, balances, reconciliation, reservations, worker_leases  # noqa: E402 - so
from apps.billing.ledger import Charge  # noqa: E402 - after the settings
from apps.gateway.settlement import outbox  # noqa: E402 - after the settings
from apps.kernel.valkey import generation, shards  # noqa: E402 - after the settings
from apps.kernel.valkey import redis as kernel_redis  # noqa: E402 - after the settings
from apps.kernel.valkey.cache_store import CacheShare  # noqa: E402 - after the settings
from apps.kernel.valkey.redis import SHARDS, LuaScript, client, shard_of  # noqa: E402 - after the settings
from apps.logs import refusals  # noqa: E402 - after the settings
from apps.mcp.protocol import sessions  # noqa: E402 - after the settings
from apps.organizations.credentials import attempt_rate_limiter  # noqa: E402 - after the settings
from apps.responses import response_rows  # noqa: E402 - after the settings

PORTS: list[int] = json.loads(os.environ.get("CLUSTER_PORTS", "[]"))


def run_every_script() -> Any:
    """Run all there are, by what their modules offer, for organizations of several shards; return the slots of the keys
    of each call, by script, and the scripts that did not run."""
    calls: defaultdict[str, set[tuple[int, ...]]] = defaultdict(set)
    run = LuaScript._run

    def watched(script: LuaScript, execute: Any, keys: list[str], args: list[str | int | bytes]) -> Any:
        calls[script._digest].add(tuple(sorted({key_slot(key.encode()) for key in keys})))
        return run(script, execute, keys, args)

    LuaScript._run = watched  # type: ignore[method-assign] # this process does nothing else
    shards.require()
    balances.void_epochs_before(1)
    organizations = [organization_of_shard(shard) for shard in SHARDS[::6]]
    worker_leases.send_heartbeat("one")
    for organization in organizations:
        _spend(organization)
    assert [worker_leases.find_expired_workers(shard) for shard in SHARDS] == [[]] * len(SHARDS)
    names = sorted(balance_copies.scan_copy_keys())
    assert names == sorted(balances.key("organization", one) for one in organizations)
    for name in names:
        assert balance_copies._HOLD([name], []) == 0
        assert reconciliation._HELD([name], []) == [["0", "0"]]
    organization, key = organizations[0], uuid4()
    refusals.count(organization, key, 429, "rate_limit_exceeded")
    refusals.flush()
    assert len(refusals._TAKE([refusals._COUNTS, refusals._LAST], [])[0]) == 2
    assert response_rows.find_aside(uuid4(), "resp_1") is None
    sign_in, address = attempt_rate_limiter.SIGN_IN_PER_ACCOUNT, attempt_rate_limiter.SIGN_IN_PER_ADDRESS
    attempt_rate_limiter.count_attempt((sign_in, "one"), (address, "two"))
    session_id = sessions.open_session(f"key:{key}", "all", "1")
    session = sessions.find_session(session_id, f"key:{key}", "all")
    assert session is not None
    log = sessions.StreamLog(session, CacheShare(organization, 2**20), 1)
    for one in organizations:
        share = CacheShare(one, 2_000)
        assert share.keep([("a", b"1" * 600), ("b", b"2" * 600)], 60) == 2
        assert share.read_all(["a", "b"]) == [None, "2" * 600]
        share.prolong(["b"], 60)
        share.forget("b")
        assert share.append("c", b"3", 60, is_first=True)
        share.forget_all()
        assert share.used_bytes == 0
    assert log.begin()
    log.end()
    assert not log.is_broken
    assert len(kernel_redis.read_server_state().data.split()) == len(SHARDS)
    every = {sha1(source.encode(), usedforsecurity=False).hexdigest() for source in kernel_redis._SOURCES}
    own = {_READ._digest, _KEEP._digest}
    return {
        "calls": {name: sorted(found) for name, found in calls.items()},
        "reserved_in": sorted(calls[reservations._RESERVE._digest]),
        "never_run": sorted(every - own - calls.keys()),
        "scripts": len(every - own),
    }


def organization_of_shard(shard: int) -> UUID:
    """Return the id of an organization that lies in a shard."""
    return next(one for one in iter(uuid4, None) if shard_of(one) == shard)


def _spend(organization: UUID) -> None:
    """Have an organization make a reservation, extend it, and give it back, with all that is in its shard."""
    key, shard = uuid4(), shard_of(organization)
    tokens = [
        generation.read_generation_token(scope) for scope in ("catalog", generation.organization_scope(organization))
    ]
    balances.publish_or_raise([balances.Balance("organization", organization, Decimal(1), 1, 1)])
    request = reservations.ReservationRequest(
        id=uuid4(),
        worker="one",
        organization_id=organization,
        api_key_id=key,
        amount_nanos=5,
        from_credits=True,
        catalog_token=tokens[0],
        organization_token=tokens[1],
        payload="{}",
        rates=(reservations.RateLimit("acme", 60),),
        most_in_flight=5,
    )
    assert reservations.look(request).outcome is reservations.ReservationOutcome.ALLOWED
    result = reservations.reserve(request)
    assert result.hold is not None, result
    assert result.hold.shard == shard
    extended: Any = reservations.extend(result.hold, 3, 3, 3)
    assert extended.growth == "held"
    charge = Charge(organization, key, request.id, Decimal(-1), Decimal(0))
    outbox.push("one", b"{}", reservations.reduce_to_cost(extended.hold, charge))
    outbox.prepare_shard(shard)
    outbox.acknowledge(outbox.read_batch("reader", 1, 0, shard=shard))
    assert client().xlen(outbox.STREAMS[shard]) == 0
    assert reservations.release([("one", request.id)], shard) == 1
    worker_leases.find_expired_workers(shard)
    assert worker_leases.remove_worker("one", shard)


def read_several() -> Any:
    """Return the values of keys that lie in several slots."""
    for name in ("a", "c", "d"):
        client().set(name, {"a": 1, "c": 3, "d": 4}[name])
    return client().mget(["a", "b", "c", "d"])


_READ = LuaScript("-- of this test\nreturn redis.call('GET', KEYS[1])")


def move_slot() -> Any:
    """Return what a script reads before its slot moves, while it moves, and after it has."""
    key, slot = "{moved}:x", key_slot(b"{moved}:x")
    client().set(key, "before")
    found = [_READ.run_batched([key], [])]
    nodes: dict[int, Any] = {port: Redis(port=port, decode_responses=True) for port in PORTS}
    primaries = {port: node for port, node in nodes.items() if node.role()[0] == "master"}
    ids = {port: node.execute_command("CLUSTER", "MYID") for port, node in primaries.items()}
    source = next(port for port, node in primaries.items() if has_slot(node, slot, port))
    target = next(port for port in primaries if port != source)
    nodes[target].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    nodes[source].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    nodes[source].execute_command("MIGRATE", "127.0.0.1", target, key, 0, 5000)
    nodes[target].execute_command("ASKING")
    found.append("asked" if _READ.run_batched([key], []) == "before" else "lost")
    for port in (target, source, *(primaries.keys() - {source, target})):
        nodes[port].execute_command("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    client().set(key, "moved")
    found.append(_READ.run_batched([key], []))
    return found


def has_slot(node: Any, slot: int, port: int) -> bool:
    """Tell whether a slot is of the primary on a port, as it tells itself."""
    return any(
        first <= slot <= last and int(primary[1]) == port
        for first, last, primary, *_ in node.execute_command("CLUSTER", "SLOTS")
    )


_KEEP = LuaScript("redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]")


def wait_for_failover() -> Any:
    """Return the errors until a script is answered, and whether a script that no caller waits for is done then."""
    errors: list[str] = []
    until = time.monotonic() + 30
    answer = None
    while answer is None and time.monotonic() < until:
        try:
            answer = _KEEP.run_batched(["{gateway}:x"], ["kept"])
        except RedisError as error:
            errors.append(type(error).__name__)
            time.sleep(0.05)
    failures: list[RedisError] = []
    _KEEP.send_nowait(["{gateway}:y"], ["kept"], failures.append)
    kernel_redis.flush()
    return {"errors": errors, "answer": answer, "nowait": None if failures else client().get("{gateway}:y")}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[sys.argv[1]]()) + "\n")
