"""Payments and ledger in the admin: read-only, with a refund button. Only the ledger moves money."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

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
from apps.billing.refund_page import refund
from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.organizations.operators.admin_buttons import ButtonsAdmin
from apps.organizations.operators.audited_admin import AuditedAdmin
from apps.organizations.operators.organization_tabs import OrganizationLink


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
