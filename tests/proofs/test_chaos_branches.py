"""The counts of rare branches that a run of chaos reached."""

from __future__ import annotations

from tests.chaos.branches import Branches


def test_counts_are_added_over_products_and_restarts_and_what_is_never_reached_is_told() -> None:
    branches = Branches()
    branches.add({"gateway_records_spooled_total": 3.0, "gateway_swept_requests_total": 2.0}, 1)
    branches.add({"gateway_records_spooled_total": 5.0, "gateway_swept_requests_total": 1.0}, 1)
    # Another product, whose counters begin at 0.
    branches.begin()
    branches.add({"gateway_records_spooled_total": 5.0}, 1)
    assert branches.report() == (
        "rare branches: retransmission 0, spool 10, lease take-over 3, offline allowance 0, stale policy 0, "
        "record in memory 0, ledger epoch 2\n"
        "never reached: retransmission, offline allowance, stale policy, record in memory"
    )
