"""Usage and cost APIs of OpenAI, Anthropic and OpenRouter, read as lines of a bill.

OpenAI: `GET /v1/organization/usage/*` by hour and model, `GET /v1/organization/costs` by day and line item
(https://platform.openai.com/docs/api-reference/usage, and its cookbook's "completions usage api").

Anthropic: `GET /v1/organizations/usage_report/messages` by hour and model, `GET /v1/organizations/cost_report` by day
and description (https://platform.claude.com/docs/en/manage-claude/usage-cost-api and
https://platform.claude.com/docs/en/api/admin/cost_report). Its amounts are cents, as decimal text. Costs of the
priority tier are not in it.

OpenRouter: `GET /api/v1/activity` of one completed day, by endpoint
(https://openrouter.ai/docs/api-reference/analytics/get-activity). It has the last 30 days.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from apps.provider_bills.fetching import BillClient, rows
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
