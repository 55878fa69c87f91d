"""Referrals: one percent of what a referred organization paid for credits-mode use, once, exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from apps.billing import gifts, ledger, tasks
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEntry
from apps.kernel.errors import InvalidRequest
from apps.kernel.ids import new_id
from apps.organizations.models import Organization, Role
from tests.support.cast import World, join, make_key, make_organization, signed_in
from tests.support.payments import books


@pytest.fixture
def referred(world: World) -> Organization:
    """Sam's organization, which Acme sent."""
    world.elsewhere.referred_by = world.acme
    world.elsewhere.save()
    return world.elsewhere


def use(world: World, amount: str, *, own_credential: bool = False, at: datetime | None = None) -> None:
    """Let Sam's organization have used models for `amount` USD, yesterday unless said otherwise."""
    key = make_key(world.sam, world.elsewhere_project).key
    credits = Decimal(0) if own_credential else -Decimal(amount)
    charge = Charge(world.elsewhere.id, key.id, new_id(), credits, Decimal(amount))
    ledger.charge([charge])
    moment = at or timezone.now() - timedelta(days=1)
    with connection.cursor() as cursor:
        # An entry is never changed; one of yesterday is needed today.
        cursor.execute("ALTER TABLE billing_ledgerentry DISABLE TRIGGER USER")
        LedgerEntry.objects.filter(reference=charge.reference).update(created_at=moment)
        cursor.execute("ALTER TABLE billing_ledgerentry ENABLE TRIGGER USER")


def earned(organization: Organization) -> tuple[Decimal, Decimal]:
    """Return credits and earnings; the ledger agrees."""
    credits, _ = books(organization)
    return credits, organization.referral_earnings


def test_a_day_that_is_over_is_paid_once(world: World, referred: Organization) -> None:
    use(world, "12.345678901234")
    use(world, "0.000000000066")
    use(world, "7", own_credential=True)
    for _ in range(3):
        tasks.pay_referrers()
    assert earned(world.acme) == (Decimal("0.123456789013"), Decimal("0.123456789013"))
    assert LedgerEntry.objects.filter(kind="referral").count() == 1
    assert books(referred)[0] == Decimal("-12.3456789013")
    shown = signed_in(world.dana).get(f"/organization/{world.acme.id}/referral-stats").json()
    assert shown == {"referredCount": 1, "referralEarnings": "0.123456789013"}


def test_today_waits_and_days_missed_are_made_up(world: World, referred: Organization) -> None:
    use(world, "100", at=timezone.now())
    assert gifts.pay_referrers() == 0
    use(world, "100", at=timezone.now() - timedelta(days=3))
    use(world, "100", at=timezone.now() - timedelta(days=5))
    assert gifts.pay_referrers() == 2
    assert earned(world.acme) == (Decimal(2), Decimal(2))


def test_the_day_ends_at_midnight_utc(world: World, referred: Organization) -> None:
    midnight = datetime.combine(timezone.now().astimezone(UTC).date(), datetime.min.time(), UTC)
    use(world, "100", at=midnight)
    assert gifts.pay_referrers() == 0
    use(world, "100", at=midnight - timedelta(microseconds=1))
    assert gifts.pay_referrers() == 1


@pytest.mark.parametrize("why", ["nobody sent them", "an owner of both", "themselves", "the referrer is deleted"])
def test_nobody_is_paid(world: World, referred: Organization, why: str) -> None:
    use(world, "100")
    if why == "nobody sent them":
        Organization.objects.update(referred_by=None)
    if why == "an owner of both":
        join(referred, world.olivia, Role.OWNER)
    if why == "themselves":
        Organization.objects.filter(pk=referred.pk).update(referred_by=referred)
    if why == "the referrer is deleted":
        Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    tasks.pay_referrers()
    assert earned(world.acme) == (Decimal(0), Decimal(0))
    assert earned(referred) == (Decimal(-100), Decimal(0))


def test_each_referrer_has_their_own(world: World, referred: Organization) -> None:
    other = make_organization(owner=world.adam, name="Other")
    use(world, "100")
    tasks.pay_referrers()
    assert (earned(world.acme), earned(other)) == ((Decimal(1), Decimal(1)), (Decimal(0), Decimal(0)))


@given(st.decimals(min_value=0, max_value=10**9, places=12))
def test_a_share_is_never_more_than_one_percent(paid: Decimal) -> None:
    assert Decimal(0) <= paid / 100 - gifts.share_of(paid) < Decimal("1e-12")


def test_seven_days_are_made_up_and_no_more(world: World, referred: Organization) -> None:
    for days in (1, 2, 4, 7, 8):
        use(world, "100", at=timezone.now() - timedelta(days=days))
    assert gifts.pay_referrers() == 4
    assert earned(world.acme) == (Decimal(4), Decimal(4))
    assert gifts.pay_referrers() == 0


def test_a_gift_that_is_no_amount_is_refused(world: World) -> None:
    for amount in ("0", "-1", "0.0000000000001"):
        with pytest.raises(InvalidRequest, match="positive number of USD") as raised:
            gifts.give(organization=world.acme, amount=Decimal(amount), description="x")
        assert raised.value.param == "amount"
    assert books(world.acme) == (Decimal(0), [])
