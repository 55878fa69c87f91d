"""Payment cards: taken at the payment processor, kept here by brand and last digits, one of them the default.

Knows an organization's cards and that the processor has the last word on them. Must never see a card's number.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from apps.billing import payment_processor
from apps.billing.accounts import account_of, customer_of, find_account, locked_account
from apps.billing.models import PaymentMethod, Transaction
from apps.billing.payment_processor_types import Card, Missing
from apps.kernel.errors import InvalidRequest, NotFound, RateLimited
from apps.organizations import audit
from apps.organizations.models import Organization

NO_CARD = "Payment method not found"
# Cards that one organization may keep.
MOST = 20
# Payments of one organization that may be declined within an hour.
MOST_DECLINES = 10


def begin(organization: Organization) -> str:
    """Begin taking a card; return the secret with which the processor's own form in the browser finishes it."""
    return payment_processor.set_up_card(customer_of(organization))


def open_page(organization: Organization, return_to: str, cancel_to: str) -> str:
    """Begin taking a card on the processor's own page; return its address. It leads back as `open_card_page` says."""
    return payment_processor.open_card_page(customer_of(organization), return_to, cancel_to)


def fetch_from_page(organization: Organization, page: str) -> Card:
    """Return the card that was entered on the processor's page. Raises as `fetch`, and where none was entered."""
    entered = payment_processor.card_of_page(page, customer_of(organization))
    if entered is None:
        raise InvalidRequest("No card was entered", code="payment_method_unknown")
    return fetch(organization, entered)


def fetch(organization: Organization, identifier: str) -> Card:
    """Return the card that the browser brought about, now the organization's at the processor.

    Raises InvalidRequest for what is no card, or a card of somebody else's, and for more cards than may be kept.
    """
    others = PaymentMethod.objects.filter(organization=organization).exclude(processor_payment_method_id=identifier)
    if others.count() >= MOST:
        raise InvalidRequest(f"Maximum {MOST} payment methods per organization", code="too_many_payment_methods")
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
    """Keep a card, the first one as the default. The same card again changes nothing but its marks."""
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
        # A new card: automatic top-ups need not wait for the old one's sake.
        account.top_up_declines, account.next_top_up_at = 0, None
        account.save(update_fields=["top_up_declines", "next_top_up_at", "updated_at"])
        audit.record("payment_method.create", organization_id=organization.id, resource=row, details=_details_of(row))
    return row


def make_default(row: PaymentMethod) -> PaymentMethod:
    """Let a card be the one that is charged. Raises NotFound when it is gone."""
    payment_processor.set_default_card(row.processor_payment_method_id, row.processor_customer_id)
    with transaction.atomic():
        account = locked_account(row.organization_id)
        rows = PaymentMethod.objects.filter(organization=row.organization_id)
        kept = rows.filter(pk=row.pk).first()
        if kept is None:
            raise NotFound(NO_CARD)
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
    """Forget a card, there and here; the newest of the others becomes the default. The last of a subscription stays."""
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
    """Take over what became of a card at the processor, after a message about it."""
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
    """Return the card that is charged; None without one."""
    return PaymentMethod.objects.filter(organization=organization, is_default=True).first()


def refuse_card_testing(organization: Organization) -> None:
    """Raise RateLimited after many declines within an hour: stolen cards are tried out this way."""
    failed = Transaction.objects.filter(
        organization=organization,
        type__in=(Transaction.Type.CREDIT_TOPUP, Transaction.Type.SUBSCRIPTION_START),
        status=Transaction.Status.FAILED,
        is_automatic=False,
        updated_at__gt=timezone.now() - timedelta(hours=1),
    )
    if failed.count() >= MOST_DECLINES:
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
