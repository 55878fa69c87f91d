"""The end of an account: what a deleted organization has at the payment processor goes as well.

Knows deleted organizations. Must never delete while a payment is under way: it would be lost from sight.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from apps.billing import payment_processor, subscription
from apps.billing.accounts import locked_account
from apps.billing.models import BillingAccount, Transaction
from apps.organizations.models import Organization


def accounts_to_close() -> QuerySet[BillingAccount]:
    """Return the accounts that are to be closed."""
    pending = Transaction.objects.filter(organization=OuterRef("organization"), status=Transaction.Status.PENDING)
    rows = BillingAccount.objects.filter(
        ~Exists(pending), organization__status=Organization.Status.DELETED, processor_customer_id__isnull=False
    )
    return rows.select_related("organization")


def close_account(account: BillingAccount) -> None:
    """End the subscription, and forget customer and cards there. Raises ProcessorAway, Refused."""
    if account.subscription_id and account.subscription_status:
        payment_processor.end_subscription(account.subscription_id)
        subscription.sync(account)
    payment_processor.delete_customer(str(account.processor_customer_id))
    with transaction.atomic():
        account = locked_account(account.organization_id)
        account.processor_customer_id, account.notice = None, ""
        account.save(update_fields=["processor_customer_id", "notice", "updated_at"])
