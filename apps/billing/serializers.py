"""The shape of a transaction on the wire (specification 2.6)."""

from __future__ import annotations

from apps.billing.models import Transaction
from apps.kernel.rest.pages import DEFAULT_LIMIT, MAX_LIMIT
from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, CursorField, QueryIntegerField


class TransactionsQuery(CamelSerializer):
    """The query of `GET /organization/{orgId}/transactions`."""

    cursor = CursorField(required=False)
    limit = QueryIntegerField(low=1, high=MAX_LIMIT, default=DEFAULT_LIMIT)


class TransactionShape(CamelModelSerializer):
    """A payment, to those who may see an organization's payments."""

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
