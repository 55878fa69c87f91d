"""Usage and cost APIs of OpenAI, Anthropic and OpenRouter, read as lines of a bill.

OpenAI: `GET /v1/organization/usage/*` by hour and model, `GET /v1/organization/costs` by day and line item
(https://platform.openai.com/docs/api-reference/usage, and its cookbook's "completions usage api").

Anthropic: `GET /v1/organizations/usage_report/messages` by hour and model, `GET /v1/organizations/cost_report` by day
and description (https://platform.claude.com/docs/en/manage-claude/usage-cost-api and
https://platform.claude.com/docs/en/api/admin/cost_report). Its amounts are cents, as decimal text. Costs of the
priority tier are not in it.

OpenRouter: `GET /api/v1/activity` of one completed day, by endpoint
(https://openrouter.ai/docs/api-reference/analytics/get-activity). It has the last 30 days.

Each is a GET of JSON, bounded in bytes, time and retries; redirects are not followed. No error names a credential: it
is in a header, and messages have the path only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from apps.provider_bills.stated_lines import (
    InvalidBill,
    StatedLine,
    add,
    check_period,
    read_cost,
    read_count,
    read_moment,
    read_name,
)

# Bytes of a page; seconds for a page, and without a byte.
MAX_BYTES: Final = 8_000_000
_MAX_SECONDS, _MAX_SILENCE = 60.0, 20.0
# Tries of a page, and the longest pause between two: a rate limit that asks for more ends the reading until the next.
_MAX_TRIES: Final = 4
_MAX_PAUSE: Final = 20.0
_BUSY: Final = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
# Pages of one report; a cursor that never ends would be followed for ever.
MAX_PAGES: Final = 100

Parameters = Sequence[tuple[str, str]]


class BillUnavailable(Exception):
    """The provider did not give its bill; the message says why, without a secret."""


class BillClient:
    """Asks one provider's API, at `base`, with the given headers. `sleep` waits between tries."""

    def __init__(self, base: str, headers: Mapping[str, str], sleep: Callable[[float], None] = time.sleep) -> None:
        self._base, self._headers, self._sleep = base.rstrip("/"), dict(headers), sleep

    def get(self, path: str, parameters: Parameters) -> dict[str, Any]:
        """Return the JSON object at a path, tried again while the provider is busy.

        Numbers are exact. Raises BillUnavailable and InvalidBill.
        """
        for tried in range(1, _MAX_TRIES + 1):
            is_last = tried == _MAX_TRIES
            try:
                found, pause = self._try(path, parameters)
            except OSError as error:  # Those of `requests` are such.
                if is_last:
                    raise BillUnavailable(f"{path}: {type(error).__name__}") from error
                pause, found = 2.0**tried, None
            if found is not None:
                return found
            if is_last or pause > _MAX_PAUSE:
                break
            self._sleep(pause)
        raise BillUnavailable(f"{path}: the provider is busy; the next reading tries again")

    def pages(self, path: str, parameters: Parameters) -> list[dict[str, Any]]:
        """Return the objects in `data` of all pages, by `has_more` and `next_page`. Raises as `get` does."""
        found: list[dict[str, Any]] = []
        cursors: set[str] = set()
        own = list(parameters)
        for _ in range(MAX_PAGES):
            page = self.get(path, own)
            found += rows(page, "data", path)
            if page.get("has_more") is not True:
                return found
            cursor = page.get("next_page")
            if not isinstance(cursor, str) or not cursor or cursor in cursors:
                raise InvalidBill(f"{path}: there are more pages, and next_page is none that was not read yet")
            cursors.add(cursor)
            own = [*parameters, ("page", cursor)]
        raise InvalidBill(f"{path}: more than {MAX_PAGES} pages")

    def _try(self, path: str, parameters: Parameters) -> tuple[dict[str, Any] | None, float]:
        """Return the object, or None and the seconds to wait before another try."""
        # Here and not above: the settler reads stored bills, and asks no provider.
        import requests

        ends = time.monotonic() + _MAX_SECONDS
        with requests.get(
            self._base + path,
            params=list(parameters),
            headers=self._headers,
            stream=True,
            timeout=_MAX_SILENCE,
            allow_redirects=False,
        ) as answer:
            if answer.status_code in _BUSY:
                return None, _pause_of(answer.headers.get("Retry-After"))
            if answer.status_code != requests.codes.ok:
                raise BillUnavailable(f"{path}: HTTP status {answer.status_code}")
            content = b""
            for chunk in answer.iter_content(65_536):
                content += chunk
                if len(content) > MAX_BYTES:
                    raise InvalidBill(f"{path}: more than {MAX_BYTES:,} bytes")
                if time.monotonic() > ends:
                    raise BillUnavailable(f"{path}: took more than {_MAX_SECONDS:.0f} seconds")
        return read_object(content, path), 0.0


def read_json(content: bytes | str, place: str) -> Any:
    """Return a JSON document with exact numbers; NaN and Infinity are refused. Raises InvalidBill."""
    try:
        return json.loads(content, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise InvalidBill(f"{place}: not JSON") from error


def read_object(content: bytes | str, place: str) -> dict[str, Any]:
    """Return a JSON object. Raises InvalidBill."""
    document = read_json(content, place)
    if not isinstance(document, dict):
        raise InvalidBill(f"{place}: not a JSON object")
    return document


def rows(table: Mapping[str, Any], field: str, place: str) -> list[dict[str, Any]]:
    """Return a field that is a list of objects. Raises InvalidBill: an answer without it is no empty bill."""
    value = table.get(field)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidBill(f"{place}: {field} is not a list of objects")
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _pause_of(stated: str | None) -> float:
    return float(stated) if stated is not None and stated.isdecimal() and len(stated) < 6 else 2.0


_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_CENT: Final = Decimal("0.01")
# The most buckets that a page may have.
_HOURS, _OPENAI_DAYS, _ANTHROPIC_DAYS = "168", "180", "31"


class Period(NamedTuple):
    """A period of whole hours, in UTC; its begin is the begin of a day."""

    starts_at: datetime
    ends_at: datetime


Read = Callable[[BillClient, Period], Iterator[StatedLine]]


class BillApi(NamedTuple):
    """A provider's API: the setting with its key, the address, headers with the key, and the reader.

    `is_daily` tells that it has whole days only.
    """

    provider: str
    setting: str
    base: str
    headers: Callable[[str], Mapping[str, str]]
    read: Read
    is_daily: bool = False


# Reports of OpenAI's usage, with whether they count tokens; the others count requests.
_OPENAI_REPORTS: Final = {
    "completions": True,
    "embeddings": True,
    "moderations": True,
    "images": False,
    "audio_speeches": False,
    "audio_transcriptions": False,
}


def _openai(client: BillClient, period: Period) -> Iterator[StatedLine]:
    for report, has_tokens in _OPENAI_REPORTS.items():
        path = f"/v1/organization/usage/{report}"
        for bucket, line in _openai_results(client, path, period, "1h", _HOURS, "model"):
            yield StatedLine(
                "usage",
                *bucket,
                model=read_name(f"{path}: model", line.get("model")),
                requests=read_count(f"{path}: num_model_requests", line.get("num_model_requests")),
                input_tokens=read_count(f"{path}: input_tokens", line.get("input_tokens")) if has_tokens else None,
                cached_tokens=read_count(f"{path}: input_cached_tokens", line.get("input_cached_tokens")),
                output_tokens=read_count(f"{path}: output_tokens", line.get("output_tokens")) if has_tokens else None,
            )
    path = "/v1/organization/costs"
    for bucket, line in _openai_results(client, path, period, "1d", _OPENAI_DAYS, "line_item"):
        amount = line.get("amount")
        if not isinstance(amount, dict):
            raise InvalidBill(f"{path}: amount is not an object")
        _require_usd(path, amount.get("currency"))
        # Such as `gpt-4o-2024-08-06, input`. Searches belong to no model, as in Anthropic's report.
        item = read_name(f"{path}: line_item", line.get("line_item")).partition(",")[0].strip()
        yield StatedLine(
            "cost",
            *bucket,
            model="" if item.lower().startswith("web search") else item,
            cost=read_cost(f"{path}: amount.value", amount.get("value")),
        )


def _openai_results(
    client: BillClient, path: str, period: Period, width: str, limit: str, group: str
) -> Iterator[tuple[tuple[datetime, datetime], dict[str, Any]]]:
    starts_at = period.starts_at if width == "1h" else _midnight(period.starts_at)
    parameters = [
        ("start_time", str(int(starts_at.timestamp()))),
        ("end_time", str(int(period.ends_at.timestamp()))),
        ("bucket_width", width),
        ("group_by", group),
        ("limit", limit),
    ]
    for bucket in client.pages(path, parameters):
        both = _bucket(path, bucket.get("start_time"), bucket.get("end_time"))
        for line in rows(bucket, "results", path):
            yield both, line


def _anthropic(client: BillClient, period: Period) -> Iterator[StatedLine]:
    path = "/v1/organizations/usage_report/messages"
    for bucket, line in _anthropic_results(client, path, period, "1h", _HOURS, ("model",)):
        creation = line.get("cache_creation") or {}
        if not isinstance(creation, dict):
            raise InvalidBill(f"{path}: cache_creation is not an object")
        written = None
        for name in ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"):
            written = add(written, read_count(f"{path}: cache_creation.{name}", creation.get(name)))
        cached = read_count(f"{path}: cache_read_input_tokens", line.get("cache_read_input_tokens"))
        uncached = read_count(f"{path}: uncached_input_tokens", line.get("uncached_input_tokens"))
        yield StatedLine(
            "usage",
            *bucket,
            model=read_name(f"{path}: model", line.get("model")),
            input_tokens=add(add(uncached, cached), written),
            cached_tokens=cached,
            cache_write_tokens=written,
            output_tokens=read_count(f"{path}: output_tokens", line.get("output_tokens")),
        )
    path = "/v1/organizations/cost_report"
    for bucket, line in _anthropic_results(client, path, period, "1d", _ANTHROPIC_DAYS, ("description",)):
        _require_usd(path, line.get("currency"))
        yield StatedLine(
            "cost",
            *bucket,
            model=read_name(f"{path}: model", line.get("model")),
            cost=read_cost(f"{path}: amount", line.get("amount"), _CENT),
        )


def _anthropic_results(
    client: BillClient, path: str, period: Period, width: str, limit: str, groups: tuple[str, ...]
) -> Iterator[tuple[tuple[datetime, datetime], dict[str, Any]]]:
    starts_at = period.starts_at if width == "1h" else _midnight(period.starts_at)
    parameters = [
        ("starting_at", _rfc3339(starts_at)),
        ("ending_at", _rfc3339(period.ends_at)),
        ("bucket_width", width),
        *(("group_by[]", group) for group in groups),
        ("limit", limit),
    ]
    for bucket in client.pages(path, parameters):
        both = _bucket(path, bucket.get("starting_at"), bucket.get("ending_at"))
        for line in rows(bucket, "results", path):
            yield both, line


def _openrouter(client: BillClient, period: Period) -> Iterator[StatedLine]:
    path, day = "/api/v1/activity", _midnight(period.starts_at)
    while day + _DAY <= period.ends_at:
        stated = f"{day:%Y-%m-%d}"
        for line in rows(client.get(path, [("date", stated)]), "data", path):
            # A moment of the day follows in some answers.
            if str(line.get("date"))[:10] != stated:
                raise InvalidBill(f"{path}: date is not {stated}, the day that was asked for")
            yield StatedLine(
                "usage",
                day,
                day + _DAY,
                model=read_name(f"{path}: model", line.get("model")),
                requests=read_count(f"{path}: requests", line.get("requests")),
                input_tokens=read_count(f"{path}: prompt_tokens", line.get("prompt_tokens")),
                output_tokens=read_count(f"{path}: completion_tokens", line.get("completion_tokens")),
                cost=read_cost(f"{path}: usage", line.get("usage")),
            )
        day += _DAY


def _bucket(path: str, starts_at: Any, ends_at: Any) -> tuple[datetime, datetime]:
    both = read_moment(f"{path}: the begin of a bucket", starts_at), read_moment(f"{path}: the end", ends_at)
    check_period(*both)
    return both


def _require_usd(path: str, currency: Any) -> None:
    if not isinstance(currency, str) or currency.upper() != "USD":
        raise InvalidBill(f"{path}: the currency is {str(currency)[:10]!r}, not USD")


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


APIS: Final = (
    BillApi(
        "openai",
        "OPENAI_ADMIN_KEY",
        "https://api.openai.com",
        lambda key: {"Authorization": f"Bearer {key}"},
        _openai,
    ),
    BillApi(
        "anthropic",
        "ANTHROPIC_ADMIN_KEY",
        "https://api.anthropic.com",
        lambda key: {"x-api-key": key, "anthropic-version": "2023-06-01"},
        _anthropic,
    ),
    BillApi(
        "openrouter",
        "OPENROUTER_MANAGEMENT_KEY",
        "https://openrouter.ai",
        lambda key: {"Authorization": f"Bearer {key}"},
        _openrouter,
        is_daily=True,
    ),
)
