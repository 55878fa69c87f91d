"""Upstream failures: what can go wrong at a provider, whether to try elsewhere or tell the client, and when. Pure.

`error_type` is what the routing metadata says: `none`, `timeout`, `network`, `upstream_error`, `client_error`, …
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final

from apps.kernel.errors import AllProvidersFailed, ApiError, Overloaded, RateLimited, UpstreamRefused, UpstreamTimeout
from apps.kernel.secrets.redaction import redact

# Statuses that say something about the provider and nothing about the request (besides 5xx and 429).
_PROVIDERS_OWN = {401, 403, 404, 408}


class UpstreamFailure(Exception):
    """An attempt that did not answer. `status` is the provider's, None when none arrived; `retry_after` in seconds."""

    def __init__(
        self,
        error_type: str,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.message = message
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def redact(self, secrets: Iterable[str]) -> None:
        """Take credentials out of the provider's words: those that were sent to it, and whatever looks like one."""
        secrets = list(secrets)
        self.message = redact(self.message, secrets)
        self.code = self.code and redact(self.code, secrets)
        self.param = self.param and redact(self.param, secrets)
        self.args = (self.message,)

    @property
    def retryable(self) -> bool:
        """Whether another provider may do better: 5xx, 429, no answer, no connection, no credit or no such model there.

        A refusal of the request itself would be repeated everywhere.
        """
        if self.status is None:
            return True
        return self.status >= 500 or self.status == 429 or self.status in _PROVIDERS_OWN or self.status == 402

    def as_error(self, provider: str) -> ApiError:
        """Return the client's error when no other candidate can be tried."""
        if self.status is not None and not self.retryable:
            return UpstreamRefused(self.message, status=self.status, code=self.code, param=self.param)
        error = self._as_failure(provider)
        error.from_provider = True
        return error

    def _as_failure(self, provider: str) -> ApiError:
        if self.error_type == "timeout":
            return UpstreamTimeout(f"{provider} did not answer in time: {self.message}")
        if self.status == 429:
            return RateLimited(f"{provider}: {self.message}", retry_after=self.retry_after)
        if self.status in {503, 529}:
            return Overloaded(f"{provider}: {self.message}", retry_after=self.retry_after)
        return AllProvidersFailed(f"{provider} failed: {self.message}")


class StaleConnection(UpstreamFailure):
    """A kept-alive connection was closed before the request arrived: it was not read, and may be sent again."""


def failure_from_error(error: ApiError) -> UpstreamFailure:
    """Return the failure that an error inside an answer (an error object in a stream) amounts to."""
    return UpstreamFailure(
        "upstream_error",
        error.message,
        status=error.status,
        code=error.code,
        param=error.param,
        retry_after=error.retry_after,
    )


def error_type_for_status(status: int) -> str:
    """Return the word for a provider's status."""
    if status == 429:
        return "rate_limit"
    if status in {408, 504}:
        return "timeout"
    return "upstream_error" if status >= 500 else "client_error"


# The longest wait that is passed on, in seconds.
MAX_RETRY_AFTER: Final = 86_400.0
# Longer values are no times.
_MAX_DURATION_LENGTH: Final = 100
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
    if value is None or not value.strip() or len(value) > _MAX_DURATION_LENGTH:
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
    if len(value) > _MAX_DURATION_LENGTH or not _DURATION.fullmatch(value):
        return None
    return _bounded(sum(float(amount) * _UNITS[unit] for amount, unit in _PIECE.findall(value)))


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value and len(value) <= _MAX_DURATION_LENGTH else None
    except ValueError:
        return None
    return number if number is not None and isfinite(number) and number >= 0 else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)
