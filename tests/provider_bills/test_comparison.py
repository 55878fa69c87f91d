"""Bills compared with the log: each cause is found with its amount, and none where both agree."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import override_settings
from prometheus_client import REGISTRY

from apps.keys.models import ApiKey
from apps.logs import partitions
from apps.provider_bills import comparison, metrics, readings
from apps.provider_bills.comparison import compare_day, compare_due
from apps.provider_bills.differences import plain_model
from apps.provider_bills.models import BillComparison, BillDifference, BillReading
from apps.provider_bills.stated_lines import StatedLine
from gateway_project.diagnosis import work
from gateway_project.diagnosis.check import State
from tests.logs.entries import entry, id_at, write
from tests.support.cast import World, make_key

DAY = datetime(2026, 3, 14, tzinfo=UTC)
TEN = DAY + timedelta(hours=10)
NOW = DAY + timedelta(days=1, hours=4)
MODEL = "gpt-5-2026-08-07"
pytestmark = pytest.mark.django_db


@pytest.fixture
def key(world: World) -> ApiKey:
    """A key of Acme's, and a partition for the day."""
    partitions.ensure(DAY.date() + timedelta(days=number) for number in (-1, 0, 1))
    return make_key(world.olivia, world.project).key


def logged(key: ApiKey, at: datetime = TEN + timedelta(minutes=5), **fields: Any) -> None:
    """Log a request at OpenAI: 1,000 input tokens, 200 of them cached, 500 output tokens, 0.02 USD."""
    usual = {
        "prompt_tokens": 1000,
        "cached_tokens": 200,
        "completion_tokens": 500,
        "cost": Decimal("0.02"),
        "input_cost": Decimal("0.02"),
    }
    write(entry(key, **({"id": id_at(at)} | usual | fields)))


def usage(requests: int | None = 1, model: str = MODEL, hour: datetime = TEN, **fields: Any) -> StatedLine:
    """A line of so many requests as `logged` logs them."""
    times = requests or 1
    usual = {"input_tokens": 1000 * times, "cached_tokens": 200 * times, "output_tokens": 500 * times}
    return StatedLine("usage", hour, hour + timedelta(hours=1), model, "", requests, **(usual | fields))


def costs(usd: str, model: str = MODEL) -> StatedLine:
    """A line of a day's cost."""
    return StatedLine("cost", DAY, DAY + timedelta(days=1), model, cost=Decimal(usd))


def bill(*lines: StatedLine, provider: str = "openai") -> BillReading:
    """Store the lines as a provider's whole bill of the day."""
    made = BillReading.objects.create(provider=provider, origin=readings.API)
    return readings.store(made, lines, readings.Period(DAY, DAY + timedelta(days=1)))


def found() -> list[tuple[Any, ...]]:
    """Return the kept differences: cause, model, hour, both sides, USD."""
    rows = BillDifference.objects.order_by("cause", "starts_at", "model")
    return [(one.cause, one.model, one.starts_at, one.billed, one.logged, one.difference) for one in rows]


def test_where_both_agree_nothing_is_found(key: ApiKey) -> None:
    for minute in (0, 59):
        logged(key, TEN + timedelta(minutes=minute))
    bill(usage(2), costs("0.04"))
    made = compare_day("openai", DAY.date())
    assert (found(), made.counts, made.is_above) == ([], {}, False)
    assert (made.billed_cost, made.logged_cost, made.difference) == (Decimal("0.04"), Decimal("0.04"), 0)


def test_use_outside_the_gateway(key: ApiKey) -> None:
    logged(key)
    bill(usage(3), usage(1, "gpt-4.1"), costs("0.06"), costs("0.5", "gpt-4.1"))
    made = compare_day("openai", DAY.date())
    assert found() == [
        (
            *("outside", "gpt-4.1", TEN, "1 request, 1,000 input tokens, 200 cached tokens, 500 output tokens"),
            *("nothing", Decimal("0.5")),
        ),
        (
            *("outside", "gpt-5", TEN, "3 requests, 3,000 input tokens, 600 cached tokens, 1,500 output tokens"),
            "1 request, 1,000 input tokens, 200 cached tokens, 500 output tokens, 0.02 USD",
            Decimal("0.04"),
        ),
    ]
    assert (made.counts, made.difference) == ({"outside": 2}, Decimal("0.54"))


def test_a_request_that_is_missing_at_the_provider(key: ApiKey) -> None:
    logged(key)
    logged(key, TEN + timedelta(hours=2), underlying_model="gpt-4.1", cost=Decimal("0.3"), input_cost=Decimal("0.3"))
    bill(usage(1), costs("0.02"))
    compare_day("openai", DAY.date())
    [(cause, model, hour, billed, _, usd)] = found()
    assert (cause, model, hour, billed, usd) == (
        *("missing", "gpt-4.1", TEN + timedelta(hours=2), "nothing", Decimal("-0.3")),
    )


def test_tokens_that_differ(key: ApiKey) -> None:
    logged(key)
    bill(usage(1, output_tokens=600), costs("0.03"))
    compare_day("openai", DAY.date())
    [(cause, *_, usd)] = found()
    assert (cause, usd) == ("tokens", Decimal("0.01"))


def test_a_price_that_differs(key: ApiKey) -> None:
    logged(key)
    bill(usage(1), costs("0.04"))
    compare_day("openai", DAY.date())
    assert found() == [
        (
            *("price", "gpt-5", DAY, "0.04 USD"),
            "1 request, 1,000 input tokens, 200 cached tokens, 500 output tokens, 0.02 USD",
            Decimal("0.02"),
        )
    ]


def test_without_amounts_a_difference_is_estimated_from_tokens(key: ApiKey) -> None:
    logged(key)
    bill(usage(2))
    made = compare_day("openai", DAY.date())
    assert (made.billed_cost, made.difference, made.counts) == (None, Decimal("0.02"), {"outside": 1})


def test_a_request_across_the_hour_is_no_difference(key: ApiKey) -> None:
    logged(key, TEN + timedelta(minutes=59))
    logged(key)
    bill(usage(1), usage(1, hour=TEN + timedelta(hours=1)))
    assert compare_day("openai", DAY.date()).counts == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"used_mode": "api-keys"},
        {"cached": True},
        {"used_provider": "azure"},
        {
            "has_error": True,
            "prompt_tokens": None,
            "completion_tokens": None,
            "cached_tokens": None,
            "cost": Decimal(0),
        },
    ],
)
def test_requests_that_are_on_no_bill_of_ours_are_left_out(key: ApiKey, fields: dict[str, Any]) -> None:
    logged(key, **({"input_cost": fields["cost"]} if "cost" in fields else {}), **fields)
    bill()
    made = compare_day("openai", DAY.date())
    assert (made.counts, made.logged_cost) == ({}, 0)


def test_the_edges_of_the_day_are_utcs(key: ApiKey) -> None:
    logged(key, DAY - timedelta(milliseconds=1))
    logged(key, DAY)
    logged(key, DAY + timedelta(days=1))
    bill(usage(1, hour=DAY))
    assert compare_day("openai", DAY.date()).counts == {}


def test_discounts_and_searches_are_compared_at_list_prices(key: ApiKey) -> None:
    half = {"cost": Decimal("0.5"), "input_cost": Decimal("0.25"), "web_search_cost": Decimal("0.25")}
    logged(key, **half, discount_savings=Decimal("0.5"))
    bill(usage(1), costs("0.5"), costs("0.5", ""))
    made = compare_day("openai", DAY.date())
    assert (made.counts, made.logged_cost, made.difference) == ({}, Decimal(1), 0)


def test_requests_that_a_bill_names_are_compared_one_by_one(key: ApiKey) -> None:
    ours = id_at(TEN)
    logged(key, id=ours)
    logged(key, request_id="req-2")
    logged(key, request_id="req-3")
    logged(key, request_id="unnamed")

    def named(request_id: str, usd: str = "0.02", output: int = 500) -> StatedLine:
        return StatedLine(
            *("file", TEN, TEN + timedelta(minutes=1), MODEL, request_id, 1, 1000, 200, None, output, Decimal(usd)),
        )

    bill(named(str(ours)), named("req-2", "0.05"), named("req-3", "0.02", 700), named("elsewhere", "0.4"))
    compare_day("openai", DAY.date())
    rows = BillDifference.objects.order_by("cause").values_list("cause", "request_id", "difference")
    assert list(rows) == [
        ("missing", "", Decimal("-0.02")),
        ("outside", "elsewhere", Decimal("0.4")),
        ("price", "req-2", Decimal("0.03")),
        ("tokens", "req-3", Decimal("0")),
    ]


@pytest.mark.parametrize(
    ("usd", "percent", "is_above"),
    [("102", 2, False), ("102.1", 2, True), ("97.9", 2, True), ("102.1", 4, False)],
)
def test_a_difference_above_the_threshold_is_an_alert(key: ApiKey, usd: str, percent: int, is_above: bool) -> None:
    logged(key, cost=Decimal(100), input_cost=Decimal(100))
    bill(usage(1), costs(usd))
    with override_settings(BILL_ALERT_PERCENT=percent):
        assert compare_day("openai", DAY.date()).is_above is is_above


def test_a_small_difference_is_no_alert_whatever_its_share(key: ApiKey) -> None:
    logged(key)
    bill(usage(1), costs("1.02"))
    assert compare_day("openai", DAY.date()).is_above is False


def test_whole_days_are_compared_when_their_lines_change(key: ApiKey) -> None:
    logged(key)
    reading = bill(usage(1))
    assert [one.day for one in compare_due([reading], NOW)] == [DAY.date()]
    again = bill(usage(1))
    assert compare_due([again], NOW) == []
    changed = bill(usage(2))
    assert [one.counts for one in compare_due([changed], NOW)] == [{"outside": 1}]
    assert (BillComparison.objects.count(), BillDifference.objects.count()) == (1, 1)
    # The next day has only begun.
    assert compare_due([changed], DAY + timedelta(hours=23)) == []


def test_only_the_largest_differences_are_kept_and_all_are_counted(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MAX_KEPT", 1)
    bill(usage(1, "fox-1"), usage(1, "fox-2"), costs("2", "fox-1"), costs("3", "fox-2"))
    assert compare_day("openai", DAY.date()).counts == {"outside": 2}
    assert [one[1] for one in found()] == ["fox-2"]


def test_snapshots_of_a_model_are_the_model() -> None:
    names = ["gpt-4o-2024-08-06", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5@20250929", "GPT-4o", "o3-mini"]
    assert list(map(plain_model, names)) == ["gpt-4o", "claude-sonnet-4-5", "claude-sonnet-4-5", "gpt-4o", "o3-mini"]


def test_metrics_and_diagnosis_tell_of_bills(key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.state for one in work.find_bills()] == [State.OK]
    logged(key, cost=Decimal(10), input_cost=Decimal(10))
    bill(usage(1), costs("15"))
    compare_day("openai", DAY.date())
    BillReading.objects.create(provider="anthropic", origin="api", finished_at=NOW, problem="HTTP status 401")
    monkeypatch.setattr(metrics.timezone, "now", lambda: NOW)
    metrics.update_metrics()
    values = {
        "gateway_bill_age_seconds": {"provider": "openai"},
        "gateway_bill_problem": {"provider": "anthropic"},
        "gateway_bill_difference_usd": {"provider": "openai", "cause": "price"},
        "gateway_bill_days_above_threshold": {"provider": "openai"},
    }
    assert [REGISTRY.get_sample_value(name, labels) for name, labels in values.items()] == [4 * 3600.0, 1.0, 5.0, 1.0]
    assert [(one.state, one.message) for one in work.find_bills()] == [
        (State.WARNING, "anthropic: HTTP status 401"),
        (State.WARNING, "openai: 1 of 7 days differ from the request log"),
    ]
    # After a week without a comparison nothing is above the threshold.
    monkeypatch.setattr(metrics.timezone, "now", lambda: NOW + timedelta(days=8))
    metrics.update_metrics()
    name = "gateway_bill_days_above_threshold"
    assert REGISTRY.get_sample_value(name, values[name]) == 0.0


def test_a_bill_of_hours_without_a_model_is_compared_by_its_sum(key: ApiKey) -> None:
    logged(key)
    bill(usage(1), costs("0.02"), costs("4", "Code interpreter"))
    made = compare_day("openai", DAY.date())
    assert (made.counts, made.difference, made.is_above) == ({"outside": 1}, Decimal(4), True)
    assert found()[0][1:3] == ("code interpreter", DAY)
