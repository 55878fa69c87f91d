"""Stripe webhook, `POST /webhooks/stripe`: an event only names its subject, whose state is then fetched from Stripe.

So an event may come twice, late or out of order, and amounts, statuses and owners in it are never trusted. An event
that cannot be processed now gets 503, so that Stripe repeats it.
"""

from __future__ import annotations

from datetime import timedelta

import structlog
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from apps.billing import cards, payment_processor, refunds, subscription, topup
from apps.billing.accounts import find_account
from apps.billing.models import ProcessorEvent, Transaction
from apps.billing.payment_processor_types import Forged, Missing, ProcessorAway, ProcessorWebhook, Refused
from apps.kernel.errors import BodyTooLarge, InvalidRequest, Overloaded
from apps.organizations.journal import audit

log = structlog.get_logger(__name__)

# Bytes of one event.
MAX_BYTES = 512 * 1024
KEPT = timedelta(days=90)


@csrf_exempt
@require_POST
def stripe(request: HttpRequest) -> HttpResponse:
    """Receive an event.

    Raises InvalidRequest for an invalid signature, BodyTooLarge, Overloaded to have it sent again.
    """
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_BYTES or len(request.body) > MAX_BYTES:
        raise BodyTooLarge(f"An event is at most {MAX_BYTES} bytes")
    try:
        event = payment_processor.read_event(request.body, request.headers.get("Stripe-Signature", ""))
    except (Forged, ValueError) as error:
        raise InvalidRequest("The event is not signed by the payment processor") from error
    take_in(event)
    return JsonResponse({"received": True})


def take_in(event: ProcessorWebhook) -> None:
    """Process a verified event, unless it already was. Raises Overloaded if that is not possible now."""
    row, _ = ProcessorEvent.objects.get_or_create(id=event.id[:255], defaults={"type": event.type[:100]})
    if row.done_at is not None:
        return
    try:
        _sync_subject(event)
    except ProcessorAway as error:
        raise Overloaded("The payment processor cannot be reached right now") from error
    except Missing:
        log.warning("webhook.about_nothing", event_id=event.id, type=event.type)
    except Refused as error:
        log.error("webhook.refused", event_id=event.id, type=event.type, code=error.code)
        raise Overloaded("The payment processor refused the lookup") from error
    ProcessorEvent.objects.filter(pk=row.pk).update(done_at=timezone.now())


def sweep() -> int:
    """Delete events older than the processor's retries; return how many."""
    return ProcessorEvent.objects.filter(received_at__lt=timezone.now() - KEPT).delete()[0]


def _sync_subject(event: ProcessorWebhook) -> None:
    """Update the subject of an event."""
    match event.subject:
        case "payment_intent":
            payment = payment_processor.payment(event.subject_id)
            row = topup.find_row(payment)
            if row is not None:
                topup.sync(row, payment)
        case "charge" | "refund" if event.payment:
            refunds.sync(event.payment)
        case "dispute":
            _note_dispute(event)
        case "subscription" | "invoice":
            account = find_account(event.customer)
            if account is not None:
                subscription.sync(account)
        case "payment_method":
            cards.sync(event.subject_id, event.customer)


def _note_dispute(event: ProcessorWebhook) -> None:
    """Alert operators to a disputed payment: they decide about the credits."""
    row = Transaction.objects.filter(
        type=Transaction.Type.CREDIT_TOPUP, processor_payment_intent_id=event.payment or None
    ).first()
    log.error("payment.disputed", type=event.type, dispute=event.subject_id, transaction=str(row.id) if row else None)
    if row is not None:
        details = {"dispute": event.subject_id, "event": event.type}
        audit.record("top_up.dispute", organization_id=row.organization_id, resource=row, details=details)
