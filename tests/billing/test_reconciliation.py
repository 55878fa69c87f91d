"""The nightly reconciliation of log and ledger: it finds every difference planted, and none where there is none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from msgspec.structs import replace

from apps.billing import ledger
from apps.billing.ledger import Charge
from apps.gateway.models import Reconciliation
from apps.gateway.settlement import outbox
from apps.gateway.settlement import reconcile as nightly
from apps.gateway.settlement.outbox import encode
from apps.gateway.settlement.settle import settle
from apps.keys.models import ApiKey
from apps.logs import archive, partitions, writer
from apps.logs.models import LogRetention, RequestLog
from apps.organizations.models import Organization
from tests.billing.past import NOTHING, NOW, YESTERDAY, at_once, found, key, redate, settled, unguarded
from tests.logs.entries import entry, id_at
from tests.support.cast import World

__all__ = ["at_once", "key"]


def test_where_all_agrees_nothing_is_found(world: World, key: ApiKey) -> None:
    for moment in (YESTERDAY, YESTERDAY.replace(hour=0), YESTERDAY.replace(hour=23, minute=59, second=59)):
        settled(key, moment, used_mode="credits")
        settled(key, moment, used_mode="api-keys")
        settled(key, moment, cost="0")
    run = nightly.reconcile(NOW)
    assert (run.counts, run.compared, run.days) == (NOTHING, 6, ["2026-03-14"])
    assert (found(run), run.found) == ([], 0)
    assert run.finished_at is not None
    kept = Reconciliation.objects.get()
    assert (kept.counts, kept.compared, kept.days, kept.finished_at) == (NOTHING, 6, ["2026-03-14"], run.finished_at)


def test_a_row_that_was_not_charged(world: World, key: ApiKey) -> None:
    lost = settled(key)
    settled(key)
    unguarded("DELETE FROM billing_ledgerentry WHERE reference = %s", lost.id)
    run = nightly.reconcile(NOW)
    assert found(run) == [
        ("not_charged", lost.id, "0.25", "nothing"),
        ("credits", world.acme.id, "9.75", "9.5"),
        ("usage", key.id, "0.25", "0.5"),
    ]
    assert run.counts == {**NOTHING, "not_charged": 1, "credits": 1, "usage": 1}


def test_a_charge_that_has_no_row(world: World, key: ApiKey) -> None:
    lost = settled(key)
    RequestLog.objects.filter(id=lost.id).delete()
    run = nightly.reconcile(NOW)
    assert found(run) == [("not_logged", lost.id, "nothing", "0.25")]


@pytest.mark.parametrize(
    "change",
    [
        "usage = usage + 0.000000000001",
        "credits = credits - 0.000000000001",
        "credits = 0",
        "organization_id = '01900000-0000-7000-8000-000000000000'",
        "api_key_id = '01900000-0000-7000-8000-000000000000'",
    ],
)
def test_a_charge_of_another_amount_mode_or_payer(world: World, key: ApiKey, change: str) -> None:
    wrong = settled(key)
    unguarded(f"UPDATE billing_ledgerentry SET {change} WHERE reference = %s", wrong.id)
    run = nightly.reconcile(NOW)
    assert [(kind, subject) for kind, subject, _, _ in found(run) if kind == "amount"] == [("amount", wrong.id)]


def test_a_charge_in_the_wrong_mode(world: World, key: ApiKey) -> None:
    own = settled(key, used_mode="api-keys")
    unguarded("UPDATE billing_ledgerentry SET credits = -usage WHERE reference = %s", own.id)
    assert nightly.reconcile(NOW).counts["amount"] == 1


def test_a_cost_that_is_not_the_sum_of_its_parts(world: World, key: ApiKey) -> None:
    wrong = settled(key)
    RequestLog.objects.filter(id=wrong.id).update(output_cost=Decimal("0.000000000001"))
    assert found(nightly.reconcile(NOW)) == [("parts", wrong.id, "0.250000000001", "0.25")]


def test_what_keeping_the_data_costs_is_compared_as_well(world: World, key: ApiKey) -> None:
    """Storage is paid from the credits, even with an organization's own credential, and is no usage of the key."""
    stored = settled(key, used_mode="api-keys", data_storage_cost=Decimal("0.00001"))
    settled(key, data_storage_cost=Decimal("0.00002"))
    assert nightly.reconcile(NOW).counts == NOTHING
    RequestLog.objects.filter(id=stored.id).update(data_storage_cost=Decimal("0.00003"))
    assert found(nightly.reconcile(NOW)) == [("amount", stored.id, "0.00003", "0.00001")]
    RequestLog.objects.filter(id=stored.id).update(data_storage_cost=None)
    assert found(nightly.reconcile(NOW)) == [("not_logged", stored.id, "nothing", "0.00001")]


# --- not a difference


def test_a_late_record_is_looked_at_with_its_own_day(world: World, key: ApiKey) -> None:
    """A spool that comes back after a week: its day is compared again, and nothing is missing."""
    week = YESTERDAY - timedelta(days=7)
    settled(key, week)
    run = nightly.reconcile(NOW)
    assert run.days == ["2026-03-14"]
    late = settled(key, week)
    redate(late.id, NOW - timedelta(hours=1))
    run = nightly.reconcile(NOW)
    assert (run.days, run.compared, run.counts) == (["2026-03-07", "2026-03-14"], 2, NOTHING)
    RequestLog.objects.filter(id=late.id).update(cost=Decimal(9), input_cost=Decimal(9))
    assert nightly.reconcile(NOW).counts == {**NOTHING, "amount": 1}


def test_what_retention_removed_is_not_missing(world: World, key: ApiKey) -> None:
    """Entries of days that the shortest retention no longer keeps have no rows, rightly."""
    late = settled(key, NOW - timedelta(days=5))
    redate(late.id, NOW)
    RequestLog.objects.filter(id=late.id).delete()
    run = nightly.reconcile(NOW)
    assert (run.days, run.counts) == (["2026-03-10", "2026-03-14"], NOTHING)


def test_an_organization_that_keeps_its_log_for_a_day_has_lost_nothing(world: World, key: ApiKey) -> None:
    gone = settled(key, YESTERDAY.replace(hour=1))
    RequestLog.objects.filter(id=gone.id).delete()
    LogRetention.objects.create(organization=world.acme, days=1)
    assert nightly.reconcile(NOW).counts == NOTHING


def test_a_deleted_organization_has_lost_nothing(world: World, key: ApiKey) -> None:
    gone = settled(key)
    RequestLog.objects.filter(id=gone.id).delete()
    Organization.objects.filter(pk=world.acme.pk).update(status=Organization.Status.DELETED)
    assert nightly.reconcile(NOW).counts == NOTHING


def test_a_dropped_day_is_no_difference(world: World, key: ApiKey) -> None:
    old = settled(key, NOW - timedelta(days=100))
    redate(old.id, NOW)
    partitions.drop_before((NOW - timedelta(days=99)).date())
    assert nightly.reconcile(NOW).counts == NOTHING


def test_the_days_edges_are_utcs(world: World, key: ApiKey) -> None:
    """A row of the day before and one of today are not yesterday's."""
    settled(key, datetime(2026, 3, 13, 23, 59, 59, 999_000, tzinfo=UTC))
    settled(key, datetime(2026, 3, 15, 0, 0, tzinfo=UTC))
    settled(key, datetime(2026, 3, 14, 0, 0, tzinfo=UTC))
    tokyo = NOW.astimezone(datetime.fromisoformat("2026-03-15T00:00+09:00").tzinfo)
    run = nightly.reconcile(tokyo)
    assert (run.days, run.compared, run.counts) == (["2026-03-14"], 1, NOTHING)


def test_days_that_the_log_has_moved_elsewhere_are_not_compared(
    world: World, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = archive.archived_before(NOW).date()
    days = [here - timedelta(days=94), here - timedelta(days=1), here]
    for day in days:
        late = settled(key, datetime.combine(day, time(12), UTC))
        redate(late.id, NOW)
    assert nightly.days_to_compare(NOW) == [*days, YESTERDAY.date()]
    monkeypatch.setattr(archive, "find_archive", object)
    assert nightly.days_to_compare(NOW) == [here, YESTERDAY.date()]


@pytest.mark.parametrize(("clock", "missing"), [(time(22, 59, 59), 1), (time(23), 0)])
def test_a_row_may_go_an_hour_before_its_retention_has_ended(
    world: World, key: ApiKey, clock: time, missing: int
) -> None:
    gone = settled(key)
    RequestLog.objects.filter(id=gone.id).delete()
    LogRetention.objects.create(organization=world.acme, days=2)
    run = nightly.reconcile(datetime.combine(NOW.date(), clock, UTC))
    assert (run.days, run.counts) == (["2026-03-14"], {**NOTHING, "not_logged": missing})


def test_a_row_that_the_sweeper_wrote_and_its_worker_replaced(world: World, key: ApiKey) -> None:
    made = entry(key, id=id_at(YESTERDAY), cost=Decimal("0.25"), input_cost=Decimal("0.25"))
    outbox.push("dead", encode(replace(made, cost=None, input_cost=None, swept=True)))
    outbox.push("dead", encode(made))
    settle(outbox.read_batch("test", 1, 1))
    settle(outbox.read_batch("test", 1, 1))
    redate(made.id, YESTERDAY)
    run = nightly.reconcile(NOW)
    assert (run.compared, run.counts) == (1, NOTHING)


@pytest.mark.django_db(transaction=True)
def test_a_batch_that_is_being_settled_is_seen_whole_or_not_at_all(world: World, key: ApiKey) -> None:
    """Asked from another connection between the row and its charge: there is neither yet."""
    made = entry(key, id=id_at(YESTERDAY), cost=Decimal("0.25"), input_cost=Decimal("0.25"))
    partitions.ensure([YESTERDAY.date()])

    def ask() -> Reconciliation:
        try:
            return nightly.reconcile(NOW)
        finally:
            connection.close()

    with transaction.atomic(), ThreadPoolExecutor(1) as other:
        writer.write([made])
        assert other.submit(ask).result(30).counts == NOTHING
        ledger.charge([Charge(world.acme.id, key.id, made.id, Decimal("-0.25"), Decimal("0.25"))])
        assert other.submit(ask).result(30).counts == NOTHING
