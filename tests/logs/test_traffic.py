"""Traffic equals a recount of the written rows, folded or not, and gives percentiles for any stretch of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import isclose

import pytest
from django.db import transaction

from apps.kernel.ids import new_id
from apps.logs import traffic, writer
from apps.logs.entry import Entry
from apps.logs.models import TrafficDelta, TrafficSlot
from apps.logs.traffic import WINDOWS, Traffic, TrafficReport, percentile_of, read_report, spent_lately
from tests.logs.entries import ago, entry, id_at, write

pytestmark = pytest.mark.django_db


def report(name: str = "1h", now: datetime | None = None) -> TrafficReport:
    return read_report(WINDOWS[name], now or datetime.now(UTC))


def numbers(one: Traffic) -> tuple[int, ...]:
    return one.requests, one.errors, one.cache_hits, one.input_tokens, one.output_tokens, one.cached_tokens


def some(number: int, **fields: object) -> Entry:
    usual = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "cached_tokens": 40,
        "cost": Decimal("0.5"),
        "duration": 200,
    }
    return entry(id=id_at(ago(minutes=number)), **{**usual, **fields})


def test_what_is_written_is_told_before_and_after_it_is_folded() -> None:
    owner = new_id()
    write(
        some(1, organization_id=owner, time_to_first_token=50),
        some(2, organization_id=owner, has_error=True, unified_finish_reason="upstream_error", used_provider="azure"),
        some(
            3, organization_id=owner, cached=True, used_mode="api-keys", used_model="claude", used_provider="anthropic"
        ),
    )
    before = report()
    assert numbers(before.total) == (3, 1, 1, 300, 30, 120)
    assert (before.total.cost, before.total.credits_cost) == (Decimal("1.5"), Decimal(1))
    assert [(name, one.requests) for name, one in before.top["model"]] == [("gpt-5", 2), ("claude", 1)]
    assert [(name, one.requests) for name, one in before.top["organization"]] == [(str(owner), 3)]
    assert {name: one.errors for name, one in before.top["end"]} == {"completed": 0, "upstream_error": 1}
    assert sum(one.errors for one in before.providers["azure"].values()) == 1
    assert sum(before.total.durations.values()) == 3
    assert sum(before.total.first_tokens.values()) == 1

    assert traffic.fold() > 0
    after = report()
    assert TrafficDelta.objects.count() == 0
    assert (after.bars, after.total, after.top, after.providers) == (
        before.bars,
        before.total,
        before.top,
        before.providers,
    )
    assert spent_lately(ago(hours=24)) == {str(owner): Decimal(1)}


def test_a_row_that_replaces_the_sweepers_counts_once() -> None:
    swept = some(1, swept=True, has_error=True, unified_finish_reason="gateway_error", cost=None)
    write(swept)
    traffic.fold()
    own = entry(id=swept.id, organization_id=swept.organization_id, cost=Decimal(2), duration=400)
    write(own)
    write(own)
    told = report()
    assert (told.total.requests, told.total.errors, told.total.cost) == (1, 0, Decimal(2))
    assert [name for name, _ in told.top["end"]] == ["completed"]
    traffic.fold()
    assert report().total == told.total


def test_what_is_undone_was_not_counted() -> None:
    with transaction.atomic():
        writer.write([some(1)])
        transaction.set_rollback(True)
    assert report().total.requests == 0


def test_windows_hold_their_own_and_bars_begin_at_whole_lengths() -> None:
    now = datetime.now(UTC)
    moments = (now, now - timedelta(hours=3), now - timedelta(days=3))
    write(*(entry(id=id_at(moment)) for moment in moments))
    traffic.fold()
    assert {name: report(name, now).total.requests for name in WINDOWS} == {"1h": 1, "24h": 2, "7d": 3}
    for name, window in WINDOWS.items():
        told = report(name, now)
        assert len(told.bars) == window.bars
        assert told.first <= now - window.bar * (window.bars - 1) < told.first + window.bar
        newest, counted = told.bars[-1]
        assert counted.requests == sum(newest <= moment for moment in moments)


def test_percentiles_are_told_to_a_tenth() -> None:
    write(*(some(1, duration=milliseconds) for milliseconds in range(10, 2010, 10)))
    steps = report().total.durations
    for share, exact in ((0.5, 1000), (0.95, 1900)):
        found = percentile_of(steps, share)
        assert found is not None
        assert isclose(found, exact, rel_tol=0.1)
    assert percentile_of({}, 0.5) is None


def test_what_is_past_goes_and_a_deleted_organization_is_named_no_more() -> None:
    owner = new_id()
    write(some(1, organization_id=owner), entry(id=id_at(ago(days=2)), organization_id=owner))
    traffic.fold()
    everything = TrafficSlot.objects.filter(aspect="everything")
    assert everything.count() == 4
    traffic.expire(datetime.now(UTC))
    assert sorted(everything.values_list("minutes", flat=True)) == [5, 60, 60]
    traffic.erase(owner)
    assert not TrafficSlot.objects.filter(name=str(owner)).exists()
    assert everything.count() == 3
