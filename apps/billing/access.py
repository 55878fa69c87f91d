"""Access control of payment methods and top-ups: which of them a user may change or pay. Must never write."""

from __future__ import annotations

from apps.billing.cards import NO_CARD
from apps.billing.models import PaymentMethod, Transaction
from apps.kernel.postgres.rows import find_row
from apps.organizations.access import access_organization
from apps.organizations.models import Role, User

NO_PAYMENT = "Payment not found"


def access_payment_method(user: User, organization_id: str, payment_method_id: str) -> PaymentMethod:
    """Return a payment method that the user may change: an owner's. Raises NotFound, Forbidden."""
    organization, _ = access_organization(user, organization_id, Role.OWNER)
    return find_row(PaymentMethod.objects.filter(organization=organization), payment_method_id, NO_CARD)


def access_top_up(user: User, organization_id: str, transaction_id: str) -> Transaction:
    """Return a top-up that the user may pay: an owner's. Raises NotFound, Forbidden."""
    organization, _ = access_organization(user, organization_id, Role.OWNER)
    rows = Transaction.objects.filter(organization=organization, type=Transaction.Type.CREDIT_TOPUP)
    return find_row(rows, transaction_id, NO_PAYMENT)
