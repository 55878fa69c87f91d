"""Readings of bills: each version of a line is stored once, and a failure stores none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import override_settings

from apps.logs.models import TrafficSlot
from apps.provider_bills import readings, unbilled
from apps.provider_bills.apis import APIS, BillClient
from apps.provider_bills.models import BillLine, BillReading
from apps.provider_bills.readings import lines_in_force, read_bills
from apps.provider_bills.stated_lines import StatedLine
from apps.provider_bills.tasks import read as read_task
from tests.provider_bills.bill_server import BillServer, Scripted
from tests.provider_bills.test_apis import COMPLETIONS, COSTS, completion, cost, openai_page

NOW = datetime(2026, 11, 28, 14, 30, tzinfo=UTC)
DAY = datetime(2026, 11, 27, tzinfo=UTC)
AT = int(DAY.timestamp())
with_key = override_settings(OPENAI_ADMIN_KEY="sk-admin")
pytestmark = pytest.mark.django_db


def read(server: BillServer, now: datetime = NOW) -> list[BillReading]:
    """Read the bills whose keys are set from the scripted server."""

    def client_of(api: Any, key: str) -> BillClient:
        return server.client(api, key)

    return read_bills(now, client_of)


def stored() -> list[tuple[Any, ...]]:
    """Return all stored lines: source, model, version, input tokens, cost."""
    rows = BillLine.objects.order_by("source", "model", "version")
    return list(rows.values_list("source", "model", "version", "input_tokens", "cost"))


@with_key
def test_each_version_of_a_line_is_stored_once(server: BillServer) -> None:
    server.script(COMPLETIONS, openai_page(completion(), at=AT))
    server.script(COSTS, openai_page(cost(0.06), cost(0.01, "gpt-4o-2024-08-06, output"), at=AT, length=86_400))
    first = [
        ("cost", "gpt-4o-2024-08-06", 1, None, Decimal("0.07")),
        ("usage", "gpt-4o-2024-08-06", 1, 1000, None),
    ]
    [reading] = read(server)
    assert stored() == first
    assert (reading.provider, reading.origin, reading.lines, reading.new_lines, reading.problem) == (
        *("openai", "api", 2, 2, ""),
    )
    # From three days before today to the begin of the hour.
    assert (reading.covers_from, reading.covers_until) == (datetime(2026, 11, 25, tzinfo=UTC), NOW.replace(minute=0))
    assert [one.new_lines for one in read(server)] == [0]
    assert stored() == first
    server.script(COMPLETIONS, openai_page(completion(input_tokens=1001), at=AT))
    assert [one.new_lines for one in read(server)] == [1]
    assert stored() == [*first, ("usage", "gpt-4o-2024-08-06", 2, 1001, None)]
    in_force = lines_in_force("openai", DAY, DAY + timedelta(days=1))
    assert sorted((one.source, one.version) for one in in_force) == [("cost", 1), ("usage", 2)]


@with_key
def test_a_line_that_the_provider_withdraws_becomes_a_version_of_nothing(server: BillServer) -> None:
    server.script(COMPLETIONS, openai_page(completion(), at=AT))
    read(server)
    server.script(COMPLETIONS, openai_page(at=AT))
    assert [one.new_lines for one in read(server)] == [1]
    assert [one.new_lines for one in read(server)] == [0]
    last = BillLine.objects.get(version=2)
    assert (last.requests, last.input_tokens, last.cached_tokens, last.cache_write_tokens, last.cost) == (
        *(0, 0, 0, None, None),
    )


@with_key
def test_a_line_of_two_tiers_is_one_line(server: BillServer) -> None:
    server.script(COMPLETIONS, openai_page(completion(), completion(input_tokens=5, batch=True), at=AT))
    read(server)
    assert stored() == [("usage", "gpt-4o-2024-08-06", 1, 1005, None)]


@with_key
def test_costs_of_a_day_that_is_not_over_wait_for_its_end(server: BillServer) -> None:
    today = int(NOW.replace(hour=0, minute=0).timestamp())
    server.script(COSTS, openai_page(cost(0.06), at=today, length=86_400))
    assert [one.lines for one in read(server)] == [0]
    assert [one.lines for one in read(server, NOW + timedelta(days=1))] == [1]


@with_key
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Scripted({}, 401), f"{COMPLETIONS}: HTTP status 401"),
        (openai_page(completion(output_tokens=-1), at=AT), f"{COMPLETIONS}: output_tokens is '-1', not a whole number"),
    ],
)
def test_a_reading_that_fails_stores_no_line(server: BillServer, answer: Any, problem: str) -> None:
    server.script(COMPLETIONS, answer)
    [reading] = read(server)
    assert reading.problem.startswith(problem)
    assert (reading.covers_until, BillLine.objects.count()) == (None, 0)
    assert reading.finished_at is not None
    assert readings.current_problems() == {"openai": reading.problem}
    server.script(COMPLETIONS, openai_page(completion(), at=AT))
    read(server)
    assert readings.current_problems() == {}


@with_key
def test_a_key_is_in_no_row(server: BillServer) -> None:
    server.script(COMPLETIONS, Scripted({"error": {"message": "sk-admin"}}, 403))
    read(server)
    row = BillReading.objects.values().get()
    assert "sk-admin" not in str(row)


def test_without_keys_nothing_is_called(server: BillServer) -> None:
    assert (read(server), server.asked) == ([], [])
    read_task()
    assert BillReading.objects.count() == 0


def test_each_key_reads_its_own_provider(server: BillServer) -> None:
    keys = {"ANTHROPIC_ADMIN_KEY": "sk-ant-admin", "OPENROUTER_MANAGEMENT_KEY": "sk-or"}
    with override_settings(**keys):
        assert [one.provider for one in read(server)] == ["anthropic", "openrouter"]
    assert {one.setting for one in APIS} == {"OPENAI_ADMIN_KEY", *keys}
    # OpenRouter has whole days alone.
    assert BillReading.objects.get(provider="openrouter").covers_until == NOW.replace(hour=0, minute=0)


def test_a_line_is_never_changed(server: BillServer) -> None:
    reading = BillReading.objects.create(provider="openai", origin="api")
    readings.store(reading, [StatedLine("usage", DAY, DAY + timedelta(hours=1), "fox-1", input_tokens=1)], None)
    for change in (lambda: BillLine.objects.update(input_tokens=2), lambda: BillLine.objects.all().delete()):
        with pytest.raises(IntegrityError, match="lines of bills are never changed"), transaction.atomic():
            change()
    assert BillLine.objects.get().input_tokens == 1


@pytest.mark.django_db(transaction=True)
def test_two_readings_at_once_store_each_version_once() -> None:
    line = StatedLine("file", DAY, DAY + timedelta(hours=1), "fox-1", input_tokens=1)

    def store() -> int:
        try:
            return readings.store(BillReading.objects.create(provider="openai", origin="api"), [line], None).new_lines
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        found = sorted(one.result() for one in [pool.submit(store) for _ in range(2)])
    assert (found, BillLine.objects.count()) == ([0, 1], 1)


class TestUnbilled:
    def slot(self, hour: datetime, usd: str, provider: str = "openai") -> None:
        TrafficSlot.objects.create(
            starts_at=hour, minutes=60, aspect="provider", name=provider, requests=2, credits_cost=Decimal(usd)
        )

    @with_key
    def test_use_since_the_last_reading_waits_for_its_bill(self, server: BillServer) -> None:
        read(server)
        self.slot(NOW.replace(hour=13, minute=0), "1")
        self.slot(NOW.replace(hour=14, minute=0), "2")
        self.slot(NOW.replace(hour=15, minute=0), "3")
        self.slot(NOW.replace(hour=15, minute=0), "9", "anthropic")
        [found] = unbilled.find_unbilled(NOW + timedelta(hours=2))
        assert found == unbilled.UnbilledUse(
            *("openai", Decimal(5), 4, NOW.replace(minute=0), unbilled.API_BOUND),
        )

    @with_key
    def test_before_the_first_reading_nothing_waits_and_after_a_failed_one_its_days_do(
        self, server: BillServer
    ) -> None:
        self.slot(NOW.replace(hour=13, minute=0), "1")
        assert unbilled.find_unbilled(NOW) == []
        server.script(COMPLETIONS, Scripted({}, 401))
        read(server)
        BillReading.objects.update(started_at=NOW)
        [found] = unbilled.find_unbilled(NOW)
        assert (found.amount, found.oldest_at) == (Decimal(1), NOW.replace(hour=13, minute=0))

    def test_an_imported_bill_may_be_a_month_old(self) -> None:
        reading = BillReading.objects.create(provider="google", origin="bill.csv")
        readings.store(reading, [StatedLine("file", DAY, DAY + timedelta(hours=1), "fox-1", input_tokens=1)], None)
        self.slot(DAY + timedelta(hours=2), "1", "google")
        [found] = unbilled.find_unbilled(NOW)
        assert (found.provider, found.amount, found.bound) == ("google", Decimal(1), unbilled.FILE_BOUND)
