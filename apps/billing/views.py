"""Endpoints of transactions and payments, `/organization/{orgId}/…`: parse, query or act, present."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.billing import cards, payment_processor, subscription, topup
from apps.billing.access import access_payment_method
from apps.billing.models import BillingAccount, PaymentMethod, Transaction
from apps.billing.payment_processor_types import find_payment_error
from apps.billing.serializers import (
    CardSetupShape,
    NewPaymentMethodShape,
    NewTopUpShape,
    PaymentMethodShape,
    SubscriptionShape,
    TransactionShape,
    TransactionsQuery,
)
from apps.kernel.rest.endpoint import PaginationShape, described, message_field
from apps.kernel.rest.pages import Page, page_of
from apps.kernel.rest.serializers import Nothing
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.journal import idempotency
from apps.organizations.models import Organization, Role


class Transactions(MemberEndpoint):
    """`GET /organization/{orgId}/transactions`."""

    @described(
        {"transactions": TransactionShape(many=True), "pagination": PaginationShape()},
        query=TransactionsQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's transactions, newest first, one page at a time."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        query = self.read_query(TransactionsQuery)
        limit = query["limit"]
        rows = Transaction.objects.filter(organization=organization).order_by("-id")
        if cursor := query.get("cursor"):
            rows = rows.filter(id__lt=cursor)
        page: Page[Transaction] = page_of(list(rows[: limit + 1]), limit, lambda row: row.id)
        return Response({"transactions": TransactionShape(page.rows, many=True).data, "pagination": page.pagination})


class PaymentEndpoint(MemberEndpoint):
    """An endpoint that calls the payment processor and translates its errors."""

    def handle_exception(self, exc: Exception) -> Response:
        """Translate the processor's exceptions; handle others as usual."""
        answer: Response = super().handle_exception(find_payment_error(exc) or exc)
        return answer

    def access(self, needs: Role = Role.OWNER) -> Organization:
        """Return the organization of the path. Raises NotFound, Forbidden."""
        return access_organization(self.user, self.kwargs["organization_id"], needs).organization

    def request_key(self, organization: Organization) -> str | None:
        """Return the key that identifies a repeated request's row; None without an `Idempotency-Key`."""
        claim = idempotency.claim_of(self.request, self.user.id)
        if claim is None:
            return None
        claimed = "\n".join((str(claim.user_id), claim.route, str(organization.id), claim.key))
        return sha256(claimed.encode()).hexdigest()


class PaymentMethods(PaymentEndpoint):
    """`GET /organization/{orgId}/payment-methods`, `POST /organization/{orgId}/payment-methods`."""

    @described({"paymentMethods": PaymentMethodShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's cards, newest first."""
        rows = PaymentMethod.objects.filter(organization=self.access(Role.ADMIN)).order_by("-id")
        return Response({"paymentMethods": PaymentMethodShape(rows, many=True).data})

    def prepare(self) -> None:
        """Fetch the card from the processor."""
        self.organization = self.access()
        self.card = cards.fetch(self.organization, self.read(NewPaymentMethodShape)["payment_method_id"])

    @described({"paymentMethod": PaymentMethodShape()}, body=NewPaymentMethodShape, refuses=(402, 403, 404, 503))
    def post(self, request: Request, organization_id: str) -> Response:
        """Add a card that was entered in the payment processor's form; the first card is the default."""
        kept = cards.keep(self.organization, self.card)
        return Response({"paymentMethod": PaymentMethodShape(kept).data})


class CardSetup(PaymentEndpoint):
    """`POST /organization/{orgId}/payment-methods/setup`."""

    def prepare(self) -> None:
        """Get the form's secret from the processor."""
        self.read(Nothing)
        self.client_secret = cards.begin(self.access())

    @described(
        {
            "clientSecret": CardSetupShape().fields["clientSecret"],
            "publishableKey": CardSetupShape().fields["publishableKey"],
        },
        body=Nothing,
        refuses=(403, 404, 503),
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Start adding a card: the answer has what the payment processor's form in the browser needs."""
        key = settings.STRIPE_PUBLISHABLE_KEY or None
        return Response({"clientSecret": self.client_secret, "publishableKey": key})


class OnePaymentMethod(PaymentEndpoint):
    """`DELETE /organization/{orgId}/payment-methods/{id}`."""

    @described({"message": message_field()}, refuses=(403, 404, 409, 503))
    def delete(self, request: Request, organization_id: str, payment_method_id: str) -> Response:
        """Remove a card."""
        cards.remove(access_payment_method(self.user, organization_id, payment_method_id))
        return Response({"message": "Payment method deleted"})


class DefaultPaymentMethod(PaymentEndpoint):
    """`POST /organization/{orgId}/payment-methods/{id}/default`."""

    def prepare(self) -> None:
        """Change the default at the processor and here."""
        self.read(Nothing)
        self.row = cards.make_default(access_payment_method(self.user, **self.kwargs))

    @described(
        {"message": message_field(), "paymentMethod": PaymentMethodShape()}, body=Nothing, refuses=(403, 404, 503)
    )
    def post(self, request: Request, organization_id: str, payment_method_id: str) -> Response:
        """Make a card the default for payments."""
        return Response({"message": "Default changed", "paymentMethod": PaymentMethodShape(self.row).data})


class TopUps(PaymentEndpoint):
    """`POST /organization/{orgId}/top-ups`."""

    def prepare(self) -> None:
        """Charge the card. With an `Idempotency-Key`, a repeated request continues the same row."""
        organization = self.access()
        amount = self.read(NewTopUpShape)["amount"]
        payment_processor.require()
        self.attempt = topup.pay(topup.begin(organization, amount, self.request_key(organization)))
        topup.require_paid(self.attempt)

    @described(
        {"transaction": TransactionShape(), "clientSecret": serializers.CharField(allow_null=True)},
        body=NewTopUpShape,
        refuses=(402, 403, 404, 429, 503),
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Charge the default card and add credits. A `clientSecret` means: confirm in the browser."""
        row, client_secret = self.attempt
        return Response({"transaction": TransactionShape(row).data, "clientSecret": client_secret or None})


class ProSubscription(PaymentEndpoint):
    """`GET /organization/{orgId}/subscription`, `POST`, `DELETE`."""

    @described({"subscription": SubscriptionShape(allow_null=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """Show the subscription to the pro plan; null if there is none."""
        return Response({"subscription": _subscription_of(self.access(Role.ADMIN))})

    def prepare(self) -> None:
        """Subscribe."""
        self.read(Nothing)
        self.organization = self.access()
        self.begun = subscription.start(self.organization, self.request_key(self.organization))

    @described(
        {"subscription": SubscriptionShape(allow_null=True), "transaction": TransactionShape(allow_null=True)},
        body=Nothing,
        refuses=(402, 403, 404, 409, 429, 503),
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Subscribe to the pro plan, paid monthly with the default card, or resume a cancelled subscription."""
        row = TransactionShape(self.begun).data if self.begun else None
        return Response({"subscription": _subscription_of(self.organization), "transaction": row})

    @described({"message": message_field(), "subscription": SubscriptionShape()}, refuses=(403, 404, 503))
    def delete(self, request: Request, organization_id: str) -> Response:
        """Cancel the subscription; the plan stays until the end of the paid period."""
        organization = self.access()
        subscription.cancel(organization)
        message = "The subscription ends with the paid period"
        return Response({"message": message, "subscription": _subscription_of(organization)})


def _subscription_of(organization: Organization) -> Any:
    organization.refresh_from_db(fields=["plan", "plan_expires_at"])
    account = BillingAccount.objects.filter(organization=organization).first()
    if account is None or not account.subscription_status:
        return None
    return SubscriptionShape(
        {
            "plan": "pro",
            "status": account.subscription_status,
            "amount": subscription.PRICE,
            "currency": "USD",
            "current_period_end": organization.plan_expires_at,
            "cancel_at_period_end": account.cancels_at_period_end,
        }
    ).data
