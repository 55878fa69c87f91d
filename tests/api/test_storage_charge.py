"""Data storage: 0.01 USD per 1,000,000 tokens, from the credits, when retention is on (section 8)."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.utils import timezone

from apps.billing.models import LedgerEntry
from apps.billing.pricing import price_storage
from apps.billing.reconciliation import find_mismatches
from apps.gateway.access import policy
from apps.keys.models import ApiKey
from apps.logs.activity import ActivityScope, find_days, window_of
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.support.upstream import Caller, settle_all


@pytest.mark.parametrize(
    ("tokens", "level", "cost"),
    [
        (1_000_000, "retain", "0.01"),
        (1, "retain", "0.00000001"),
        (123_456_789, "retain", "1.23456789"),
        (0, "retain", "0"),
        (1_000_000, "metadata", "0"),
        (1_000_000, "none", "0"),
    ],
)
def test_the_price(tokens: int, level: str, cost: str) -> None:
    assert price_storage(tokens, level) == Decimal(cost)


def keep(caller: Caller, level: str) -> None:
    """Set the organization's retention."""
    Organization.objects.filter(pk=caller.organization_id).update(retention_level=level)
    policy.forget_all()


def unaccounted() -> list[Decimal]:
    """Return by how much each balance differs from its ledger entries."""
    return [one.balance - one.entries for one in find_mismatches()]


def credits(caller: Caller) -> Decimal:
    """Return the organization's credits."""
    return Organization.objects.get(pk=caller.organization_id).credits


@pytest.mark.parametrize("level", ["retain", "metadata", "none"])
def test_an_answer_is_charged_for_with_its_storage_once(caller: Caller, level: str) -> None:
    keep(caller, level)
    before, differed = credits(caller), unaccounted()
    used = ApiKey.objects.get(pk=caller.key.pk).usage
    assert caller.chat("hello").status_code == 200
    settle_all()
    row = RequestLog.objects.get(organization_id=caller.organization_id)
    assert row.total_tokens
    assert row.cost
    storage = row.total_tokens * Decimal("0.00000001") if level == "retain" else Decimal(0)
    assert (row.data_storage_cost, row.retention_level) == (storage, level)
    assert before - credits(caller) == row.cost + storage
    # A key's usage is what its requests cost.
    assert ApiKey.objects.get(pk=caller.key.pk).usage - used == row.cost
    entries = LedgerEntry.objects.filter(reference=row.id).values_list("kind", "credits", "usage")
    expected = [("usage", -row.cost, row.cost), *([("storage", -storage, Decimal(0))] if storage else [])]
    assert sorted(entries) == sorted(expected)
    assert unaccounted() == differed
    [today] = find_days(ActivityScope(frozenset({caller.organization_id})), window_of(timezone.now(), days=2))
    told = {name: Decimal(today.sums[name]) for name in ("cost", "data_storage_cost", "credits_data_storage_cost")}
    assert told == {
        "cost": row.cost + storage,
        "data_storage_cost": storage,
        "credits_data_storage_cost": storage,
    }


def test_a_failed_request_stores_for_nothing(caller: Caller) -> None:
    keep(caller, "retain")
    before = credits(caller)
    assert caller.chat("[[sandbox status=500]]").status_code >= 500
    settle_all()
    row = RequestLog.objects.get(organization_id=caller.organization_id)
    assert (row.data_storage_cost, credits(caller)) == (0, before)
