"""The ledger under any sequence of movements, repeats and crashes: balances are the sums of the entries, always."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier

import pytest
from django.db import connection, transaction
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apps.billing import ledger, reconciliation
from apps.billing.ledger import Charge
from apps.billing.models import LedgerEntry
from apps.kernel.ids import new_id
from apps.keys.models import ApiKey
from apps.organizations.models import Organization
from tests.support.cast import World, make_key
from tests.support.property_examples import MANY_WITH_STORES, examples

amounts = st.decimals(min_value=0, max_value=1000, places=12)
# Events: a request charged from credits or not, charged again as it was or as something else, undone half-way, a
# gift. `who` and `which` choose among the keys and among the requests so far.
steps = st.lists(
    st.tuples(
        st.sampled_from(["charge", "own", "again", "otherwise", "undone", "gift"]),
        amounts,
        st.integers(0, 3),
        st.integers(0, 100),
    ),
    max_size=25,
)


@pytest.mark.django_db
@settings(max_examples=examples(40, long=MANY_WITH_STORES), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_whatever_happens_balances_are_what_was_moved_once(
    world: World, steps: list[tuple[str, Decimal, int, int]]
) -> None:
    with transaction.atomic():
        keys = [make_key(world.olivia, world.project).key, make_key(world.adam, world.project).key]
        keys += [make_key(world.sam, world.elsewhere_project).key, make_key(world.sam, world.elsewhere_project).key]
        before = {one.id: one.credits for one in Organization.objects.all()}
        credits, usage = dict.fromkeys(before, Decimal(0)), {key.id: Decimal(0) for key in keys}
        made: list[Charge] = []
        for what, amount, who, which in steps:
            key = keys[who]
            organization = key.project.organization_id
            taken = Decimal(0) if what == "own" else -amount
            charge = Charge(organization, key.id, new_id(), taken, amount)
            if what == "gift":
                if amount:
                    ledger.grant(organization, amount, "")
                    credits[organization] += amount
            elif what in {"again", "otherwise"}:
                if made:
                    first = made[which % len(made)]
                    twin = charge if what == "otherwise" else first
                    twin = Charge(twin.organization_id, twin.api_key_id, first.reference, twin.credits, twin.usage)
                    moved = ledger.charge([twin, first])
                    assert moved == [], "a request that was charged is charged, whatever is said of it later"
            elif what == "undone":
                point = transaction.savepoint()
                ledger.charge([charge])
                transaction.savepoint_rollback(point)
            else:
                ledger.charge([charge])
                credits[organization] += taken
                usage[key.id] += amount
                if amount:
                    made.append(charge)
        now = {one.id: one.credits for one in Organization.objects.all()}
        assert {identifier: now[identifier] - before[identifier] for identifier in before} == credits
        assert dict(ApiKey.objects.filter(id__in=usage).values_list("id", "usage")) == usage
        assert reconciliation.find_mismatches() == []
        transaction.set_rollback(True)


@pytest.mark.django_db(transaction=True)
def test_any_order_at_once_gives_the_same_sums(world: World) -> None:
    """Six writers settle the same requests in batches of their own, with gifts between: each is charged once."""
    draw = random.Random(7)
    keys = [make_key(world.olivia, world.project).key for _ in range(3)]
    keys += [make_key(world.sam, world.elsewhere_project).key for _ in range(3)]
    charges = []
    for _ in range(150):
        key, amount = draw.choice(keys), Decimal(draw.randrange(1, 10**12)).scaleb(-12)
        paid = -amount if draw.random() < 0.7 else Decimal(0)
        charges.append(Charge(key.project.organization_id, key.id, new_id(), paid, amount))
    writers = 6
    orders = [draw.sample(charges, len(charges)) for _ in range(writers)]
    start = Barrier(writers)

    def write(number: int) -> None:
        start.wait()
        try:
            for first in range(0, len(charges), 10):
                with transaction.atomic():
                    ledger.charge(orders[number][first : first + 10])
            ledger.grant(world.acme.id, Decimal("0.5"), "")
        finally:
            connection.close()

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(write, range(writers)))

    assert LedgerEntry.objects.filter(kind="usage").count() == len(charges)
    for organization, gifts in ((world.acme, Decimal(3)), (world.elsewhere, Decimal(0))):
        organization.refresh_from_db()
        paid = sum((one.credits for one in charges if one.organization_id == organization.id), Decimal(0))
        assert organization.credits == paid + gifts
    for key in keys:
        key.refresh_from_db()
        assert key.usage == sum(one.usage for one in charges if one.api_key_id == key.id)
    total = LedgerEntry.objects.aggregate(credits=Sum("credits"), usage=Sum("usage"))
    assert total == {
        "credits": sum(one.credits for one in charges) + 3,
        "usage": sum(one.usage for one in charges),
    }
    assert reconciliation.find_mismatches() == []
