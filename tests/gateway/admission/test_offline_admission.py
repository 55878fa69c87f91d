"""Valkey refuses, hangs or is gone: no request is served for free, and callers with credits have the allowance.

Each fault is a real one, of the run's own Valkey, and over when the test is.
"""
# length: one decision, admission without the store, in all of its outcomes.

# length: every fault and what it must come to; they share their set-up.
from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import OperationalError
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.billing import balances, ledger, reservations
from apps.billing.worker_leases import worker_name
from apps.gateway.access import policy
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.admission.offline_admission import OUTAGE, outage_reason
from apps.gateway.metrics import OFFLINE_ALLOWANCE_USED, OFFLINE_DECISIONS, STORE_SILENT, UNRESERVED
from apps.gateway.settlement import outbox
from apps.kernel.money import NANO
from apps.kernel.valkey.redis import client as valkey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.store_faults import FAULTS, fault
from tests.support.upstream import Caller, settle_all

# The commands that the server receives, and how its line is cut, are about one server.
pytestmark = pytest.mark.single_server

ASK = "hi [[sandbox usage=1000,200]]"
SPEAKS = "The gateway cannot check credits right now"


def ask(caller: Caller, **fields: Any) -> Any:
    """Ask for an answer whose limit the client states: it is let in with all that it may cost, or not at all."""
    return caller.chat(ASK, max_tokens=1024, **fields)


@pytest.fixture
def store(settings: Any, tmp_path: Path) -> Iterator[Redis]:
    """A connection of the test's own, which is not cut off with the others, and a spool of its own."""
    settings.GATEWAY_HOME = tmp_path
    connection: Redis = Redis.from_url(configured.REDIS_URL, decode_responses=True)
    connection.ping()
    yield connection
    connection.close()


@pytest.fixture
def worst(caller: Caller) -> Decimal:
    """The reserved cost of a request; asks one first, so that the process knows the balance."""
    assert ask(caller).status_code == 200
    left = offline_accounts.find(caller.organization_id)
    assert left is not None
    settle_all()
    return (100 * NANO - left) / Decimal(NANO)


@pytest.fixture
def cost(worst: Decimal) -> Decimal:
    """The actual cost of a request."""
    found = RequestLog.objects.get().cost
    assert found is not None
    return found


def set_credits(caller: Caller, credits: str) -> None:
    """Let the organization have so much, as another process's charge would leave it: only the ledger knows."""
    Organization.objects.filter(pk=caller.organization_id).update(credits=credits)


def forget() -> None:
    """Be a process that has just begun."""
    offline_accounts.forget_all()
    offline_admission.forget_all()
    policy.forget_all()


def decided(reason: str, decision: str) -> float:
    return float(OFFLINE_DECISIONS.labels(reason, decision)._value.get())


def code_of(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def bring_in() -> int:
    """Do what heartbeat and settler do once the store answers; return how many records were new."""
    offline_admission.on_heartbeat()
    offline_admission.on_heartbeat()
    outbox.replay_spool()
    return settle_all()


def in_order(caller: Caller) -> bool:
    """Whether nothing is held or waiting, and the copy is the balance."""
    name = balances.key("organization", caller.organization_id)
    (true,) = ledger.balances_of("organization", [caller.organization_id])
    said = valkey().hmget(name, "amount", "held")
    return (said[0], int(said[1] or 0), reservations.notes_of(worker_name(), 0), outbox.depth()) == (
        str(true.nanos),
        0,
        {},
        (0, 0.0),
    )


@pytest.mark.parametrize("kind", FAULTS)
def test_an_organization_without_credits_is_not_served_by_a_store_that_gives_no_answer(
    caller: Caller, store: Redis, kind: str
) -> None:
    set_credits(caller, "0")
    before = UNRESERVED._value.get()
    with fault(kind, store):
        # At first this process does not know the balance; then it does.
        assert [code_of(ask(caller)) for _ in range(3)] == [(402, "insufficient_credits")] * 3
    assert UNRESERVED._value.get() == before
    assert bring_in() == 0
    assert RequestLog.objects.count() == 0


@pytest.mark.parametrize("kind", FAULTS)
def test_who_has_credits_is_served_within_the_allowance_and_not_beyond(
    caller: Caller, settings: Any, store: Redis, worst: Decimal, cost: Decimal, kind: str
) -> None:
    # Room for three that are answered and a fourth's worst case; a fifth's does not fit any more.
    settings.OFFLINE_ALLOWANCE_USD = worst + 3 * cost
    with fault(kind, store):
        told = [ask(caller) for _ in range(6)]
        assert [response.status_code for response in told] == [200] * 4 + [503] * 2
        assert all("ratelimit-limit" not in response.headers for response in told[:4])
        assert told[4].headers["retry-after"] == "2"
        assert told[4].json()["error"]["message"].startswith(f"{SPEAKS}, and what it may serve unchecked is used up")
        assert OFFLINE_ALLOWANCE_USED._value.get() == pytest.approx(float(4 * cost))
        assert (decided(kind, "admitted"), decided(kind, "allowance")) >= (4, 2)
        assert STORE_SILENT._value.get() == 1
    assert bring_in() == 4
    assert STORE_SILENT._value.get() == 0
    (true,) = ledger.balances_of("organization", [caller.organization_id])
    assert true.amount == 100 - 5 * cost
    assert ask(caller).headers["ratelimit-limit"]
    settle_all()
    assert in_order(caller)


@pytest.mark.parametrize("kind", FAULTS)
def test_an_organization_that_chose_so_is_not_served_without_an_answer(
    caller: Caller, store: Redis, worst: Decimal, kind: str
) -> None:
    Organization.objects.get(pk=caller.organization_id)
    Organization.objects.filter(pk=caller.organization_id).update(outage_policy="closed")
    policy.forget_all()
    with fault(kind, store):
        response = ask(caller)
        assert code_of(response) == (503, "overloaded")
        assert response.headers["retry-after"] == "2"
        assert "outagePolicy is `closed`" in response.json()["error"]["message"]
    assert bring_in() == 0
    assert ask(caller).status_code == 200


def test_a_store_without_memory_reserves_as_ever_and_loses_no_record(
    caller: Caller, store: Redis, worst: Decimal, cost: Decimal
) -> None:
    poor = "0.0001"
    with fault("oom", store):
        told = [ask(caller) for _ in range(3)]
        assert [(one.status_code, "ratelimit-limit" in one.headers) for one in told] == [(200, True)] * 3
        held = store.hget(balances.key("organization", caller.organization_id), "held")
        assert held == str(3 * int(worst * NANO)), "not even what was not used is given back unwritten"
        set_credits(caller, poor)
        store.delete(balances.key("organization", caller.organization_id))
        forget()
        assert code_of(ask(caller)) == (402, "insufficient_credits")
    assert bring_in() == 3
    (true,) = ledger.balances_of("organization", [caller.organization_id])
    assert true.amount == Decimal(poor) - 3 * cost
    assert in_order(caller)


def test_nobody_spends_more_than_the_last_known_balance(
    caller: Caller, settings: Any, store: Redis, worst: Decimal, cost: Decimal
) -> None:
    settings.OFFLINE_ALLOWANCE_USD = Decimal(1_000)
    set_credits(caller, str(worst + cost))
    forget()
    with fault("readonly", store):
        statuses = [code_of(ask(caller)) if n > 1 else ask(caller).status_code for n in range(3)]
    assert statuses == [200, 200, (503, "overloaded")]
    assert bring_in() == 2


def test_a_key_over_its_limit_is_refused_and_one_near_it_stays_within(
    caller: Caller, settings: Any, store: Redis, worst: Decimal, cost: Decimal
) -> None:
    settings.OFFLINE_ALLOWANCE_USD = Decimal(1_000)
    caller.key.refresh_from_db()
    caller.key.usage_limit = caller.key.usage + worst + cost
    caller.key.save(update_fields=["usage_limit"])
    forget()
    with fault("readonly", store):
        assert [ask(caller).status_code for _ in range(2)] == [200, 200]
        assert code_of(ask(caller)) == (503, "overloaded")
        type(caller.key).objects.filter(pk=caller.key.pk).update(usage=caller.key.usage_limit)
        forget()
        assert code_of(ask(caller)) == (402, "usage_limit_exceeded")
    assert bring_in() == 2


def test_a_balance_that_nobody_can_tell_serves_nobody(
    caller: Caller, store: Redis, worst: Decimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process does not know the balance, and cannot read it."""

    def away(*_: Any) -> None:
        raise OperationalError("couldn't get a connection")

    with fault("unreachable", store):
        assert ask(caller).status_code == 200
        monkeypatch.setattr(ledger, "balances_of", away)
        # Known here: the database is not needed.
        assert ask(caller).status_code == 200
        offline_accounts.forget_all()
        for _ in range(2):
            response = ask(caller)
            assert code_of(response) == (503, "overloaded")
            assert response.headers["retry-after"] == "2"
        monkeypatch.undo()
    monkeypatch.undo()


def test_rates_and_requests_at_once_hold_in_this_process(
    caller: Caller, settings: Any, store: Redis, worst: Decimal
) -> None:
    settings.OFFLINE_ALLOWANCE_USD = Decimal(1_000)
    Organization.objects.filter(pk=caller.organization_id).update(requests_per_minute=3)
    forget()
    with fault("noreplicas", store):
        responses = [ask(caller) for _ in range(5)]
        assert [response.status_code for response in responses] == [200] * 3 + [429] * 2
        assert responses[3].headers["ratelimit-limit"] == "3"
        assert 19 <= int(responses[3].headers["retry-after"]) <= 20
    assert bring_in() == 3


def test_one_slow_answer_does_not_open_the_door(caller: Caller, store: Redis) -> None:
    """An organization without credits, and a store that is a second late once, and then is not."""
    set_credits(caller, "0")
    with fault("timeout", store):
        assert ask(caller).status_code == 402
    assert [ask(caller).status_code for _ in range(2)] == [402, 402]
    assert RequestLog.objects.count() == 0


def test_a_store_that_flickers_does_not_renew_the_allowance(
    caller: Caller, settings: Any, store: Redis, worst: Decimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.OFFLINE_ALLOWANCE_USD = worst
    served = []
    for _ in range(3):
        with fault("noreplicas", store):
            served += [ask(caller).status_code for _ in range(2)]
        bring_in()
    assert served == [200, 503, 503, 503, 503, 503]
    monkeypatch.setattr(offline_admission, "SETTLED_AFTER", 0.0)
    bring_in()
    assert OFFLINE_ALLOWANCE_USED._value.get() == 0
    with fault("noreplicas", store):
        assert ask(caller).status_code == 200


def test_what_was_reserved_for_whom_was_refused_is_given_back(
    caller: Caller, settings: Any, store: Redis, worst: Decimal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs has read the question: once it goes on, it reserves for a caller that was refused."""
    settings.OFFLINE_ALLOWANCE_USD = Decimal(0)
    name = balances.key("organization", caller.organization_id)
    with fault("timeout", store):
        assert ask(caller).status_code == 503
    assert int(store.hget(name, "held") or 0) == int(worst * NANO)
    offline_admission.on_heartbeat()
    assert int(store.hget(name, "held") or 0) == int(worst * NANO), "it may still be on its way"
    monkeypatch.setattr(offline_admission, "_LATEST_EXECUTION", 0.0)
    offline_admission.on_heartbeat()
    assert in_order(caller)
    assert settle_all() == 0


def test_free_requests_and_those_on_ones_own_account_need_no_allowance(
    caller: Caller, settings: Any, store: Redis, worst: Decimal
) -> None:
    settings.OFFLINE_ALLOWANCE_USD = Decimal(0)
    with fault("readonly", store):
        assert ask(caller, model="sandbox/free").status_code == 200
        assert ask(caller).status_code == 503


@pytest.mark.parametrize("kind", ["noreplicas", "readonly"])
def test_an_outage_is_told_once_at_its_beginning_and_once_at_its_end(
    caller: Caller, store: Redis, worst: Decimal, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with fault(kind, store):
        for _ in range(3):
            ask(caller)
    OUTAGE.record_heartbeat()
    assert OUTAGE.began_at is not None, "something failed since the heartbeat before"
    OUTAGE.record_heartbeat()
    OUTAGE.record_heartbeat()
    told = [
        (record.levelname, record.msg)
        for record in caplog.records
        if isinstance(record.msg, dict) and str(record.msg["event"]).startswith("store.outage")
    ]
    assert [(level, words["event"]) for level, words in told] == [
        ("ERROR", "store.outage_began"),
        ("INFO", "store.outage_ended"),
    ]
    assert told[0][1]["reason"] == kind
    assert (told[1][1]["admitted"], told[1][1]["refused"]) == (3, 0)


def test_a_store_that_evicts_everything_lets_nobody_through(caller: Caller, store: Redis) -> None:
    set_credits(caller, "0")
    policy_before = store.config_get("maxmemory-policy")["maxmemory-policy"]
    store.config_set("maxmemory-policy", "allkeys-random")
    try:
        with fault("oom", store):
            statuses = {ask(caller).status_code for _ in range(10)}
    finally:
        store.config_set("maxmemory-policy", policy_before)
    assert statuses <= {402, 503}
    assert RequestLog.objects.count() == 0
    outbox.prepare()
    assert settle_all() == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ResponseError("MISCONF Errors writing to the AOF file"), "misconf"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), "noreplicas"),
        (ResponseError("OOM command not allowed when used memory > 'maxmemory'."), "oom"),
        (ResponseError("WRONGTYPE Operation against a key"), "refused"),
        (OutOfMemoryError("command not allowed"), "oom"),
        (ReadOnlyError("You can't write against a read only replica."), "readonly"),
        (RedisTimeoutError("The store did not answer in time"), "timeout"),
        (RedisConnectionError("The connection was lost"), "unreachable"),
    ],
)
def test_whatever_it_says_it_is_no_answer(error: Any, reason: str) -> None:
    assert outage_reason(error) == reason
