"""Attempts as the log keeps them, compared without their times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Fields that only the log has; answers do not state them.
_OF_THE_LOG = {
    *("used_model", "start_ms", "connect_start_ms", "connect_end_ms", "first_byte_ms", "first_content_ms", "end_ms")
}


def without_times(attempts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return attempts with the fields that an answer's metadata states too; each has a start and an end."""
    lines = list(attempts)
    assert all(0 <= line["start_ms"] <= line["end_ms"] for line in lines)
    return [{name: value for name, value in line.items() if name not in _OF_THE_LOG} for line in lines]
