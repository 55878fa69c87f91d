"""Requests to the payment processor as they are sent, and its refusals as our errors."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from apps.billing import cards, payment_processor, topup
from apps.billing.accounts import customer_of
from apps.billing.models import PaymentMethod, Transaction
from apps.billing.payment_processor_types import Declined, Missing, ProcessorAway, Refused
from apps.kernel.errors import InvalidRequest
from tests.support.cast import World
from tests.support.payments import add_card
from tests.support.stripe_stub import StripeStub

USD = Decimal


def test_a_charge_is_confirmed_at_once_in_whole_cents(world: World, stripe: StripeStub) -> None:
    card = add_card(stripe, world.acme)
    for is_here in (True, False):
        payment_processor.charge(
            key=f"key {is_here}",
            customer=card.processor_customer_id,
            card=card.processor_payment_method_id,
            amount=USD("25.5"),
            metadata={"transaction": "t"},
            holder_is_here=is_here,
        )
        assert stripe.fields[-1] == {
            "amount": "2550",
            "currency": "usd",
            "customer": card.processor_customer_id,
            "payment_method": card.processor_payment_method_id,
            "payment_method_types": {"0": "card"},
            "confirm": "true",
            "metadata": {"transaction": "t"},
            **({} if is_here else {"off_session": "true"}),
        }


@pytest.mark.parametrize("amount", ["0.005", "25.001"])
def test_a_part_of_a_cent_is_not_sent(stripe: StripeStub, amount: str) -> None:
    with pytest.raises(ValueError, match="whole number of cents"):
        payment_processor.refund(key="k", payment="pi_1", amount=USD(amount), metadata={})
    assert stripe.asked == []


def test_lists_are_asked_for_as_long_as_they_may_be(world: World, stripe: StripeStub) -> None:
    since = datetime(2026, 5, 1, tzinfo=UTC)
    # A payment was made at the earliest with its row, by a clock that may be five minutes behind.
    began = str(int(since.timestamp()) - 300)
    assert payment_processor.find_payment("cus_1", "t", since) is None
    assert payment_processor.refunds_of("pi_1") == []
    assert payment_processor.subscriptions_of("cus_1") == []
    assert payment_processor.paid_invoices("sub_1") == []
    assert stripe.fields == [
        {"customer": "cus_1", "created": {"gte": began}, "limit": "100"},
        {"payment_intent": "pi_1", "limit": "100"},
        {"customer": "cus_1", "status": "all", "limit": "100"},
        {"subscription": "sub_1", "limit": "24"},
    ]


def test_invoices_that_were_paid_come_oldest_first(stripe: StripeStub) -> None:
    for created, status, cents in (
        (3, "paid", 300),
        (1, "paid", 100),
        (2, "paid", 0),
        (4, "open", 400),
        (2, "paid", 5),
    ):
        invoice = {"subscription": "sub_1", "status": status, "amount_paid": cents, "currency": "usd"}
        stripe._add("in", "invoice", **invoice)["created"] = created
    assert [one.amount for one in payment_processor.paid_invoices("sub_1")] == [USD(1), USD("0.05"), USD(3)]


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (402, {"code": "card_declined", "decline_code": "lost_card", "message": "No."}, (Declined, "No.", "lost_card")),
        (402, {"code": "expired_card"}, (Declined, "The card was declined", "expired_card")),
        (402, {}, (Declined, "The card was declined", "card_declined")),
        (404, {"message": "Gone"}, (Missing, "Gone", "")),
        (400, {"code": "resource_missing", "message": "None"}, (Missing, "None", "resource_missing")),
        (400, {"code": "amount_too_small"}, (Refused, "The payment processor refused", "amount_too_small")),
        (400, {"message": "No"}, (Refused, "No", "")),
    ],
)
def test_a_refusal_is_told_in_the_processors_words(
    stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, status: int, error: dict[str, str], expected: tuple[Any, ...]
) -> None:
    kind = "card_error" if status == 402 else "invalid_request_error"
    monkeypatch.setattr(stripe, "answer", lambda *_: (status, {"error": {"type": kind, **error}}))
    with pytest.raises(Refused) as raised:
        payment_processor.payment("pi_1")
    assert (type(raised.value), raised.value.message, raised.value.code) == expected


def test_another_failure_says_nothing_of_the_outcome(stripe: StripeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stripe, "answer", lambda *_: (401, {"error": {"message": "Invalid key"}}))
    with pytest.raises(ProcessorAway):
        payment_processor.payment("pi_1")


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_question_without_an_answer_is_asked_twice(stripe: StripeStub, lost: str) -> None:
    stripe.lose("/v1/payment_intents/pi_1", lost)
    with pytest.raises(ProcessorAway):
        payment_processor.payment("pi_1")
    assert (stripe.faults, len(stripe.asked)) == ([], 2 if lost == "answer" else 0)
    with pytest.raises(Missing):
        payment_processor.payment("pi_1")


@pytest.mark.parametrize(
    ("status", "action", "address"),
    [
        ("requires_action", {"redirect_to_url": {"url": "https://bank.test/"}}, "https://bank.test/"),
        ("succeeded", {"redirect_to_url": {"url": "https://bank.test/"}}, None),
        ("requires_action", {"redirect_to_url": None}, None),
        ("requires_action", None, None),
    ],
)
def test_only_a_payment_that_waits_for_its_holder_has_a_page_at_the_bank(
    stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, status: str, action: Any, address: str | None
) -> None:
    found = {"id": "pi_1", "object": "payment_intent", "status": status, "next_action": action}
    monkeypatch.setattr(stripe, "answer", lambda *_: (200, found))
    assert payment_processor.open_confirmation("pi_1", "https://here.test/") == address
    assert stripe.fields == [{"return_url": "https://here.test/"}]


def test_the_bank_is_asked_for_a_page_only_where_one_may_be_needed(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "asks")
    row = topup.pay(topup.begin(world.acme, USD(25))).transaction
    payment_id, asked = row.processor_payment_intent_id, len(stripe.asked)
    for changes in ({"status": "completed"}, {"is_automatic": True}, {"processor_payment_intent_id": None}):
        Transaction.objects.filter(pk=row.pk).update(**changes)
        assert topup.open_confirmation(Transaction.objects.get(), "https://here.test/") is None
        Transaction.objects.filter(pk=row.pk).update(
            status="pending", is_automatic=False, processor_payment_intent_id=payment_id
        )
    assert len(stripe.asked) == asked
    page = topup.open_confirmation(Transaction.objects.get(), "https://here.test/")
    assert page == f"{stripe.address}/bank/{payment_id}"


def test_a_page_on_which_no_card_was_entered_leads_to_none(world: World, stripe: StripeStub) -> None:
    cards.open_page(world.acme, "https://here.test/{CHECKOUT_SESSION_ID}", "https://here.test/")
    [page] = stripe.of_kind("checkout.session")
    assert stripe.fields[-1] == {
        "mode": "setup",
        "customer": customer_of(world.acme),
        "payment_method_types": {"0": "card"},
        "success_url": "https://here.test/{CHECKOUT_SESSION_ID}",
        "cancel_url": "https://here.test/",
    }
    with pytest.raises(InvalidRequest, match="No card was entered") as raised:
        cards.fetch_from_page(world.acme, page["id"])
    assert (raised.value.code, PaymentMethod.objects.count()) == ("payment_method_unknown", 0)
    stripe.enter_card(page["id"])
    assert cards.fetch_from_page(world.acme, page["id"]).last_four == "4242"
    with pytest.raises(Missing, match="There is no such page"):
        cards.fetch_from_page(world.elsewhere, page["id"])
