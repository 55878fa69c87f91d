"""Each invariant, broken by a snapshot made for it; and the product's own checks, which find the same faults."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from apps.billing import reconciliation, worker_leases
from apps.kernel.valkey.redis import client as valkey
from tests.proofs import invariants
from tests.proofs.invariants import Answer, BalanceCopy, LogRow, Movement, OpenHold, Snapshot
from tests.proofs.snapshots import read_snapshot
from tests.support.upstream import Caller, caller, sandbox_url, settle_all

__all__ = ["caller", "sandbox_url"]

COST = Decimal("0.25")
GIFT = Movement("gift", "g", "org", None, Decimal(2))
ROW = LogRow("row", "request", "org", "key", COST)
CHARGE = Movement("usage", "row", "org", "key", -COST, COST)
# An organization with a gift of 2 USD, one answered request, one in progress and one refused.
SOUND = Snapshot(
    credits={"org": Decimal("1.75")},
    usage={"key": COST},
    limits={"key": Decimal(1)},
    movements=(GIFT, CHARGE),
    rows=(ROW,),
    activity={"key": COST},
    copies=(BalanceCopy("org", 1_750_000_000, 40, 2, 7), BalanceCopy("key", 250_000_000, 40, 1, 7)),
    holds=(OpenHold("open", "worker", 40, ("org", "key")),),
    workers=frozenset({"worker"}),
    epochs=(3, 7),
    store_epochs=(7, 0),
    answers=(Answer("request", COST), Answer("refused", refused=True)),
)


def test_a_sound_snapshot_breaks_nothing() -> None:
    assert invariants.breaches(SOUND) == []


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"credits": {"org": Decimal(2)}, "copies": ()}, {"balances_are_sums_of_the_ledger": "org"}),
        ({"usage": {"key": Decimal("0.5")}, "copies": ()}, {"balances_are_sums_of_the_ledger": "key"}),
        ({"holds": ()}, {"holds_belong_to_requests": "org"}),
        ({"workers": frozenset()}, {"holds_belong_to_requests": "open"}),
        ({"answers": (Answer("another", COST),)}, {"answers_are_recorded_once": "another"}),
        ({"answers": (Answer("another", COST, rows=None),)}, {"answers_are_recorded_once": "another"}),
        ({"answers": (Answer("request", Decimal("0.3")),)}, {"answers_state_their_cost": "request"}),
        ({"answers": (Answer("request", COST, rows=2),)}, {"answers_are_recorded_once": "request"}),
        ({"rows": (ROW._replace(credits=False),)}, {"rows_are_charged_once": "row"}),
        ({"rows": (ROW._replace(storage=Decimal("0.1")),), "activity": None}, {"rows_are_charged_once": "row"}),
        ({"rows": (ROW._replace(organization="other"),)}, {"rows_are_charged_once": "row"}),
        ({"limits": {"key": Decimal("0.2")}}, {"spending_stays_within_means": "key"}),
        ({"epochs": (8, 7)}, {"epochs_only_grow": "7"}),
        ({"store_epochs": (7, 9)}, {"epochs_only_grow": "shard 1"}),
        ({"answers": (Answer("request", refused=True),)}, {"refusals_cost_nothing": "request"}),
        ({"activity": {"key": Decimal("0.5")}}, {"counters_are_sums_of_the_log": "key"}),
        ({"activity": {"key": COST, "ghost": COST}}, {"counters_are_sums_of_the_log": "ghost"}),
        ({"copies": (SOUND.copies[0]._replace(amount=5), SOUND.copies[1])}, {"copies_agree_with_balances": "org"}),
    ],
)
def test_a_snapshot_that_breaks_an_invariant_is_told_by_its_name(
    changes: dict[str, Any], broken: dict[str, str]
) -> None:
    if changes.get("activity", ...) is None:
        changes["activity"] = {"key": COST + Decimal("0.1")}
    found = invariants.breaches(replace(SOUND, **changes))
    assert {breach.invariant: breach.subject for breach in reversed(found)} == broken


def test_what_is_spent_beyond_the_allowance_is_told() -> None:
    poor = replace(SOUND, credits={"org": Decimal("-0.3")}, movements=(CHARGE,), copies=(), holds=())
    told = {
        allowance: [
            breach.subject
            for breach in invariants.spending_stays_within_means(replace(poor, allowance=Decimal(allowance)))
        ]
        for allowance in ("0.2", "0.3")
    }
    assert told == {"0.2": ["org"], "0.3": []}


def test_a_second_row_and_a_second_charge_are_told() -> None:
    twice = replace(SOUND, rows=(ROW, ROW), activity={"key": COST * 2})
    assert [breach.words for breach in invariants.answers_are_recorded_once(twice)] == [
        "is in the log 2 times",
        "2 rows instead of 1",
    ]
    again = Movement("usage", "nothing", "org", "key", -COST, COST)
    charged = replace(SOUND, movements=(GIFT, CHARGE, again))
    assert [breach.subject for breach in invariants.rows_are_charged_once(charged)] == ["nothing"]


def test_a_row_without_a_charge_is_told() -> None:
    free = replace(SOUND, movements=(GIFT,))
    assert [breach.subject for breach in invariants.rows_are_charged_once(free)] == ["row"]


# --- the product's own checks


def test_check_ledger_finds_what_the_invariant_finds(caller: Caller) -> None:
    # The caller's credits were given without an entry.
    (breach,) = invariants.balances_are_sums_of_the_ledger(read_snapshot())
    (mismatch,) = reconciliation.find_mismatches()
    assert UUID(breach.subject) == mismatch.id == caller.organization_id


def test_the_comparison_of_holds_finds_what_the_invariant_finds(caller: Caller) -> None:
    assert caller.chat().status_code == 200
    settle_all()
    (name,) = valkey().keys("balance:organization:*")
    valkey().hincrby(name, "held", 5)
    (breach,) = invariants.holds_belong_to_requests(read_snapshot())
    (mismatch,) = reconciliation.compare_holds()
    assert UUID(breach.subject) == mismatch.subject == caller.organization_id
    assert (breach.words, mismatch.found) == ("holds 5, reservations 0", "0.000000005")


def test_a_snapshot_reads_every_store(caller: Caller) -> None:
    before = caller.chat(headers={"x-request-id": "answered"})
    cost = Decimal(str(before.json()["usage"]["cost_usd_total"]))
    seen = read_snapshot()
    assert (len(seen.holds), len(seen.waiting), len(seen.rows)) == (1, 1, 0)
    assert seen.workers == {worker_leases.worker_name()}
    settle_all()
    seen = read_snapshot(answers=(Answer("answered", cost),))
    assert invariants.breaches(seen, [invariants.answers_are_recorded_once, invariants.rows_are_charged_once]) == []
    assert [row.request_id for row in seen.rows] == ["answered"]
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM request_log")
    lost = read_snapshot(answers=(Answer("answered", cost),))
    # The caller's credits were given without an entry.
    assert [breach.invariant for breach in invariants.breaches(lost)] == [
        "balances_are_sums_of_the_ledger",
        "answers_are_recorded_once",
        "rows_are_charged_once",
        "counters_are_sums_of_the_log",
    ]
