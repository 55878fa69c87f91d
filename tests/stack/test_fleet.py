"""Three web nodes and two settlers on shared stores behind PgBouncer: whatever is lost, every answer is charged once.

The whole of it is `script/chaos --fleet`; `FLEET_SECONDS` makes this one longer. `test_two_nodes` is the quick part.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.chaos.__main__ import Run
from tests.chaos.fleet import FLEET_FAULTS, FleetScene

SECONDS = float(os.environ.get("FLEET_SECONDS", "1"))

pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(240 + SECONDS * 10)]


def test_a_fleet_that_loses_a_node_and_its_store_keeps_every_promise(tmp_path: Path) -> None:
    faults = {fault.name: fault for fault in FLEET_FAULTS}
    run = Run(SECONDS, 4, random.Random(1), FleetScene)
    try:
        cards = [run.strike(faults[name]) for name in ("web-node-killed", "valkey-primary-killed")]
    finally:
        run.close()
    assert [(card.fault, card.problems) for card in cards] == [(card.fault, []) for card in cards]
    assert [(card.lost, card.doubled, card.wrong) for card in cards] == [([], [], [])] * 2
    assert all(card.struck > 0 and card.answered > 10 for card in cards)
