"""Refunds: no more than was paid, the money back once, and exactly as many credits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
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


def made_there(stripe: StripeStub, paid: Transaction, cents: int, **fields: Any) -> dict[str, Any]:
    """Return a refund of a payment, made at the processor."""
    fields = {"payment_intent": paid.processor_payment_intent_id, "amount": str(cents), **fields}
    made: dict[str, Any] = stripe.answer("POST", "/v1/refunds", fields, None)[1]
    return made


@pytest.mark.parametrize(
    ("change", "status", "credits"),
    [
        ({"status": "pending"}, "pending", 25),
        ({"status": "succeeded"}, "completed", 15),
        ({"status": "failed"}, "failed", 25),
        ({"status": "canceled"}, "failed", 25),
        # Another amount or currency is none of ours.
        ({"amount": 999}, "pending", 25),
        ({"currency": "eur"}, "pending", 25),
    ],
)
def test_a_pending_refund_has_the_outcome_that_it_has_there(
    world: World, stripe: StripeStub, paid: Transaction, change: dict[str, Any], status: str, credits: int
) -> None:
    row = refunds.begin(paid, Decimal(10), "x")
    made_there(stripe, paid, 10_00, metadata={"transaction": str(row.id)}).update(change)
    assert refunds.recover(row).status == status
    assert books(world.acme)[0] == credits
    row.refresh_from_db()
    assert row.description == "Refund of Top-up, visa 4242" + (": the refund failed" if status == "failed" else "")
    assert (row.processor_refund_id is None) is (status == "pending")


def test_an_attempt_of_long_ago_is_looked_for_and_never_made_anew(
    world: World, stripe: StripeStub, paid: Transaction
) -> None:
    stripe.lose("/v1/refunds", "request")
    row = refunds.pay(refunds.begin(paid, Decimal(10), "x"))
    Transaction.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(minutes=61))
    row.refresh_from_db()
    row = refunds.recover(row)
    assert (row.status, row.description) == (
        "failed",
        "Refund of Top-up, visa 4242: the payment processor was not reached",
    )
    assert (books(world.acme)[0], back(stripe), refunds.refundable(paid)) == (Decimal(25), [], Decimal(25))


@pytest.mark.parametrize(("sooner", "status"), [(0, "failed"), (1, "completed")])
def test_a_refund_is_made_again_for_less_than_an_hour(
    stripe: StripeStub, paid: Transaction, monkeypatch: pytest.MonkeyPatch, sooner: int, status: str
) -> None:
    row = refunds.begin(paid, Decimal(10), "x")
    now = row.created_at + timedelta(hours=1) - timedelta(microseconds=sooner)
    monkeypatch.setattr(refunds, "timezone", SimpleNamespace(now=lambda: now))
    assert refunds.recover(row).status == status
    assert back(stripe) == ([1000] if status == "completed" else [])


def test_a_refund_of_a_payment_that_is_not_known_there_stays_as_it_is(
    world: World, stripe: StripeStub, paid: Transaction
) -> None:
    row = refunds.begin(paid, Decimal(10), "x")
    asked = len(stripe.asked)
    for changes in ({"processor_payment_intent_id": None}, {"related_transaction": None}):
        Transaction.objects.filter(pk__in=[paid.pk, row.pk]).update(**changes)
        assert refunds.recover(Transaction.objects.get(pk=row.pk)).status == "pending"
    assert refunds.pay(Transaction.objects.get(pk=row.pk)).status == "pending"
    assert (len(stripe.asked), books(world.acme)[0]) == (asked, Decimal(25))


def test_what_the_bank_returns_later_is_for_an_operator(
    world: World, stripe: StripeStub, paid: Transaction, caplog: pytest.LogCaptureFixture
) -> None:
    row = refunds.pay(refunds.begin(paid, Decimal(10), "x"))
    stripe.of_kind("refund")[0]["status"] = "failed"
    refunds.sync(paid.processor_payment_intent_id or "")
    assert "refund.failed_late" in caplog.text
    assert books(world.acme) == (Decimal(15), [TOP_UP, ("credit_refund", "10", "completed")])
    assert Transaction.objects.get(pk=row.pk).description == "Refund of Top-up, visa 4242"


def test_news_of_a_refund_is_taken_over_where_money_went_back(
    world: World, stripe: StripeStub, paid: Transaction
) -> None:
    made_there(stripe, paid, 100)["status"] = "pending"
    made_there(stripe, paid, 200)
    known = refunds.begin(paid, Decimal(3), "ours")
    made_there(stripe, paid, 300, metadata={"transaction": str(known.id)})
    for _ in range(2):
        refunds.sync(paid.processor_payment_intent_id or "")
        refunds.sync("pi_of_another_product")
    assert books(world.acme)[0] == Decimal(20)
    rows = Transaction.objects.filter(type="credit_refund").order_by("amount")
    assert [(row.amount, row.status, row.refund_reason) for row in rows] == [
        (2, "completed", "Refunded at the payment processor"),
        (3, "completed", "ours"),
    ]
    assert [row.related_transaction_id for row in rows] == [paid.id, paid.id]


def test_only_what_was_paid_and_is_not_on_its_way_back_can_be_refunded(
    world: World, stripe: StripeStub, paid: Transaction
) -> None:
    refunds.begin(paid, Decimal("24.99"), "x")
    assert refunds.refundable(paid) == Decimal("0.01")
    with pytest.raises(InvalidRequest, match=r"from 0\.01 to 0\.01 USD, in whole cents") as raised:
        refunds.begin(paid, Decimal("0.02"), "x")
    assert raised.value.param == "amount"
    assert refunds.begin(paid, Decimal("0.01"), "x").amount == Decimal("0.01")
    gift = ledger.grant(world.acme.id, Decimal(5), "a gift")
    unpaid = topup.begin(world.acme, Decimal(5))
    assert (refunds.refundable(gift), refunds.refundable(unpaid)) == (Decimal(0), Decimal(0))
    # More went back there than was paid here.
    Transaction.objects.filter(type="credit_refund").update(amount=Decimal(30))
    assert refunds.refundable(paid) == Decimal(0)


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
