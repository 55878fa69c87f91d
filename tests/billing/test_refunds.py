"""Refunds: no more than was paid, the money back once, and exactly as many credits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from apps.billing import ledger, payment_processor, refunds, tasks, topup
from apps.billing.models import Transaction
from apps.kernel.errors import ApiError, InvalidRequest
from apps.organizations.models import AuditEntry, User
from tests.support.cast import PASSWORD, World, make_user
from tests.support.payments import add_card, books, tell
from tests.support.stripe_stub import StripeStub

TOP_UP = ("credit_topup", "25", "completed")


class Killed(BaseException):
    """The process died here."""


@pytest.fixture
def paid(world: World, stripe: StripeStub) -> Transaction:
    """A top-up of Acme's, of 25 USD."""
    add_card(stripe, world.acme)
    return topup.pay(topup.begin(world.acme, Decimal(25))).transaction


def back(stripe: StripeStub) -> list[int]:
    """Return the cents of every refund there."""
    return [one["amount"] for one in stripe.of_kind("refund")]


def test_a_part_goes_back_and_then_the_rest(world: World, stripe: StripeStub, paid: Transaction) -> None:
    row = refunds.pay(refunds.begin(paid, Decimal("10.50"), "Ordered twice"))
    assert (row.status, row.amount, row.credit_amount, row.refund_reason, row.related_transaction_id) == (
        "completed",
        Decimal("10.50"),
        Decimal("-10.50"),
        "Ordered twice",
        paid.id,
    )
    assert books(world.acme) == (Decimal("14.5"), [TOP_UP, ("credit_refund", "10.5", "completed")])
    refunds.pay(refunds.begin(paid, Decimal("14.50"), "The rest"))
    assert (books(world.acme)[0], back(stripe), refunds.refundable(paid)) == (Decimal(0), [1050, 1450], Decimal(0))


@pytest.mark.parametrize("amount", ["0", "-1", "25.01", "1.005", "NaN", "Infinity"])
def test_an_amount_that_cannot_go_back_is_refused(
    world: World, stripe: StripeStub, paid: Transaction, amount: str
) -> None:
    with pytest.raises(InvalidRequest):
        refunds.begin(paid, Decimal(amount), "why not")
    assert (books(world.acme), back(stripe)) == ((Decimal(25), [TOP_UP]), [])


def test_credits_that_were_used_are_owed(world: World, stripe: StripeStub, paid: Transaction) -> None:
    ledger._move([ledger._Movement("usage", world.acme.id, world.acme.id, None, Decimal(-20), Decimal(0))])
    refunds.pay(refunds.begin(paid, Decimal(25), "all of it"))
    assert (books(world.acme)[0], back(stripe)) == (Decimal(-20), [2500])


@pytest.mark.django_db(transaction=True)
def test_operators_at_once_never_pay_back_more_than_was_paid(
    world: World, stripe: StripeStub, paid: Transaction
) -> None:
    def work(_: int) -> None:
        try:
            refunds.pay(refunds.begin(paid, Decimal(10), "at once"))
        except ApiError:
            pass
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert (books(world.acme)[0], back(stripe)) == (Decimal(5), [1000, 1000])


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_one_without_an_answer_is_found_out(world: World, stripe: StripeStub, paid: Transaction, lost: str) -> None:
    stripe.lose("/v1/refunds", lost)
    assert refunds.pay(refunds.begin(paid, Decimal(10), "x")).status == "pending"
    assert books(world.acme)[0] == Decimal(25)
    Transaction.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    tasks.recover_payments()
    tasks.recover_payments()
    assert (books(world.acme)[0], back(stripe)) == (Decimal(15), [1000])


@pytest.mark.parametrize(
    ("module", "name", "when"),
    [
        (payment_processor, "refund", "before"),
        (payment_processor, "refund", "after"),
        (ledger, "credit", "before"),
        (ledger, "credit", "after"),
        (refunds, "_complete", "after"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_whoever_dies_anywhere_it_goes_back_once(
    world: World,
    stripe: StripeStub,
    paid: Transaction,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    when: str,
) -> None:
    row, step = refunds.begin(paid, Decimal(10), "x"), getattr(module, name)

    def die(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            step(*args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module, name, die)
        with pytest.raises(Killed):
            refunds.pay(row)
    Transaction.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    tasks.recover_payments()
    assert (books(world.acme)[0], back(stripe)) == (Decimal(15), [1000])


@pytest.mark.urls("tests.billing.webhook_urls")
def test_one_that_was_made_at_the_processor_is_taken_over_once(
    world: World, stripe: StripeStub, paid: Transaction
) -> None:
    [payment] = stripe.of_kind("payment_intent")
    _, made = stripe.answer("POST", "/v1/refunds", {"payment_intent": payment["id"], "amount": "700"}, None)
    charge = {"object": "charge", "id": "ch_1", "payment_intent": payment["id"]}
    for message in (stripe.event("charge.refunded", charge), stripe.event("refund.created", made)):
        assert tell(Client(), message).status_code == 200
    assert books(world.acme) == (Decimal(18), [TOP_UP, ("credit_refund", "7", "completed")])
    assert refunds.refundable(paid) == Decimal(18)


def test_a_refund_that_fails_there_takes_no_credits(world: World, stripe: StripeStub, paid: Transaction) -> None:
    row = refunds.begin(paid, Decimal(10), "x")
    refund = payment_processor.refund(
        key=str(row.id),
        payment=paid.processor_payment_intent_id or "",
        amount=row.amount,
        metadata={"transaction": str(row.id)},
    )
    stripe.things[refund.id]["status"] = "failed"
    refunds.recover(row)
    assert books(world.acme) == (Decimal(25), [TOP_UP, ("credit_refund", "10", "failed")])
    assert refunds.refundable(paid) == Decimal(25)


class TestTheButton:
    """Refunds that an operator makes in the admin."""

    @pytest.fixture
    def operator(self, world: World) -> Client:
        """An operator who has signed in."""
        user: User = make_user("Otto")
        user.is_staff = user.is_superuser = True
        user.save()
        client = Client()
        assert client.login(email=user.email, password=PASSWORD)
        return client

    def test_is_on_the_page_of_a_top_up_and_refunds_it(
        self, world: World, stripe: StripeStub, paid: Transaction, operator: Client
    ) -> None:
        page = operator.get(f"/admin/billing/transaction/{paid.id}/change/")
        link = f"/admin/billing/transaction/{paid.id}/refund/"
        assert link in page.content.decode()
        asked = operator.get(link)
        assert (asked.status_code, 'value="25.00"' in asked.content.decode()) == (200, True)
        answers = {"once": asked.context["form"].initial["once"], "amount": "10", "reason": "Ordered twice"}
        for _ in range(2):
            done = operator.post(link, answers)
            assert (done.status_code, books(world.acme)[0], back(stripe)) == (302, Decimal(15), [1000])
        entry = AuditEntry.objects.get(action="refund.create")
        assert (entry.actor_type, entry.actor_email) == ("admin", "otto@example.com")

    def test_says_what_is_wrong_and_changes_nothing(
        self, world: World, stripe: StripeStub, paid: Transaction, operator: Client
    ) -> None:
        link = f"/admin/billing/transaction/{paid.id}/refund/"
        once = operator.get(link).context["form"].initial["once"]
        for fields in ({"amount": "26", "reason": "x"}, {"amount": "ten", "reason": "x"}, {"amount": "1"}):
            assert operator.post(link, {"once": once, **fields}).status_code == 200
        assert (books(world.acme), back(stripe)) == ((Decimal(25), [TOP_UP]), [])

    def test_is_not_offered_where_it_cannot_work(
        self, world: World, stripe: StripeStub, paid: Transaction, operator: Client
    ) -> None:
        gift = ledger.grant(world.acme.id, Decimal(5), "a gift")
        page = operator.get(f"/admin/billing/transaction/{gift.id}/change/")
        link = f"/admin/billing/transaction/{gift.id}/refund/"
        assert link not in page.content.decode()
        assert operator.get(link).status_code == 302

    def test_is_for_operators_alone(self, world: World, stripe: StripeStub, paid: Transaction) -> None:
        link = f"/admin/billing/transaction/{paid.id}/refund/"
        assert Client().post(link, {"amount": "10", "reason": "x"}).status_code == 302
        assert (books(world.acme)[0], back(stripe)) == (Decimal(25), [])
