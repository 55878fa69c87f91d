"""Ledger, transactions, payment methods, discounts: columns and constraints.

The ledger is append-only (a trigger holds it); `ledger.py` is its only writer.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField
from apps.organizations.models import Organization


class LedgerEntry(models.Model):
    """One movement of an organization's credits and, for requests, of a key's usage. Never changed.

    `credits` is what the organization's credits rose by (a cost is negative); `usage` is what the key's usage rose by.
    `reference` names what caused it: once per kind and reference.
    """

    class Kind(models.TextChoices):
        """What moved the money."""

        USAGE = "usage"
        STORAGE = "storage"
        TOP_UP = "top_up"
        GIFT = "gift"
        REFUND = "refund"
        REFERRAL = "referral"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Plain ids: the ledger outlives what it speaks of.
    organization_id = models.UUIDField()
    api_key_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    credits = MoneyField()
    usage = MoneyField(default=0)
    reference = models.UUIDField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["organization_id", "created_at"]),
            models.Index(fields=["api_key_id"], condition=models.Q(api_key_id__isnull=False), name="ledger_api_key"),
        ]
        constraints = [models.UniqueConstraint(fields=["kind", "reference"], name="ledger_once_per_reference")]
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.kind} {self.credits}"


class Transaction(models.Model):
    """What an organization sees of its payments: subscriptions, top-ups, refunds, gifts."""

    class Type(models.TextChoices):
        """The specification's list (2.6)."""

        SUBSCRIPTION_START = "subscription_start"
        SUBSCRIPTION_CANCEL = "subscription_cancel"
        SUBSCRIPTION_END = "subscription_end"
        CREDIT_TOPUP = "credit_topup"
        CREDIT_REFUND = "credit_refund"
        CREDIT_GIFT = "credit_gift"
        DEV_PLAN_START = "dev_plan_start"
        DEV_PLAN_UPGRADE = "dev_plan_upgrade"
        DEV_PLAN_DOWNGRADE = "dev_plan_downgrade"
        DEV_PLAN_CANCEL = "dev_plan_cancel"
        DEV_PLAN_END = "dev_plan_end"
        DEV_PLAN_RENEWAL = "dev_plan_renewal"

    class Status(models.TextChoices):
        """Pending until the processor has spoken."""

        PENDING = "pending"
        COMPLETED = "completed"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="transactions")
    type = models.CharField(max_length=24, choices=Type.choices)
    amount = MoneyField()
    credit_amount = MoneyField(null=True, blank=True)
    currency = models.CharField(max_length=3, default="USD")
    status = models.CharField(max_length=12, choices=Status.choices, default=Status.PENDING)
    processor_payment_intent_id = models.CharField(max_length=255, null=True, blank=True)
    processor_invoice_id = models.CharField(max_length=255, null=True, blank=True)
    description = models.TextField(blank=True)
    related_transaction = models.ForeignKey("self", models.PROTECT, null=True, blank=True)
    refund_reason = models.TextField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["organization", "-created_at"])]

    def __str__(self) -> str:
        return f"{self.type} {self.amount} {self.currency}"


class PaymentMethod(models.Model):
    """A card at the payment processor; only its outward marks are kept."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="payment_methods")
    processor_customer_id = models.CharField(max_length=255)
    processor_payment_method_id = models.CharField(max_length=255, unique=True)
    brand = models.CharField(max_length=32, blank=True)
    last_four = models.CharField(max_length=4, blank=True)
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.brand} {self.last_four}"


class Discount(models.Model):
    """A share off the price of requests; the most specific that matches wins (organization, then model, provider)."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, null=True, blank=True, related_name="discounts")
    provider = models.CharField(max_length=40, blank=True)
    model = models.CharField(max_length=120, blank=True)
    share = models.DecimalField(max_digits=4, decimal_places=3, validators=[MinValueValidator(0), MaxValueValidator(1)])
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.share:%} off {self.provider or 'every provider'} {self.model}".strip()
