"""Money in the admin: to be looked at, and given back. The ledger writes what moves."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from apps.billing.models import (
    BillingAccount,
    Discount,
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
from apps.organizations.organization_tabs import link_to


@admin.register(LedgerEntry)
class LedgerEntryAdmin(LongTableAdmin):
    """Every movement of credits and usage."""

    list_display = ("created_at", "kind", "credits", "usage", "organization_id", "api_key_id")
    list_filter = ("kind",)
    owners = ("organization_id", "api_key_id")


@admin.register(LedgerEpoch)
class LedgerEpochAdmin(RecordAdmin):
    """When the database came back older than what it had told before, and what gave it away."""

    list_display = ("began_at", "reason", "number")
    ordering = ("-number",)


@admin.register(Transaction)
class TransactionAdmin(ButtonsAdmin, RecordAdmin):
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
        "status": "Pending until the payment processor has spoken.",
        "amount": "What was paid, given or returned.",
        "credit_amount": "How many credits (USD) moved with it.",
        "related_transaction": "The payment that a refund returns.",
        "is_automatic": "An automatic top-up.",
        "processor_payment_intent_id": "Its id at the payment processor.",
    }

    @admin.display(description="Organization")
    def organization_link(self, row: Transaction) -> str:
        """Return a link to the organization."""
        return link_to(row.organization)

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


@admin.register(BillingAccount)
class BillingAccountAdmin(RecordAdmin):
    """What organizations are at the payment processor."""

    list_display = ("organization", "processor_customer_id", "subscription_status", "top_up_declines", "next_top_up_at")
    list_filter = ("subscription_status",)
    list_select_related = ("organization",)
    search_fields = ("organization__name", "processor_customer_id__exact", "subscription_id__exact")
    ordering = ("-created_at",)


@admin.register(ProcessorEvent)
class ProcessorEventAdmin(RecordAdmin):
    """What the payment processor told; one without an end could not be followed yet."""

    list_display = ("id", "type", "received_at", "done_at")
    search_fields = ("id__exact", "type__exact")
    ordering = ("-received_at",)


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

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the scope of one that there is: copies of both scopes would become stale."""
        return () if obj is None else ("organization", "provider", "model")

    def _record(self, request: HttpRequest, verb: str, row: Any, details: dict[str, Any]) -> None:
        """Take down what concerns one organization in its audit log; the admin's own history has the others too."""
        if row.organization_id is not None:
            super()._record(request, verb, row, details)
