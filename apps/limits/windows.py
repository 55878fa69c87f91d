"""Windows of limits: calendar minutes and hours in UTC; days, weeks and months in a time zone; or all time.

A day begins at the first moment of its date, so a day with a change to or from daylight saving has 23 or 25 hours.
Weeks begin on Monday and months on the first, or on the weekday and the day of another date. The last hours and days
are the present one and so many before it.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import msgspec


class WindowKind(StrEnum):
    """The stretch of time after which a limit counts from 0 again."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    LIFETIME = "lifetime"


class Window(msgspec.Struct, frozen=True):
    """A window: its first second and the first after it, in seconds since 1970; None: it has no end."""

    starts_at: int
    ends_at: int | None

    def contains(self, moment: float) -> bool:
        """Return whether a moment, in seconds since 1970, is in it."""
        return self.starts_at <= moment and (self.ends_at is None or moment < self.ends_at)


_LIFETIME = Window(0, None)
_SECONDS = {WindowKind.MINUTE: 60, WindowKind.HOUR: 3_600}
# The latest window of each kind, time zone and first day.
_latest: dict[tuple[WindowKind, str, int], Window] = {}


def window_at(kind: WindowKind, time_zone: str, moment: float, first_day: int = 0) -> Window:
    """Return the window of a moment, in seconds since 1970.

    `first_day` is the weekday on which weeks begin, 0 is Monday, or the day on which months do, 0 is the first.
    """
    if kind is WindowKind.LIFETIME:
        return _LIFETIME
    latest = _latest.get((kind, time_zone, first_day))
    if latest is not None and latest.contains(moment):
        return latest
    window = _find(kind, time_zone, moment, first_day)
    _latest[kind, time_zone, first_day] = window
    return window


def windows_before(window: Window, kind: WindowKind, time_zone: str, number: int) -> list[Window]:
    """Return so many windows before a window of this kind, the latest first."""
    before: list[Window] = []
    for _ in range(number):
        window = _find(kind, time_zone, window.starts_at - 1, 0)
        before.append(window)
    return before


def first_day_of(kind: WindowKind, starts_on: date | None) -> int:
    """Return the first day of windows that begin on the weekday, or the day of the month, of a date."""
    if starts_on is None:
        return 0
    return starts_on.weekday() if kind is WindowKind.WEEK else starts_on.day


@cache
def known_time_zones() -> frozenset[str]:
    """Return the names of the time zones that a limit may have."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})


def _find(kind: WindowKind, time_zone: str, moment: float, first_day: int) -> Window:
    if (seconds := _SECONDS.get(kind)) is not None:
        starts_at = int(moment // seconds) * seconds
        return Window(starts_at, starts_at + seconds)
    zone = ZoneInfo(time_zone)
    today = datetime.fromtimestamp(moment, zone).date()
    if kind is WindowKind.DAY:
        first, following = today, today + timedelta(days=1)
    elif kind is WindowKind.WEEK:
        first = today - timedelta(days=(today.weekday() - first_day) % 7)
        following = first + timedelta(days=7)
    else:
        this_month = today.replace(day=1)
        last_month, next_month = this_month - timedelta(days=1), this_month + timedelta(days=32)
        first, following = _day_of(this_month, first_day), _day_of(next_month, first_day)
        if today < first:
            first, following = _day_of(last_month, first_day), first
    return Window(_begin(first, zone), _begin(following, zone))


def _day_of(month: date, day: int) -> date:
    """Return a day of a month, or its last."""
    return month.replace(day=min(max(day, 1), monthrange(month.year, month.month)[1]))


def _begin(day: date, zone: ZoneInfo) -> int:
    """Return the first second of a date. Where midnight is skipped, that is the second of the change."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
    return int(midnight.timestamp())
