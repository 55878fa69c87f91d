"""Payments and ledger in the admin: read-only, with a refund button. Only the ledger moves money."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextInputWidget

from apps.billing import payment_processor, refunds
from apps.billing.models import (
    BillingAccount,
    Discount,
    Invoice,
    LedgerEntry,
    LedgerEpoch,
    PaymentMethod,
    ProcessorEvent,
    Transaction,
)
from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button
from apps.organizations.operators.audited_admin import AuditedAdmin
from apps.organizations.operators.organization_tabs import OrganizationLink


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


@admin.register(LedgerEntry)
class LedgerEntryAdmin(LongTableAdmin):
    """Every change of credits and usage."""

    list_display = ("created_at", "kind", "credits", "usage", "organization_id", "api_key_id")
    list_filter = ("kind",)
    owners = ("organization_id", "api_key_id")
    help_texts = {
        "kind": "The cause of the change.",
        "credits": "USD added to the balance; negative for a cost.",
        "usage": "USD added to the usage of the API key.",
        "reference": "The id of the cause, such as a request or a payment; counted once.",
    }


@admin.register(Invoice)
class InvoiceAdmin(RecordAdmin):
    """Issued invoices."""

    list_display = ("number", "transaction", "issued_at")
    list_select_related = ("transaction",)
    search_fields = ("number",)
    ordering = ("-number",)
    help_texts = {
        "transaction": "The invoiced payment.",
        "number": "Consecutive across all organizations.",
        "issuer": "Name, address, e-mail and tax id of the seller when it was issued.",
        "recipient": "Name, address, e-mail and tax id of the customer when it was issued.",
    }


@admin.register(LedgerEpoch)
class LedgerEpochAdmin(RecordAdmin):
    """Epochs of the ledger: a new one begins when the database turns out older than before, such as after a restore."""

    list_display = ("began_at", "reason", "number")
    ordering = ("-number",)
    help_texts = {
        "reason": "How the older database was detected.",
    }


@admin.register(Transaction)
class TransactionAdmin(OrganizationLink, ButtonsAdmin, RecordAdmin):
    """Payments, refunds, gifts and subscriptions; a top-up has a button to refund it."""

    actions_detail = ("refund",)
    refund = refund
    list_display = ("created_at", "organization_link", "type", "amount", "credit_amount", "currency", "status")
    list_filter = ("type", "status")
    sortable_by = ()
    fields = (
        *("created_at", "organization", "type", "status", "amount", "credit_amount", "currency", "description"),
        *("related_transaction", "refund_reason", "is_automatic", "processor_payment_intent_id"),
        *("processor_invoice_id", "processor_refund_id", "id", "updated_at"),
    )
    readonly_fields = ("id", "created_at", "updated_at")
    help_texts = {
        "type": "The type of payment.",
        "currency": "Currency of the amount (ISO 4217); credits are always USD.",
        "refund_reason": "As the operator wrote it; empty without a refund.",
        "processor_invoice_id": "The invoice's id at the payment processor; empty without one.",
        "processor_refund_id": "The refund's id at the payment processor; empty without one.",
        "status": "Pending until Stripe confirms.",
        "amount": "The amount paid, granted or refunded.",
        "credit_amount": "Credits (USD) that moved with it.",
        "related_transaction": "The refunded payment.",
        "is_automatic": "An automatic top-up.",
        "processor_payment_intent_id": "Its id at the payment processor.",
    }

    list_select_related = ("organization",)
    search_fields = ("id__exact", "organization__name", "processor_payment_intent_id__exact")
    ordering = ("-id",)


@admin.register(PaymentMethod)
class PaymentMethodAdmin(RecordAdmin):
    """Cards at the payment processor: brand, last digits, expiry."""

    list_display = ("organization", "brand", "last_four", "is_default", "created_at")
    list_select_related = ("organization",)
    search_fields = ("organization__name",)
    ordering = ("-id",)
    fields = ("organization", "brand", "last_four", "is_default", "created_at", "updated_at")
    help_texts = {
        "brand": "Visa, Mastercard and so on, as the payment processor reports it.",
        "last_four": "The last four digits of the card number; the rest is not stored.",
        "is_default": "Whether automatic top-ups and subscriptions use it.",
    }


@admin.register(BillingAccount)
class BillingAccountAdmin(RecordAdmin):
    """Customers and subscriptions of organizations at the payment processor."""

    list_display = ("organization", "processor_customer_id", "subscription_status", "top_up_declines", "next_top_up_at")
    list_filter = ("subscription_status",)
    list_select_related = ("organization",)
    search_fields = ("organization__name", "processor_customer_id__exact", "subscription_id__exact")
    ordering = ("-created_at",)
    help_texts = {
        "processor_customer_id": "The organization's id at the payment processor; empty until it first adds a card.",
        "top_up_declines": "Consecutive declined automatic top-ups.",
        "next_top_up_at": "No automatic top-up is tried before this moment (UTC); empty: at any time.",
        "subscription_id": "The subscription's id at the payment processor; empty without one.",
        "subscription_status": "As the payment processor reports it; empty without a subscription.",
        "cancels_at_period_end": "Whether the subscription ends with the paid month.",
        "revision": "Counts updates from the payment processor, so that an older state never replaces a newer one.",
        "notice": "E-mail to the owners that is not sent yet; empty: none.",
    }


@admin.register(ProcessorEvent)
class ProcessorEventAdmin(RecordAdmin):
    """Stripe events; one without a processing time is still waiting."""

    list_display = ("id", "type", "received_at", "done_at")
    search_fields = ("id__exact", "type__exact")
    ordering = ("-received_at",)
    help_texts = {
        "type": "The event's type, as the payment processor calls it.",
        "done_at": "When it was processed (UTC); empty: not yet.",
    }


@admin.register(Discount)
class DiscountAdmin(AuditedAdmin):
    """Discounts on requests. Organization and scope are fixed: create another discount for another scope."""

    thing = "discount"
    list_display = ("share", "provider", "model", "organization", "expires_at")
    list_filter = ("provider",)
    list_select_related = ("organization",)
    search_fields = ("provider", "model", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)
    help_texts = {
        "organization": "The organization it applies to; empty: all.",
        "expires_at": "When it ends (UTC); empty: never.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Make the scope of an existing discount read-only: cached copies of both scopes would become stale."""
        return () if obj is None else ("organization", "provider", "model")

    def _record(self, request: HttpRequest, verb: str, row: Any, details: dict[str, Any]) -> None:
        """Record changes for one organization in its audit log; the admin's own history has all."""
        if row.organization_id is not None:
            super()._record(request, verb, row, details)
