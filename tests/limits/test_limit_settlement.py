"""Settlement of limits: each request is counted once, whatever is repeated; counters come back from the database."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from io import StringIO
from threading import Barrier
from uuid import UUID

import msgspec
import pytest
from django.core.management import call_command
from django.db import connection, transaction

from apps.billing import balance_copies, balances, reservations, worker_leases
from apps.billing.reservations import ReservationOutcome
from apps.gateway.settlement import dead_letters, outbox
from apps.gateway.settlement.outbox import encode
from apps.gateway.settlement.settle import settle, sweep
from apps.kernel.ids import new_id
from apps.kernel.money import LARGEST
from apps.kernel.valkey.redis import client
from apps.limits import counters
from apps.limits.applied import AppliedLimit, apply_rule
from apps.limits.counters import CounterCharge
from apps.limits.hooks import erase
from apps.limits.models import LimitCharge, LimitCounter
from apps.logs.entry import Entry
from tests.limits.limits import NOW, ORGANIZATION, amounts_of, ask, count, held, recorded, rule, used
from tests.logs.entries import entry


def charge_of(limits: list[AppliedLimit], cost: str = "0.1", read: int = 7, written: int = 2) -> CounterCharge:
    counted = count(
        limits, model_id="echo", provider_id="sandbox", cost=Decimal(cost), input_tokens=read, output_tokens=written
    )
    return CounterCharge(new_id(), ORGANIZATION, counted)


def amount_in_store(one: AppliedLimit) -> list[str | None]:
    return list(client().hmget(one.counter, "amount", "version"))


@pytest.mark.django_db
def test_a_charge_is_counted_once() -> None:
    limits = [apply_rule(rule(counts), "", NOW) for counts in ("usd", "requests", "tokens", "output_tokens")]
    first, second = charge_of(limits), charge_of(limits, "0.000000000001", 1, 0)
    assert {one.id for one in counters.charge([first, second, first])} == {one.counter_id for one in limits}
    assert counters.charge([second, first]) == []
    assert [used(one.counter_id) for one in limits] == [Decimal("0.100000000001"), 2, 10, 2]
    row = LimitCounter.objects.get(pk=limits[1].counter_id)
    assert (row.limit_id, row.organization_id, row.is_money) == (limits[1].rule.id, ORGANIZATION, False)
    assert (row.starts_at.timestamp(), row.ends_at and row.ends_at.timestamp()) == (
        limits[1].window.starts_at,
        limits[1].window.ends_at,
    )
    assert [balance.nanos for balance in counters.find_counters([limits[2].counter_id])] == [10]
    assert counters.find_mismatches() == []


@pytest.mark.django_db
def test_a_first_sum_beyond_the_column_is_its_maximum() -> None:
    limit = apply_rule(rule("usd"), "", NOW)
    counters.charge([charge_of([limit], str(LARGEST)), charge_of([limit], "1")])
    assert used(limit.counter_id) == LARGEST
    counters.charge([charge_of([limit], "1")])
    assert used(limit.counter_id) == LARGEST


@pytest.mark.django_db
def test_a_counter_without_a_copy_comes_back_from_the_database_with_its_holds() -> None:
    limits = [apply_rule(rule(counts), "", NOW) for counts in ("usd", "requests", "tokens")]
    counters.publish(limits)
    assert [amount_in_store(one) for one in limits] == [["0", "0"]] * 3
    assert ask(limits, nanos=5, prompt=3).outcome is ReservationOutcome.HELD
    balances.publish_or_raise(counters.charge([charge_of(limits)]))
    client().delete(*[one.counter for one in limits])
    counters.publish(limits)
    assert [amount_in_store(one) for one in limits] == [["100000000", "1"], ["1", "1"], ["9", "1"]]
    assert [held(one) for one in limits] == [5, 1, 3]
    expiry = client().expiretime(limits[0].counter)
    assert expiry == (limits[0].window.ends_at or 0) + 2 * 86_400


@pytest.mark.django_db
def test_an_answer_extends_its_hold_though_the_copy_of_an_uncharged_counter_was_lost() -> None:
    one = apply_rule(rule("usd", "1"), "", NOW)
    counters.publish([one])
    answer = ask([one], nanos=5)
    assert answer.hold is not None
    client().delete(one.counter)
    assert reservations.extend(answer.hold, 7, 7, 7).growth is reservations.ExtensionOutcome.UNKNOWN
    counters.publish_again(one.counter_id, ORGANIZATION)
    more = reservations.extend(answer.hold, 7, 7, 7)
    assert (more.growth, more.hold.amount_nanos, held(one)) == (reservations.ExtensionOutcome.HELD, 12, 12)
    assert 0 < client().ttl(one.counter) <= 3 * 86_400


@pytest.mark.django_db
def test_copies_that_lag_or_lead_are_repaired() -> None:
    one = apply_rule(rule(), "", NOW)
    counters.charge([charge_of([one])])
    counters.publish([one])
    counters.charge([charge_of([one])])
    assert amount_in_store(one) == ["1", "1"]
    assert [stray.true.nanos for stray in balance_copies.find_divergent_copies([one.counter])] == [2]
    balance_copies.resync()
    assert amount_in_store(one) == ["2", "2"]


@pytest.mark.django_db
def test_a_record_is_counted_once_and_its_hold_goes_with_it() -> None:
    outbox.prepare()
    one = apply_rule(rule("tokens", "1000"), "", NOW)
    counters.publish([one])
    answer = ask([one], prompt=50)
    assert answer.hold is not None
    identifier = UUID(answer.hold.id)
    counted = recorded([one], model_id="echo", provider_id="sandbox", cost=Decimal(0), input_tokens=40, output_tokens=5)
    outbox.push("worker-1", encode(entry(id=identifier, organization_id=ORGANIZATION, limits=counted)))
    messages = outbox.read_batch("test", 10, 1)
    assert (settle(messages), used(one.counter_id), held(one), amount_in_store(one)[0]) == (1, 45, 0, "45")
    # Delivered a second time; the settler died before it published.
    client().delete(one.counter)
    assert (settle(messages), used(one.counter_id), amount_in_store(one)[0]) == (0, 45, "45")
    assert LimitCharge.objects.get().reference == identifier


@pytest.mark.django_db
def test_a_request_counts_in_the_window_in_which_it_was_admitted() -> None:
    outbox.prepare()
    limit = rule("requests", "1", time_zone="Europe/Berlin")
    # The last second of the day of 23 hours, and the first of the next.
    midnight = datetime(2026, 3, 29, 22, tzinfo=UTC).timestamp()
    before, after = (apply_rule(limit, "", midnight + seconds) for seconds in (-1, 0))
    assert (before.window.ends_at, after.window.starts_at) == (midnight, midnight)
    counters.publish([before, after])
    old = ask([before])
    assert old.hold is not None
    assert [ask([before]).outcome, ask([after]).outcome] == [
        ReservationOutcome.LIMIT_REACHED,
        ReservationOutcome.HELD,
    ]
    # A worker whose clock is behind meets the window before, which is full.
    assert ask([before]).outcome is ReservationOutcome.LIMIT_REACHED
    counted = recorded(
        [before], model_id="echo", provider_id="sandbox", cost=Decimal(0), input_tokens=0, output_tokens=0
    )
    record = entry(id=UUID(old.hold.id), organization_id=ORGANIZATION, limits=counted)
    outbox.push("worker-1", encode(record))
    settle(outbox.read_batch("test", 10, 1))
    assert [used(one.counter_id) for one in (before, after)] == [1, None]
    assert [held(one) for one in (before, after)] == [0, 1]


@pytest.mark.django_db
def test_a_dead_workers_request_gives_back_and_its_late_record_counts_once() -> None:
    outbox.prepare()
    one = apply_rule(rule("requests", "1"), "", NOW)
    counters.publish([one])
    identifier = new_id()
    record = entry(id=identifier, organization_id=ORGANIZATION, swept=True)
    assert ask([one], id=identifier, payload=encode(record).decode()).outcome is ReservationOutcome.HELD
    assert ask([one]).outcome is ReservationOutcome.LIMIT_REACHED
    worker_leases.send_heartbeat("worker-1")
    worker_leases.expire_lease("worker-1")
    assert sweep() == 1
    assert settle(outbox.read_batch("test", 10, 1)) == 1
    assert (held(one), used(one.counter_id)) == (0, None)
    counted = recorded([one], model_id="echo", provider_id="sandbox", cost=Decimal(0), input_tokens=0, output_tokens=0)
    for _ in range(2):
        outbox.push("worker-1", encode(entry(id=identifier, organization_id=ORGANIZATION, limits=counted)))
    settle(outbox.read_batch("test", 10, 1))
    assert (used(one.counter_id), amount_in_store(one)[0]) == (1, "1")


@pytest.mark.django_db
def test_a_record_whose_limits_cannot_be_read_is_put_aside_and_others_are_settled() -> None:
    outbox.prepare()
    for fields in ({"limits": {"amounts": {"usd": "1"}, "counters": []}}, {}):
        outbox.push("worker-1", encode(entry(organization_id=ORGANIZATION, **fields)))
    assert settle(outbox.read_batch("test", 10, 1)) == 1
    assert (dead_letters.count(), LimitCharge.objects.count()) == (1, 0)


def test_a_record_that_no_limit_counts_says_nothing_of_limits_also_when_it_was_read_and_changed() -> None:
    record = entry(organization_id=ORGANIZATION)
    read = msgspec.structs.replace(msgspec.json.decode(encode(record), type=Entry), swept=True)
    assert b"limits" not in encode(record) + encode(read)


@pytest.mark.django_db(transaction=True)
def test_any_order_at_once_gives_the_same_sums() -> None:
    draw = random.Random(5)
    limits = [apply_rule(rule(draw.choice(("usd", "tokens", "requests"))), "", NOW) for _ in range(6)]
    charges = [
        charge_of(draw.sample(limits, draw.randint(1, 6)), str(Decimal(draw.randrange(10**9)).scaleb(-12)))
        for _ in range(120)
    ]
    orders = [draw.sample(charges, len(charges)) for _ in range(5)]
    start = Barrier(len(orders))

    def write(number: int) -> None:
        start.wait()
        try:
            for first in range(0, len(charges), 9):
                with transaction.atomic():
                    changed = counters.charge(orders[number][first : first + 9])
                balances.publish_or_raise(changed)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(orders)) as pool:
        list(pool.map(write, range(len(orders))))
    sums = {one.counter_id: Decimal(0) for one in limits}
    for one in charges:
        for counter, amount in amounts_of(one.counted):
            sums[counter.counter_id] += amount
    assert dict(LimitCounter.objects.values_list("id", "used")) == {one: total for one, total in sums.items() if total}
    assert counters.find_mismatches() == []
    known = {one.id: one.nanos for one in counters.find_counters(sums)}
    assert {one.counter_id: int(amount_in_store(one)[0] or 0) for one in limits} == known


@pytest.mark.django_db
def test_check_limits_prints_what_differs() -> None:
    one, other = (apply_rule(rule("tokens"), "", NOW) for _ in range(2))
    counters.charge([charge_of([one, other])])
    out = StringIO()
    call_command("check_limits", stdout=out)
    assert out.getvalue() == "Every counter equals the sum of its requests.\n"
    LimitCounter.objects.filter(pk=one.counter_id).update(used=8)
    LimitCounter.objects.filter(pk=other.counter_id).delete()
    out = StringIO()
    with pytest.raises(SystemExit) as stopped:
        call_command("check_limits", stdout=out)
    assert stopped.value.code == 1
    assert sorted(out.getvalue().splitlines()) == sorted(
        [
            f"limit {one.rule.id}, counter {one.counter_id}: used 8, requests 9",
            f"limit unknown, counter {other.counter_id}: used 0, requests 9",
        ]
    )


@pytest.mark.django_db
def test_a_deleted_organization_leaves_nothing() -> None:
    counters.charge([charge_of([apply_rule(rule(), "", NOW)])])
    erase(ORGANIZATION)
    assert (LimitCharge.objects.count(), LimitCounter.objects.count()) == (0, 0)
