"""Clearing accounts and the balance sheet: every dollar in flight has its place and age, and what differs is found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from django.conf import settings
from django.utils import timezone
from prometheus_client import REGISTRY

from apps.billing import balances, ledger, reservations, worker_leases
from apps.billing.ledger import Charge
from apps.billing.reservations import SettledHold
from apps.billing.worker_leases import worker_name
from apps.gateway.metrics import BALANCE_SHEET_DIFFERENCE
from apps.gateway.models import BalanceSheet, ClearingAccount
from apps.gateway.settlement import clearing, outbox
from apps.gateway.settlement.outbox import encode
from apps.gateway.settlement.reconcile import PATIENCE
from apps.gateway.settlement.tasks import draw_balance_sheet, read_clearing
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from apps.logs.models import TrafficSlot
from apps.organizations.models import Organization
from apps.provider_bills.models import BillReading
from gateway_project.diagnosis import work
from gateway_project.diagnosis.check import State
from tests.billing.past import key, unguarded
from tests.logs.entries import entry, id_at
from tests.support.cast import World, world
from tests.support.upstream import settle_all

__all__ = ["key", "world"]
pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 15, 4, 10, tzinfo=UTC)
HELD_BOUND = timedelta(seconds=settings.UPSTREAM_TOTAL_TIMEOUT + PATIENCE)


def reserve(key: ApiKey, usd: str, admitted: datetime, *, from_credits: bool = True) -> reservations.Hold:
    """Let a request in at a moment, which holds so many USD."""
    organization = key.project.organization_id
    balances.publish_or_raise(ledger.balances_of("organization", [organization]))
    valkey().set(generation.keys_of(generation.CATALOG)[0], "c")
    valkey().set(generation.keys_of(generation.organization_scope(organization))[0], "o")
    request = reservations.ReservationRequest(
        id=id_at(admitted),
        worker=worker_name(),
        organization_id=organization,
        api_key_id=key.id,
        amount_nanos=int(Decimal(usd) * NANO),
        from_credits=from_credits,
        catalog_token="c",
        organization_token="o",
        payload="{}",
    )
    worker_leases.send_heartbeat(request.worker)
    found = reservations.reserve(request)
    assert found.hold is not None
    return found.hold


def answer(key: ApiKey, hold: reservations.Hold, usd: str) -> None:
    """Push the record of a request that cost so many USD, as the recorder does."""
    cost, identifier = Decimal(usd), UUID(hold.id)
    charge = Charge(key.project.organization_id, key.id, identifier, -cost, cost)
    settled: SettledHold = reservations.reduce_to_cost(hold, charge)
    record = entry(key, id=identifier, cost=cost, input_cost=cost)
    outbox.push(hold.worker, encode(record), settled)


def accounts(now: datetime = NOW) -> dict[str, tuple[Decimal, int, datetime | None, bool]]:
    """Return each account: amount, items, the oldest, and whether it is overdue."""
    return {one.name: (one.amount, one.items, one.oldest_at, one.is_overdue) for one in clearing.read_accounts(now)}


EMPTY = (Decimal(0), 0, None, False)


def test_money_goes_from_held_to_answered_to_the_ledger(key: ApiKey) -> None:
    assert accounts() == {"held": EMPTY, "answered": EMPTY, "batches": EMPTY}
    first, second = NOW - timedelta(minutes=2), NOW - timedelta(minutes=1)
    hold = reserve(key, "0.5", first)
    reserve(key, "0.25", second)
    assert accounts()["held"] == (Decimal("0.75"), 2, first, False)
    answer(key, hold, "0.125")
    assert accounts() == {
        "held": (Decimal("0.25"), 1, second, False),
        "answered": (Decimal("0.125"), 1, first, False),
        "batches": EMPTY,
    }
    assert settle_all() == 1
    assert accounts() == {"held": (Decimal("0.25"), 1, second, False), "answered": EMPTY, "batches": EMPTY}


def test_a_request_that_holds_no_credits_counts_without_an_amount(key: ApiKey) -> None:
    reserve(key, "0.5", NOW, from_credits=False)
    assert accounts()["held"] == (Decimal(0), 1, NOW, False)


def test_an_account_with_an_item_older_than_its_bound_is_overdue(key: ApiKey) -> None:
    hold = reserve(key, "0.5", NOW)
    assert accounts(NOW + HELD_BOUND)["held"][3] is False
    assert accounts(NOW + HELD_BOUND + timedelta(seconds=1))["held"][3] is True
    answer(key, hold, "0.5")
    late = accounts(NOW + HELD_BOUND + timedelta(seconds=1))
    assert (late["held"], late["answered"][3]) == (EMPTY, True)


def test_a_hold_for_a_batch_counts_until_it_is_released(key: ApiKey) -> None:
    owner, now = key.project.organization_id, timezone.now()
    reference = new_id()
    ledger.hold(reference, owner, key.id, credits=Decimal(2), usage=Decimal(2))
    amount, items, oldest, overdue = accounts(now)["batches"]
    assert (amount, items, overdue) == (Decimal(2), 1, False)
    assert oldest is not None
    assert accounts(oldest + timedelta(days=4, hours=1, seconds=1))["batches"][3] is True
    sheet = clearing.draw_sheet()
    assert (sheet.batches, sheet.ledger_difference) == (Decimal(2), 0)
    ledger.give_back([reference])
    assert accounts(now)["batches"] == EMPTY
    sheet = clearing.draw_sheet()
    assert (sheet.batches, sheet.is_balanced) == (Decimal(0), True)


def test_holds_for_batches_are_looked_for_thirty_days_back(key: ApiKey) -> None:
    owner, now = key.project.organization_id, timezone.now()
    for days in (29, 31):
        ledger.hold(id_at(now - timedelta(days=days)), owner, key.id, credits=Decimal(days), usage=Decimal(0))
    assert accounts(now)["batches"][:2] == (Decimal(29), 1)


def test_use_without_its_bill_is_an_account_of_its_provider(key: ApiKey) -> None:
    BillReading.objects.create(
        provider="openai", origin="bill.csv", finished_at=NOW, covers_from=NOW - timedelta(days=1), covers_until=NOW
    )
    hour = NOW.replace(minute=0) + timedelta(hours=1)
    TrafficSlot.objects.create(
        starts_at=hour, minutes=60, aspect="provider", name="openai", requests=3, credits_cost=Decimal("1.5")
    )
    assert accounts(hour)["unbilled openai"] == (Decimal("1.5"), 3, hour, False)
    assert accounts(hour + timedelta(days=33))["unbilled openai"][3] is False
    assert accounts(hour + timedelta(days=33, seconds=1))["unbilled openai"][3] is True


def test_an_account_that_is_gone_is_not_shown(key: ApiKey) -> None:
    ClearingAccount.objects.create(name="unbilled gone", bound=1, read_at=NOW)
    read_clearing()
    assert sorted(ClearingAccount.objects.values_list("name", flat=True)) == ["answered", "batches", "held"]


def test_the_sheet_sums_to_the_ledger(key: ApiKey, world: World) -> None:
    hold = reserve(key, "0.5", NOW)
    reserve(key, "0.25", NOW)
    answer(key, reserve(key, "1", NOW), "0.75")
    assert settle_all() == 1
    answer(key, hold, "0.125")
    sheet = clearing.draw_sheet()
    amounts = {name: getattr(sheet, name) for name in ("received", "used", "batches", "deleted", "credits")}
    assert amounts == {
        "received": Decimal(10),
        "used": Decimal("0.75"),
        "batches": Decimal(0),
        "deleted": Decimal(0),
        "credits": Decimal("9.25"),
    }
    assert (sheet.held, sheet.answered, sheet.available) == (Decimal("0.25"), Decimal("0.125"), Decimal("8.875"))
    assert (sheet.ledger_difference, sheet.holds_difference, sheet.is_balanced) == (0, 0, True)


def test_entries_of_an_organization_without_a_row_are_told_apart(key: ApiKey) -> None:
    ledger.charge([Charge(new_id(), new_id(), new_id(), Decimal(-3), Decimal(3))])
    sheet = clearing.draw_sheet()
    assert (sheet.used, sheet.deleted, sheet.credits, sheet.is_balanced) == (Decimal(3), Decimal(-3), Decimal(10), True)


def test_credits_that_the_ledger_does_not_have_unbalance_the_sheet(key: ApiKey, world: World) -> None:
    Organization.objects.filter(pk=world.acme.pk).update(credits=Decimal("10.000000000001"))
    sheet = clearing.draw_sheet()
    assert (sheet.ledger_difference, sheet.is_balanced) == (Decimal("-0.000000000001"), False)


def test_an_entry_that_is_gone_unbalances_the_sheet(key: ApiKey) -> None:
    unguarded("DELETE FROM billing_ledgerentry")
    assert clearing.draw_sheet().ledger_difference == Decimal(-10)


def test_what_is_overdue_or_unbalanced_is_an_error_in_the_log(
    key: ApiKey, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    reserve(key, "0.5", NOW)
    clearing.read_accounts(NOW + HELD_BOUND)
    clearing.draw_sheet()
    assert "clearing." not in caplog.text
    clearing.read_accounts(NOW + HELD_BOUND + timedelta(seconds=1))
    Organization.objects.filter(pk=world.acme.pk).update(credits=Decimal(12))
    clearing.draw_sheet()
    told = [one.msg for one in caplog.records if isinstance(one.msg, dict) and one.levelname == "ERROR"]
    assert [one["event"] for one in told] == ["clearing.overdue", "clearing.unbalanced"]
    assert (told[0]["account"], told[1]["ledger_difference"]) == ("held", "-2.000000000000")


def test_an_amount_that_stays_held_unbalances_the_sheet(key: ApiKey, world: World) -> None:
    reserve(key, "0.5", NOW)
    valkey().hincrby(balances.key("organization", world.acme.id), "held", 3)
    sheet = clearing.draw_sheet()
    assert (sheet.ledger_difference, sheet.holds_difference) == (0, Decimal("-0.000000003"))


def test_metrics_and_diagnosis_tell_of_money_in_flight(key: ApiKey, world: World) -> None:
    assert [(one.state, one.message) for one in work.find_clearing()] == [
        (State.OK, "no balance sheet yet; the first one is drawn when worker and beat run")
    ]
    reserve(key, "0.5", NOW)
    clearing.read_accounts(NOW + timedelta(minutes=1))
    draw_balance_sheet()
    assert [(one.state, one.message) for one in work.find_clearing()] == [
        (State.OK, "0.5 USD in flight, the balance sheet agrees")
    ]
    clearing.read_accounts(NOW + HELD_BOUND + timedelta(minutes=1))
    Organization.objects.filter(pk=world.acme.pk).update(credits=Decimal(12))
    draw_balance_sheet()
    assert [(one.state, one.message) for one in work.find_clearing()] == [
        (State.WARNING, "held: older than allowed"),
        (State.ERROR, "the ledger differs from credits by -2 USD, held amounts from holds by 0 USD"),
    ]
    for side in ("ledger", "holds"):
        BALANCE_SHEET_DIFFERENCE.labels(side).set(99)
    BalanceSheet.objects.update(drawn_at=timezone.now() - timedelta(minutes=5))
    clearing.update_metrics()
    assert REGISTRY.get_sample_value("gateway_balance_sheet_age_seconds") == pytest.approx(300, abs=60)
    assert REGISTRY.get_sample_value("gateway_balance_sheet_difference_usd", {"side": "holds"}) == 0.0
    held = {"account": "held"}
    assert [
        REGISTRY.get_sample_value(f"gateway_clearing_{name}", held)
        for name in ("amount_usd", "items", "age_seconds", "overdue")
    ] == [0.5, 1.0, HELD_BOUND.total_seconds() + 60, 1.0]
    difference = REGISTRY.get_sample_value("gateway_balance_sheet_difference_usd", {"side": "ledger"})
    assert (difference, BalanceSheet.objects.count()) == (-2.0, 2)


def test_metrics_of_an_account_that_is_gone_are_at_0(key: ApiKey) -> None:
    gone, names = {"account": "unbilled gone"}, ("amount_usd", "items", "age_seconds", "overdue")

    def shown() -> list[float | None]:
        clearing.update_metrics()
        return [REGISTRY.get_sample_value(f"gateway_clearing_{name}", gone) for name in names]

    ClearingAccount.objects.create(
        name="unbilled gone", amount=3, items=2, bound=1, oldest_at=NOW - timedelta(seconds=9), read_at=NOW
    )
    assert shown() == [3.0, 2.0, 9.0, 1.0]
    clearing.read_accounts(NOW)
    assert shown() == [0.0, 0.0, 0.0, 0.0]


def test_a_sheet_of_the_future_has_no_age(key: ApiKey) -> None:
    clearing.draw_sheet()
    BalanceSheet.objects.update(drawn_at=timezone.now() + timedelta(minutes=5))
    clearing.update_metrics()
    assert REGISTRY.get_sample_value("gateway_balance_sheet_age_seconds") == 0.0
