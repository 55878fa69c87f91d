"""How the settler paces itself."""

from __future__ import annotations

import pytest

from apps.gateway.management.commands.settler import BATCH, GATHER_SECONDS, gather_after


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(0, 0.0), (1, 0.0), (7, 0.0), (8, GATHER_SECONDS), (BATCH - 1, GATHER_SECONDS), (BATCH, 0.0)],
)
def test_a_stream_of_records_gathers_and_neither_one_alone_nor_a_backlog_waits(count: int, seconds: float) -> None:
    assert gather_after(count) == seconds
