"""Holds in parts stay bounded while the store gives no answer too: by the allowance of this process."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings as configured
from redis import Redis

from apps.gateway.access import policy
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.settlement import outbox
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, OutagePolicy
from tests.support.credits_left import BIG, SLIP, chunks_in, credits_of, held, opened
from tests.support.model_routes import post
from tests.support.store_faults import fault
from tests.support.upstream import Caller, settle_all

# The commands that the server receives, and how its line is cut, are about one server.
pytestmark = pytest.mark.single_server

ALLOWANCE = Decimal("0.01")


@pytest.fixture(autouse=True)
def store(settings: Any, tmp_path: Path) -> Iterator[Redis]:
    """A connection of the test's own, a spool of its own, and an allowance of a cent."""
    settings.GATEWAY_HOME, settings.OFFLINE_ALLOWANCE_USD = tmp_path, ALLOWANCE
    connection: Redis = Redis.from_url(configured.REDIS_URL, decode_responses=True)
    connection.ping()
    yield connection
    connection.close()
    for forget in (offline_accounts.forget_all, offline_admission.forget_all, policy.forget_all):
        forget()


def known(caller: Caller) -> Decimal:
    """Let this process know the balance; return the balance in the ledger."""
    assert post(caller, "chat", "hi", max_tokens=5).status == 200
    settle_all()
    return credits_of(caller)


def bring_in() -> None:
    offline_admission.on_heartbeat()
    outbox.replay_spool()
    settle_all()


def last_of(content: bytes) -> tuple[Any, Any]:
    *_, last, done = chunks_in(content)
    return last["choices"][0]["finish_reason"], done


def test_streams_without_a_limit_end_where_the_allowance_does(caller: Caller, store: Redis) -> None:
    before = known(caller)
    with fault("noreplicas", store):
        told = [caller.chat(f"go on {BIG}", stream=True) for _ in range(6)]
        ended = [last_of(b"".join(one._iterator)) for one in told if one.status_code == 200]
    assert ended
    assert set(ended) == {("length", "[DONE]")}
    assert {one.status_code for one in told} <= {200, 503}
    bring_in()
    assert ALLOWANCE / 2 < before - credits_of(caller) <= ALLOWANCE + SLIP * len(ended)
    assert held(caller) == 0


def test_a_plain_answer_is_given_the_limit_that_the_allowance_covers(caller: Caller, store: Redis) -> None:
    before = known(caller)
    limits, statuses = [], []
    with fault("noreplicas", store):
        for _ in range(20):
            tag = uuid4().hex
            answer = post(caller, "chat", f"go on {BIG} [[sandbox tag={tag}]]", max_tokens=None)
            statuses.append(answer.status)
            limits += [one["body"].get("max_tokens") for one in caller.sent(tag)]
    assert statuses[0] == 200
    assert statuses[-1] == 503
    assert len(limits) == statuses.count(200)
    assert all(isinstance(limit, int) and 0 < limit < 131_072 for limit in limits)
    bring_in()
    assert before - credits_of(caller) <= ALLOWANCE + SLIP * len(limits)


def test_a_stream_that_began_before_an_outage_goes_on_within_the_allowance(caller: Caller, store: Redis) -> None:
    before = known(caller)
    stream = opened(caller, f"go on {BIG}")
    first = next(stream)
    part = held(caller)
    with fault("noreplicas", store):
        content = first + b"".join(stream)
    assert last_of(content) == ("length", "[DONE]")
    bring_in()
    assert part < before - credits_of(caller) <= part + ALLOWANCE + SLIP
    assert held(caller) == 0


def test_a_closed_organization_holds_nothing_unchecked_for_a_stream_under_way(caller: Caller, store: Redis) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(outage_policy=OutagePolicy.CLOSED)
    policy.forget_all()
    before = known(caller)
    stream = opened(caller, f"go on {BIG}")
    first = next(stream)
    part = held(caller)
    with fault("noreplicas", store):
        content = first + b"".join(stream)
    assert last_of(content) == ("length", "[DONE]")
    bring_in()
    assert before - credits_of(caller) <= part + SLIP
    assert RequestLog.objects.filter(unified_finish_reason="length_limit").count() >= 1
