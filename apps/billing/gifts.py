"""Gifts: credits granted by an operator, with an entry in the organization's audit log."""

from __future__ import annotations

from decimal import Decimal

from django.db import transaction

from apps.billing import ledger
from apps.billing.models import Transaction
from apps.kernel.errors import InvalidRequest
from apps.kernel.postgres.row_lookup import lock_row
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.journal import audit
from apps.organizations.models import Organization


@transaction.atomic
def give(*, organization: Organization, amount: Decimal, description: str) -> Transaction:
    """Grant an organization credits (USD), and return the completed gift; the organization sees `description`.

    Raises InvalidRequest for an amount that is not positive or is finer than 1e-12 USD, NotFound when the organization
    is deleted.
    """
    lock_row(organization, NO_ORGANIZATION)
    try:
        gift = ledger.grant(organization.pk, amount, description)
    except ValueError as error:
        raise InvalidRequest(str(error), param="amount") from error
    details = {"amount": amount, "description": description}
    audit.record("credit_gift.create", organization_id=organization.pk, resource=gift, details=details)
    return gift
