"""Objects of the payment processor in our types: amounts in USD, missing fields, and errors as API errors."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from apps.billing.payment_processor_types import (
    Card,
    Declined,
    Missing,
    PaidInvoice,
    Payment,
    ProcessorAway,
    ProcessorOff,
    ProcessorWebhook,
    Refund,
    Refused,
    Subscription,
    card_of,
    event_of,
    find_payment_error,
    invoice_of,
    payment_of,
    refund_of,
    subscription_of,
    worded,
)
from apps.kernel.errors import InvalidRequest, Overloaded, PaymentRequired

USD = Decimal
BARE = {"id": "pi_1", "amount": 2_550, "currency": "usd"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"status": "succeeded"}, Payment("pi_1", "succeeded", USD("25.5"), "USD", "", "", "", "")),
        # The received amount is the paid one; before that, the requested amount counts.
        ({"status": "succeeded", "amount_received": 2_000}, Payment("pi_1", "succeeded", USD(20), "USD", *[""] * 4)),
        ({"status": "processing", "amount_received": 0}, Payment("pi_1", "processing", USD("25.5"), "USD", *[""] * 4)),
        ({"status": "requires_payment_method"}, Payment("pi_1", "failed", USD("25.5"), "USD", *[""] * 4)),
        (
            {
                "status": "requires_action",
                "customer": "cus_1",
                "metadata": {"transaction": "t-1"},
                "client_secret": "secret",
                "last_payment_error": {"message": "declined"},
            },
            Payment("pi_1", "requires_action", USD("25.5"), "USD", "cus_1", "t-1", "secret", "declined"),
        ),
        (
            {"status": "canceled", "customer": None, "metadata": None, "last_payment_error": None},
            Payment("pi_1", "failed", USD("25.5"), "USD", "", "", "", ""),
        ),
    ],
)
def test_a_payment(more: dict[str, Any], expected: Payment) -> None:
    assert payment_of(BARE | more) == expected


def test_a_card_a_refund_and_an_invoice() -> None:
    marks = {"brand": "b" * 40, "last4": "12345", "exp_month": 1, "exp_year": 2030}
    assert card_of({"id": "pm_1", "customer": "c", "card": marks}) == Card("pm_1", "c", "b" * 32, "1234", 1, 2030)
    assert card_of({"id": "pm_1", "card": {"brand": None}}) == Card("pm_1", None, "", "", None, None)
    with pytest.raises(Refused, match="Not a card") as raised:
        card_of({"id": "pm_1", "sepa_debit": {}})
    assert raised.value.code == "not_a_card"
    bare = {"id": "re_1", "status": "pending", "amount": 5, "currency": "eur"}
    assert refund_of(bare | {"metadata": None}) == Refund("re_1", "pending", USD("0.05"), "EUR", "")
    assert refund_of(bare | {"metadata": {"transaction": "t"}}) == Refund("re_1", "pending", USD("0.05"), "EUR", "t")
    assert invoice_of({"id": "in_1", "amount_paid": 4_900, "currency": "usd"}) == PaidInvoice("in_1", USD(49), "USD")


MAY = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("item", "whole"),
    [
        ({"current_period_end": MAY.timestamp(), "price": {"id": "price_1"}}, {}),
        # Places of older versions of the processor's API.
        ({"plan": {"id": "price_1"}}, {"current_period_end": MAY.timestamp()}),
        ({"price": {"id": "price_1"}, "plan": {"id": "old"}, "current_period_end": MAY.timestamp()}, {}),
    ],
)
def test_a_subscription(item: dict[str, Any], whole: dict[str, Any]) -> None:
    found = {"id": "s", "status": "active", "customer": "c", "items": {"data": [item]}, **whole}
    assert subscription_of(found) == Subscription("s", "active", "c", "", MAY, False, "price_1")
    more = {"metadata": {"transaction": "t"}, "cancel_at_period_end": True}
    assert subscription_of(found | more) == Subscription("s", "active", "c", "t", MAY, True, "price_1")


def test_a_subscription_without_period_and_price() -> None:
    found = {"id": "s", "status": "incomplete", "customer": "c", "items": {"data": [{}]}}
    assert subscription_of(found) == Subscription(
        "s", "incomplete", "c", "", datetime(1970, 1, 1, tzinfo=UTC), False, ""
    )


def test_the_subject_of_an_event() -> None:
    about = {"object": "charge", "id": "ch_1", "customer": "cus_1", "payment_intent": "pi_1", "amount": 7}
    event = {"id": "evt_1", "type": "charge.refunded", "data": {"object": about}}
    assert event_of(event) == ProcessorWebhook("evt_1", "charge.refunded", "charge", "ch_1", "cus_1", "pi_1")
    bare = {"id": "evt_1", "type": "x", "data": {"object": {"object": "balance", "customer": None}}}
    assert event_of(bare) == ProcessorWebhook("evt_1", "x", "balance", "", "", "")
    for broken in ({}, [], None, {"data": {"object": None}}, {"id": "e", "data": {"object": {"object": "x"}}}):
        with pytest.raises(ValueError, match="Not an event"):
            event_of(broken)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ProcessorOff(), (Overloaded, "Payments are not set up here", "payments_off", 3600)),
        (ProcessorAway(), (Overloaded, "The payment processor cannot be reached", "payments_away", 60)),
        (Declined("No funds"), (PaymentRequired, "No funds", "card_declined", None)),
        (Refused("No"), (InvalidRequest, "No", "payment_refused", None)),
        (Missing("None"), (InvalidRequest, "None", "payment_refused", None)),
    ],
)
def test_an_error_of_the_processor_is_an_api_error(error: Exception, expected: tuple[Any, ...]) -> None:
    found = find_payment_error(error)
    assert found is not None
    assert (type(found), found.message, found.code, found.retry_after) == expected
    with pytest.raises(expected[0]) as raised, worded():
        raise error
    assert (raised.value.message, raised.value.__cause__) == (found.message, error)
    assert find_payment_error(ValueError("ours")) is None
    assert str(Refused("No", "code")) == "No"
