"""Automatic top-up: which organizations are due, the amount, and when to stop after declines.

`topup.py` makes the charge, as for manual top-ups.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import ROUND_UP, Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from apps.billing.accounts import locked_account
from apps.billing.models import BillingAccount, PaymentMethod, Transaction
from apps.kernel.errors import NotFound
from apps.organizations import actions
from apps.organizations.journal import audit
from apps.organizations.models import Organization

# USD of one top-up, automatic or not.
LOWEST, HIGHEST = Decimal(5), Decimal(10_000)
CENT = Decimal("0.01")
# Waiting times after consecutive declines; a decline after the last one turns automatic top-up off.
WAITS = (timedelta(hours=1), timedelta(hours=6), timedelta(hours=24))
MAX_DECLINES = 3


def due() -> list[UUID]:
    """Return the organizations below their threshold that can be charged now."""
    card = PaymentMethod.objects.filter(organization=OuterRef("pk"), is_default=True)
    rows = Organization.objects.filter(
        _may_be_tried(), auto_top_up_enabled=True, credits__lt=F("auto_top_up_threshold"), status="active"
    )
    return list(rows.filter(Exists(card)).order_by("id").values_list("id", flat=True))


def begin(organization_id: UUID) -> Transaction | None:
    """Create the pending top-up of an organization; None if it is no longer due or already in progress.

    Concurrent calls wait for each other, so the second sees the first one's row.
    """
    with transaction.atomic():
        locked_account(organization_id)
        pending = Transaction.objects.filter(
            organization=organization_id, type=Transaction.Type.CREDIT_TOPUP, status="pending", is_automatic=True
        )
        rows = Organization.objects.filter(
            _may_be_tried(), auto_top_up_enabled=True, credits__lt=F("auto_top_up_threshold"), status="active"
        )
        organization = rows.filter(pk=organization_id).first()
        card = PaymentMethod.objects.filter(organization=organization_id, is_default=True).first()
        if organization is None or card is None or pending.exists():
            return None
        amount = amount_of(organization.auto_top_up_amount)
        row = Transaction.objects.create(
            organization=organization,
            type=Transaction.Type.CREDIT_TOPUP,
            amount=amount,
            credit_amount=amount,
            is_automatic=True,
            description=f"Automatic top-up, {card}".strip(),
            processor_payment_method_id=card.processor_payment_method_id,
        )
        audit.record(
            "top_up.create", organization_id=organization_id, resource=row, details={"amount": amount, "auto": True}
        )
    return row


def amount_of(wanted: Decimal) -> Decimal:
    """Return the amount to charge: whole cents within the bounds of a top-up."""
    return min(max(wanted.quantize(CENT, ROUND_UP), LOWEST), HIGHEST)


def succeeded(account: BillingAccount) -> None:
    """Reset the count of declines after a payment. The caller has locked the account, and saves it."""
    account.top_up_declines, account.next_top_up_at = 0, None


def declined(account: BillingAccount) -> None:
    """Wait longer after each decline, and finally turn automatic top-up off; the owners get an e-mail.

    The caller has locked the account, and saves it.
    """
    account.top_up_declines += 1
    account.notice = BillingAccount.Notice.AUTO_TOP_UP_DECLINED
    account.next_top_up_at = timezone.now() + WAITS[min(account.top_up_declines, len(WAITS)) - 1]
    if account.top_up_declines < MAX_DECLINES:
        return
    # Turning it on again resets the declines.
    account.top_up_declines, account.next_top_up_at = 0, None
    account.notice = BillingAccount.Notice.AUTO_TOP_UP_DISABLED
    try:
        actions.change_organization(organization=account.organization, changes={"auto_top_up_enabled": False})
    except NotFound:  # Deleted meanwhile, and turned off thereby.
        account.notice = ""


def _may_be_tried() -> Q:
    account = Q(billing_account__next_top_up_at__isnull=True) | Q(billing_account__next_top_up_at__lte=timezone.now())
    return account & Q(billing_account__processor_customer_id__isnull=False)
