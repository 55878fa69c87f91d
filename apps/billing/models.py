"""Ledger, transactions, payment methods, invoices, discounts: columns and constraints.

A trigger keeps the ledger append-only; `ledger.py` is its only writer.
"""

from __future__ import annotations

from typing import Any

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_noop

from apps.kernel.ids import new_id
from apps.kernel.money import MoneyField, plain
from apps.kernel.pages.languages import translated_sentence
from apps.kernel.pages.number_formats import percent
from apps.kernel.valkey import generation
from apps.organizations.models import Organization

# Descriptions of transactions, as they are stored; a reason of the payment processor may follow.
_DESCRIPTIONS = (
    gettext_noop("Top-up, {card}"),
    gettext_noop("Automatic top-up, {card}"),
    gettext_noop("Refund of {payment}"),
    gettext_noop("Pro plan"),
    gettext_noop("Pro plan: {reason}"),
    gettext_noop("Pro plan, renewed"),
    gettext_noop("Pro plan, ended"),
    gettext_noop("Pro plan, cancelled; it ends on {day}"),
)


def describe_payment(description: str) -> str:
    """Return the description of a transaction in the active language; that of a gift is the operator's own."""
    return translated_sentence(description, _DESCRIPTIONS, {"payment": _DESCRIPTIONS})


class LedgerEntry(models.Model):
    """One change of an organization's credits and, for requests, of a key's usage. Never changed.

    `credits` is added to the organization's credits (negative for a cost); `usage` is added to the key's usage.
    `reference` names the cause: one entry per kind and reference.
    """

    class Kind(models.TextChoices):
        """The cause of the change."""

        USAGE = "usage"
        STORAGE = "storage"
        TOP_UP = "top_up"
        GIFT = "gift"
        REFUND = "refund"
        REFERRAL = "referral"
        HOLD = "hold"
        HOLD_RELEASE = "hold_release"

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    # Plain ids: the ledger outlives organizations and keys.
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
        return f"{self.kind} {plain(self.credits)}"


class LedgerEpoch(models.Model):
    """A period of the ledger between two restores; the one with the highest number is current.

    Copies of balances belong to an epoch, and copies of other epochs are ignored (`balance_copies.py`). Never changed.
    """

    # Microseconds since 1970 at its start, and higher than any before, so that two histories never share one.
    number = models.BigIntegerField(primary_key=True, editable=False)
    reason = models.CharField(max_length=200)
    began_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.began_at:%Y-%m-%d %H:%M} {self.reason}"


class Transaction(models.Model):
    """A payment as the organization sees it: subscription, top-up, refund or gift."""

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
        """Pending until the processor confirms or refuses."""

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
    # Internal: parameters for repeating an attempt exactly, and keys against duplicates.
    processor_payment_method_id = models.CharField(max_length=255, null=True, blank=True)
    processor_refund_id = models.CharField(max_length=255, null=True, blank=True, unique=True)
    is_automatic = models.BooleanField(default=False)
    request_key = models.CharField(max_length=64, null=True, blank=True, unique=True)
    # Whether the owners have the e-mail about it. The database's default is for rows of versions without such e-mails.
    is_receipted = models.BooleanField(default=False, db_default=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [
            models.Index(fields=["organization", "-created_at"]),
            models.Index(fields=["created_at"], condition=models.Q(status="pending"), name="transaction_pending"),
            models.Index(
                fields=["id"],
                condition=models.Q(status="completed", is_receipted=False),
                name="transaction_receipt_due",
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["organization"],
                condition=models.Q(type="credit_topup", status="pending", is_automatic=True),
                name="one_automatic_top_up_at_a_time",
            ),
            models.UniqueConstraint(
                fields=["organization"],
                condition=models.Q(type="subscription_start", status="pending"),
                name="one_subscription_at_a_time",
            ),
            models.UniqueConstraint(
                fields=["processor_payment_intent_id"],
                condition=models.Q(type="credit_topup"),
                name="top_up_once_per_payment",
            ),
            models.UniqueConstraint(
                fields=["processor_invoice_id"],
                condition=models.Q(type="subscription_start"),
                name="subscription_once_per_invoice",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_type_display()}, {plain(self.amount)} {self.currency}"


class PaymentMethod(models.Model):
    """A card at the payment processor: brand, last digits, expiry."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="payment_methods")
    processor_customer_id = models.CharField(max_length=255)
    processor_payment_method_id = models.CharField(max_length=255, unique=True)
    brand = models.CharField(max_length=32, blank=True)
    last_four = models.CharField(max_length=4, blank=True)
    exp_month = models.PositiveSmallIntegerField(null=True)
    exp_year = models.PositiveSmallIntegerField(null=True)
    is_default = models.BooleanField(default=False)
    # The expiry that the owners have an e-mail about, as `2026-12`.
    noticed_expiry = models.CharField(max_length=7, default="", db_default="", blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization"], condition=models.Q(is_default=True), name="one_default_payment_method"
            )
        ]

    def __str__(self) -> str:
        return f"{self.brand} {self.last_four}"


class BillingAccount(models.Model):
    """An organization at the payment processor: customer, subscription, declines."""

    class Notice(models.TextChoices):
        """E-mail to the owners that is not sent yet."""

        AUTO_TOP_UP_DECLINED = "auto_top_up_declined"
        AUTO_TOP_UP_DISABLED = "auto_top_up_disabled"
        SUBSCRIPTION_UNPAID = "subscription_unpaid"
        SUBSCRIPTION_ENDED = "subscription_ended"

    organization = models.OneToOneField(
        Organization, models.CASCADE, primary_key=True, related_name="billing_account", editable=False
    )
    processor_customer_id = models.CharField(max_length=255, null=True, unique=True)
    # Consecutive declined automatic top-ups, and when the next may be tried.
    top_up_declines = models.PositiveSmallIntegerField(default=0)
    next_top_up_at = models.DateTimeField(null=True)
    subscription_id = models.CharField(max_length=255, null=True, unique=True)
    # As the processor reports it; empty without a live subscription.
    subscription_status = models.CharField(max_length=32, blank=True)
    cancels_at_period_end = models.BooleanField(default=False)
    # Counts updates from the processor, so that an older state never replaces a newer one.
    revision = models.PositiveIntegerField(default=0)
    notice = models.CharField(max_length=32, choices=Notice.choices, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        indexes = [models.Index(fields=["notice"], condition=~models.Q(notice=""), name="billing_account_notice")]

    def __str__(self) -> str:
        return self.processor_customer_id or "not a customer yet"


class Invoice(models.Model):
    """The issued invoice of a payment: its number, and the details of both sides. Never changed."""

    transaction = models.OneToOneField(Transaction, models.PROTECT, primary_key=True, related_name="invoice")
    number = models.PositiveBigIntegerField(unique=True)
    # `name`, `address`, `email`, `tax_id`.
    issuer = models.JSONField()
    recipient = models.JSONField()
    issued_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.number:06}"


class ProcessorEvent(models.Model):
    """An event of the payment processor, by its id there: a processed event is not processed again."""

    id = models.CharField(primary_key=True, max_length=255)
    type = models.CharField(max_length=100)
    received_at = models.DateTimeField(auto_now_add=True, db_index=True)
    done_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.type} {self.id}"


class Discount(models.Model):
    """A share off the price of requests; a blank scope means every organization, provider or model.

    The most specific discount applies: an organization's own before global ones, then model before provider. Saving or
    deleting one invalidates cached policies; bulk updates bypass this.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, null=True, blank=True, related_name="discounts")
    provider = models.CharField(max_length=40, blank=True, help_text="the catalog's id; blank is every provider")
    model = models.CharField(max_length=120, blank=True, help_text="the catalog's id; blank is every model")
    share = models.DecimalField(
        max_digits=4,
        decimal_places=3,
        validators=[MinValueValidator(0), MaxValueValidator(1)],
        help_text="0.2 takes 20 percent off; 0 takes nothing off, whatever a wider discount says",
    )
    expires_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "provider", "model"], name="discount_once_per_scope", nulls_distinct=False
            ),
            models.CheckConstraint(condition=models.Q(share__gte=0, share__lte=1), name="discount_is_a_share"),
        ]

    def __str__(self) -> str:
        scope = "/".join((self.provider or "every provider", self.model or "every model"))
        return f"{percent(float(100 * self.share))} off {scope}"

    @property
    def scope(self) -> str:
        """The generation that covers the discount: its organization's policies, else the catalog."""
        return (
            generation.CATALOG if self.organization_id is None else generation.organization_scope(self.organization_id)
        )

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and invalidate cached discounts on commit."""
        super().save(*args, **kwargs)
        generation.bump_on_commit(self.scope)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and invalidate cached discounts on commit."""
        generation.bump_on_commit(self.scope)
        return super().delete(*args, **kwargs)
