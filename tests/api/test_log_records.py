"""Log records: each admitted request is recorded and charged once, as far as retention allows (section 2.12)."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from redis.exceptions import RedisError

from apps.billing import balances, reservations, worker_leases
from apps.billing.models import LedgerEntry
from apps.billing.worker_leases import worker_name
from apps.gateway.settlement import outbox
from apps.gateway.settlement.settle import settle, sweep
from apps.kernel.valkey import redis as kernel_redis
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, chunks_of, nothing_happened, settle_all


def test_a_record_is_settled_once_with_its_exact_cost(caller: Caller) -> None:
    caller.chat("hi [[sandbox usage=1003,207,300]]", headers={"x-source": "shop", "x-gateway-team": "blue"})
    messages = outbox.read_batch("test", 10, 1)
    assert settle(messages) == 1
    assert settle(messages) == 0
    cost = Decimal("0.00025215")
    row = RequestLog.objects.get()
    assert (row.cost, row.input_cost, row.output_cost, row.cached_input_cost) == (
        cost,
        Decimal("0.00010545"),
        Decimal("0.0001242"),
        Decimal("0.0000225"),
    )
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens) == (1003, 207, 300)
    assert (row.unified_finish_reason, row.has_error, row.canceled, row.swept) == ("completed", False, False, False)
    organization = Organization.objects.get(pk=caller.organization_id)
    assert organization.credits == 100 - cost
    assert ApiKey.objects.get(pk=caller.key.pk).usage == cost
    entry = LedgerEntry.objects.get(kind="usage")
    assert (entry.credits, entry.usage, entry.reference) == (-cost, cost, row.id)
    assert nothing_happened(caller)
    assert valkey().hget(balances.key("organization", caller.organization_id), "amount") == str(
        int((100 - cost) * 10**9)
    )


def test_the_id_in_the_answer_is_the_one_in_the_log(caller: Caller) -> None:
    response = caller.chat()
    settle_all()
    assert response["x-request-id"] == RequestLog.objects.get().request_id


def test_a_warm_request_makes_no_query_and_two_round_trips(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    assert caller.chat().status_code == 200
    trips = round_trips(monkeypatch, kernel_redis.client())
    with CaptureQueriesContext(connection) as queries:
        assert caller.chat().status_code == 200
    assert len(queries) == 0
    assert trips == ["EVALSHA", "EVALSHA"]


@pytest.mark.parametrize("stream", [False, True])
def test_retention_none_keeps_the_bill_and_nothing_else(caller: Caller, stream: bool) -> None:
    response = caller.chat(
        "my secret words", stream=stream, temperature=0.5, headers={"x-source": "shop", "x-gateway-team": "blue"}
    )
    if stream:
        chunks_of(response)
    (message,) = outbox.read_batch("test", 10, 1)
    assert "secret" not in message.record
    settle([message])
    row = RequestLog.objects.get()
    assert (row.messages, row.content, row.temperature, row.source, row.custom_headers) == (None,) * 5
    assert (row.finish_reason, row.unified_finish_reason, row.used_model) == (None, "completed", "echo")


def test_retention_metadata_keeps_parameters_and_no_content(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="metadata")
    caller.chat(
        "my secret words", temperature=0.5, max_tokens=50, headers={"x-source": "shop", "x-gateway-Team": "blue"}
    )
    (message,) = outbox.read_batch("test", 10, 1)
    assert "secret" not in message.record
    settle([message])
    row = RequestLog.objects.get()
    assert (row.temperature, row.max_tokens, row.source, row.custom_headers) == (0.5, 50, "shop", {"team": "blue"})
    assert (row.messages, row.content, row.finish_reason) == (None, None, "stop")


@pytest.mark.parametrize("stream", [False, True])
def test_retention_retain_keeps_everything(caller: Caller, stream: bool) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(retention_level="retain")
    response = caller.chat("my words", stream=stream)
    if stream:
        chunks_of(response)
    settle_all()
    row = RequestLog.objects.get()
    assert row.messages == [{"role": "user", "content": "my words"}]
    assert row.content == "You said: my words"


def test_an_upstream_that_reports_no_usage_is_estimated_and_marked(caller: Caller) -> None:
    caller.chat("12345678", model="sandbox/no-usage")
    settle_all()
    row = RequestLog.objects.get()
    assert row.estimated_cost is True
    assert (row.prompt_tokens, row.completion_tokens) == (6, 5)


def test_an_empty_answer_is_free(caller: Caller) -> None:
    assert caller.chat("[[sandbox empty usage=10,0]]").json()["usage"]["cost_usd_total"] == 0
    settle_all()
    assert (RequestLog.objects.get().cost, Organization.objects.get(pk=caller.organization_id).credits) == (0, 100)


def test_an_admitted_request_that_is_never_answered_has_one_row_that_says_so(caller: Caller) -> None:
    unread = caller.chat("x", stream=True)
    lost = "worker-that-died"
    notes = reservations.notes_key(worker_name(), 0)
    valkey().rename(notes, reservations.notes_key(lost, 0))
    worker_leases.expire_lease(lost)
    assert sweep() == 1
    assert sweep() == 1
    settle_all()
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, row.has_error, row.swept, row.cost) == ("gateway_error", True, True, None)
    assert sweep() == 0
    assert nothing_happened(caller)
    assert Organization.objects.get(pk=caller.organization_id).credits == 100
    unread.close()


def test_a_settler_that_died_after_the_commit_is_made_up_for(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    caller.chat("hi [[sandbox usage=1000,200]]")
    (message,) = outbox.read_batch("test", 10, 1)
    with monkeypatch.context() as patch:
        patch.setattr(balances, "publish_or_raise", dies)
        with pytest.raises(RedisError):
            settle([message])
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - Decimal("0.00027")
    copy = balances.key("organization", caller.organization_id)
    assert valkey().hget(copy, "amount") == str(100 * 10**9)
    assert settle(outbox.read_batch("test", 10, 1)) == 0
    assert valkey().hget(copy, "amount") == "99999730000"
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - Decimal("0.00027")
    assert nothing_happened(caller)


def dies(*arguments: object) -> None:
    """Stand for a store that goes away at the worst moment."""
    raise RedisError("away")


def test_a_slow_workers_own_record_replaces_the_sweepers_row(caller: Caller) -> None:
    assert caller.chat("hi [[sandbox usage=1000,200]]").status_code == 200
    (message,) = outbox.read_batch("test", 10, 1)
    swept = json.loads(message.record) | {"swept": True, "cost": None, "unified_finish_reason": "gateway_error"}
    assert settle([outbox.OutboxMessage("0-1", message.worker, json.dumps(swept))]) == 1
    assert RequestLog.objects.get().unified_finish_reason == "gateway_error"
    assert settle([message]) == 1
    assert settle([message]) == 0
    row = RequestLog.objects.get()
    assert (row.unified_finish_reason, row.cost, row.swept) == ("completed", Decimal("0.00027"), False)
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - Decimal("0.00027")
