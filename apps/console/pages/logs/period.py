"""Period of the log's list: the last minutes, hours or days, or two moments as the reader's clock shows them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.utils import timezone

from apps.kernel.pages.languages import gettext_lazy
from apps.logs.histogram import Bar

# Ranges up to now: name in the query, label, length.
RANGES: Final = (
    ("15m", gettext_lazy("15 minutes"), timedelta(minutes=15)),
    ("1h", gettext_lazy("Hour"), timedelta(hours=1)),
    ("24h", gettext_lazy("Day"), timedelta(days=1)),
    ("7d", gettext_lazy("Week"), timedelta(days=7)),
)
# Without a period the list goes back as far as the log; its histogram has these days.
DEFAULT_LENGTH: Final = timedelta(days=7)
# The cookie in which page.js keeps the browser's time zone, and the query parameter of a form sent in it.
ZONE_COOKIE: Final = "gateway-timezone"
ZONE: Final = "tz"
_MAX_ZONE: Final = 64
# As a browser writes a date, and a date with a time.
_LOCAL: Final = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)(T(?P<time>\d\d:\d\d(?P<seconds>:\d\d(\.\d{1,6})?)?))?")


def reader_zone(request: HttpRequest) -> tzinfo:
    """Return the time zone of the reader's browser; UTC if it is unknown."""
    return _find_zone(request.COOKIES.get(ZONE_COOKIE, "")) or UTC


def zone_name(zone: tzinfo) -> str:
    """Return the name of a time zone: `Europe/Berlin`, `UTC`."""
    return zone.key if isinstance(zone, ZoneInfo) else "UTC"


def active_range(request: HttpRequest) -> str:
    """Return the name of the query's range; an empty text where it has none, or moments."""
    said = request.GET
    if any(said.get(name, "").strip() for name in ("startDate", "endDate")):
        return ""
    return next((name for name, _, _ in RANGES if name == said.get("range")), "")


def period_of(request: HttpRequest) -> dict[str, str]:
    """Return the period of the query as the fields of `GET /logs`: two moments take precedence over a range.

    Moments without a time zone are in that of the form (`tz`), else in the reader's.
    """
    said = request.GET
    dates = {name: said[name].strip() for name in ("startDate", "endDate") if said.get(name, "").strip()}
    if not dates:
        active = active_range(request)
        lengths = {name: length for name, _, length in RANGES}
        return {"startDate": (timezone.now() - lengths[active]).isoformat()} if active else {}
    zone = _find_zone(said.get(ZONE, "")) or reader_zone(request)
    return {name: _absolute(text, zone, is_end=name == "endDate") for name, text in dates.items()}


def local_text(moment: datetime | None, zone: tzinfo) -> str:
    """Return a moment for a field of date and time; in UTC on the last days of the calendar, which zones may leave."""
    if moment is None:
        return ""
    try:
        local = moment.astimezone(zone)
    except OverflowError:
        local = moment.astimezone(UTC)
    return local.replace(microsecond=0, tzinfo=None).isoformat()


def begin_of_histogram(begins: datetime | None, ends: datetime) -> datetime:
    """Return where the histogram of a period begins: some days before its end where the period says nothing."""
    return begins or ends - min(DEFAULT_LENGTH, ends - datetime.min.replace(tzinfo=UTC))


def midnight_before(moment: datetime, zone: tzinfo) -> datetime:
    """Return the start of the reader's day of a moment, where bars of a histogram begin; the moment itself where the
    calendar does not have that day."""
    try:
        return datetime.combine(moment.astimezone(zone).date(), time.min, zone).astimezone(UTC)
    except OverflowError:
        return moment


def bar_period(bar: Bar) -> dict[str, Any]:
    """Return the query parameters of a bar's period."""
    last = bar.end - timedelta(milliseconds=1)
    return {"startDate": _utc_text(bar.start), "endDate": _utc_text(last)}


def _utc_text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _absolute(text: str, zone: tzinfo, *, is_end: bool) -> str:
    """Return a local date or time with its offset, an end as the last moment it includes; other text unchanged."""
    local = _LOCAL.fullmatch(text)
    if local is None:
        return text
    try:
        moment = datetime.fromisoformat(text)
        if is_end and local["time"] is None:
            moment = datetime.combine(moment.date(), time.max)
        elif is_end and "." not in text:
            unit = timedelta(seconds=1) if local["seconds"] else timedelta(minutes=1)
            moment += unit - timedelta(microseconds=1)
        return moment.replace(tzinfo=zone).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return text


def _find_zone(name: str) -> tzinfo | None:
    """Return the time zone of a name, None if the name is empty or unknown here."""
    if not name or len(name) > _MAX_ZONE:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
