"""Billing accounts: an organization's customer at the payment processor, created once."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from apps.billing import payment_processor
from apps.billing.models import BillingAccount, Transaction
from apps.organizations.models import Organization


def account_of(organization_id: UUID) -> BillingAccount:
    """Return an organization's account, a new one if it has none."""
    account, _ = BillingAccount.objects.get_or_create(organization_id=organization_id)
    return account


def locked_account(organization_id: UUID) -> BillingAccount:
    """Return the account, locked until the caller's transaction ends."""
    account_of(organization_id)
    return BillingAccount.objects.select_for_update(no_key=True).get(organization_id=organization_id)


def locked_transaction(transaction_id: UUID) -> Transaction:
    """Return a transaction, locked with its account until the caller's transaction ends.

    Lock order is account, transaction, organization, which prevents deadlocks.
    """
    organization_id = Transaction.objects.values_list("organization_id", flat=True).get(pk=transaction_id)
    locked_account(organization_id)
    return Transaction.objects.select_for_update(no_key=True).get(pk=transaction_id)


def customer_of(organization: Organization) -> str:
    """Return the id of the organization's customer, created on first use. Raises ProcessorAway, ProcessorOff, Refused.

    Concurrent or repeated creation gives the same customer, because the organization's id is the idempotency key.
    """
    account = account_of(organization.id)
    if account.processor_customer_id is None:
        made = payment_processor.create_customer(
            str(organization.id), organization.billing_email or "", organization.name
        )
        with transaction.atomic():
            account = locked_account(organization.id)
            account.processor_customer_id = account.processor_customer_id or made
            account.save(update_fields=["processor_customer_id", "updated_at"])
    return str(account.processor_customer_id)


def find_account(customer: str) -> BillingAccount | None:
    """Return the account of a customer at the processor; None if the customer is not ours."""
    return BillingAccount.objects.filter(processor_customer_id=customer).first() if customer else None
