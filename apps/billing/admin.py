"""Money in the admin: to be looked at. What moves it, the ledger writes; operators grant credits by command."""

from __future__ import annotations

from django.contrib import admin

from apps.billing.models import Discount, LedgerEntry, PaymentMethod, Transaction
from apps.kernel.admin import LongTableAdmin, RecordAdmin, RowAdmin


@admin.register(LedgerEntry)
class LedgerEntryAdmin(LongTableAdmin):
    """Every movement of credits and usage."""

    list_display = ("created_at", "kind", "credits", "usage", "organization_id", "api_key_id")
    list_filter = ("kind",)
    owners = ("organization_id", "api_key_id")


@admin.register(Transaction)
class TransactionAdmin(RecordAdmin):
    """Payments, refunds, gifts and subscriptions."""

    list_display = ("created_at", "organization", "type", "amount", "credit_amount", "currency", "status")
    list_filter = ("type", "status")
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


@admin.register(Discount)
class DiscountAdmin(RowAdmin):
    """Shares off the price of requests."""

    list_display = ("share", "provider", "model", "organization", "expires_at")
    list_filter = ("provider",)
    list_select_related = ("organization",)
    search_fields = ("provider", "model", "organization__name")
    autocomplete_fields = ("organization",)
    ordering = ("-id",)
