"""Leases of lines and their room: organizations share it, a part of each stays free, and lost leases are let go of."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings
from openai import OpenAI

from apps.batches import line_runs
from apps.batches.line_runs import LineJob, begin_lines
from apps.batches.models import Batch, BatchLine
from apps.batches.work import prepare_some
from apps.billing import ledger
from apps.billing.ledger import Charge
from apps.billing.worker_leases import worker_name
from apps.gateway.access import policy
from apps.organizations.models import Organization
from tests.batches.batch_work import create, line
from tests.responses.conftest import Clients, stranger
from tests.support.upstream import Caller


@pytest.fixture(autouse=True)
def _held(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Lines that are begun stay under way."""
    monkeypatch.setattr(LineJob, "start", lambda job: line_runs.JOBS.update({job.line.pk: job}))
    yield
    line_runs.JOBS.clear()


def prepared(client: OpenAI, count: int) -> Any:
    made = create(client, [line(str(number)) for number in range(count)])
    assert prepare_some()
    return made


def under_way() -> Counter[str]:
    return Counter(str(found.batch_id) for found in BatchLine.objects.exclude(lease_owner=""))


@override_settings(BATCH_LINES_AT_ONCE=4)
def test_organizations_share_the_room_however_many_lines_each_has(
    keeper: Caller, openai: OpenAI, clients: Clients
) -> None:
    large, larger = prepared(openai, 9), prepared(openai, 9)
    small = prepared(clients(stranger(keeper)), 3)
    assert begin_lines() == 4
    assert under_way() == {large.id: 2, small.id: 2}
    assert begin_lines() == 0
    # A line that has ended makes room for the organization with the fewest.
    first = BatchLine.objects.filter(batch_id=large.id).order_by("position")[0]
    line_runs.JOBS.pop(first.pk)
    BatchLine.objects.filter(pk=first.pk).update(outcome="succeeded", lease_owner="")
    assert begin_lines() == 1
    assert under_way() == {large.id: 2, small.id: 2} or under_way() == {large.id: 1, small.id: 3}
    assert larger.id not in under_way()


def test_lines_take_a_quarter_of_what_an_organization_may_have_answered_at_a_time(
    keeper: Caller, openai: OpenAI
) -> None:
    # 20 at a time.
    Organization.objects.filter(pk=keeper.organization_id).update(plan="free")
    policy.forget_all()
    prepared(openai, 9)
    assert begin_lines() == 5
    assert begin_lines() == 0


def test_a_lease_is_renewed_while_the_line_is_there_and_ones_own(openai: OpenAI) -> None:
    made = prepared(openai, 3)
    assert begin_lines() == 3
    kept, lost, ended = BatchLine.objects.order_by("position")
    BatchLine.objects.filter(pk=lost.pk).update(lease_owner="another")
    BatchLine.objects.filter(pk=ended.pk).update(outcome="cancelled")
    assert line_runs.renew(worker_name(), list(line_runs.JOBS)) == {kept.pk}
    assert BatchLine.objects.get(pk=kept.pk).lease_until > kept.lease_until
    Batch.objects.filter(pk=made.id).delete()
    assert line_runs.renew(worker_name(), list(line_runs.JOBS)) == set()


def test_a_line_keeps_its_log_id_from_one_worker_to_the_next(openai: OpenAI) -> None:
    prepared(openai, 1)
    begin_lines()
    (first,) = BatchLine.objects.all()
    BatchLine.objects.update(lease_until=first.batch.created_at)
    # Not by the worker that answers it still.
    assert line_runs.claim(first.batch, "another", 5, [first.pk]) == []
    (again,) = line_runs.claim(first.batch, "another", 5, [])
    assert (again.log_id, again.attempts, again.lease_owner) == (first.log_id, 2, "another")
    assert line_runs.end(first, worker_name(), line_runs.LineOutcome.SUCCEEDED, "x") is False
    assert line_runs.end(again, "another", line_runs.LineOutcome.SUCCEEDED, "y") is True
    assert BatchLine.objects.get().sealed_result == "y"


@pytest.mark.parametrize(
    ("charged", "turned_away", "keeps"),
    [(False, False, True), (True, False, True), (True, True, True), (False, True, False)],
)
def test_a_line_put_off_keeps_a_log_id_that_an_earlier_owner_may_have_been_charged_for(
    keeper: Caller, openai: OpenAI, charged: bool, turned_away: bool, keeps: bool
) -> None:
    prepared(openai, 1)
    begin_lines()
    (first,) = BatchLine.objects.all()
    assert first.log_id is not None
    BatchLine.objects.update(lease_until=first.batch.created_at)
    (again,) = line_runs.claim(first.batch, "another", 5, [])
    if charged:
        cost = Decimal(1)
        ledger.charge([Charge(keeper.organization_id, keeper.key.id, first.log_id, credits=-cost, usage=cost)])
    line_runs.put_off(again, "another", 0, 0, turned_away=turned_away)
    assert BatchLine.objects.get().log_id == (first.log_id if keeps else None)


def test_a_line_put_off_by_its_first_owner_gets_a_log_id_of_its_own(openai: OpenAI) -> None:
    prepared(openai, 1)
    batch = Batch.objects.get()
    (first,) = line_runs.claim(batch, "one", 5, [])
    line_runs.put_off(first, "one", 0, 0)
    assert BatchLine.objects.get().log_id is None
