"""Bills from APIs: the reports of OpenAI, Anthropic and OpenRouter in our lines, and hostile answers refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from apps.provider_bills.apis import APIS, MAX_BYTES, MAX_PAGES, BillApi, BillUnavailable, Period
from apps.provider_bills.stated_lines import InvalidBill, StatedLine
from tests.provider_bills.bill_server import BillServer, Scripted

OPENAI, ANTHROPIC, OPENROUTER = APIS
DAY = datetime(2026, 11, 25, tzinfo=UTC)
PERIOD = Period(DAY, DAY + timedelta(days=2))
HOUR = int(DAY.timestamp())
COMPLETIONS, COSTS = "/v1/organization/usage/completions", "/v1/organization/costs"
MESSAGES, COST_REPORT = "/v1/organizations/usage_report/messages", "/v1/organizations/cost_report"


def read(server: BillServer, api: BillApi) -> list[StatedLine]:
    """Return the lines that an API gives of the period."""
    return list(api.read(server.client(api), PERIOD))


def openai_page(
    *results: dict[str, Any], at: int = HOUR, length: int = 3600, page: str | None = None
) -> dict[str, Any]:
    """A page of OpenAI's with one bucket."""
    bucket = {"object": "bucket", "start_time": at, "end_time": at + length, "results": list(results)}
    return {"object": "page", "data": [bucket], "has_more": page is not None, "next_page": page}


def completion(**fields: Any) -> dict[str, Any]:
    """A result of OpenAI's usage of completions."""
    usual = {
        "object": "organization.usage.completions.result",
        "input_tokens": 1000,
        "output_tokens": 500,
        "input_cached_tokens": 800,
        "num_model_requests": 5,
        "project_id": None,
        "model": "gpt-4o-2024-08-06",
        "batch": None,
    }
    return usual | fields


def cost(value: Any, item: str | None = "gpt-4o-2024-08-06, input", currency: Any = "usd") -> dict[str, Any]:
    """A result of OpenAI's costs."""
    amount = {"value": value, "currency": currency}
    return {"object": "organization.costs.result", "amount": amount, "line_item": item, "project_id": None}


def test_openais_usage_and_costs_are_read_over_all_pages(server: BillServer) -> None:
    server.script(
        COMPLETIONS,
        openai_page(completion(), page="page_2"),
        openai_page(completion(model="gpt-5", input_cached_tokens=0), at=HOUR + 3600),
    )
    server.script("/v1/organization/usage/images", openai_page({"num_model_requests": 2, "model": "gpt-image-1"}))
    server.script(COSTS, openai_page(cost(0.06), cost(1e-5, "Web search tool calls"), length=86_400))
    assert read(server, OPENAI) == [
        StatedLine("usage", DAY, DAY + timedelta(hours=1), "gpt-4o-2024-08-06", "", 5, 1000, 800, None, 500),
        StatedLine(*("usage", DAY + timedelta(hours=1), DAY + timedelta(hours=2), "gpt-5", "", 5, 1000, 0, None, 500)),
        StatedLine("usage", DAY, DAY + timedelta(hours=1), "gpt-image-1", "", 2),
        StatedLine("cost", DAY, DAY + timedelta(days=1), "gpt-4o-2024-08-06", cost=Decimal("0.06")),
        StatedLine("cost", DAY, DAY + timedelta(days=1), "", cost=Decimal("0.00001")),
    ]
    first, second = [one for one in server.asked if one.path == COMPLETIONS]
    asked = [
        *(("start_time", str(HOUR)), ("end_time", str(HOUR + 2 * 86_400)), ("bucket_width", "1h")),
        *(("group_by", "model"), ("limit", "168")),
    ]
    assert (first.query, second.query) == (asked, [*asked, ("page", "page_2")])
    assert {one.headers["authorization"] for one in server.asked} == {"Bearer admin-key"}
    assert len(server.asked) == 8


def test_anthropics_usage_and_costs_are_read(server: BillServer) -> None:
    usage = {
        "uncached_input_tokens": 1500,
        "cache_creation": {"ephemeral_1h_input_tokens": 1000, "ephemeral_5m_input_tokens": 500},
        "cache_read_input_tokens": 200,
        "output_tokens": 500,
        "server_tool_use": {"web_search_requests": 10},
        "model": "claude-sonnet-4-5-20250929",
        "workspace_id": None,
    }
    hour = {"starting_at": "2026-11-25T00:00:00Z", "ending_at": "2026-11-25T01:00:00Z", "results": [usage]}
    server.script(MESSAGES, {"data": [hour], "has_more": False, "next_page": None})
    search = {"currency": "USD", "amount": "40", "cost_type": "web_search", "model": None}
    tokens = {"currency": "USD", "amount": "123.78912", "cost_type": "tokens", "model": "claude-sonnet-4-5-20250929"}
    day = {"starting_at": "2026-11-25T00:00:00Z", "ending_at": "2026-11-26T00:00:00Z", "results": [tokens, search]}
    server.script(COST_REPORT, {"data": [day], "has_more": False, "next_page": None})
    assert read(server, ANTHROPIC) == [
        StatedLine(
            *("usage", DAY, DAY + timedelta(hours=1), "claude-sonnet-4-5-20250929"),
            *("", None, 3200, 200, 1500, 500),
        ),
        StatedLine("cost", DAY, DAY + timedelta(days=1), "claude-sonnet-4-5-20250929", cost=Decimal("1.2378912")),
        StatedLine("cost", DAY, DAY + timedelta(days=1), "", cost=Decimal("0.4")),
    ]
    asked = server.asked[0]
    assert asked.query == [
        *(("starting_at", "2026-11-25T00:00:00Z"), ("ending_at", "2026-11-27T00:00:00Z")),
        *(("bucket_width", "1h"), ("group_by[]", "model"), ("limit", "168")),
    ]
    assert (asked.headers["x-api-key"], asked.headers["anthropic-version"]) == ("admin-key", "2023-06-01")


def test_openrouters_activity_is_read_day_by_day(server: BillServer) -> None:
    def activity(day: str) -> dict[str, Any]:
        return {
            "date": day,
            "model": "openai/gpt-4.1",
            "model_permaslug": "openai/gpt-4.1-2025-04-14",
            "endpoint_id": "550e8400-e29b-41d4-a716-446655440000",
            "provider_name": "OpenAI",
            "usage": 0.015,
            "byok_usage_inference": 0.012,
            "requests": 5,
            "prompt_tokens": 50,
            "completion_tokens": 125,
            "reasoning_tokens": 25,
        }

    server.script("/api/v1/activity", {"data": [activity("2026-11-25")]}, {"data": [activity("2026-11-26 00:00:00")]})
    usual = ("openai/gpt-4.1", "", 5, 50, None, None, 125, Decimal("0.015"))
    assert read(server, OPENROUTER) == [
        StatedLine("usage", DAY, DAY + timedelta(days=1), *usual),
        StatedLine("usage", DAY + timedelta(days=1), DAY + timedelta(days=2), *usual),
    ]
    assert [one.query for one in server.asked] == [[("date", "2026-11-25")], [("date", "2026-11-26")]]


@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_busy_provider_is_asked_again_after_the_pause_that_it_names(server: BillServer, status: int) -> None:
    busy = Scripted({"error": {}}, status, {"Retry-After": "7"})
    server.script("/api/v1/activity", busy, busy, {"data": []})
    assert read(server, OPENROUTER) == []
    assert server.paused == [7.0, 7.0]


@pytest.mark.parametrize("seconds", ["3600", "7"])
def test_a_provider_that_stays_busy_ends_the_reading(server: BillServer, seconds: str) -> None:
    server.script("/api/v1/activity", Scripted({}, 429, {"Retry-After": seconds}))
    with pytest.raises(
        BillUnavailable, match=r"^/api/v1/activity: the provider is busy; the next reading tries again$"
    ):
        read(server, OPENROUTER)
    assert server.paused == ([] if seconds == "3600" else [7.0] * 3)


@pytest.mark.parametrize("status", [301, 401, 403, 404])
def test_another_status_ends_the_reading_without_the_key_in_the_error(server: BillServer, status: int) -> None:
    server.script(COMPLETIONS, Scripted({"error": "admin-key"}, status, {"Location": server.url + "/elsewhere"}))
    with pytest.raises(BillUnavailable) as refused:
        read(server, OPENAI)
    assert str(refused.value) == f"{COMPLETIONS}: HTTP status {status}"
    assert server.paths() == [COMPLETIONS]


def test_a_provider_that_is_away_ends_the_reading(server: BillServer) -> None:
    client = server.client(OPENROUTER)
    server.close()
    with pytest.raises(BillUnavailable, match=r"^/api/v1/activity: ConnectionError$"):
        list(OPENROUTER.read(client, PERIOD))
    assert server.paused == [2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("input_tokens", -1, "'-1', not a whole number between 0 and 1,000,000,000,000,000"),
        ("input_tokens", 1.5, "'1.5', not a whole number between 0 and 1,000,000,000,000,000"),
        ("output_tokens", 10**16, "'10000000000000000', not a whole number between 0 and 1,000,000,000,000,000"),
        ("output_tokens", True, "'True', not a number"),
        ("output_tokens", "many", "'many', not a number"),
        ("num_model_requests", ["1"], "\"['1']\", not a number"),
        ("num_model_requests", "NaN", "'NaN', not a number"),
    ],
)
def test_counts_that_cannot_be_meant_are_refused(server: BillServer, field: str, value: Any, shown: str) -> None:
    server.script(COMPLETIONS, openai_page(completion(**{field: value})))
    with pytest.raises(InvalidBill) as refused:
        read(server, OPENAI)
    assert str(refused.value) == f"{COMPLETIONS}: {field} is {shown}"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"data": [NaN]}', ": not JSON"),
        (b'{"data": [1e999999999]}', ": data is not a list of objects"),
        (b"<html>", ": not JSON"),
        (b"[" * 100_000, ": not JSON"),
        (b"[]", ": not a JSON object"),
        (b"{}", ": data is not a list of objects"),
        (b'{"data": {}}', ": data is not a list of objects"),
        (b" " * (MAX_BYTES + 1), f": more than {MAX_BYTES:,} bytes"),
        (openai_page({"model": "m" * 256}), ": model is not a printable text of at most 255 characters"),
        (openai_page({"model": "a\nb"}), ": model is not a printable text of at most 255 characters"),
        (openai_page(at=-(10**18)), ": the begin of a bucket is '-1000000000000000000', not a moment"),
        (openai_page(at=0), ": the begin of a bucket is '0', not between 2020 and 2100"),
    ],
)
def test_answers_in_another_form_are_no_empty_bill(server: BillServer, body: Any, error: str) -> None:
    server.script(COMPLETIONS, body)
    with pytest.raises(InvalidBill) as refused:
        read(server, OPENAI)
    assert str(refused.value) == COMPLETIONS + error


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (cost("NaN"), "amount.value is 'NaN', not a number"),
        (cost("1e400"), "amount.value is '1e400', which is too large"),
        (cost(10**12), "amount.value is '1000000000000', not an amount of at most 1,000,000,000 USD"),
        (cost(1, currency="eur"), "the currency is 'eur', not USD"),
        (cost(1, currency=None), "the currency is 'None', not USD"),
        ({"amount": 1}, "amount is not an object"),
    ],
)
def test_amounts_that_cannot_be_meant_are_refused(server: BillServer, line: dict[str, Any], error: str) -> None:
    server.script(COSTS, openai_page(line, length=86_400))
    with pytest.raises(InvalidBill) as refused:
        read(server, OPENAI)
    assert str(refused.value) == f"{COSTS}: {error}"


def test_a_bucket_across_days_is_refused(server: BillServer) -> None:
    server.script(COSTS, openai_page(cost(1), length=86_401))
    with pytest.raises(InvalidBill, match="is not within one day"):
        read(server, OPENAI)


@pytest.mark.parametrize("cursor", ["same", None, ""])
def test_pages_that_never_end_are_refused(server: BillServer, cursor: str | None) -> None:
    server.script(COMPLETIONS, openai_page() | {"has_more": True, "next_page": cursor})
    with pytest.raises(InvalidBill, match="there are more pages, and next_page is none that was not read yet"):
        read(server, OPENAI)


def test_more_pages_than_a_report_has_are_refused(server: BillServer) -> None:
    server.script(COMPLETIONS, *(openai_page(page=f"page_{number}") for number in range(MAX_PAGES + 1)))
    with pytest.raises(InvalidBill, match=f"more than {MAX_PAGES} pages"):
        read(server, OPENAI)
    assert len(server.asked) == MAX_PAGES
