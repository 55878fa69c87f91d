"""Histogram of the log: bars without gaps, counts of the rows that filters leave, bounds of the work."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apps.logs import histogram, search
from apps.logs.access import LogScope, access_logs, scope_of_user
from apps.logs.histogram import Bar, find_histogram, step_of
from apps.logs.query import LogFilters
from apps.logs.serializers import requested_ids_of
from tests.logs.entries import entry, id_at, write
from tests.support.cast import World, make_key

# A whole hour of the past, within every plan's retention.
HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)


@pytest.fixture
def key(world: World) -> Any:
    return make_key(world.olivia, world.project).key


def scope_of(world: World) -> LogScope:
    seen = scope_of_user(world.olivia, datetime.now(UTC))
    return access_logs(seen, requested_ids_of({"org_id": str(world.acme.id)}))


def minutes(count: float) -> datetime:
    return HOUR + timedelta(minutes=count)


def test_each_bar_counts_its_own_requests_and_failures(world: World, key: Any) -> None:
    elsewhere = make_key(world.sam, world.elsewhere_project).key
    write(
        entry(key, id=id_at(minutes(0))),
        entry(key, id=id_at(minutes(0.9)), has_error=True),
        entry(key, id=id_at(minutes(2))),
        entry(key, id=id_at(minutes(2.5)), used_model="other", used_provider="azure"),
        entry(key, id=id_at(minutes(9))),
        entry(elsewhere, id=id_at(minutes(1))),
    )
    period = {"start": minutes(0), "end": minutes(4), "origin": HOUR - timedelta(days=1)}
    found = find_histogram(scope_of(world), LogFilters(), **period)
    assert found is not None
    assert (found.step, found.is_cut) == (timedelta(seconds=5), False)
    assert (found.bars[0].start, found.bars[-1].end) == (minutes(0), minutes(4) + timedelta(seconds=5))
    assert all(one.end == after.start for one, after in zip(found.bars, found.bars[1:], strict=False))
    assert [one for one in found.bars if one.requests] == [
        Bar(minutes(start), minutes(start) + timedelta(seconds=5), 1, errors)
        for start, errors in ((0, 0), (0.9 - 4 / 60, 1), (2, 0), (2.5, 0))
    ]
    azure = find_histogram(scope_of(world), LogFilters(provider="azure"), **period)
    assert azure is not None
    assert [one.start for one in azure.bars if one.requests] == [minutes(2.5)]


@pytest.mark.parametrize(
    ("span", "step"),
    [
        (timedelta(minutes=15), timedelta(seconds=15)),
        (timedelta(hours=1), timedelta(minutes=1)),
        (timedelta(days=1), timedelta(minutes=30)),
        (timedelta(days=7), timedelta(hours=3)),
        (timedelta(days=30), timedelta(hours=12)),
        (timedelta(days=61), timedelta(days=2)),
        (timedelta(days=3650), timedelta(days=61)),
    ],
)
def test_a_period_has_at_most_sixty_bars(span: timedelta, step: timedelta) -> None:
    assert step_of(span) == step


def test_bars_begin_at_the_origin(world: World, key: Any) -> None:
    write(entry(key, id=id_at(minutes(10))))
    origin = HOUR - timedelta(hours=5, minutes=13)
    found = find_histogram(scope_of(world), LogFilters(), start=minutes(0), end=minutes(60), origin=origin)
    assert found is not None
    assert (found.bars[0].start - origin) % found.step == timedelta(0)
    assert found.bars[0].start <= minutes(0) < found.bars[0].end


def test_only_the_newest_rows_are_counted(world: World, key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write(*(entry(key, id=id_at(minutes(number))) for number in range(4)))
    monkeypatch.setattr(histogram, "MAX_ROWS", 2)
    found = find_histogram(scope_of(world), LogFilters(), start=minutes(0), end=minutes(60), origin=HOUR)
    assert found is not None
    assert found.is_cut
    assert [one.start for one in found.bars if one.requests] == [minutes(1), minutes(2), minutes(3)]


def test_rows_of_a_long_period_are_each_counted_once_newest_first(
    world: World, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The period is counted in parts: a day, then two, then four."""
    now = datetime.now(UTC).replace(microsecond=0)
    ages = [timedelta(days=days) for days in (0.5, 1, 1.5, 3, 3.5, 7, 15, 28)]
    write(*(entry(key, id=id_at(now - age), has_error=age.days == 7) for age in ages))
    scope, start = LogScope({world.acme.id: now - timedelta(days=40)}), now - timedelta(days=30)
    found = find_histogram(scope, LogFilters(), start=start, end=now, origin=start)
    assert found is not None
    assert ([one.start for one in found.bars if one.requests], found.is_cut) == (
        sorted(start + (now - age - start) // found.step * found.step for age in ages),
        False,
    )
    assert [one.errors for one in found.bars if one.requests] == [0, 0, 1, 0, 0, 0, 0, 0]
    monkeypatch.setattr(histogram, "MAX_ROWS", 3)
    newest = find_histogram(scope, LogFilters(), start=start, end=now, origin=start)
    assert newest is not None
    assert (sum(one.requests for one in newest.bars), newest.is_cut) == (4, True)
    assert [one for one in newest.bars if one.requests] == [one for one in found.bars if one.requests][-4:]


def test_a_period_that_takes_too_long_has_no_histogram(world: World, key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write(entry(key, id=id_at(minutes(0))))
    monkeypatch.setattr(histogram, "TIME_LIMIT", 0)
    assert find_histogram(scope_of(world), LogFilters(), start=HOUR, end=datetime.now(UTC), origin=HOUR) is None


def test_a_period_without_a_past_or_with_too_many_index_scans_has_no_histogram(
    world: World, key: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope, ahead = scope_of(world), datetime.now(UTC) + timedelta(days=1)
    write(entry(key, id=id_at(minutes(0))))
    assert find_histogram(scope, LogFilters(), start=HOUR, end=ahead, origin=HOUR) is not None
    assert find_histogram(scope, LogFilters(), start=ahead, end=ahead + timedelta(days=1), origin=HOUR) is None
    assert find_histogram(replace(scope, since={}), LogFilters(), start=HOUR, end=ahead, origin=HOUR) is None
    monkeypatch.setattr(search, "_MAX_WALKS", 0)
    assert find_histogram(scope, LogFilters(), start=HOUR, end=ahead, origin=HOUR) is None
