"""Translates the payment processor's exceptions to API errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from apps.billing.payment_processor_types import Declined, ProcessorAway, ProcessorOff, Refused
from apps.kernel.errors import ApiError, InvalidRequest, Overloaded, PaymentRequired


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
