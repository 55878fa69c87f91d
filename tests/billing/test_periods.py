"""Limits of a period: the allowed total usage of a key follows from the ledger, and starts again with the calendar."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.billing import ledger, period_limits
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEntry
from apps.billing.period_limits import find_usage_ceiling, period_bounds
from apps.gateway.access import policy
from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from tests.support.upstream import Caller, nothing_happened, settle_all

NOW = datetime(2026, 11, 21, 13, 14, 15, 16, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _forget() -> None:
    period_limits.clear_cache()


@pytest.mark.parametrize(
    ("period", "begins", "ends"),
    [
        ("hour", "2026-11-21T13:00", "2026-11-21T14:00"),
        ("day", "2026-11-21T00:00", "2026-11-22T00:00"),
        ("week", "2026-11-16T00:00", "2026-11-23T00:00"),
        ("month", "2026-11-01T00:00", "2026-12-01T00:00"),
    ],
)
def test_periods_are_the_calendars(period: str, begins: str, ends: str) -> None:
    assert period_bounds(period, NOW) == tuple(datetime.fromisoformat(f"{moment}+00:00") for moment in (begins, ends))


def test_a_month_may_end_a_year_and_a_moment_be_of_another_zone() -> None:
    december = datetime.fromisoformat("2026-12-31T23:30:00-05:00")
    assert period_bounds("month", december) == (datetime(2027, 1, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC))
    assert period_bounds("month", datetime(2026, 12, 31, 23, tzinfo=UTC))[1] == datetime(2027, 1, 1, tzinfo=UTC)


def spend(caller: Caller, amount: str, ago: timedelta = timedelta(0)) -> None:
    """Charge the caller's key, some time ago."""
    reference = new_id()
    ledger.charge([Charge(caller.organization_id, caller.key.id, reference, Decimal(0), Decimal(amount))])
    if ago:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE billing_ledgerentry DISABLE TRIGGER USER")
        LedgerEntry.objects.filter(reference=reference).update(created_at=datetime.now(UTC) - ago)


def limit(caller: Caller, period: str, amount: str) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(period=period, period_limit=Decimal(amount))
    caller.key.refresh_from_db()
    policy.forget_all()


def test_a_ceiling_is_what_there_was_before_and_the_limit(caller: Caller) -> None:
    spend(caller, "5", ago=timedelta(days=40))
    spend(caller, "0.25")
    limit(caller, "month", "2")
    now, organization_id = datetime.now(UTC), caller.organization_id
    with CaptureQueriesContext(connection) as queries:
        for _ in range(3):
            ceiling = find_usage_ceiling(caller.key, organization_id, now)
    assert ceiling is not None
    assert (ceiling.usage, ceiling.amount, ceiling.period) == (Decimal(7), Decimal(2), "month")
    assert ceiling.ends_at == period_bounds("month", now)[1]
    assert len(queries) == 1, "what there was before a period never changes"


def test_a_key_without_such_a_limit_asks_nobody(caller: Caller) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert find_usage_ceiling(caller.key, caller.organization_id, NOW) is None
    assert len(queries) == 0


def test_a_request_beyond_the_limit_is_refused_and_changes_nothing(caller: Caller) -> None:
    limit(caller, "day", "0.0001")
    refused = caller.chat("x" * 10_000)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "usage_limit_exceeded")
    assert refused.json()["error"]["message"].startswith(
        "The key's limit of 0.0001 USD a day is too low: this request needs"
    )
    assert nothing_happened(caller)


def test_earlier_periods_do_not_count(caller: Caller) -> None:
    spend(caller, "3", ago=timedelta(days=2))
    limit(caller, "day", "1")
    assert caller.chat().status_code == 200


def test_the_tighter_limit_holds(caller: Caller) -> None:
    limit(caller, "day", "1")
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=Decimal("0.0000001"))
    policy.forget_all()
    refused = caller.chat()
    assert refused.json()["error"]["message"].startswith("The key's usage limit of 0.0000001 USD is too low")


def test_it_counts_what_is_settled_and_starts_anew(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(caller, "hour", "0.01")
    assert caller.chat(f"hi [[sandbox usage=60000,0 tag={uuid4().hex}]]", max_tokens=1).status_code == 200
    settle_all()
    assert ApiKey.objects.get(pk=caller.key.pk).usage > Decimal("0.005")
    assert caller.chat("x" * 400_000, max_tokens=1).status_code == 402
    later = datetime.now(UTC) + timedelta(hours=1)

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # the clock, an hour on
            return later

    monkeypatch.setattr(policy, "datetime", Later)
    assert caller.chat("x" * 100_000, max_tokens=1).status_code == 200
