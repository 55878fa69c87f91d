"""Saving a row that was read earlier cannot undo a write of the ledger."""

from __future__ import annotations

from decimal import Decimal

from apps.billing import ledger
from apps.billing.ledger import Charge
from apps.kernel.ids import new_id
from apps.organizations.models import Organization
from tests.support.cast import World, make_key


def test_a_row_read_before_a_charge_and_saved_after_it_leaves_the_balances(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    organization = Organization.objects.get(pk=world.acme.pk)
    before = organization.credits
    ledger.charge([Charge(organization.id, key.id, new_id(), Decimal("-1.25"), Decimal("1.25"))])
    organization.name, key.description = "Renamed", "Renamed"
    organization.save()
    key.save()
    organization.refresh_from_db()
    key.refresh_from_db()
    assert (organization.name, organization.credits) == ("Renamed", before - Decimal("1.25"))
    assert (key.description, key.usage) == ("Renamed", Decimal("1.25"))
