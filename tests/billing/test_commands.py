"""`grant_credits` and `check_ledger`."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from apps.billing import ledger
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEntry
from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.organizations.models import Organization
from tests.support.cast import World, make_key, make_organization


def said(*command: str) -> str:
    """Return what a command prints."""
    output = StringIO()
    call_command(*command, stdout=output)
    return output.getvalue()


@pytest.mark.parametrize("name", ["id", "name"])
def test_grant_credits_takes_an_id_or_an_exact_name_and_tells_the_new_balance(world: World, name: str) -> None:
    ledger.grant(world.acme.id, Decimal(1), "")
    assert said("grant_credits", str(getattr(world.acme, name)), "2.50") == "Acme has 3.5 USD\n"
    assert LedgerEntry.objects.count() == 2


@pytest.mark.parametrize("amount", ["0", "-1", "ten", "1.0000000000001", "NaN", ""])
def test_grant_credits_refuses_what_is_no_amount(world: World, amount: str) -> None:
    with pytest.raises(CommandError, match="AMOUNT must be a positive number"):
        call_command("grant_credits", "--", "Acme", amount)
    assert LedgerEntry.objects.count() == 0


def test_grant_credits_refuses_an_unknown_organization(world: World) -> None:
    for name in ("acme", str(new_id())):
        with pytest.raises(CommandError, match="There is no organization"):
            call_command("grant_credits", name, "1")
    assert LedgerEntry.objects.count() == 0


def test_grant_credits_does_not_guess_between_organizations_of_one_name(world: World) -> None:
    other = make_organization(owner=world.sam, name="Acme")
    with pytest.raises(CommandError, match="2 organizations are called 'Acme'") as refusal:
        call_command("grant_credits", "Acme", "1")
    assert f"{world.acme.id}, {other.id}" in str(refusal.value)
    assert LedgerEntry.objects.count() == 0


@pytest.fixture
def charged(world: World) -> ApiKey:
    """A key of Acme's that has spent 0.25 of the 10 USD that Acme was given."""
    key = make_key(world.olivia, world.project).key
    ledger.grant(world.acme.id, Decimal(10), "")
    ledger.charge([Charge(world.acme.id, key.id, new_id(), Decimal("-0.25"), Decimal("0.25"))])
    return key


def test_check_ledger_agrees_with_the_ledger(charged: ApiKey) -> None:
    assert said("check_ledger") == "Every balance equals the sum of its ledger entries.\n"


def test_check_ledger_names_every_difference_and_fails(world: World, charged: ApiKey) -> None:
    Organization.objects.filter(id=world.acme.id).update(credits=Decimal(9))
    Organization.objects.filter(id=world.elsewhere.id).update(credits=Decimal("0.000000000001"))
    ApiKey.objects.filter(id=charged.id).update(usage=Decimal(1))
    output = StringIO()
    with pytest.raises(SystemExit) as end:
        call_command("check_ledger", stdout=output)
    assert end.value.code == 1
    assert output.getvalue().splitlines() == [
        f"organization {world.acme.id}: credits 9, entries 9.75",
        f"organization {world.elsewhere.id}: credits 0.000000000001, entries 0",
        f"API key {charged.id}: usage 1, entries 0.25",
    ]
