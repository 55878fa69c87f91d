"""The refund button in the admin: asks an operator for amount and reason; `refunds.py` decides."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from apps.billing import payment_processor, refunds
from apps.billing.models import Transaction
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button


class RefundQuestion(ButtonQuestion):
    """Asks for the amount (USD) and the reason, which the organization sees."""

    amount = forms.DecimalField(
        min_value=Decimal("0.01"),
        decimal_places=2,
        max_digits=9,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="USD; deducted from the organization's credits; the balance may become negative",
    )
    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget, help_text="The organization sees it.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["amount"].initial = f"{refunds.refundable(self.row):.2f}"

    @property
    def lines(self) -> list[str]:
        """Paragraphs that explain the refund."""
        left = refunds.refundable(self.row)
        return [
            f"{self.row.organization} paid {self.row.amount:.2f} {self.row.currency}; {left:.2f} can be refunded. The "
            "payment processor returns it to the card that paid. This cannot be undone."
        ]


def is_refundable(payment: Transaction) -> bool:
    """Return whether a refund is possible: part of a top-up is left, and payments are configured."""
    return payment_processor.is_on() and refunds.refundable(payment) > 0


def _pay(payment: Transaction, done: Done) -> Done:
    """Make the refund at the processor, once however often it is called, outside any transaction."""
    row = refunds.pay(Transaction.objects.get(pk=done.reference))
    if row.status == Transaction.Status.COMPLETED:
        return done
    if row.status == Transaction.Status.PENDING:
        return Done("In progress: check again soon", level=messages.WARNING)
    return Done(row.description, level=messages.ERROR)


@button(
    "Refund",
    permission="billing.change_transaction",
    icon="undo",
    danger=True,
    question=RefundQuestion,
    offered=is_refundable,
    finish=_pay,
)
def refund(page: Any, payment: Transaction, fields: Mapping[str, Any]) -> Done:
    """Record the refund; `_pay` makes it."""
    row = refunds.begin(payment, fields["amount"], fields["reason"])
    return Done(f"{row.amount:.2f} {row.currency} went back", reference=str(row.pk))
