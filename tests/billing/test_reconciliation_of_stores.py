"""The nightly reconciliation of balances, holds and queues, and what becomes of what it finds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.billing import balances, ledger, reconciliation, reservations, worker_leases
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.billing.worker_leases import worker_name
from apps.gateway.metrics import RECONCILED_AGO, RECONCILED_DIFFERENCES
from apps.gateway.models import Difference, Reconciliation
from apps.gateway.settlement import dead_letters, outbox
from apps.gateway.settlement import reconcile as nightly
from apps.gateway.settlement.settle import settle
from apps.gateway.settlement.tasks import reconcile
from apps.kernel.ids import new_id, time_of
from apps.kernel.money import NANO, plain
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.organizations.actions import create_operator
from tests.billing.past import NOTHING, NOW, at_once, found, key, settled, unguarded
from tests.logs.entries import id_at
from tests.support.cast import PASSWORD, World
from tests.support.upstream import Caller, settle_all

__all__ = ["at_once", "key"]


@pytest.fixture
def reserved(key: ApiKey) -> UUID:
    """A request of the key's that holds 0.5 USD of Acme's credits, let in five hours ago."""
    organization = key.project.organization_id
    balances.publish_or_raise(ledger.balances_of("organization", [organization]))
    valkey().set(generation.keys_of(generation.CATALOG)[0], "c")
    valkey().set(generation.keys_of(generation.organization_scope(organization))[0], "o")
    request = reservations.ReservationRequest(
        id=id_at(NOW - timedelta(hours=5)),
        worker=worker_name(),
        organization_id=organization,
        api_key_id=key.id,
        amount_nanos=NANO // 2,
        from_credits=True,
        catalog_token="c",
        organization_token="o",
        payload="{}",
    )
    worker_leases.send_heartbeat(request.worker)
    assert reservations.reserve(request).outcome is reservations.ReservationOutcome.HELD
    return request.id


def test_a_request_that_was_never_recorded(world: World, reserved: UUID) -> None:
    assert found(nightly.reconcile(NOW)) == [("open", reserved, "0", "0.5")]
    assert Difference.objects.get().organization_id == world.acme.id
    # A request that may still be answered is no loss yet.
    assert nightly.reconcile(NOW - timedelta(hours=4)).counts["open"] == 0
    reservations.release([(worker_name(), reserved)], 0)
    assert nightly.reconcile(NOW).counts == NOTHING


def test_a_request_is_missing_an_hour_after_the_longest_answer(reserved: UUID) -> None:
    ends = NOW - timedelta(hours=5) + timedelta(seconds=settings.UPSTREAM_TOTAL_TIMEOUT + nightly.PATIENCE)
    assert nightly.reconcile(ends).counts["open"] == 0
    assert nightly.reconcile(ends + timedelta(seconds=1)).counts["open"] == 1


def test_what_is_held_by_nobody(world: World, reserved: UUID) -> None:
    name = balances.key("organization", world.acme.id)
    valkey().hincrby(name, "held", 3)
    assert list(reconciliation.compare_holds()) == [
        reconciliation.AmountMismatch("held", world.acme.id, world.acme.id, "0.5", "0.500000003")
    ]
    valkey().hincrby(name, "held", -3)
    assert list(reconciliation.compare_holds()) == []
    valkey().delete(reservations.notes_key(worker_name(), 0))
    assert list(reconciliation.compare_holds()) == [
        reconciliation.AmountMismatch("held", world.acme.id, world.acme.id, "0", "0.5")
    ]


def test_a_copy_that_is_behind_is_told_and_moved_on(world: World, key: ApiKey) -> None:
    name = balances.key("organization", world.acme.id)
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    assert nightly.reconcile(NOW).counts == NOTHING
    ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal("-0.5"), Decimal("0.5"))])
    assert found(nightly.reconcile(NOW)) == [("copy", world.acme.id, "9.5", "10")]
    assert valkey().hget(name, "amount") == str(int(Decimal("9.5") * NANO))
    assert nightly.reconcile(NOW).counts == NOTHING


def test_a_copy_that_is_ahead_or_says_something_else(world: World, key: ApiKey) -> None:
    (true,) = ledger.balances_of("organization", [world.acme.id])
    balances.publish_or_raise([Balance("organization", world.acme.id, Decimal(11), true.version + 1)])
    assert found(nightly.reconcile(NOW)) == [("copy", world.acme.id, "10", "11")]
    valkey().hset(balances.key("organization", world.acme.id), mapping={"amount": 5, "version": true.version})
    assert found(nightly.reconcile(NOW)) == [("copy", world.acme.id, "10", plain(Decimal(5) / NANO))]


def test_a_copy_of_what_no_longer_exists_is_nobodys(world: World, key: ApiKey) -> None:
    balances.publish_or_raise(
        [Balance("organization", new_id(), Decimal(1), 1), Balance("key", new_id(), Decimal(1), 1)]
    )
    assert nightly.reconcile(NOW).counts == NOTHING


def test_a_copy_that_moved_meanwhile_is_being_settled(
    world: World, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal("-0.5"), Decimal("0.5"))])
    (halfway,) = ledger.balances_of("organization", [world.acme.id])

    def meanwhile(_: float) -> None:
        ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal("-0.5"), Decimal("0.5"))])
        balances.publish_or_raise([halfway])

    monkeypatch.setattr(reconciliation.time, "sleep", meanwhile)
    assert list(reconciliation.compare_copies()) == []


def test_records_that_wait_and_records_that_nobody_can_read(
    world: World, key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    valkey().xadd(outbox.STREAMS[0], {"worker": "w", "record": "not a record"}, id="1000-0")
    ((kind, _, expected, told),) = found(nightly.reconcile(NOW))
    assert (kind, expected, told.startswith("1 records, the oldest for ")) == ("waiting", "0 records", True)
    settle(outbox.read_batch("test", 10, 1))
    assert found(nightly.reconcile(NOW)) == [("unreadable", None, "0 records", "1 records")]
    assert valkey().xlen(dead_letters.STREAMS[0]) == 1


@pytest.mark.parametrize(
    ("age", "expected"),
    [(3_600.0, []), (3_601.0, [("waiting", None, "0 records", "3 records, the oldest for 3601 s")])],
)
def test_records_that_wait_for_more_than_an_hour_are_told(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch, age: float, expected: list[object]
) -> None:
    monkeypatch.setattr(outbox, "depth", lambda: (3, age))
    assert found(nightly.reconcile(NOW)) == expected


@pytest.mark.django_db
def test_what_is_longer_than_its_column_is_cut() -> None:
    run = Reconciliation.objects.create()
    nightly._keep(run, nightly.FoundDifference("waiting", None, None, "e" * 65, "f" * 65))
    assert found(run) == [("waiting", None, "e" * 64, "f" * 64)]


@pytest.mark.django_db
def test_a_run_of_the_future_has_no_age() -> None:
    Reconciliation.objects.create(finished_at=timezone.now() + timedelta(hours=1))
    RECONCILED_AGO.set(7)
    nightly.update_metrics()
    assert RECONCILED_AGO._value.get() == 0


@pytest.mark.django_db
def test_metrics_are_those_of_the_last_run_that_came_to_its_end() -> None:
    RECONCILED_AGO.set(7)
    for kind in ("open", "amount"):
        RECONCILED_DIFFERENCES.labels(kind).set(99)

    def shown() -> tuple[float, float]:
        nightly.update_metrics()
        return tuple(RECONCILED_DIFFERENCES.labels(kind)._value.get() for kind in ("open", "amount"))

    assert (shown(), RECONCILED_AGO._value.get()) == ((99, 99), 7)
    now = timezone.now()
    for minutes, counts in ((90, {"open": 5}), (2, {"open": 2}), (None, {})):
        finished = None if minutes is None else now - timedelta(minutes=minutes)
        Reconciliation.objects.create(days=[], counts=counts, compared=1, finished_at=finished)
    assert shown() == (2, 0)
    assert RECONCILED_AGO._value.get() == pytest.approx(120, abs=60)


# --- all of it


def test_what_the_gateway_did_today_agrees_tomorrow(caller: Caller) -> None:
    """Real requests of every outcome: paid, empty, failed, estimated; and one whose settler has stopped."""
    ledger.grant(caller.organization_id, Decimal(1), "")
    unguarded(
        "INSERT INTO billing_ledgerentry (id, kind, reference, organization_id, credits, usage, created_at) "
        "VALUES (%s, 'gift', %s, %s, 100, 0, now())",
        new_id(),
        new_id(),
        caller.organization_id,
    )
    for script in ("usage=1000,200", "empty", "status=500", "no-usage", "usage=1000,200,300"):
        caller.chat(f"hi [[sandbox {script}]]")
    settle_all()
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    run = nightly.reconcile(tomorrow)
    assert (run.counts, run.compared) == (NOTHING, 3)
    caller.chat("hi [[sandbox usage=1000,200]]")
    assert nightly.reconcile(tomorrow).counts["open"] == 1, "answered, and not settled for a day"
    settle_all()
    assert nightly.reconcile(tomorrow).counts == NOTHING


def test_the_task_keeps_its_run_and_the_metrics_show_it(world: World, key: ApiKey) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    lost = settled(key, yesterday)
    RequestLog.objects.filter(id=lost.id).delete()
    reconcile()
    kept = Reconciliation.objects.get()
    assert (kept.counts, kept.compared, kept.finished_at is not None) == ({**NOTHING, "not_logged": 1}, 0, True)
    nightly.update_metrics()
    shown = {kind: RECONCILED_DIFFERENCES.labels(kind)._value.get() for kind in NOTHING}
    assert shown == {**NOTHING, "not_logged": 1}
    assert 0 <= RECONCILED_AGO._value.get() < 60
    Reconciliation.objects.create(counts={"open": 5})
    nightly.update_metrics()
    assert RECONCILED_DIFFERENCES.labels("open")._value.get() == 0, "a run that did not finish says nothing"


def test_more_than_can_be_kept_is_counted(world: World, key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "MAX_KEPT", 2)
    for _ in range(3):
        settled(key)
    unguarded("DELETE FROM billing_ledgerentry WHERE kind = 'usage'")
    run = nightly.reconcile(NOW)
    assert run.counts["not_charged"] == 3
    assert [kind for kind, *_ in found(run)].count("not_charged") == 2


def test_operators_see_it_and_change_nothing(world: World, key: ApiKey) -> None:
    lost = settled(key)
    RequestLog.objects.filter(id=lost.id).delete()
    nightly.reconcile(NOW)
    operator = Client()
    operator.force_login(create_operator(email="op@example.com", password=PASSWORD))
    page = operator.get(reverse("admin:gateway_difference_changelist"), {"q": str(lost.id)})
    assert page.status_code == 200
    assert b"a ledger entry has no log row" in page.content
    assert operator.get(reverse("admin:gateway_reconciliation_changelist")).status_code == 200
    assert operator.get(reverse("admin:gateway_difference_add")).status_code == 403
    one = Difference.objects.get()
    assert operator.post(reverse("admin:gateway_difference_delete", args=[one.pk])).status_code == 403
    assert Difference.objects.count() == 1


# --- exact amounts


def test_requests_of_before_a_moment_are_unrecorded(world: World, reserved: UUID) -> None:
    admitted = time_of(reserved)
    assert list(reconciliation.find_unrecorded_requests(admitted)) == []
    later = admitted + timedelta(milliseconds=1)
    assert list(reconciliation.find_unrecorded_requests(later)) == [
        reconciliation.AmountMismatch("open", reserved, world.acme.id, "0", "0.5")
    ]


def test_open_holds_are_those_of_requests_in_progress_and_of_answered_ones(
    world: World, key: ApiKey, reserved: UUID
) -> None:
    admitted, name = time_of(reserved), balances.key("organization", world.acme.id)
    none = reconciliation.OpenHolds(Decimal(0), 0, None)
    assert reconciliation.read_open_holds() == (reconciliation.OpenHolds(Decimal("0.5"), 1, admitted), none)
    # An older one that is answered, a younger one, and one that holds on the key alone.
    for hours, note in (
        (7, reservations.Note(amount=str(NANO // 4), holds=(name, balances.key("key", key.id)))),
        (6, reservations.Note(amount=str(NANO), holds=(balances.key("key", key.id),))),
        (4, reservations.Note(amount=str(NANO // 8), holds=(name,), payload="{}")),
    ):
        identifier = str(id_at(NOW - timedelta(hours=hours)))
        valkey().hset(reservations.notes_key(worker_name(), 0), identifier, msgspec.json.encode(note).decode())
    assert reconciliation.read_open_holds() == (
        reconciliation.OpenHolds(Decimal("0.625"), 2, admitted),
        reconciliation.OpenHolds(Decimal("0.25"), 2, NOW - timedelta(hours=7)),
    )
    valkey().delete(reservations.notes_key(worker_name(), 0))
    assert reconciliation.read_open_holds() == (none, none)


def test_what_holds_differ_by_is_of_credits_alone(world: World, key: ApiKey, reserved: UUID) -> None:
    balances.publish_or_raise(ledger.balances_of("key", [key.id]))
    names = balances.key("organization", world.acme.id), balances.key("key", key.id, world.acme.id)
    assert reconciliation.find_holds_difference() == 0
    for name in names:
        valkey().hincrby(name, "held", NANO)
    assert sorted(reconciliation.compare_holds(), key=lambda one: one.found) == [
        reconciliation.AmountMismatch("held", key.id, None, "0", "1"),
        reconciliation.AmountMismatch("held", world.acme.id, world.acme.id, "0.5", "1.5"),
    ]
    assert reconciliation.find_holds_difference() == -1


def test_a_copy_of_a_keys_usage_is_no_organizations(world: World, key: ApiKey) -> None:
    balances.publish_or_raise(ledger.balances_of("key", [key.id]) + ledger.balances_of("organization", [world.acme.id]))
    ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal("-0.5"), Decimal("0.5"))])
    assert set(reconciliation.compare_copies()) == {
        reconciliation.AmountMismatch("copy", key.id, None, "0.5", "0"),
        reconciliation.AmountMismatch("copy", world.acme.id, world.acme.id, "9.5", "10"),
    }
    assert list(reconciliation.compare_copies()) == []


def test_balances_that_the_ledger_contradicts(world: World, key: ApiKey) -> None:
    assert list(reconciliation.compare_balances_with_ledger()) == []
    type(world.acme).objects.filter(pk=world.acme.pk).update(credits=Decimal(9))
    ApiKey.objects.filter(pk=key.pk).update(usage=Decimal(2))
    assert list(reconciliation.compare_balances_with_ledger()) == [
        reconciliation.AmountMismatch("credits", world.acme.id, world.acme.id, "10", "9"),
        reconciliation.AmountMismatch("usage", key.id, None, "0", "2"),
    ]


def test_a_hold_that_its_balance_has_lost_is_found(world: World, reserved: UUID) -> None:
    valkey().hset(balances.key("organization", world.acme.id), "held", 0)
    assert list(reconciliation.compare_holds()) == [
        reconciliation.AmountMismatch("held", world.acme.id, world.acme.id, "0.5", "0")
    ]
    assert reconciliation.find_holds_difference() == Decimal("0.5")


def test_a_hold_that_changed_since_it_was_read_is_compared_again(
    world: World, reserved: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This name has no id, so there is no balance that it might be a copy of.
    valkey().hset("balance:organization:none", "held", 5)
    monkeypatch.setattr(reconciliation, "read_fields", lambda names, *_: [["7"] for _ in names])
    assert list(reconciliation.compare_holds()) == []
