"""Payments switched on against the stub, and what tests of them say often."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from django.urls import get_resolver
from pytest_django import Settings

from apps.billing import cards
from apps.billing.models import PaymentMethod, Transaction
from apps.billing.reconciliation import find_mismatches
from apps.organizations.models import Organization
from tests.support.stripe_stub import PRO_PRICE, SECRET, StripeStub


@pytest.fixture(scope="session")
def _stub() -> Iterator[StripeStub]:
    stub = StripeStub()
    yield stub
    stub.server.shutdown()
    stub.server.server_close()


@pytest.fixture
def stripe(_stub: StripeStub, settings: Settings) -> StripeStub:
    """The processor, with empty books; payments are on."""
    # The map of paths is drawn once: not by a test that has set a secret.
    get_resolver().url_patterns  # noqa: B018 - read for its side effect: it draws the map
    _stub.reset()
    settings.STRIPE_SECRET_KEY = "sk_test_12345"
    settings.STRIPE_PUBLISHABLE_KEY = "pk_test_12345"
    settings.STRIPE_API_BASE = _stub.address
    settings.STRIPE_PRO_PRICE = PRO_PRICE
    settings.STRIPE_WEBHOOK_SECRETS = [SECRET]
    return _stub


def add_card(stripe: StripeStub, organization: Organization, kind: str = "good", number: str = "4242") -> PaymentMethod:
    """Give an organization a card, as its owner would."""
    return cards.keep(organization, cards.fetch(organization, stripe.make_card(kind, number=number)))


def books(organization: Organization) -> tuple[Decimal, list[tuple[str, str, str]]]:
    """Return the organization's credits, and type, amount and status of its transactions; the ledger agrees."""
    organization.refresh_from_db()
    if find_mismatches():
        raise AssertionError(find_mismatches())
    rows = Transaction.objects.filter(organization=organization).order_by("id")
    return organization.credits, [(row.type, f"{row.amount.normalize():f}", row.status) for row in rows]


def tell(client: Any, message: tuple[bytes, str]) -> Any:
    """Bring a message of the processor's."""
    body, signature = message
    return client.post(
        "/webhooks/stripe", data=body, content_type="application/json", headers={"stripe-signature": signature}
    )
