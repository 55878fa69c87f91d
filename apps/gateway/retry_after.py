"""Retry-After: read when a provider wants to be asked again, from its headers or its words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final

# The longest wait that is passed on, in seconds.
MAX_SECONDS: Final = 86_400.0
# Longer values are no times.
_MAX_LENGTH: Final = 100
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
# "Please try again in 1m2.5s", "Please retry in 37.2s".
_WORDS: Final = re.compile(
    r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?(?:ms|[smhd])(?![a-z]))+|\d+(?:\.\d+)?(?= seconds?\b))",
    re.IGNORECASE,
)
_RETRY_INFO: Final = "google.rpc.RetryInfo"
# OpenAI, Groq and others; Anthropic; and those with one limit.
_RESET: Final = re.compile(
    r"x-ratelimit-reset(-.+)?|(?:anthropic|x)-ratelimit-(.+)-reset|ratelimit-reset|x-rate-limit-reset"
)
# A larger number is the time itself, in seconds or milliseconds since 1970.
_EPOCH: Final = 1e9
_EPOCH_MS: Final = 1e12


def retry_after_of(headers: Mapping[str, str], status: int, now: datetime | None = None) -> float | None:
    """Return the seconds that the headers of a refusal ask to wait, None where they say nothing.

    `headers` have lower-case names. Resets of limits count for the status 429 alone: of the limits that are used up the
    last, of others the first.
    """
    now = now or datetime.now(UTC)
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return _bounded(milliseconds / 1_000)
    seconds = _moment(headers.get("retry-after"), now)
    if seconds is not None or status != 429:
        return seconds
    spent: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if not _RESET.fullmatch(name) or (wait := _moment(value, now)) is None:
            continue
        left = _number(headers.get(name.replace("reset", "remaining")))
        (spent if left == 0 else others).append(wait)
    return max(spent) if spent else min(others, default=None)


def retry_after_in(message: str) -> float | None:
    """Return the seconds that an error's words ask to wait, None where they do not say so."""
    found = _WORDS.search(message)
    return None if found is None else _moment(found[1], datetime.now(UTC))


def retry_delay_of(details: Any) -> float | None:
    """Return the seconds in the `RetryInfo` among the details of an error of Google's, None where there is none."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and str(detail.get("@type")).endswith(_RETRY_INFO):
            delay = detail.get("retryDelay")
            return _duration(delay) if isinstance(delay, str) else None
    return None


def first_of(values: Iterable[float | None]) -> float | None:
    """Return the first that is stated."""
    return next((value for value in values if value is not None), None)


def _moment(value: str | None, now: datetime) -> float | None:
    """Return the seconds until a time: seconds, a duration, a date (HTTP's or RFC 3339), or a number since 1970."""
    if value is None or not value.strip() or len(value) > _MAX_LENGTH:
        return None
    value = value.strip()
    number = _number(value)
    if number is not None:
        if number >= _EPOCH:
            number = number / (1_000 if number >= _EPOCH_MS else 1) - now.timestamp()
        return _bounded(number)
    found = _duration(value)
    if found is not None:
        return found
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = read(value)
        except (ValueError, TypeError, OverflowError):
            continue
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return _bounded((moment - now).total_seconds())
    return None


def _duration(value: str) -> float | None:
    """Return the seconds of a duration such as `1m2.5s` or `20ms`."""
    if len(value) > _MAX_LENGTH or not _DURATION.fullmatch(value):
        return None
    return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in _PIECE.findall(value)))


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value and len(value) <= _MAX_LENGTH else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) and number >= 0 else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_SECONDS)
