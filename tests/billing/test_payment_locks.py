"""Locks of payments: account, transaction, organization, in this order and in the form that lets references be made."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.billing import accounts, auto_topup, cards, gifts, invoices, refunds, subscription, topup
from apps.billing.models import BillingAccount, Transaction
from apps.billing.payment_processor_types import Refund
from apps.kernel.errors import NotFound
from apps.kernel.ids import new_id
from apps.organizations.models import Organization
from tests.support.cast import World
from tests.support.payments import add_card
from tests.support.stripe_stub import StripeStub

USD = Decimal
ACCOUNT, TRANSACTION, ORGANIZATION = "billing_billingaccount", "billing_transaction", "organizations_organization"
# A lock with `FOR UPDATE` would make others wait who only write rows that refer to the locked one.
_ROWS = re.compile(r'FROM "?(\w+)"? .*FOR NO KEY UPDATE', re.DOTALL)


def locks_of(act: Callable[[], object]) -> list[str]:
    """Return the tables whose rows were locked, in order, and `job` for a lock of a whole job."""
    with CaptureQueriesContext(connection) as queries:
        act()
    found = []
    for one in queries.captured_queries:
        if "pg_advisory_xact_lock" in one["sql"]:
            found.append("job")
        elif (match := _ROWS.search(one["sql"])) is not None:
            found.append(match[1])
        else:
            assert " FOR UPDATE" not in one["sql"], one["sql"]
    return found


@pytest.fixture
def paid(world: World, stripe: StripeStub) -> Transaction:
    """A top-up of Acme's, of 25 USD."""
    add_card(stripe, world.acme)
    return topup.pay(topup.begin(world.acme, USD(25))).transaction


def test_an_account_is_made_before_it_is_locked(world: World) -> None:
    made: list[BillingAccount] = []
    assert locks_of(lambda: made.append(accounts.locked_account(world.acme.id))) == [ACCOUNT]
    assert made == [BillingAccount.objects.get(organization=world.acme)]


def test_a_transaction_is_locked_with_an_account_that_is_made_for_it(world: World) -> None:
    row = Transaction.objects.create(organization=world.acme, type="credit_topup", amount=5)
    assert accounts.locked_transaction(row.id) == row
    assert BillingAccount.objects.get().organization_id == world.acme.id


def test_top_ups(world: World, stripe: StripeStub, paid: Transaction) -> None:
    row = topup.begin(world.acme, USD(5))
    assert locks_of(lambda: topup._note(row.id, "pi_x")) == [ACCOUNT, TRANSACTION]
    assert locks_of(lambda: topup._complete(row.id, "pi_x")) == [ACCOUNT, TRANSACTION, ORGANIZATION]
    failed = topup.begin(world.acme, USD(5))
    assert locks_of(lambda: topup._fail(failed.id, "no")) == [ACCOUNT, TRANSACTION]
    Organization.objects.filter(pk=world.acme.pk).update(
        auto_top_up_enabled=True, auto_top_up_threshold=99, auto_top_up_amount=20
    )
    assert locks_of(lambda: auto_topup.begin(world.acme.id)) == [ACCOUNT]
    automatic = Transaction.objects.get(is_automatic=True)
    assert locks_of(lambda: topup._fail(automatic.id, "no")) == [ACCOUNT, TRANSACTION, ACCOUNT]


def test_refunds(world: World, stripe: StripeStub, paid: Transaction) -> None:
    assert locks_of(lambda: refunds.begin(paid, USD(5), "x")) == [ACCOUNT, TRANSACTION]
    row = Transaction.objects.get(type="credit_refund")
    assert locks_of(lambda: refunds._complete(row.id, "re_1")) == [ACCOUNT, TRANSACTION, ORGANIZATION]
    made = Refund("re_2", "succeeded", USD(3), "USD", "")
    assert locks_of(lambda: refunds._adopt(paid, made)) == [ACCOUNT]
    adopted = Transaction.objects.get(processor_refund_id="re_2")
    assert locks_of(lambda: refunds._fail(adopted.id, "no")) == [ACCOUNT, TRANSACTION]


def test_subscriptions_and_cards(world: World, stripe: StripeStub) -> None:
    first, second = add_card(stripe, world.acme), add_card(stripe, world.acme, number="1111")
    assert locks_of(lambda: subscription._begin(world.acme, None)) == [ACCOUNT]
    row = Transaction.objects.get(type="subscription_start")
    assert locks_of(lambda: subscription._fail(row.id, "no")) == [TRANSACTION]
    assert locks_of(lambda: cards.make_default(second)) == [ACCOUNT]
    assert locks_of(lambda: cards._forget(first)) == [ACCOUNT]


def test_invoices_and_gifts(world: World, stripe: StripeStub, paid: Transaction) -> None:
    assert locks_of(lambda: invoices.issue(paid)) == ["job"]
    # An invoice that was issued needs no lock.
    assert locks_of(lambda: invoices.issue(paid)) == []

    def give() -> None:
        gifts.give(organization=world.acme, amount=USD(1), description="x")

    assert locks_of(give) == [ORGANIZATION, ORGANIZATION]
    Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    with pytest.raises(NotFound):
        give()
    assert Transaction.objects.filter(type="credit_gift").count() == 1


def test_a_transaction_that_does_not_exist_locks_nothing(world: World) -> None:
    def lock() -> None:
        with pytest.raises(Transaction.DoesNotExist):
            accounts.locked_transaction(new_id())

    assert locks_of(lock) == []
