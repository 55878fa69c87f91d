"""The button with which an operator gives money back: a page that asks how much and why.

Knows the form. Must never decide: `refunds.py` does.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.decorators import action
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from apps.billing import payment_processor, refunds
from apps.billing.models import Transaction
from apps.kernel.admin import RecordAdmin
from apps.kernel.errors import ApiError
from apps.organizations import audit
from apps.organizations.models import AuditEntry, User

Button = Callable[["RefundingAdmin", HttpRequest, str], HttpResponse]


def button(**options: Any) -> Callable[[Button], Button]:
    """Make a method a button of the page; its library says nothing of types."""
    return cast(Callable[[Button], Button], action(**options))


class RefundForm(forms.Form):
    """How much (USD), and why, in words that the organization reads."""

    amount = forms.DecimalField(
        min_value=Decimal("0.01"),
        decimal_places=2,
        max_digits=9,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text="USD; the organization's credits fall by as much, below nothing if they are used already",
    )
    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget, help_text="the organization reads it")


class RefundingAdmin(RecordAdmin):
    """A page of transactions whose top-ups can be refunded."""

    actions_detail = ("refund",)

    def has_refund_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Tell whether an operator may refund: one who may change transactions, had that a meaning."""
        return bool(request.user.has_perm("billing.change_transaction"))

    @button(description="Refund", url_path="refund", permissions=["refund"])
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask how much and why, and give it back."""
        payment = get_object_or_404(Transaction, pk=object_id)
        back = reverse("admin:billing_transaction_change", args=[payment.pk])
        left = refunds.refundable(payment)
        if not left or not payment_processor.is_on():
            messages.error(request, "There is nothing to refund here" if not left else "Payments are not set up here")
            return HttpResponseRedirect(back)
        form = RefundForm(request.POST or None, initial={"amount": f"{left:.2f}"})
        if request.method == "POST" and form.is_valid() and _refund(request, payment, form):
            return HttpResponseRedirect(back)
        context = {**self.admin_site.each_context(request), "title": "Refund", "form": form, "payment": payment}
        return TemplateResponse(request, "admin/billing/refund.html", {**context, "left": f"{left:.2f}", "back": back})


def _refund(request: HttpRequest, payment: Transaction, form: forms.Form) -> bool:
    """Do it; False leaves the operator with what is wrong. The processor is asked outside any transaction."""
    fields: dict[str, Any] = form.cleaned_data
    operator = request.user if isinstance(request.user, User) else None
    with audit.acting(operator, AuditEntry.ActorType.ADMIN):
        try:
            row = refunds.pay(refunds.begin(payment, fields["amount"], fields["reason"]))
        except ApiError as error:
            form.add_error("amount", error.message)
            return False
    words = {"completed": (messages.SUCCESS, "Refunded"), "pending": (messages.WARNING, "Under way: see it again soon")}
    level, text = words.get(row.status, (messages.ERROR, row.description))
    messages.add_message(request, level, text)
    return True
