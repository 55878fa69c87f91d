"""Windows of limits: calendar windows, also on days with a change of the clock."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from apps.limits.windows import Window, WindowKind, first_day_of, window_at, windows_before


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("kind", "zone", "moment", "begins", "ends"),
    [
        ("minute", "UTC", "2026-05-06 10:11:12", "2026-05-06 10:11:00", "2026-05-06 10:12:00"),
        ("hour", "Asia/Kolkata", "2026-05-06 10:11:12", "2026-05-06 10:00:00", "2026-05-06 11:00:00"),
        ("day", "UTC", "2026-05-06 00:00:00", "2026-05-06 00:00:00", "2026-05-07 00:00:00"),
        ("day", "Asia/Kolkata", "2026-05-06 20:00:00", "2026-05-06 18:30:00", "2026-05-07 18:30:00"),
        # Weeks begin on Monday, in the limit's time zone.
        ("week", "UTC", "2026-05-10 23:59:59", "2026-05-04 00:00:00", "2026-05-11 00:00:00"),
        ("week", "Asia/Tokyo", "2026-05-10 15:00:00", "2026-05-10 15:00:00", "2026-05-17 15:00:00"),
        ("month", "UTC", "2026-12-31 23:59:59", "2026-12-01 00:00:00", "2027-01-01 00:00:00"),
        # A day of 23 hours, one of 25, and the months with them.
        ("day", "Europe/Berlin", "2026-03-29 12:00:00", "2026-03-28 23:00:00", "2026-03-29 22:00:00"),
        ("day", "Europe/Berlin", "2026-10-25 12:00:00", "2026-10-24 22:00:00", "2026-10-25 23:00:00"),
        ("month", "Europe/Berlin", "2026-03-31 21:59:59", "2026-02-28 23:00:00", "2026-03-31 22:00:00"),
        # Midnight of 2026-04-24 is skipped in Cairo: the day begins at one.
        ("day", "Africa/Cairo", "2026-04-24 12:00:00", "2026-04-23 22:00:00", "2026-04-24 21:00:00"),
        ("day", "Africa/Cairo", "2026-04-23 21:59:59", "2026-04-22 22:00:00", "2026-04-23 22:00:00"),
    ],
)
def test_a_window_of_the_calendar(kind: str, zone: str, moment: str, begins: str, ends: str) -> None:
    found = window_at(WindowKind(kind), zone, seconds(moment))
    assert found == Window(seconds(begins), seconds(ends))


def test_windows_follow_each_other_without_gap_or_overlap_over_a_year() -> None:
    for kind in (WindowKind.DAY, WindowKind.WEEK, WindowKind.MONTH):
        for zone in ("Europe/Berlin", "America/New_York", "Africa/Cairo", "Australia/Lord_Howe"):
            window = window_at(kind, zone, seconds("2026-01-15 12:00:00"))
            while window.ends_at is not None and window.ends_at < seconds("2027-01-15 12:00:00"):
                following = window_at(kind, zone, window.ends_at)
                assert following.starts_at == window.ends_at
                assert window_at(kind, zone, window.ends_at - 0.001) == window
                window = following


def test_a_clock_that_is_set_back_meets_the_window_before() -> None:
    noon = seconds("2026-05-06 12:00:00")
    later = window_at(WindowKind.HOUR, "UTC", noon)
    assert window_at(WindowKind.HOUR, "UTC", noon - 1) == Window(noon - 3_600, noon)
    assert window_at(WindowKind.HOUR, "UTC", noon) == later == Window(noon, noon + 3_600)


def test_a_lifetime_never_ends() -> None:
    assert window_at(WindowKind.LIFETIME, "UTC", 0) == window_at(WindowKind.LIFETIME, "UTC", 9e9) == Window(0, None)


@pytest.mark.parametrize(
    ("kind", "starts_on", "moment", "begins", "ends"),
    [
        # A Wednesday.
        ("week", "2026-04-01", "2026-05-06 00:00:00", "2026-05-06 00:00:00", "2026-05-13 00:00:00"),
        ("week", "2026-04-01", "2026-05-05 23:59:59", "2026-04-29 00:00:00", "2026-05-06 00:00:00"),
        ("week", "2026-04-06", "2026-05-05 12:00:00", "2026-05-04 00:00:00", "2026-05-11 00:00:00"),
        ("month", "2026-01-15", "2026-05-14 23:59:59", "2026-04-15 00:00:00", "2026-05-15 00:00:00"),
        ("month", "2026-01-15", "2026-12-15 00:00:00", "2026-12-15 00:00:00", "2027-01-15 00:00:00"),
        # Months without the day begin on their last.
        ("month", "2026-01-31", "2026-02-27 12:00:00", "2026-01-31 00:00:00", "2026-02-28 00:00:00"),
        ("month", "2026-01-31", "2026-02-28 12:00:00", "2026-02-28 00:00:00", "2026-03-31 00:00:00"),
        ("month", "2028-01-30", "2028-02-29 12:00:00", "2028-02-29 00:00:00", "2028-03-30 00:00:00"),
        ("month", "2026-03-01", "2026-05-01 00:00:00", "2026-05-01 00:00:00", "2026-06-01 00:00:00"),
    ],
)
def test_weeks_and_months_begin_on_the_day_of_a_date(
    kind: str, starts_on: str, moment: str, begins: str, ends: str
) -> None:
    first_day = first_day_of(WindowKind(kind), date.fromisoformat(starts_on))
    assert window_at(WindowKind(kind), "UTC", seconds(moment), first_day) == Window(seconds(begins), seconds(ends))


def test_windows_from_a_date_follow_each_other_over_years() -> None:
    for kind, first_day in [(WindowKind.MONTH, day) for day in (1, 15, 28, 29, 30, 31)] + [(WindowKind.WEEK, 3)]:
        window = window_at(kind, "Europe/Berlin", seconds("2027-01-15 12:00:00"), first_day)
        for _ in range(30):
            assert window.ends_at is not None
            following = window_at(kind, "Europe/Berlin", window.ends_at, first_day)
            assert following.starts_at == window.ends_at
            assert window_at(kind, "Europe/Berlin", window.ends_at - 0.001, first_day) == window
            window = following


def test_the_windows_before_end_where_the_next_begins_also_over_a_change_of_the_clock() -> None:
    for kind, zone in ((WindowKind.DAY, "Europe/Berlin"), (WindowKind.HOUR, "UTC"), (WindowKind.DAY, "Africa/Cairo")):
        window = window_at(kind, zone, seconds("2026-04-26 12:00:00"))
        for before in windows_before(window, kind, zone, 31):
            assert (before.ends_at, before.contains(window.starts_at - 1)) == (window.starts_at, True)
            window = before
