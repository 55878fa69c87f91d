"""Serializers of transactions, cards, top-ups and the subscription (specification 2.6)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from rest_framework import serializers

from apps.billing.auto_topup import CENT, HIGHEST, LOWEST
from apps.billing.models import PaymentMethod, Transaction
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import (
    CamelModelSerializer,
    CamelSerializer,
    CursorField,
    DecimalTextField,
    QueryIntegerField,
    TextField,
)
from apps.organizations.serializers import Amount


class TransactionsQuery(CamelSerializer):
    """The query of `GET /organization/{orgId}/transactions`."""

    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)


class TransactionShape(CamelModelSerializer):
    """A payment, refund or credit of an organization."""

    class Meta:
        model = Transaction
        fields = read_only_fields = [
            "id",
            "organization_id",
            "type",
            "amount",
            "credit_amount",
            "currency",
            "status",
            "processor_payment_intent_id",
            "processor_invoice_id",
            "description",
            "related_transaction_id",
            "refund_reason",
            "created_at",
            "updated_at",
        ]


class PaymentMethodShape(CamelModelSerializer):
    """A card, as the organization's admins see it."""

    # As the processor writes it.
    last4 = serializers.CharField(source="last_four")

    class Meta:
        model = PaymentMethod
        fields = read_only_fields = ["id", "brand", "last4", "exp_month", "exp_year", "is_default", "created_at"]


class NewPaymentMethodShape(CamelSerializer):
    """Body of `POST /organization/{orgId}/payment-methods`: the card that the processor's form returned."""

    payment_method_id = TextField(max_length=255)


class CardSetupShape(CamelSerializer):
    """The data that the processor's form in the browser needs."""

    client_secret = serializers.CharField()
    publishable_key = serializers.CharField(allow_null=True)


class TopUpAmount(Amount):
    """Whole cents within the bounds of one top-up."""

    def to_internal_value(self, data: Any) -> Decimal:
        """Return the amount. Raises ValidationError."""
        amount = super().to_internal_value(data)
        if amount > HIGHEST:
            raise serializers.ValidationError(f"Must be at most {HIGHEST} USD")
        if amount != amount.quantize(CENT):
            raise serializers.ValidationError("Must be in whole cents")
        return amount


class NewTopUpShape(CamelSerializer):
    """Body of `POST /organization/{orgId}/top-ups`."""

    amount = TopUpAmount(minimum=int(LOWEST))


class SubscriptionShape(CamelSerializer):
    """The pro plan's subscription."""

    plan = serializers.CharField()
    status = serializers.CharField()
    amount = DecimalTextField()
    currency = serializers.CharField()
    current_period_end = serializers.DateTimeField(allow_null=True)
    cancel_at_period_end = serializers.BooleanField()
