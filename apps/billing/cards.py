"""Payment cards: entered at the payment processor, stored here as brand and last digits, one of them the default.

The processor's state is authoritative. Card numbers never reach this code.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.billing import payment_processor
from apps.billing.accounts import account_of, customer_of, find_account, locked_account
from apps.billing.models import PaymentMethod, Transaction
from apps.billing.payment_processor_types import Card, Missing
from apps.kernel.errors import InvalidRequest, RateLimited
from apps.kernel.postgres.rows import find_row
from apps.organizations.journal import audit
from apps.organizations.models import Organization

NO_CARD = "Payment method not found"
# Cards of one organization.
MAX_CARDS = 20
# Declined payments of one organization per hour.
MAX_DECLINES = 10


def begin(organization: Organization) -> str:
    """Begin adding a card; return the secret for the processor's form in the browser."""
    return payment_processor.set_up_card(customer_of(organization))


def open_page(organization: Organization, return_to: str, cancel_to: str) -> str:
    """Begin adding a card on the processor's page; return its address. It leads back as `open_card_page` describes."""
    return payment_processor.open_card_page(customer_of(organization), return_to, cancel_to)


def fetch_from_page(organization: Organization, page: str) -> Card:
    """Return the card that was entered on the processor's page. Raises as `fetch`, and if none was entered."""
    entered = payment_processor.card_of_page(page, customer_of(organization))
    if entered is None:
        raise InvalidRequest("No card was entered", code="payment_method_unknown")
    return fetch(organization, entered)


def fetch(organization: Organization, identifier: str) -> Card:
    """Return the card from the browser's form, attached to the organization at the processor.

    Raises InvalidRequest for something else, for another customer's card, and if the organization has the maximum.
    """
    others = PaymentMethod.objects.filter(organization=organization).exclude(processor_payment_method_id=identifier)
    if others.count() >= MAX_CARDS:
        raise InvalidRequest(f"Maximum {MAX_CARDS} payment methods per organization", code="too_many_payment_methods")
    customer = customer_of(organization)
    found = payment_processor.card(identifier)
    if found.customer is None:
        found = payment_processor.attach_card(identifier, customer)
    if found.customer != customer:
        raise InvalidRequest("There is no such card", code="payment_method_unknown", param="paymentMethodId")
    if not others.exists():
        payment_processor.set_default_card(identifier, customer)
    return found


def keep(organization: Organization, card: Card) -> PaymentMethod:
    """Store a card; the first one is the default. A known card is only updated."""
    marks = {
        "brand": card.brand,
        "last_four": card.last_four,
        "exp_month": card.exp_month,
        "exp_year": card.exp_year,
    }
    with transaction.atomic():
        account = locked_account(organization.id)
        rows = PaymentMethod.objects.filter(organization=organization)
        row = rows.filter(processor_payment_method_id=card.id).first()
        if row is not None:
            rows.filter(pk=row.pk).update(**marks)
            return rows.get(pk=row.pk)
        row = PaymentMethod.objects.create(
            organization=organization,
            processor_customer_id=card.customer or "",
            processor_payment_method_id=card.id,
            is_default=not rows.filter(is_default=True).exists(),
            **marks,
        )
        # A new card: automatic top-up need not wait because of the old one.
        account.top_up_declines, account.next_top_up_at = 0, None
        account.save(update_fields=["top_up_declines", "next_top_up_at", "updated_at"])
        audit.record("payment_method.create", organization_id=organization.id, resource=row, details=_details_of(row))
    return row


def make_default(row: PaymentMethod) -> PaymentMethod:
    """Make a card the default. Raises NotFound if it is gone."""
    payment_processor.set_default_card(row.processor_payment_method_id, row.processor_customer_id)
    with transaction.atomic():
        account = locked_account(row.organization_id)
        rows = PaymentMethod.objects.filter(organization=row.organization_id)
        kept = find_row(rows, row.pk, NO_CARD)
        if not kept.is_default:
            rows.filter(is_default=True).update(is_default=False)
            kept.is_default = True
            kept.save(update_fields=["is_default", "updated_at"])
            account.top_up_declines, account.next_top_up_at = 0, None
            account.save(update_fields=["top_up_declines", "next_top_up_at", "updated_at"])
            audit.record(
                "payment_method.update", organization_id=row.organization_id, resource=kept, details=_details_of(kept)
            )
    return kept


def remove(row: PaymentMethod) -> None:
    """Remove a card here and at the processor; the newest other card becomes the default. A subscription keeps its
    last."""
    others = PaymentMethod.objects.filter(organization=row.organization_id).exclude(pk=row.pk).order_by("-id")
    heir = others.first()
    account = account_of(row.organization_id)
    if heir is None and account.subscription_status and not account.cancels_at_period_end:
        raise InvalidRequest(
            "The subscription is paid with this card; add another one first, or cancel the subscription",
            status=409,
            code="payment_method_in_use",
        )
    if heir is not None and row.is_default:
        make_default(heir)
    payment_processor.detach_card(row.processor_payment_method_id)
    _forget(row)


def sync(identifier: str, customer: str) -> None:
    """Update a card from the processor, after an event about it."""
    account = find_account(customer)
    row = PaymentMethod.objects.filter(processor_payment_method_id=identifier).first()
    try:
        card = payment_processor.card(identifier)
    except Missing:
        card = None
    if card is None or card.customer is None:
        if row is not None:
            _forget(row)
    elif account is not None and card.customer == account.processor_customer_id:
        keep(account.organization, card)


def default_card(organization: Organization) -> PaymentMethod | None:
    """Return the default card; None without one."""
    return PaymentMethod.objects.filter(organization=organization, is_default=True).first()


def refuse_card_testing(organization: Organization) -> None:
    """Raise RateLimited after many declines within an hour, a sign of stolen cards being tested."""
    failed = Transaction.objects.filter(
        organization=organization,
        type__in=(Transaction.Type.CREDIT_TOPUP, Transaction.Type.SUBSCRIPTION_START),
        status=Transaction.Status.FAILED,
        is_automatic=False,
        updated_at__gt=timezone.now() - timedelta(hours=1),
    )
    if failed.count() >= MAX_DECLINES:
        raise RateLimited("Too many payments were declined; try again later", retry_after=3600)


@transaction.atomic
def _forget(row: PaymentMethod) -> None:
    locked_account(row.organization_id)
    rows = PaymentMethod.objects.filter(organization=row.organization_id)
    kept = rows.filter(pk=row.pk).first()
    if kept is None:
        return
    audit.record("payment_method.delete", organization_id=row.organization_id, resource=kept, details=_details_of(kept))
    kept.delete()
    heir = rows.order_by("-id").first()
    if kept.is_default and heir is not None:
        heir.is_default = True
        heir.save(update_fields=["is_default", "updated_at"])


def _details_of(row: PaymentMethod) -> dict[str, str | bool]:
    return {"brand": row.brand, "last4": row.last_four, "isDefault": row.is_default}
