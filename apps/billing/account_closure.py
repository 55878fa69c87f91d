"""Account closure: ends a deleted organization's subscription, customer and cards at the payment processor.

An account with a payment in progress stays until the payment's outcome is known.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from apps.billing import payment_processor, subscription
from apps.billing.accounts import locked_account
from apps.billing.models import BillingAccount, Transaction
from apps.organizations.models import Organization


def accounts_to_close() -> QuerySet[BillingAccount]:
    """Return the accounts to close."""
    pending = Transaction.objects.filter(organization=OuterRef("organization"), status=Transaction.Status.PENDING)
    rows = BillingAccount.objects.filter(
        ~Exists(pending), organization__status=Organization.Status.DELETED, processor_customer_id__isnull=False
    )
    return rows.select_related("organization")


def close_account(account: BillingAccount) -> None:
    """End the subscription and delete customer and cards there. Raises ProcessorAway, Refused."""
    if account.subscription_id and account.subscription_status:
        payment_processor.end_subscription(account.subscription_id)
        subscription.sync(account)
    payment_processor.delete_customer(str(account.processor_customer_id))
    with transaction.atomic():
        account = locked_account(account.organization_id)
        account.processor_customer_id, account.notice = None, ""
        account.save(update_fields=["processor_customer_id", "notice", "updated_at"])
