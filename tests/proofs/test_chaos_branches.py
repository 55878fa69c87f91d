"""The counts of rare branches that a run of chaos reached."""

from __future__ import annotations

from tests.chaos.branches import BRANCHES, Branches
from tests.chaos.faults import FAULTS

SPOOLED, SWEPT = "gateway_records_spooled_total", "gateway_swept_requests_total"


def test_counts_are_added_over_products_and_restarts() -> None:
    branches = Branches()
    branches.begin(1)
    branches.add({SPOOLED: 3.0, SWEPT: 2.0}, 1)
    branches.add({SPOOLED: 5.0, SWEPT: 1.0}, 3)
    # Another product, whose counters begin at 0.
    branches.begin(1)
    branches.add({SPOOLED: 5.0}, 1)
    rows = branches.report().splitlines()[2:]
    assert [int(row.split(" | ")[1]) for row in rows] == [0, 10, 0, 3, 0, 0, 0, 0, 2]
    assert rows[1] == "| spool | 10 | a record goes to the disk |"


def test_a_branch_that_was_never_reached_is_missed_where_a_fault_led_to_it() -> None:
    branches = Branches()
    branches.add({SPOOLED: 1.0}, 0)
    assert branches.missed(["calm"]) == []
    struck = ["valkey-hung", "disk-full-without-room"]
    assert branches.missed(struck) == ["spool replay", "offline allowance", "record in memory"]
    branches.add({SPOOLED: 1.0, "gateway_records_replayed_total": 1.0, "gateway_unreserved_requests_total": 1.0}, 0)
    assert branches.missed(["valkey-hung"]) == []


def test_every_branch_has_faults_that_lead_to_it() -> None:
    known = {fault.name for fault in FAULTS}
    assert {name for name, branch in BRANCHES.items() if not branch.faults or set(branch.faults) - known} == set()
