"""The ledger: what moves, moves once, for good, and with the balances."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
