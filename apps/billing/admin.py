"""Money in the admin: to be looked at, and given back. The ledger writes what moves."""

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
from apps.kernel.admin import LongTableAdmin, RecordAdmin
from apps.organizations.admin_buttons import ButtonsAdmin
from apps.organizations.audited_admin import AuditedAdmin
from apps.organizations.organization_tabs import OrganizationLink


@admin.register(LedgerEntry)
class LedgerEntryAdmin(LongTableAdmin):
    """Every movement of credits and usage."""

    list_display = ("created_at", "kind", "credits", "usage", "organization_id", "api_key_id")
    list_filter = ("kind",)
    owners = ("organization_id", "api_key_id")
    help_texts = {
        "kind": "What moved the money.",
        "credits": "USD that the balance rose by; negative for a cost.",
        "usage": "USD that the usage of the API key rose by.",
        "reference": "The id of what caused it, such as a request or a payment; counted once.",
    }


@admin.register(Invoice)
class InvoiceAdmin(RecordAdmin):
    """Invoices as they were issued."""

    list_display = ("number", "transaction", "issued_at")
    list_select_related = ("transaction",)
    search_fields = ("number",)
    ordering = ("-number",)
    help_texts = {
        "transaction": "The payment that it is for.",
        "number": "Consecutive over all organizations.",
        "issuer": "Name, address, e-mail and tax id of the seller, as they were when it was issued.",
        "recipient": "Name, address, e-mail and tax id of the customer, as they were when it was issued.",
    }


@admin.register(LedgerEpoch)
class LedgerEpochAdmin(RecordAdmin):
    """When the database came back older than what it had told before, and what gave it away."""

    list_display = ("began_at", "reason", "number")
    ordering = ("-number",)
    help_texts = {
        "reason": "How it was noticed that the database is an older one.",
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
        "type": "What kind of payment it is.",
        "currency": "Of the amount, as an ISO 4217 code; credits are always USD.",
        "refund_reason": "As the operator wrote it; empty where nothing was refunded.",
        "processor_invoice_id": "The invoice's id at the payment processor; empty without one.",
        "processor_refund_id": "The refund's id at the payment processor; empty without one.",
        "status": "Pending until the payment processor has spoken.",
        "amount": "What was paid, given or returned.",
        "credit_amount": "How many credits (USD) moved with it.",
        "related_transaction": "The payment that a refund returns.",
        "is_automatic": "An automatic top-up.",
        "processor_payment_intent_id": "Its id at the payment processor.",
    }

    list_select_related = ("organization",)
    search_fields = ("id__exact", "organization__name", "processor_payment_intent_id__exact")
    ordering = ("-id",)


@admin.register(PaymentMethod)
class PaymentMethodAdmin(RecordAdmin):
    """Cards at the payment processor, by their outward marks."""

    list_display = ("organization", "brand", "last_four", "is_default", "created_at")
    list_select_related = ("organization",)
    search_fields = ("organization__name",)
    ordering = ("-id",)
    fields = ("organization", "brand", "last_four", "is_default", "created_at", "updated_at")
    help_texts = {
        "brand": "Visa, Mastercard and so on, as the payment processor says.",
        "last_four": "The last four digits of the card number; no other is kept.",
        "is_default": "Whether automatic top-ups and subscriptions are charged to it.",
    }


@admin.register(BillingAccount)
class BillingAccountAdmin(RecordAdmin):
    """What organizations are at the payment processor."""

    list_display = ("organization", "processor_customer_id", "subscription_status", "top_up_declines", "next_top_up_at")
    list_filter = ("subscription_status",)
    list_select_related = ("organization",)
    search_fields = ("organization__name", "processor_customer_id__exact", "subscription_id__exact")
    ordering = ("-created_at",)
    help_texts = {
        "processor_customer_id": "The organization's id at the payment processor; empty until it first adds a card.",
        "top_up_declines": "Automatic top-ups that were declined, one after the other.",
        "next_top_up_at": "No automatic top-up is tried before this moment (UTC); empty: at any time.",
        "subscription_id": "The subscription's id at the payment processor; empty without one.",
        "subscription_status": "In the payment processor's words; empty without a subscription.",
        "cancels_at_period_end": "Whether the subscription ends with the month that is paid for.",
        "revision": "Counts the states taken over from the payment processor, so that no older one replaces a newer.",
        "notice": "What owners are still to be told by e-mail; empty: nothing.",
    }


@admin.register(ProcessorEvent)
class ProcessorEventAdmin(RecordAdmin):
    """What the payment processor told; one without an end could not be processed yet."""

    list_display = ("id", "type", "received_at", "done_at")
    search_fields = ("id__exact", "type__exact")
    ordering = ("-received_at",)
    help_texts = {
        "type": "What happened, in the payment processor's words.",
        "done_at": "When it was processed (UTC); empty: not yet.",
    }


@admin.register(Discount)
class DiscountAdmin(AuditedAdmin):
    """Shares off the price of requests. Whose it is and for what stays: for another scope another one is made."""

    thing = "discount"
    list_display = ("share", "provider", "model", "organization", "expires_at")
    list_filter = ("provider",)
    list_select_related = ("organization",)
    search_fields = ("provider", "model", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)
    help_texts = {
        "organization": "Whose requests it is for; empty: those of every organization.",
        "expires_at": "When it ends (UTC); empty: never.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the scope of one that there is: copies of both scopes would become stale."""
        return () if obj is None else ("organization", "provider", "model")

    def _record(self, request: HttpRequest, verb: str, row: Any, details: dict[str, Any]) -> None:
        """Take down what concerns one organization in its audit log; the admin's own history has the others too."""
        if row.organization_id is not None:
            super()._record(request, verb, row, details)
