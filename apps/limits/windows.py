"""Windows of limits: calendar minutes and hours in UTC; days, weeks and months in a time zone; or all time.

A day begins at the first moment of its date, so a day with a change to or from daylight saving has 23 or 25 hours.
"""

from __future__ import annotations

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


_LIFETIME = Window(0, None)
_SECONDS = {WindowKind.MINUTE: 60, WindowKind.HOUR: 3_600}
# The latest window of each kind and time zone.
_latest: dict[tuple[WindowKind, str], Window] = {}


def window_at(kind: WindowKind, time_zone: str, moment: float) -> Window:
    """Return the window of a moment, in seconds since 1970."""
    if kind is WindowKind.LIFETIME:
        return _LIFETIME
    latest = _latest.get((kind, time_zone))
    if latest is not None and latest.ends_at is not None and latest.starts_at <= moment < latest.ends_at:
        return latest
    window = _find(kind, time_zone, moment)
    _latest[kind, time_zone] = window
    return window


@cache
def known_time_zones() -> frozenset[str]:
    """Return the names of the time zones that a limit may have."""
    return frozenset(available_timezones() - {"localtime", "posixrules", "Factory"})


def _find(kind: WindowKind, time_zone: str, moment: float) -> Window:
    if (seconds := _SECONDS.get(kind)) is not None:
        starts_at = int(moment // seconds) * seconds
        return Window(starts_at, starts_at + seconds)
    zone = ZoneInfo(time_zone)
    today = datetime.fromtimestamp(moment, zone).date()
    if kind is WindowKind.DAY:
        first, following = today, today + timedelta(days=1)
    elif kind is WindowKind.WEEK:
        first = today - timedelta(days=today.weekday())
        following = first + timedelta(days=7)
    else:
        first = today.replace(day=1)
        following = (first + timedelta(days=32)).replace(day=1)
    return Window(_begin(first, zone), _begin(following, zone))


def _begin(day: date, zone: ZoneInfo) -> int:
    """Return the first second of a date. Where midnight is skipped, that is the second of the change."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)
    return int(midnight.timestamp())
