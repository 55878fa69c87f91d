"""Stripe client, the only module that uses Stripe's library.

Every call has a timeout; every call that moves money has an idempotency key, so it may be repeated. Never call it
inside a transaction.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any

import structlog
from django.conf import settings

from apps.billing.payment_processor_types import (
    Card,
    Declined,
    Forged,
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
    invoice_of,
    payment_of,
    refund_of,
    subscription_of,
)

if TYPE_CHECKING:
    # Loaded on first use, so that workers without payments do not pay for the import.
    import stripe

log = structlog.get_logger(__name__)
# The library logs every call, with the card's reason for a decline.
logging.getLogger("stripe").setLevel(logging.WARNING)

# Seconds: to connect, and between two bytes.
TIMEOUT = (5.0, 20.0)
# Seconds that a signed message may be old.
TOLERANCE = 300
CURRENCY = "USD"


def is_on() -> bool:
    """Return whether payments are configured."""
    return bool(settings.STRIPE_SECRET_KEY)


def require() -> None:
    """Raise ProcessorOff if payments are not configured, before anything is written."""
    if not is_on():
        raise ProcessorOff


def create_customer(organization_id: str, email: str, name: str) -> str:
    """Create an organization's customer; return its id. The same organization gets the same customer."""
    fields: Any = {"email": email, "name": name, "metadata": {"organization": organization_id}}
    asked = _ask(lambda client: client.v1.customers.create(fields, {"idempotency_key": f"customer:{organization_id}"}))
    return str(asked["id"])


def delete_customer(customer: str) -> None:
    """Delete a customer with its cards; its subscriptions end at once."""
    with suppress(Missing):
        _ask(lambda client: client.v1.customers.delete(customer))


def set_up_card(customer: str) -> str:
    """Begin adding a card; return the secret for the processor's form in the browser."""
    fields: Any = {"customer": customer, "usage": "off_session", "payment_method_types": ["card"]}
    return str(_ask(lambda client: client.v1.setup_intents.create(fields))["client_secret"])


def open_card_page(customer: str, return_to: str, cancel_to: str) -> str:
    """Begin adding a card on the processor's page; return the page's address.

    It leads back to `return_to`, with the page's id in place of `{CHECKOUT_SESSION_ID}`, or to `cancel_to`.
    """
    fields: Any = {
        "mode": "setup",
        "customer": customer,
        "payment_method_types": ["card"],
        "success_url": return_to,
        "cancel_url": cancel_to,
    }
    return str(_ask(lambda client: client.v1.checkout.sessions.create(fields))["url"])


def card_of_page(page: str, customer: str) -> str | None:
    """Return the id of the card that a customer entered on a page; None if none was. Raises Missing."""
    fields: Any = {"expand": ["setup_intent"]}
    found = _ask(lambda client: client.v1.checkout.sessions.retrieve(page, fields))
    if found.get("customer") != customer:
        raise Missing("There is no such page")
    entered = (found.get("setup_intent") or {}).get("payment_method")
    return str(entered) if entered else None


def card(identifier: str) -> Card:
    """Return a card. Raises Missing, and Refused for another type of payment method."""
    return card_of(_ask(lambda client: client.v1.payment_methods.retrieve(identifier)))


def attach_card(identifier: str, customer: str) -> Card:
    """Attach a card to a customer. Raises Declined."""
    return card_of(_ask(lambda client: client.v1.payment_methods.attach(identifier, {"customer": customer})))


def detach_card(identifier: str) -> None:
    """Detach a card from its customer."""
    with suppress(Refused):  # It is already detached.
        _ask(lambda client: client.v1.payment_methods.detach(identifier))


def set_default_card(identifier: str, customer: str) -> None:
    """Use this card for a customer's subscription."""
    fields: Any = {"invoice_settings": {"default_payment_method": identifier}}
    _ask(lambda client: client.v1.customers.update(customer, fields))


def charge(
    *, key: str, customer: str, card: str, amount: Decimal, metadata: Mapping[str, str], holder_is_here: bool
) -> Payment:
    """Charge a card in USD, once per key. Raises Declined, Refused."""
    fields: Any = {
        "amount": _cents(amount),
        "currency": CURRENCY.lower(),
        "customer": customer,
        "payment_method": card,
        "payment_method_types": ["card"],
        "confirm": True,
        "metadata": dict(metadata),
        **({} if holder_is_here else {"off_session": True}),
    }
    return payment_of(_ask(lambda client: client.v1.payment_intents.create(fields, {"idempotency_key": key})))


def payment(identifier: str) -> Payment:
    """Return the state of a payment."""
    return payment_of(_ask(lambda client: client.v1.payment_intents.retrieve(identifier)))


def open_confirmation(identifier: str, return_to: str) -> str | None:
    """Return the address of the bank's page where the cardholder confirms a payment; it leads back to `return_to`.

    None if nothing needs confirmation. Raises Refused.
    """
    fields: Any = {"return_url": return_to}
    found = _ask(lambda client: client.v1.payment_intents.confirm(identifier, fields))
    action = found.get("next_action") or {}
    address = (action.get("redirect_to_url") or {}).get("url")
    return str(address) if found["status"] == "requires_action" and address else None


def find_payment(customer: str, transaction: str, since: datetime) -> Payment | None:
    """Return the payment made for a transaction of ours, if there is one."""
    fields: Any = {"customer": customer, "created": {"gte": int(since.timestamp()) - TOLERANCE}, "limit": 100}
    for one in _list(lambda client: client.v1.payment_intents.list(fields)):
        found = payment_of(one)
        if found.transaction == transaction:
            return found
    return None


def cancel_payment(identifier: str) -> None:
    """Cancel an unfinished payment, so that it can no longer be made. A finished one stays."""
    with suppress(Refused):
        _ask(lambda client: client.v1.payment_intents.cancel(identifier))


def refund(*, key: str, payment: str, amount: Decimal, metadata: Mapping[str, str]) -> Refund:
    """Refund a part of a payment, once per key. Raises Refused."""
    fields: Any = {"payment_intent": payment, "amount": _cents(amount), "metadata": dict(metadata)}
    return refund_of(_ask(lambda client: client.v1.refunds.create(fields, {"idempotency_key": key})))


def refunds_of(payment: str) -> list[Refund]:
    """Return the refunds of a payment."""
    fields: Any = {"payment_intent": payment, "limit": 100}
    return [refund_of(one) for one in _list(lambda client: client.v1.refunds.list(fields))]


def subscribe(*, key: str, customer: str, metadata: Mapping[str, str]) -> Subscription:
    """Start the pro plan, paid at once with the customer's default card. Raises Declined if that fails."""
    fields: Any = {
        "customer": customer,
        "items": [{"price": settings.STRIPE_PRO_PRICE}],
        "payment_behavior": "error_if_incomplete",
        "metadata": dict(metadata),
    }
    return subscription_of(_ask(lambda client: client.v1.subscriptions.create(fields, {"idempotency_key": key})))


def subscription(identifier: str) -> Subscription:
    """Return a subscription. Raises Missing."""
    return subscription_of(_ask(lambda client: client.v1.subscriptions.retrieve(identifier)))


def subscriptions_of(customer: str) -> list[Subscription]:
    """Return a customer's subscriptions, ended ones too."""
    fields: Any = {"customer": customer, "status": "all", "limit": 100}
    return [subscription_of(one) for one in _list(lambda client: client.v1.subscriptions.list(fields))]


def cancel_at_period_end(identifier: str, cancels: bool) -> Subscription:
    """Cancel a subscription at the end of the paid period, or resume it."""
    fields: Any = {"cancel_at_period_end": cancels}
    return subscription_of(_ask(lambda client: client.v1.subscriptions.update(identifier, fields)))


def end_subscription(identifier: str) -> None:
    """End a subscription now."""
    with suppress(Refused):  # It has ended.
        _ask(lambda client: client.v1.subscriptions.cancel(identifier))


def paid_invoices(subscription: str) -> list[PaidInvoice]:
    """Return the paid invoices of a subscription, oldest first, without those over nothing."""
    fields: Any = {"subscription": subscription, "limit": 24}
    found = _list(lambda client: client.v1.invoices.list(fields))
    paid = [one for one in found if one["status"] == "paid" and one["amount_paid"]]
    paid.sort(key=lambda one: (one["created"], one["id"]))
    return [invoice_of(one) for one in paid]


def read_event(payload: bytes, signature: str) -> ProcessorWebhook:
    """Return the subject of an event. Raises Forged; ValueError for a signed event with unexpected content."""
    import stripe

    for secret in settings.STRIPE_WEBHOOK_SECRETS:
        try:
            # Text that is not UTF-8 raises ValueError.
            stripe.WebhookSignature.verify_header(payload, signature, secret, TOLERANCE)
        except (stripe.SignatureVerificationError, ValueError):
            continue
        return event_of(json.loads(payload))
    raise Forged


@cache
def _client(secret_key: str, address: str) -> stripe.StripeClient:
    import stripe

    base: Any = {"api": address} if address else {}
    return stripe.StripeClient(
        secret_key,
        base_addresses=base,
        http_client=stripe.RequestsClient(timeout=TIMEOUT),
        max_network_retries=1,
    )


def _ask(question: Callable[[stripe.StripeClient], Any]) -> dict[str, Any]:
    """Return the processor's answer as plain values. Raises ProcessorOff, ProcessorAway, Refused."""
    require()
    import stripe

    try:
        answer: dict[str, Any] = question(_client(settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE)).to_dict()
    except stripe.CardError as error:
        raise Declined(error.user_message or "The card was declined", _code_of(error)) from error
    except stripe.InvalidRequestError as error:
        kind = Missing if error.http_status == 404 or error.code == "resource_missing" else Refused
        raise kind(error.user_message or "The payment processor refused", error.code or "") from error
    except stripe.StripeError as error:
        # Stripe's error message may quote request data.
        log.warning("processor.away", kind=type(error).__name__, status=error.http_status, request=error.request_id)
        raise ProcessorAway from error
    return answer


def _list(question: Callable[[stripe.StripeClient], Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _ask(question)["data"]
    return found


def _code_of(error: stripe.CardError) -> str:
    declined = getattr(error.error, "decline_code", None)
    return str(declined or error.code or "card_declined")


def _cents(amount: Decimal) -> int:
    cents = amount * 100
    if cents != cents.to_integral_value():
        raise ValueError("An amount to be charged is a whole number of cents")
    return int(cents)
