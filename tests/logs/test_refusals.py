"""Refused requests: counted once wherever they are, bounded everywhere, and gone with their organization."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from redis.exceptions import RedisError

from apps.gateway.access.policy import count_refusal
from apps.kernel.errors import ApiError, InvalidRequest, PaymentRequired, RateLimited, UpstreamRefused
from apps.kernel.valkey.redis import client
from apps.logs import hooks, refusals
from apps.logs.models import RefusedHour
from tests.support.cast import Caller, World, make_key

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=365)
CHAT = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    refusals._waiting.clear()
    yield
    refusals._waiting.clear()


def counted(organization_id: Any) -> list[tuple[int, str, int]]:
    refusals.flush()
    refusals.roll_up(NOW)
    return [(one.status, one.code, one.count) for one in refusals.find_refusals(organization_id, LONG_AGO)]


def test_an_answer_of_410_is_counted_for_its_key_and_one_of_401_for_nobody(world: World) -> None:
    made = make_key(world.olivia, world.project)
    world.project.status = "archived"
    world.project.save()
    for _ in range(3):
        assert Caller(made.token).post("/v1/chat/completions", CHAT).status_code == 410
    assert Caller("gw_dev_nobodys").post("/v1/chat/completions", CHAT).status_code == 401
    assert Caller().post("/v1/chat/completions", CHAT).status_code == 401
    assert counted(world.acme.id) == [(410, "gone", 3)]
    [one] = refusals.find_refusals(world.acme.id, LONG_AGO)
    assert one.api_key_id == made.key.id
    assert RefusedHour.objects.count() == 1


def test_only_refusals_of_ours_are_counted(world: World) -> None:
    made = make_key(world.olivia, world.project)
    Caller(made.token).post("/v1/chat/completions", {"model": "no-such-model", "messages": CHAT["messages"]})

    class Call:
        presented_key = made.token

    call: Any = Call()
    from_provider: ApiError = RateLimited("theirs")
    from_provider.from_provider = True
    for error in (from_provider, UpstreamRefused("theirs", status=403), InvalidRequest("bad"), ApiError("ours")):
        count_refusal(call, error)
    assert counted(world.acme.id) == []
    for error in (PaymentRequired("no"), InvalidRequest("no", code="guardrail_blocked"), RateLimited("no")):
        count_refusal(call, error)
    assert sorted(counted(world.acme.id)) == [
        (400, "guardrail_blocked", 1),
        (402, "insufficient_credits", 1),
        (429, "rate_limit_exceeded", 1),
    ]


def test_counts_of_many_processes_add_up_and_are_moved_once(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    for number in (2, 3):
        for _ in range(number):
            refusals.count(world.acme.id, key.id, 402, "insufficient_credits")
        refusals.flush()
    assert counted(world.acme.id) == [(402, "insufficient_credits", 5)]
    assert counted(world.acme.id) == [(402, "insufficient_credits", 5)]
    refusals.count(world.acme.id, key.id, 402, "insufficient_credits")
    assert counted(world.acme.id) == [(402, "insufficient_credits", 6)]


def test_a_flood_of_reasons_grows_neither_memory_nor_store(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_WAITING", 10)
    monkeypatch.setattr(refusals, "MAX_STORED", 15)
    for _ in range(2):
        for _ in range(30):
            refusals.count(world.acme.id, uuid4(), 429, "rate_limit_exceeded")
        assert len(refusals._waiting) == 10
        refusals.flush()
    assert client().hlen(refusals._COUNTS) == client().hlen(refusals._LAST) == 15


def test_what_the_store_did_not_take_is_kept_for_the_next_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise RedisError("away")

    refusals.count(world.acme.id, uuid4(), 429, "a|b")
    with monkeypatch.context() as patched:
        patched.setattr(refusals._ADD, "run_batched", away)
        with pytest.raises(RedisError):
            refusals.flush()
    assert counted(world.acme.id) == [(429, "a|b", 1)]


def test_old_counts_and_those_of_deleted_organizations_go(world: World) -> None:
    for organization, age in ((world.acme, 31), (world.acme, 1), (world.elsewhere, 1)):
        hour = (NOW - timedelta(days=age)).replace(minute=0, second=0, microsecond=0)
        RefusedHour.objects.create(
            organization_id=organization.id, api_key_id=uuid4(), hour=hour, status=402, code="x", count=1, last_at=hour
        )
    refusals.roll_up(NOW)
    assert RefusedHour.objects.count() == 2
    hooks.erase(world.acme.id)
    assert RefusedHour.objects.get().organization_id == world.elsewhere.id
