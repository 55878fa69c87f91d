"""How the settler paces itself."""

from __future__ import annotations

import pytest

from apps.gateway.management.commands.settler import BATCH, GATHER_SECONDS, PAUSE_SECONDS, gather_after


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(0, 0.0), (1, PAUSE_SECONDS), (7, PAUSE_SECONDS), (8, GATHER_SECONDS), (BATCH - 1, GATHER_SECONDS), (BATCH, 0.0)],
)
def test_records_gather_and_neither_the_first_after_a_pause_nor_a_backlog_waits(count: int, seconds: float) -> None:
    assert gather_after(count) == seconds
