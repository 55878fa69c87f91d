"""Hooks of organizations: transactions in the admin, with a button that grants credits; the erasure of payment data.

The ledger and invoices stay; cards and discounts go.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from uuid import UUID

from django import forms
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from apps.billing import gifts
from apps.billing.invoices import INVOICED, has_invoice, issue
from apps.billing.models import Discount, PaymentMethod, Transaction
from apps.kernel.pages.admin import usd
from apps.kernel.pages.number_formats import mark_numbers
from apps.organizations.models import Organization
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button, is_living
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment

# USD; a safeguard against typing errors.
MAX_GRANT = Decimal(1_000_000)


class GrantQuestion(ButtonQuestion):
    """Asks for the amount (USD) and a description that the organization sees."""

    amount = forms.DecimalField(
        max_value=MAX_GRANT,
        decimal_places=12,
        max_digits=24,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=f"USD, more than 0 and at most {MAX_GRANT:,}.",
    )
    description = forms.CharField(
        max_length=500,
        initial="Granted by an operator",
        widget=UnfoldAdminTextInputWidget,
        help_text="The organization sees it in its transactions.",
    )

    @property
    def lines(self) -> list[str]:
        """Paragraphs that explain the grant."""
        return [
            f"A gift at no charge: the balance of {usd(self.row.credits)} USD rises at once. It "
            "cannot be taken back here: the ledger only grows."
        ]


@button(
    "Grant credits",
    permission="billing.add_transaction",
    icon="redeem",
    question=GrantQuestion,
    offered=is_living,
)
def grant(page: Any, organization: Organization, fields: Mapping[str, Any]) -> Done:
    """Grant an organization credits."""
    gift = gifts.give(organization=organization, amount=fields["amount"], description=fields["description"])
    return Done(f"{organization} was granted {usd(gift.amount)} USD")


def _transactions(organization: Organization) -> Any:
    return Transaction.objects.filter(organization=organization).order_by("-created_at")


TABS = [
    Tab(
        "transactions",
        "Transactions",
        "billing.view_transaction",
        lambda row: list_of("billing_transaction", organization__id__exact=row.pk),
        ("When (UTC)", "Type", "Amount", "Credits (USD)", "Status", "Description"),
        _transactions,
        lambda row: (
            link_to(row, moment(row.created_at)),
            row.get_type_display(),
            mark_numbers(f"{usd(row.amount)} {row.currency}"),
            mark_numbers(usd(row.credit_amount)),
            row.status,
            row.description,
        ),
    )
]
BUTTONS = [grant]


def erase(organization_id: UUID) -> None:
    """issue the missing invoices, while the billing address is known; remove cards and discounts."""
    unissued = Transaction.objects.filter(organization=organization_id, invoice=None).select_related("organization")
    for row in unissued.filter(status=Transaction.Status.COMPLETED, type__in=INVOICED).order_by("created_at", "id"):
        if has_invoice(row):
            issue(row)
    PaymentMethod.objects.filter(organization=organization_id).delete()
    Discount.objects.filter(organization=organization_id).delete()
