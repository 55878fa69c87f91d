"""Purge of old charges and counters: sums stay, open windows stay, nothing is counted twice."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.utils import timezone

from apps.kernel.ids import new_id
from apps.kernel.valkey.redis import client
from apps.limits import counters, retention
from apps.limits.applied import AppliedLimit, apply_rule
from apps.limits.counters import COUNTED_FOR, CounterCharge
from apps.limits.models import Limit, LimitCharge, LimitCounter
from apps.limits.windows import WindowKind
from tests.limits.limits import ORGANIZATION, count, rule, used
from tests.support.cast import World

pytestmark = pytest.mark.django_db

DAY = 86_400


def charge(days_ago: float, limits: list[AppliedLimit], amount: str = "1") -> CounterCharge:
    """Charge a request that was admitted so many days ago."""
    moment = time.time() - days_ago * DAY
    reference = UUID(int=(int(moment * 1000) << 80) | (new_id().int & ((1 << 80) - 1)))
    counted = count(
        limits, model_id="echo", provider_id="sandbox", cost=Decimal(amount), input_tokens=3, output_tokens=4
    )
    one = CounterCharge(reference, ORGANIZATION, counted)
    counters.charge([one])
    return one


def age(days: float) -> datetime:
    """Return the moment at which rows of now are so old."""
    return timezone.now() + timedelta(days=days)


def of_a_day(counts: str, days_ago: float) -> AppliedLimit:
    return apply_rule(rule(counts), "", time.time() - days_ago * DAY)


def test_old_charges_are_folded_into_their_counters_and_younger_ones_stay() -> None:
    lifetime = apply_rule(rule("usd", window=WindowKind.LIFETIME), "", 0)
    old = [charge(50, [lifetime, of_a_day("tokens", 50)], "0.000000000001") for _ in range(3)]
    young = charge(1, [lifetime], "2")
    # Pieces smaller than the number of rows.
    purged = retention.purge(age(60), charges=2, counters=1)
    assert purged == (3, 3)
    assert list(LimitCharge.objects.values_list("reference", flat=True)) == [young.reference]
    row = LimitCounter.objects.get()
    assert (row.id, row.used, row.folded) == (lifetime.counter_id, Decimal("2.000000000003"), Decimal("0.000000000003"))
    assert counters.find_mismatches() == []
    assert [one.nanos for one in counters.find_counters([lifetime.counter_id])] == [2_000_000_001]
    assert retention.purge(age(60)) == (0, 0)
    assert old[0].reference not in set(LimitCharge.objects.values_list("reference", flat=True))


def test_a_request_that_is_settled_too_late_counts_nothing() -> None:
    one = apply_rule(rule(window=WindowKind.LIFETIME), "", 0)
    days = COUNTED_FOR / timedelta(days=1)
    late = charge(days + 0.01, [one])
    assert (used(one.counter_id), LimitCharge.objects.count()) == (None, 0)
    in_time = charge(days - 0.01, [one])
    assert used(one.counter_id) == 1
    # Its charge is kept until it can no longer be counted again.
    retention.purge(timezone.now())
    assert counters.charge([in_time, late]) == []
    assert (used(one.counter_id), LimitCharge.objects.count()) == (1, 1)


def test_a_counter_stays_while_its_window_or_one_of_its_charges_is_young() -> None:
    month = apply_rule(rule(window=WindowKind.MONTH), "", time.time())
    ended = of_a_day("requests", 20)
    charge(20, [month, ended])
    assert month.window.ends_at is not None
    month_ends = datetime.fromtimestamp(month.window.ends_at, UTC)
    before = month_ends + retention.KEPT_FOR - timedelta(seconds=1)
    assert retention.purge(before) == (1, 1)
    assert (used(month.counter_id), used(ended.counter_id)) == (1, None)
    charge(0, [month])
    assert retention.purge(month_ends + retention.KEPT_FOR - timedelta(days=40)) == (0, 0)
    assert counters.find_mismatches() == []


def test_endless_counters_of_deleted_limits_go_with_their_copies(world: World) -> None:
    row = Limit.objects.create(
        organization=world.acme, name="all", scope="organization", counts="requests", window="lifetime", amount=9
    )
    kept, gone = (
        apply_rule(rule(id=identifier, window=WindowKind.LIFETIME), "", 0) for identifier in (row.id, new_id())
    )
    charge(1, [kept, gone])
    counters.publish([kept, gone])
    assert retention.purge(age(60)) == (0, 0)
    assert retention.purge(age(95)) == (1, 1)
    assert (used(kept.counter_id), used(gone.counter_id)) == (1, None)
    assert [client().exists(one.counter) for one in (kept, gone)] == [1, 0]
