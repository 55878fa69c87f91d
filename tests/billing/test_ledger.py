"""The ledger: what moves, moves once, for good, and with the balances."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from threading import Barrier
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from apps.billing import balance_copies, balances, ledger
from apps.billing.balances import Balance
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEntry, Transaction
from apps.kernel.ids import new_id
from apps.kernel.money import LARGEST
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import client
from apps.keys.models import ApiKey
from apps.organizations.models import Organization
from tests.support.cast import World, make_key


@pytest.fixture
def key(world: World) -> ApiKey:
    """A key of Acme's."""
    return make_key(world.olivia, world.project).key


def cost(key: ApiKey, amount: str, *, own_credential: bool = False, reference: UUID | None = None) -> Charge:
    """Return the charge of a request of the key's that cost `amount`."""
    return Charge(
        organization_id=key.project.organization_id,
        api_key_id=key.id,
        reference=reference or new_id(),
        credits=Decimal(0) if own_credential else -Decimal(amount),
        usage=Decimal(amount),
    )


def credits_of(organization: Organization) -> tuple[Decimal, int]:
    """Return credits and their version."""
    organization.refresh_from_db()
    return organization.credits, organization.credits_version


def usage_of(key: ApiKey) -> tuple[Decimal, int]:
    """Return usage and its version."""
    key.refresh_from_db()
    return key.usage, key.usage_version


def test_a_charge_lowers_credits_raises_usage_and_is_written_down(world: World, key: ApiKey) -> None:
    charge = cost(key, "0.000000000001")
    assert ledger.charge([charge]) == [
        Balance("organization", world.acme.id, Decimal("-0.000000000001"), 1),
        Balance("key", key.id, Decimal("0.000000000001"), 1),
    ]
    assert credits_of(world.acme) == (Decimal("-0.000000000001"), 1)
    assert usage_of(key) == (Decimal("0.000000000001"), 1)
    assert list(
        LedgerEntry.objects.values_list("kind", "organization_id", "api_key_id", "reference", "credits", "usage")
    ) == [("usage", world.acme.id, key.id, charge.reference, Decimal("-0.000000000001"), Decimal("0.000000000001"))]


def test_a_batch_changes_each_balance_once(world: World, key: ApiKey) -> None:
    adams, sams = make_key(world.adam, world.project).key, make_key(world.sam, world.elsewhere_project).key
    changed = ledger.charge([cost(key, "1.25"), cost(adams, "2"), cost(key, "0.75"), cost(sams, "4.5")])
    assert {(balance.scope, balance.id): (balance.amount, balance.version) for balance in changed} == {
        ("organization", world.acme.id): (Decimal(-4), 1),
        ("organization", world.elsewhere.id): (Decimal("-4.5"), 1),
        ("key", key.id): (Decimal(2), 1),
        ("key", adams.id): (Decimal(2), 1),
        ("key", sams.id): (Decimal("4.5"), 1),
    }
    assert len(changed) == 5
    assert LedgerEntry.objects.count() == 4


def test_a_batch_is_five_statements_however_many_requests_it_has(
    world: World, key: ApiKey, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """The entries; the lock and the update of organizations; those of keys."""
    with django_assert_num_queries(5):
        ledger.charge([cost(key, "1") for _ in range(50)])
    assert credits_of(world.acme) == (Decimal(-50), 1)


def test_own_credentials_cost_no_credits_and_count_as_usage(world: World, key: ApiKey) -> None:
    assert ledger.charge([cost(key, "3", own_credential=True)]) == [Balance("key", key.id, Decimal(3), 1)]
    assert credits_of(world.acme) == (Decimal(0), 0)


def test_what_moves_nothing_is_not_written(world: World, key: ApiKey) -> None:
    assert ledger.charge([cost(key, "0")]) == []
    assert ledger.charge([]) == []
    assert LedgerEntry.objects.count() == 0
    assert (credits_of(world.acme), usage_of(key)) == ((Decimal(0), 0), (Decimal(0), 0))


def test_a_request_is_charged_once_however_often_it_is_asked_for(world: World, key: ApiKey) -> None:
    reference = new_id()
    twice = [cost(key, "1", reference=reference), cost(key, "1", reference=reference)]
    assert [balance.amount for balance in ledger.charge(twice)] == [Decimal(-1), Decimal(1)]
    assert ledger.charge(twice) == []
    assert (credits_of(world.acme), usage_of(key)) == ((Decimal(-1), 1), (Decimal(1), 1))
    assert LedgerEntry.objects.count() == 1


def test_an_organization_and_a_key_that_are_gone_are_charged_on_paper(world: World, key: ApiKey) -> None:
    gone = Charge(new_id(), new_id(), new_id(), Decimal(-2), Decimal(2))
    assert [balance.id for balance in ledger.charge([gone, cost(key, "1")])] == [world.acme.id, key.id]
    entry = LedgerEntry.objects.get(reference=gone.reference)
    assert (entry.organization_id, entry.api_key_id) == (gone.organization_id, gone.api_key_id)
    assert (entry.credits, entry.usage) == (Decimal(-2), Decimal(2))


@pytest.mark.parametrize("absurd", [Decimal("1e300"), LARGEST, Decimal("Infinity"), Decimal("NaN")])
def test_an_absurd_amount_holds_up_no_other_request(world: World, key: ApiKey, absurd: Decimal) -> None:
    """Twice, so that the sum would not fit its column either."""
    sams = make_key(world.sam, world.elsewhere_project).key
    for _ in range(2):
        lie = Charge(world.acme.id, key.id, new_id(), -absurd, absurd)
        changed = ledger.charge([lie, cost(sams, "1")])
    assert {balance.id: balance.amount for balance in changed}[sams.id] == Decimal(2)
    expected = LARGEST if absurd.is_finite() else Decimal(0)
    assert (credits_of(world.acme)[0], usage_of(key)[0]) == (-expected, expected)


def test_a_charge_makes_no_policy_stale(world: World, key: ApiKey) -> None:
    scope = generation.organization_scope(world.acme.id)
    before = generation.read_generation_token(scope)
    ledger.charge([cost(key, "1")])
    assert generation.read_generation_token(scope) == before


def test_a_charge_goes_with_its_transaction(world: World, key: ApiKey) -> None:
    with transaction.atomic():
        ledger.charge([cost(key, "1")])
        transaction.set_rollback(True)
    assert LedgerEntry.objects.count() == 0
    assert (credits_of(world.acme), usage_of(key)) == ((Decimal(0), 0), (Decimal(0), 0))


@pytest.mark.django_db(transaction=True)
def test_batches_in_opposite_order_never_lock_each_other_out(world: World) -> None:
    """Eight writers, the same twenty balances, half of them forwards and half backwards."""
    keys = [make_key(world.olivia, world.project).key for _ in range(5)]
    keys += [make_key(world.sam, world.elsewhere_project).key for _ in range(5)]
    writers, rounds = 8, 15
    start = Barrier(writers)

    def write(number: int) -> None:
        with connection.cursor() as cursor:
            # Rows are then taken in the order they are named, as they are where there are many.
            cursor.execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
        start.wait()
        try:
            for _ in range(rounds):
                with transaction.atomic():
                    ledger.charge([cost(key, "0.1") for key in (keys if number % 2 else reversed(keys))])
        finally:
            connection.close()

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))

    total = writers * rounds
    assert {usage_of(key) for key in keys} == {(Decimal("0.1") * total, total)}
    assert credits_of(world.acme) == (Decimal("-0.5") * total, total)
    assert credits_of(world.elsewhere) == (Decimal("-0.5") * total, total)


@pytest.mark.django_db(transaction=True)
def test_the_same_batch_settled_by_two_at_once_is_charged_once(world: World, key: ApiKey) -> None:
    charges = [cost(key, "1") for _ in range(100)]
    start = Barrier(4)

    def settle(number: int) -> int:
        start.wait()
        try:
            with transaction.atomic():
                return len(ledger.charge(charges if number % 2 else charges[::-1]))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(settle, range(4))) == [0, 0, 0, 2]
    assert (credits_of(world.acme), usage_of(key)) == ((Decimal(-100), 1), (Decimal(100), 1))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_ledgerentry SET credits = 0",
        "DELETE FROM billing_ledgerentry",
        "TRUNCATE billing_ledgerentry",
    ],
)
def test_what_is_written_stays_as_it_is(world: World, key: ApiKey, statement: str) -> None:
    ledger.charge([cost(key, "1")])
    with (
        pytest.raises(IntegrityError, match="ledger entries are never changed"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert LedgerEntry.objects.get().credits == Decimal(-1)


def test_a_gift_is_a_transaction_an_entry_and_credits(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        gift = ledger.grant(world.acme.id, Decimal("12.5"), "Welcome")
    gift.refresh_from_db()
    assert (gift.type, gift.status, gift.amount, gift.credit_amount, gift.currency, gift.description) == (
        Transaction.Type.CREDIT_GIFT,
        Transaction.Status.COMPLETED,
        Decimal("12.5"),
        Decimal("12.5"),
        "USD",
        "Welcome",
    )
    entry = LedgerEntry.objects.get()
    assert (entry.kind, entry.reference, entry.organization_id) == ("gift", gift.id, world.acme.id)
    assert (entry.credits, entry.usage, entry.api_key_id) == (Decimal("12.5"), Decimal(0), None)
    assert credits_of(world.acme) == (Decimal("12.5"), 1)
    copy = client().hgetall(balances.key("organization", world.acme.id))
    assert copy == {"amount": "12500000000", "version": "1", "epoch": str(balance_copies.read_epoch())}


@pytest.mark.parametrize("amount", ["0", "-1", "0.0000000000001", "1000000000000", "NaN", "Infinity"])
def test_a_gift_that_is_no_amount_changes_nothing(world: World, amount: str) -> None:
    with pytest.raises(ValueError, match="positive number of USD"):
        ledger.grant(world.acme.id, Decimal(amount), "")
    assert (LedgerEntry.objects.count(), Transaction.objects.count()) == (0, 0)
    assert credits_of(world.acme) == (Decimal(0), 0)


def test_a_gift_for_nobody_changes_nothing(world: World) -> None:
    with pytest.raises(Organization.DoesNotExist):
        ledger.grant(new_id(), Decimal(1), "")
    assert (LedgerEntry.objects.count(), Transaction.objects.count()) == (0, 0)


def copy_of(world: World) -> list[str | None]:
    """Return amount and version of the copy of Acme's credits."""
    return list(client().hmget(balances.key("organization", world.acme.id), "amount", "version"))


def test_the_largest_gift_is_what_a_balance_can_hold(world: World) -> None:
    ledger.grant(world.acme.id, LARGEST, "")
    assert credits_of(world.acme) == (LARGEST, 1)


def test_a_charge_of_credits_alone_leaves_the_key_as_it_is(world: World, key: ApiKey) -> None:
    charge = Charge(world.acme.id, key.id, new_id(), Decimal(-1), Decimal(0), storage=Decimal("0.25"))
    assert ledger.charge([charge]) == [Balance("organization", world.acme.id, Decimal("-1.25"), 1)]
    assert usage_of(key) == (Decimal(0), 0)
    rows = LedgerEntry.objects.order_by("kind").values_list("kind", "credits", "usage")
    assert list(rows) == [("storage", Decimal("-0.25"), Decimal(0)), ("usage", Decimal(-1), Decimal(0))]


def test_payments_move_credits_and_their_copy_once(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    paid = Transaction.objects.create(
        organization=world.acme, type="credit_topup", amount=Decimal(5), credit_amount=Decimal(4)
    )
    refund = Transaction.objects.create(
        organization=world.acme, type="credit_refund", amount=Decimal(1), credit_amount=Decimal(-1)
    )
    for row, copy in ((paid, ["4000000000", "1"]), (refund, ["3000000000", "2"]), (paid, ["3000000000", "2"])):
        with django_capture_on_commit_callbacks(execute=True):
            ledger.credit(row)
        assert copy_of(world) == copy
    entries = LedgerEntry.objects.order_by("id").values_list("kind", "reference", "credits", "organization_id")
    assert list(entries) == [
        ("top_up", paid.id, Decimal(4), world.acme.id),
        ("refund", refund.id, Decimal(-1), world.acme.id),
    ]
    bare = Transaction.objects.create(organization=world.acme, type="credit_topup", amount=Decimal(5))
    with pytest.raises(ValueError, match="has no credit amount"):
        ledger.credit(bare)
    assert credits_of(world.acme) == (Decimal(3), 2)


def test_a_reward_is_credits_and_earnings_once(
    world: World, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    balances.publish_or_raise(ledger.balances_of("organization", [world.acme.id]))
    first, second = new_id(), new_id()
    for reference, amount, is_new, total in (
        (first, "0.5", True, "0.5"),
        (first, "0.5", False, "0.5"),
        (second, "0.25", True, "0.75"),
        (new_id(), "0", False, "0.75"),
    ):
        with django_capture_on_commit_callbacks(execute=True):
            assert ledger.reward(world.acme.id, Decimal(amount), reference) is is_new
        world.acme.refresh_from_db()
        assert world.acme.credits == world.acme.referral_earnings == Decimal(total)
        assert copy_of(world)[0] == str(int(Decimal(total) * 10**9))


def test_holds_for_batches_are_of_credits_and_usage_until_they_are_released_or_charged(
    world: World, key: ApiKey
) -> None:
    first, second, third = sorted((new_id(), new_id(), new_id()), key=str)
    nothing: tuple[Decimal, int, None] = Decimal(0), 0, None
    assert ledger.open_holds(first) == nothing
    for reference in (first, second, second, third):
        ledger.hold(reference, world.acme.id, key.id, credits=Decimal(2), usage=Decimal(3))
    assert (credits_of(world.acme)[0], usage_of(key)[0]) == (Decimal(-6), Decimal(9))
    oldest = LedgerEntry.objects.get(reference=second).created_at
    assert ledger.open_holds(second) == (Decimal(4), 2, oldest)
    assert [balance.amount for balance in ledger.give_back([first, first])] == [Decimal(-4), Decimal(6)]
    assert ledger.give_back([first, new_id()]) == []
    assert ledger.give_back([]) == []
    later = oldest + timedelta(seconds=1)
    assert sorted(ledger.find_forgotten_holds(first, later), key=str) == [second, third]
    assert ledger.find_forgotten_holds(third, later) == [third]
    assert ledger.find_forgotten_holds(first, oldest - timedelta(days=1)) == []
    assert ledger.is_charged(second) is False
    ledger.charge([Charge(world.acme.id, key.id, second, Decimal(-1), Decimal(1), is_held=True)])
    assert ledger.is_charged(second) is True
    assert (credits_of(world.acme)[0], usage_of(key)[0]) == (Decimal(-3), Decimal(4))
    # The other one goes on holding: its charge does not say that it was held.
    ledger.charge([Charge(world.acme.id, key.id, third, Decimal(-1), Decimal(1))])
    assert (credits_of(world.acme)[0], ledger.open_holds(first)[:2]) == (Decimal(-4), (Decimal(2), 1))


def test_the_totals_of_the_ledger(world: World, key: ApiKey) -> None:
    ledger.grant(world.acme.id, Decimal(10), "")
    ledger.reward(world.elsewhere.id, Decimal("0.5"), new_id())
    ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal(-2), Decimal(2), storage=Decimal("0.25"))])
    ledger.charge([Charge(new_id(), new_id(), new_id(), Decimal(-1), Decimal(1))])
    ledger.hold(new_id(), world.acme.id, key.id, credits=Decimal(3), usage=Decimal(3))
    assert ledger.read_totals() == ledger.LedgerTotals(
        received=Decimal("10.5"),
        used=Decimal("3.25"),
        batches=Decimal(3),
        deleted=Decimal(-1),
        credits=Decimal("5.25"),
    )


def test_the_balances_of_the_latest_entries(world: World, key: ApiKey) -> None:
    ledger.charge([cost(key, "1")])
    ledger.grant(world.elsewhere.id, Decimal(5), "")
    assert ledger.moved_last(1) == [Balance("organization", world.elsewhere.id, Decimal(5), 1)]
    found = ledger.moved_last(2)
    assert {(one.scope, one.id, one.amount) for one in found} == {
        ("organization", world.elsewhere.id, Decimal(5)),
        ("organization", world.acme.id, Decimal(-1)),
        ("key", key.id, Decimal(1)),
    }
    assert len(found) == 3


def test_rows_are_locked_by_the_kinds_and_references_of_their_entries(world: World, key: ApiKey) -> None:
    charges = [cost(key, "1") for _ in range(3)]
    ledger.charge(list(reversed(charges)))
    references = list(LedgerEntry.objects.order_by("id").values_list("reference", flat=True))
    assert references == sorted(one.reference for one in charges)
