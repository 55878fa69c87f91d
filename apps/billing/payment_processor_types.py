"""Types of the payment processor's responses, and its errors as API errors: converts Stripe's objects and cents.

Some fields are in different places in different versions of Stripe's API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal

from apps.kernel.errors import ApiError, InvalidRequest, Overloaded, PaymentRequired

PaymentStatus = Literal["succeeded", "processing", "requires_action", "failed"]
_STATUSES: dict[str, PaymentStatus] = {
    "succeeded": "succeeded",
    "processing": "processing",
    "requires_action": "requires_action",
}


class ProcessorOff(Exception):
    """No account at the processor is configured."""


class ProcessorAway(Exception):
    """No answer, so the outcome is unknown: retry, or look it up."""


class Refused(Exception):
    """The processor refused for good; the message is for users."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        self.message, self.code = message, code


class Declined(Refused):
    """The card's bank declined."""


class Missing(Refused):
    """The processor does not have the requested object."""


class Forged(Exception):
    """An event without a valid, recent signature of the processor."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card and its customer; `customer` is None if it is not attached."""

    id: str
    customer: str | None
    brand: str
    last_four: str
    exp_month: int | None
    exp_year: int | None


@dataclass(frozen=True, slots=True)
class Payment:
    """The state of a charge. `transaction` is our id for it, `amount` the paid or requested amount."""

    id: str
    status: PaymentStatus
    amount: Decimal
    currency: str
    customer: str
    transaction: str
    client_secret: str
    problem: str


@dataclass(frozen=True, slots=True)
class Refund:
    """A refund of a payment; `transaction` as in `Payment`, empty if it was made elsewhere."""

    id: str
    status: str
    amount: Decimal
    currency: str
    transaction: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription at a price; `transaction` as in `Payment`."""

    id: str
    status: str
    customer: str
    transaction: str
    period_ends_at: datetime
    cancels_at_period_end: bool
    price: str


@dataclass(frozen=True, slots=True)
class PaidInvoice:
    """A paid invoice of a subscription."""

    id: str
    amount: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class ProcessorWebhook:
    """An event: its id and type, and type, id, customer and payment of its subject. Other fields are ignored."""

    id: str
    type: str
    subject: str
    subject_id: str
    customer: str
    payment: str


def card_of(found: Mapping[str, Any]) -> Card:
    """Return a card. Raises Refused for another type of payment method."""
    marks = found.get("card")
    if not marks:
        raise Refused("Not a card", "not_a_card")
    return Card(
        id=found["id"],
        customer=found.get("customer"),
        brand=str(marks.get("brand") or "")[:32],
        last_four=str(marks.get("last4") or "")[:4],
        exp_month=marks.get("exp_month"),
        exp_year=marks.get("exp_year"),
    )


def payment_of(found: Mapping[str, Any]) -> Payment:
    """Return a payment."""
    status = _STATUSES.get(found["status"], "failed")
    received = found.get("amount_received", found["amount"]) if status == "succeeded" else found["amount"]
    return Payment(
        id=found["id"],
        status=status,
        amount=_usd(received),
        currency=str(found["currency"]).upper(),
        customer=str(found.get("customer") or ""),
        transaction=str((found.get("metadata") or {}).get("transaction") or ""),
        client_secret=str(found.get("client_secret") or ""),
        problem=str((found.get("last_payment_error") or {}).get("message") or ""),
    )


def refund_of(found: Mapping[str, Any]) -> Refund:
    """Return a refund."""
    return Refund(
        id=found["id"],
        status=str(found["status"]),
        amount=_usd(found["amount"]),
        currency=str(found["currency"]).upper(),
        transaction=str((found.get("metadata") or {}).get("transaction") or ""),
    )


def subscription_of(found: Mapping[str, Any]) -> Subscription:
    """Return a subscription."""
    [item, *_] = found["items"]["data"]
    ends = item.get("current_period_end") or found.get("current_period_end")
    price = (item.get("price") or item.get("plan") or {}).get("id")
    return Subscription(
        id=found["id"],
        status=str(found["status"]),
        customer=str(found["customer"]),
        transaction=str((found.get("metadata") or {}).get("transaction") or ""),
        period_ends_at=datetime.fromtimestamp(int(ends or 0), UTC),
        cancels_at_period_end=bool(found.get("cancel_at_period_end")),
        price=str(price or ""),
    )


def invoice_of(found: Mapping[str, Any]) -> PaidInvoice:
    """Return a paid invoice."""
    return PaidInvoice(found["id"], _usd(found["amount_paid"]), str(found["currency"]).upper())


def event_of(event: Any) -> ProcessorWebhook:
    """Return the subject of an event. Raises ValueError."""
    try:
        about = event["data"]["object"]
        return ProcessorWebhook(
            id=str(event["id"]),
            type=str(event["type"]),
            subject=str(about["object"]),
            subject_id=str(about.get("id") or ""),
            customer=str(about.get("customer") or ""),
            payment=str(about.get("payment_intent") or ""),
        )
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("Not an event") from error


def _usd(cents: int) -> Decimal:
    return Decimal(cents) / 100


def find_payment_error(exception: Exception) -> ApiError | None:
    """Return the API error for an exception of the processor; None for any other."""
    match exception:
        case ProcessorOff():
            return Overloaded("Payments are not set up here", code="payments_off", retry_after=3600)
        case ProcessorAway():
            return Overloaded("The payment processor cannot be reached", code="payments_away", retry_after=60)
        case Declined():
            return PaymentRequired(exception.message, code="card_declined")
        case Refused():
            return InvalidRequest(exception.message, code="payment_refused")
    return None


@contextmanager
def worded() -> Iterator[None]:
    """Raise the processor's exceptions as an ApiError."""
    try:
        yield
    except (ProcessorOff, ProcessorAway, Refused) as exception:
        raise find_payment_error(exception) or exception from exception
