"""Limits of keys themselves: the total usage that a key may reach follows from the ledger and the calendar (UTC)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.billing import balances, ledger
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEntry
from apps.catalog import catalog_cache
from apps.gateway.access import policy
from apps.gateway.admission import admit
from apps.gateway.admission.worst_case import NO_COST
from apps.kernel.errors import PaymentRequired
from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.limits import actions, key_limits
from apps.limits.applied import LimitRule
from apps.limits.key_limits import find_key_limits, find_tightest
from apps.limits.models import Limit, LimitCounter
from apps.limits.windows import WindowKind, window_at
from tests.support.upstream import Caller, nothing_happened, settle_all

NOW = datetime(2026, 11, 21, 13, 14, 15, 16, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _forget() -> None:
    key_limits.clear_cache()


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
    window = window_at(WindowKind(period), "UTC", NOW.timestamp())
    moments = [datetime.fromisoformat(f"{moment}+00:00").timestamp() for moment in (begins, ends)]
    assert [window.starts_at, window.ends_at] == moments


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
            [found] = find_key_limits(caller.key, organization_id, now)
    assert (found.applied.hold.ceiling, found.applied.capacity) == (7 * 10**9, 2 * 10**9)
    assert found.applied.rule.window == "month"
    assert (found.amount, found.used, found.left) == (2, Decimal("0.25"), Decimal("1.75"))
    first = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    assert found.ends_at == (first + timedelta(days=32)).replace(day=1)
    assert len(queries) == 1, "what there was before a period never changes"


def test_a_key_without_such_a_limit_asks_nobody(caller: Caller) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert find_key_limits(caller.key, caller.organization_id, NOW) == []
        assert find_tightest(caller.key, caller.organization_id, NOW) is None
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


def test_of_two_limits_the_one_that_usage_reaches_first_is_held(caller: Caller) -> None:
    spend(caller, "5", ago=timedelta(days=40))
    limit(caller, "month", "2")
    for usage_limit, field in (("6.5", "usageLimit"), ("7", "periodLimit"), ("90", "periodLimit")):
        caller.key.usage_limit = Decimal(usage_limit)
        found = find_tightest(caller.key, caller.organization_id, datetime.now(UTC))
        assert found is not None
        assert (found.rule.field, found.hold.ceiling) == (field, int(min(Decimal(usage_limit), Decimal(7)) * 10**9))


def test_it_is_held_beside_the_organizations_limits(caller: Caller) -> None:
    limit(caller, "day", "1")
    organization = caller.key.project.organization
    fields = {"name": "all", "scope": "organization", "counts": "usd", "window": "day", "amount": Decimal(1)}
    actions.create_limit(organization=organization, fields=fields)
    assert caller.chat("hi [[sandbox usage=1003,207,300]]").status_code == 200
    settle_all()
    [counter] = LimitCounter.objects.all()
    assert counter.used == ApiKey.objects.get(pk=caller.key.pk).usage == Decimal("0.00025215")
    # A request that is too dear for both and for credits is refused by the key's own.
    limit(caller, "day", "0.0001")
    Limit.objects.update(amount=Decimal("0.0001"))
    assert caller.chat("x" * 10_000).json()["error"]["code"] == "usage_limit_exceeded"


def test_calls_that_no_other_limit_counts_are_held_on_it(caller: Caller) -> None:
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=0)
    policy.forget_all()
    found = policy.find_policy(caller.token)
    with pytest.raises(PaymentRequired) as refused:
        admit.check(found, catalog_cache.current(), caller.token, NO_COST, rate_family=None, free=False)
    assert refused.value.code == "usage_limit_exceeded"


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


def test_a_keys_limit_is_a_rule_in_usd_that_refuses(caller: Caller) -> None:
    spend(caller, "5", ago=timedelta(days=40))
    limit(caller, "day", "2.5")
    caller.key.usage_limit = Decimal(7)
    total, daily = find_key_limits(caller.key, caller.organization_id, NOW)
    for found, field, window, amount in (
        (total, "usageLimit", WindowKind.LIFETIME, Decimal(7)),
        (daily, "periodLimit", WindowKind.DAY, Decimal("2.5")),
    ):
        assert found.applied.rule == LimitRule(
            id=caller.key.id,
            organization_id=caller.organization_id,
            name=caller.key.description,
            scope="key",
            end_user="",
            model="",
            provider="",
            counts="usd",
            window=window,
            time_zone="UTC",
            rolling=1,
            first_day=0,
            amount=amount,
            refuses=True,
            field=field,
        )
        assert (found.amount, found.applied.capacity) == (amount, int(amount * 10**9))
        assert found.applied.counter == balances.key("key", caller.key.id, caller.organization_id)
    assert (total.used, total.left, total.ends_at, total.applied.used_before) == (Decimal(5), Decimal(2), None, 0)
    assert (daily.used, daily.left, daily.applied.used_before) == (Decimal(0), Decimal("2.5"), 5 * 10**9)
    assert daily.ends_at == datetime(2026, 11, 22, tzinfo=UTC)
    assert [key_limits.words_of(one.applied) for one in (total, daily)] == [
        "usage limit of 7 USD",
        "limit of 2.5 USD a day",
    ]
    assert (total.applied.is_optional, daily.applied.is_optional) == (False, False)


def test_a_period_without_an_amount_limits_nothing(caller: Caller) -> None:
    for period, amount in (("day", None), ("", Decimal(1))):
        caller.key.period, caller.key.period_limit = period, amount
        assert find_key_limits(caller.key, caller.organization_id, NOW) == []


def test_usage_before_the_latest_periods_is_remembered(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_limits, "_MAX_REMEMBERED", 2)
    limit(caller, "day", "1")
    organization_id = caller.organization_id

    def queries_on(day: int) -> int:
        with CaptureQueriesContext(connection) as queries:
            find_key_limits(caller.key, organization_id, NOW + timedelta(days=day))
        return len(queries)

    assert [queries_on(day) for day in (1, 2, 1, 2, 3, 3, 2, 1)] == [1, 1, 0, 0, 1, 0, 0, 1]
    key_limits.clear_cache()
    assert [queries_on(day) for day in (1, 1)] == [1, 0]
