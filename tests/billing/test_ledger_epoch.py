"""A store that comes back older than it was: what its copies and versions say then no longer counts."""
# length: one fault, a store that comes back older, in all of its forms.

# length: every way in which a store comes back older; they share what tells.
from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from io import StringIO
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from redis.exceptions import ConnectionError as RedisConnectionError

from apps.billing import balance_copies, balances, ledger, reservations
from apps.billing.balance_copies import LedgerWatch
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEpoch
from apps.billing.reservations import ReservationOutcome, ReservationRequest
from apps.billing.worker_leases import worker_name
from apps.gateway.settlement import outbox
from apps.kernel.ids import new_id
from apps.kernel.money import NANO
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import ServerState
from apps.kernel.valkey.redis import client as valkey
from tests.support.cast import World
from tests.support.upstream import Caller, settle_all


def said(*command: str) -> str:
    output = StringIO()
    call_command(*command, stdout=output)
    return output.getvalue()


def copy_of(organization: UUID) -> tuple[str | None, ...]:
    """Return a copy's amount, version and epoch."""
    return tuple(valkey().hmget(balances.key("organization", organization), "amount", "version", "epoch"))


def truth_of(organization: UUID) -> tuple[str, ...]:
    (true,) = ledger.balances_of("organization", [organization])
    return (str(true.nanos), str(true.version), str(true.epoch))


def restore(organization: UUID, credits: str, version: int) -> None:
    """Return the database to an earlier state and tell the copies nothing, as restoring a backup does."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE organizations_organization SET credits = %s, credits_version = %s WHERE id = %s",
            [credits, version, organization],
        )


@pytest.fixture
def known(world: World) -> UUID:
    """An organization with 10 USD as of version 7, as its copy knows, and which moved last."""
    restore(world.acme.id, "9", 6)
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    restore(world.acme.id, "10", 7)
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    assert copy_of(world.acme.id) == truth_of(world.acme.id)
    return world.acme.id


def reserve(organization: UUID, nanos: int) -> reservations.ReservationResult:
    return reservations.reserve(
        ReservationRequest(
            id=new_id(),
            worker=worker_name(),
            organization_id=organization,
            api_key_id=new_id(),
            amount_nanos=nanos,
            from_credits=True,
            catalog_token=generation.read_generation_token(generation.CATALOG),
            organization_token=generation.read_generation_token(generation.organization_scope(organization)),
            payload="{}",
        )
    )


# --- the rule


def test_a_copy_of_another_epoch_never_wins_by_its_version(known: UUID) -> None:
    (true,) = ledger.balances_of("organization", [known])
    older = replace(true, amount=Decimal(500), version=true.version + 1_000, epoch=true.epoch - 1)
    assert balances.publish_or_raise([older]) == [older]
    assert copy_of(known) == truth_of(known)
    later = replace(true, amount=Decimal(3), version=1, epoch=true.epoch + 1)
    assert balances.publish_or_raise([later]) == []
    assert copy_of(known) == (str(3 * NANO), "1", str(true.epoch + 1))


def test_one_word_of_a_new_epoch_voids_every_copy_of_the_old(known: UUID, world: World) -> None:
    assert reserve(known, NANO).outcome is ReservationOutcome.HELD
    epoch = balance_copies.begin_epoch("test", instead_of=balance_copies.read_epoch())
    balances.publish_or_raise(ledger.balances_of("organization", [world.elsewhere.id]))
    answer = reserve(known, NANO)
    assert (answer.outcome, answer.unknown) == (ReservationOutcome.UNKNOWN, "organization")
    balances.publish_or_raise(ledger.balances_of("organization", [known]))
    assert copy_of(known) == (str(10 * NANO), "7", str(epoch))
    # Holds stay: they belong to requests and not to an epoch.
    assert reserve(known, 10 * NANO).left_nanos == 9 * NANO


def test_a_late_publication_changes_nothing_and_begins_no_epoch(known: UUID) -> None:
    (true,) = ledger.balances_of("organization", [known])
    late = replace(true, amount=Decimal(9), version=true.version - 1)
    epoch = balance_copies.read_epoch()
    refused = balances.publish_or_raise([late])
    assert refused == [late]
    balance_copies.repair_copies(refused)
    assert copy_of(known) == truth_of(known)
    assert balance_copies.read_epoch() == epoch


def test_two_who_find_it_out_at_once_begin_one_epoch(known: UUID) -> None:
    before = balance_copies.read_epoch()
    first = balance_copies.begin_epoch("one", instead_of=before)
    assert first > before
    assert balance_copies.begin_epoch("other", instead_of=before) == first
    assert LedgerEpoch.objects.filter(number__gt=before).count() == 1


def test_a_new_epoch_makes_policies_and_catalog_be_read_anew(known: UUID) -> None:
    words = [
        generation.read_generation_token(one) for one in (generation.CATALOG, generation.organization_scope(known))
    ]
    balance_copies.begin_epoch("test", instead_of=balance_copies.read_epoch())
    again = [
        generation.read_generation_token(one) for one in (generation.CATALOG, generation.organization_scope(known))
    ]
    assert set(words) & set(again) == set()


# --- the database restored


def test_after_a_restore_a_balance_is_what_the_database_says(known: UUID) -> None:
    """Both ways: a caller refused despite its credits, and one who could have spent credits that were never paid."""
    restore(known, "500", 2)
    epoch = balance_copies.read_epoch()
    assert said("resync_balances").splitlines() == [
        f"organization {known}: credits 10 -> 500",
        "compared 1 copies, changed 1, corrected the held amount of 0; the database had lost changes: "
        f"epoch {balance_copies.read_epoch()} of the ledger has begun",
    ]
    assert balance_copies.read_epoch() > epoch
    assert copy_of(known) == truth_of(known) == (str(500 * NANO), "2", str(balance_copies.read_epoch()))
    restore(known, "0.0009", 1)
    assert said("resync_balances").startswith(f"organization {known}: credits 500 -> 0.0009\n")
    assert reserve(known, NANO).outcome is ReservationOutcome.NO_CREDITS
    assert said("resync_balances") == "compared 1 copies, changed 0, corrected the held amount of 0\n"


def test_a_restore_is_noticed_by_what_moved_last(known: UUID) -> None:
    watch = LedgerWatch()
    assert watch.look() is not None, "the first look compares everything"
    assert watch.look() is None
    restore(known, "500", 2)
    done = watch.look()
    assert done is not None
    assert done.epoch == balance_copies.read_epoch()
    assert copy_of(known) == truth_of(known)
    assert watch.look() is None


def test_a_restore_is_noticed_though_the_same_version_was_given_out_again(known: UUID) -> None:
    watch = LedgerWatch()
    watch.look()
    restore(known, "3", 7)
    done = watch.look()
    assert done is not None
    assert done.epoch is not None
    assert copy_of(known) == truth_of(known)


def test_the_first_settlement_after_a_restore_notices_it(caller: Caller) -> None:
    organization = caller.organization_id
    for _ in range(3):
        assert caller.chat("hi [[sandbox usage=1000,200]]").status_code == 200
    assert settle_all() == 3
    epoch, before = balance_copies.read_epoch(), Decimal(copy_of(organization)[0] or 0) / NANO
    assert copy_of(organization)[1] == "1"
    caller.chat("hi [[sandbox usage=1000,200]]")
    settle_all()
    cost = before - Decimal(copy_of(organization)[0] or 0) / NANO
    assert cost > 0
    restore(organization, "500", 0)
    caller.chat("hi [[sandbox usage=1000,200]]")
    assert settle_all() == 1
    assert balance_copies.read_epoch() > epoch
    (true,) = ledger.balances_of("organization", [organization])
    assert (true.amount, true.version) == (500 - cost, 1)
    assert copy_of(organization) == truth_of(organization)
    assert valkey().hget(balances.key("organization", organization), "held") == "0"


def test_a_backup_from_before_the_last_epoch_begins_a_later_one(known: UUID, world: World) -> None:
    """The database knows nothing of the epoch that the store goes by."""
    before = balance_copies.read_epoch()
    latest = balance_copies.begin_epoch("a restore", instead_of=before)
    balance_copies.resync()
    LedgerEpoch.objects.filter(number=latest).delete()
    restore(known, "0.5", 3)
    # A balance without a copy cannot be published either, until that is put right.
    other = ledger.balances_of("organization", [world.elsewhere.id])
    refused = balances.publish_or_raise(other)
    assert refused == other
    balance_copies.repair_copies(refused)
    assert balance_copies.read_epoch() > latest
    assert copy_of(world.elsewhere.id) == truth_of(world.elsewhere.id)
    assert reserve(known, 1).outcome is ReservationOutcome.UNKNOWN
    balance_copies.resync()
    assert copy_of(known) == truth_of(known)
    assert reserve(known, NANO).left_nanos == NANO // 2


def test_who_was_made_after_the_backup_is_gone_and_nobody_else(known: UUID) -> None:
    gone = new_id()
    balances.publish_or_raise([Balance("organization", gone, Decimal(5), 3, balance_copies.read_epoch())])
    restore(known, "1", 1)
    assert balance_copies.resync().compared == 2
    assert reserve(gone, 1).outcome is ReservationOutcome.UNKNOWN
    assert reserve(known, NANO).outcome is ReservationOutcome.HELD


# --- Valkey fallen back


def test_an_older_copy_of_valkey_is_moved_forward(known: UUID) -> None:
    server = ServerState("a server", 0)
    watch = LedgerWatch(lambda: server)
    watch.look()
    epoch = balance_copies.read_epoch()
    valkey().hset(balances.key("organization", known), mapping={"amount": 500 * NANO, "version": 3})
    server = ServerState("another server", 0)
    done = watch.look()
    assert done is not None
    assert [(one.amount, one.true.amount) for one in done.changed] == [(500 * NANO, Decimal(10))]
    assert copy_of(known) == truth_of(known)
    assert balance_copies.read_epoch() == epoch, "the database is none the older for it"


def test_an_older_copy_behind_the_same_name_is_noticed_by_the_latest_entries(world: World) -> None:
    ledger.charge([Charge(world.acme.id, new_id(), new_id(), Decimal(-1), Decimal(1))])
    (true,) = ledger.balances_of("organization", [world.acme.id])
    balances.publish_or_raise([true])
    watch = LedgerWatch()
    watch.look()
    name = balances.key("organization", world.acme.id)
    valkey().hset(name, mapping={"amount": 500 * NANO, "version": 0})
    valkey().delete(balances.MOVED[0])
    assert watch.look() is None, "behind once may be on its way"
    done = watch.look()
    assert done is not None
    assert copy_of(world.acme.id) == truth_of(world.acme.id)


def test_a_store_that_forgot_the_epoch_is_told_again(known: UUID) -> None:
    valkey().delete(balances.EPOCHS[0])
    assert reserve(known, NANO).outcome is ReservationOutcome.UNKNOWN
    balance_copies.resync()
    assert reserve(known, NANO).outcome is ReservationOutcome.HELD


def test_an_epoch_that_nobody_published_is_told_and_then_it_is_quiet(world: World) -> None:
    balances.void_epochs_before(balance_copies.read_epoch())
    epoch = balance_copies.begin_epoch("its process died then", instead_of=balance_copies.read_epoch())
    watch = LedgerWatch()
    watch.look()
    assert balance_copies.read_epoch_in_redis() == balance_copies.read_epoch() == epoch
    assert watch.look() is None
    valkey().delete(balances.EPOCHS[0])
    assert watch.look() is not None
    assert watch.look() is None
    balances.void_epochs_before(1)
    assert balance_copies.read_epoch_in_redis() == epoch


# --- holds


def test_a_copy_that_was_evicted_comes_back_with_what_is_held_on_it(known: UUID) -> None:
    assert reserve(known, 6 * NANO).outcome is ReservationOutcome.HELD
    valkey().delete(balances.key("organization", known))
    assert reserve(known, 6 * NANO).outcome is ReservationOutcome.UNKNOWN
    balances.publish_or_raise(ledger.balances_of("organization", [known]))
    answer = reserve(known, 6 * NANO)
    assert (answer.outcome, answer.left_nanos) == (ReservationOutcome.NO_CREDITS, 4 * NANO)
    (identifier,) = reservations.notes_of(worker_name(), 0)
    assert reservations.release([(worker_name(), identifier)], 0) == 1
    assert valkey().hget(balances.key("organization", known), "held") == "0"


def test_what_was_given_back_to_an_evicted_copy_is_not_spent_twice(known: UUID) -> None:
    assert reserve(known, 6 * NANO).outcome is ReservationOutcome.HELD
    (identifier,) = reservations.notes_of(worker_name(), 0)
    valkey().delete(balances.key("organization", known))
    reservations.release([(worker_name(), identifier)], 0)
    assert valkey().hget(balances.key("organization", known), "held") == str(-6 * NANO)
    balances.publish_or_raise(ledger.balances_of("organization", [known]))
    assert valkey().hget(balances.key("organization", known), "held") == "0"
    assert reserve(known, 11 * NANO).left_nanos == 10 * NANO


def test_what_is_held_for_notes_that_are_lost_is_given_back_by_a_resync(known: UUID) -> None:
    assert reserve(known, 6 * NANO).outcome is reserve(known, 3 * NANO).outcome is ReservationOutcome.HELD
    lost, kept = sorted(reservations.notes_of(worker_name(), 0).items(), key=lambda one: -int(one[1].amount))
    valkey().hdel(reservations.notes_key(worker_name(), 0), str(lost[0]))
    assert said("resync_balances") == "compared 1 copies, changed 0, corrected the held amount of 1\n"
    assert valkey().hget(balances.key("organization", known), "held") == str(3 * NANO)
    # A release that comes late finds nothing to give back.
    assert reservations.release([(worker_name(), lost[0]), (worker_name(), kept[0])], 0) == 1
    assert valkey().hget(balances.key("organization", known), "held") == "0"


def test_what_is_held_for_notes_that_were_evicted_is_given_back_by_the_next_look(known: UUID) -> None:
    state = ServerState("a server", 0)
    watch = LedgerWatch(lambda: state)
    watch.look()
    assert reserve(known, 6 * NANO).outcome is ReservationOutcome.HELD
    assert watch.look() is None
    valkey().delete(reservations.notes_key(worker_name(), 0))
    state = ServerState("a server", 1)
    done = watch.look()
    assert done is not None
    assert (done.holds, valkey().hget(balances.key("organization", known), "held")) == (1, "0")


# --- by hand and at the start


def test_the_command_says_which_store_did_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> int:
        raise RedisConnectionError

    monkeypatch.setattr(balance_copies, "read_epoch_in_redis", away)
    with pytest.raises(CommandError, match="A store did not answer"):
        call_command("resync_balances")


def test_records_that_wait_are_charged_to_the_restored_ledger_once(caller: Caller) -> None:
    """Requests that were answered before the restore and not settled then are charged after it."""
    caller.chat("hi [[sandbox usage=1000,200]]")
    restore(caller.organization_id, "50", 0)
    balance_copies.resync()
    assert valkey().hget(balances.key("organization", caller.organization_id), "held") != "0"
    assert settle_all() == 1
    (true,) = ledger.balances_of("organization", [caller.organization_id])
    assert true.amount < 50
    assert copy_of(caller.organization_id) == truth_of(caller.organization_id)
    assert valkey().hget(balances.key("organization", caller.organization_id), "held") == "0"
    assert outbox.depth() == (0, 0.0)


# --- exact amounts


@pytest.mark.parametrize(
    ("present", "in_store", "now", "number"),
    [(10, 20, 2_000_000, 2_000_000), (10, 20, 5, 21), (40, 20, 5, 41), (20, 20, 21, 21), (7, 0, 8, 8)],
)
def test_an_epoch_is_later_than_any_before(
    world: World, monkeypatch: pytest.MonkeyPatch, present: int, in_store: int, now: int, number: int
) -> None:
    LedgerEpoch.objects.all().delete()
    assert balance_copies.read_epoch() == 0
    assert balance_copies.read_epochs_in_redis() == [0] * len(balances.EPOCHS)
    LedgerEpoch.objects.create(number=present, reason="x")
    if in_store:
        balances.void_epochs_before(in_store)
    assert balance_copies.read_epoch_in_redis() == in_store
    monkeypatch.setattr(balance_copies, "time", SimpleNamespace(time_ns=lambda: now * 1_000 + 999))
    with CaptureQueriesContext(connection) as queries:
        assert balance_copies.begin_epoch("test", instead_of=present) == balance_copies.read_epoch() == number
    assert LedgerEpoch.objects.get(number=number).reason == "test"
    assert any("LOCK TABLE billing_ledgerepoch" in one["sql"] for one in queries.captured_queries)


def test_a_copy_that_lacks_version_and_epoch_has_none_of_either(known: UUID) -> None:
    name = balances.key("organization", known)
    valkey().delete(name)
    valkey().hset(name, "held", "5")
    assert balance_copies.find_divergent_copies([name]) == []
    valkey().hset(name, "amount", "7")
    (true,) = ledger.balances_of("organization", [known])
    assert balance_copies.find_divergent_copies([name, "balance:organization:none"]) == [
        balance_copies.DivergentCopy(true, 7, 0, 0)
    ]


def test_a_copy_that_is_behind_is_repaired_without_an_epoch(known: UUID) -> None:
    epoch = balance_copies.read_epoch()
    restore(known, "11", 8)
    balance_copies.repair_copies([])
    assert copy_of(known) != truth_of(known)
    balance_copies.repair_copies(ledger.balances_of("organization", [known]))
    assert (copy_of(known), balance_copies.read_epoch()) == (truth_of(known), epoch)


def test_a_later_epoch_in_the_store_begins_one_whatever_balance_shows_it(known: UUID) -> None:
    later = balance_copies.read_epoch() + 10**12
    balances.void_epochs_before(later)
    balance_copies.repair_copies([Balance("organization", new_id(), Decimal(1), 1)])
    assert balance_copies.read_epoch_in_redis() == balance_copies.read_epoch() > later
    assert LedgerEpoch.objects.latest("number").reason == "the store knew a later epoch"


def test_an_epoch_says_which_copy_knew_more(known: UUID) -> None:
    restore(known, "3", 2)
    balance_copies.repair_copies(ledger.balances_of("organization", [known]))
    assert LedgerEpoch.objects.latest("number").reason == (
        f"organization {known}: the store knew version 7, the database 2"
    )
    assert copy_of(known) == truth_of(known)


def test_copies_that_agreed_are_published_again_under_a_new_epoch(known: UUID, world: World) -> None:
    balances.publish_or_raise(ledger.balances_of("organization", [world.elsewhere.id]))
    restore(known, "3", 2)
    done = balance_copies.resync()
    assert (done.compared, done.epoch) == (2, balance_copies.read_epoch())
    assert [(one.true.id, one.amount) for one in done.changed] == [(known, 10 * NANO)]
    for organization in (known, world.elsewhere.id):
        assert copy_of(organization) == truth_of(organization)


def test_a_comparison_that_changed_something_is_told(known: UUID, caplog: pytest.LogCaptureFixture) -> None:
    name = balances.key("organization", known)
    balance_copies.resync()
    assert "balances.resynced" not in caplog.text
    valkey().hset(name, "held", "5")
    balance_copies.resync()
    assert "balances.resynced" in caplog.text
    caplog.clear()
    restore(known, "11", 8)
    balance_copies.resync()
    assert "balances.resynced" in caplog.text


def test_the_watch_looks_at_the_copies_that_moved_last(
    known: UUID, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance_copies, "_LATEST", 1)
    other = world.elsewhere.id
    for credits, version in (("1", 1), ("2", 2)):
        restore(other, credits, version)
        balances.publish_or_raise(ledger.balances_of("organization", [other]))
    assert valkey().lrange(balances.MOVED[0], 0, -1)[:2] == [
        balances.key("organization", other),
        balances.key("organization", known),
    ]
    watch = LedgerWatch()
    watch.look()
    restore(known, "3", 2)
    assert watch.look() is None, "it moved before the latest"
    restore(other, "3", 1)
    assert watch.look() is not None


def test_copies_that_were_compared_before_a_new_epoch_began_are_published_under_it(
    known: UUID, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    balances.publish_or_raise(ledger.balances_of("organization", [world.elsewhere.id]))
    restore(known, "3", 2)
    names = [balances.key("organization", one) for one in (world.elsewhere.id, known)]
    monkeypatch.setattr(balance_copies, "BATCH", 1)
    monkeypatch.setattr(balance_copies, "scan_copy_keys", lambda: iter(names))
    assert balance_copies.resync().compared == 2
    for organization in (known, world.elsewhere.id):
        assert copy_of(organization) == truth_of(organization)
