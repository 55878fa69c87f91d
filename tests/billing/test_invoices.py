"""Invoices: which transactions have one, and what it states of both sides."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from apps.billing import invoices
from apps.billing.models import Invoice, Transaction
from apps.kernel.errors import NotFound
from tests.support.cast import World


def row(world: World, **fields: Any) -> Transaction:
    """Return a paid top-up of Acme's, unless stated otherwise."""
    usual = {"organization": world.acme, "type": "credit_topup", "status": "completed", "amount": Decimal(1)}
    made = Transaction.objects.create(**usual | fields)
    made.refresh_from_db()
    return made


@pytest.mark.parametrize(
    ("fields", "has"),
    [
        ({}, True),
        ({"type": "subscription_start"}, True),
        ({"type": "credit_refund"}, True),
        ({"amount": Decimal("0.01")}, True),
        ({"amount": Decimal(0)}, False),
        ({"status": "pending"}, False),
        ({"status": "failed"}, False),
        ({"type": "credit_gift"}, False),
        ({"type": "subscription_cancel"}, False),
    ],
)
def test_money_that_was_paid_has_an_invoice(world: World, fields: dict[str, Any], has: bool) -> None:
    made = row(world, **fields)
    assert invoices.has_invoice(made) is has
    if has:
        assert invoices.find_paid(world.acme, str(made.id)) == made
        assert invoices.issue(made).number == 1
        return
    for find in (lambda: invoices.find_paid(world.acme, str(made.id)), lambda: invoices.issue(made)):
        with pytest.raises(NotFound, match="There is no invoice for this transaction"):
            find()
    assert Invoice.objects.count() == 0


def test_an_invoice_is_found_by_its_organization_alone(world: World) -> None:
    made = row(world)
    for organization, identifier in ((world.elsewhere, str(made.id)), (world.acme, "x")):
        with pytest.raises(NotFound):
            invoices.find_paid(organization, identifier)


def test_an_invoice_states_both_sides_as_they_were(world: World, settings: Any) -> None:
    settings.INVOICE_ISSUER_NAME, settings.INVOICE_ISSUER_ADDRESS = "Gateways Ltd", "1 Road"
    settings.INVOICE_ISSUER_EMAIL, settings.INVOICE_ISSUER_TAX_ID = "billing@gateways.test", "DE1"
    world.acme.billing_email = None
    world.acme.save()
    bare = invoices.issue(row(world))
    assert (bare.number, bare.recipient) == (1, {"name": "Acme", "address": "", "email": "", "tax_id": ""})
    details = {"billing_company": "Acme Ltd", "billing_address": "2 Road", "billing_email": "a@b.test"}
    for name, value in {**details, "billing_tax_id": "GB2"}.items():
        setattr(world.acme, name, value)
    world.acme.save()
    paid = row(world)
    full = invoices.issue(paid)
    assert (full.number, full.recipient) == (
        2,
        {"name": "Acme Ltd", "address": "2 Road", "email": "a@b.test", "tax_id": "GB2"},
    )
    issuer = {"name": "Gateways Ltd", "address": "1 Road", "email": "billing@gateways.test", "tax_id": "DE1"}
    assert bare.issuer == full.issuer == issuer
    assert invoices.issue(paid) == full
    assert Invoice.objects.count() == 2
