"""Pace of lines: how many are answered at a time for an API key, fewer once its limits were met and more again later.

Additive increase and multiplicative decrease, so that processes share a limit fairly. Each process has its own.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

# API keys whose pace is remembered.
_MAX_KEYS: Final = 10_000


class LinePace:
    """The pace of each API key, which is the fastest until a limit was met."""

    def __init__(self) -> None:
        self._slowed: dict[UUID, float] = {}

    def most(self, api_key_id: UUID, fastest: int) -> int:
        """Return how many lines may be answered at a time."""
        return max(1, min(fastest, int(self._slowed.get(api_key_id, fastest))))

    def refused(self, api_key_id: UUID, under_way: int) -> None:
        """Take note that a limit was met while so many were under way."""
        if len(self._slowed) >= _MAX_KEYS:
            self._slowed.clear()
        self._slowed[api_key_id] = max(1.0, min(self._slowed.get(api_key_id, under_way), under_way) / 2)

    def answered(self, api_key_id: UUID, fastest: int) -> None:
        """Take note that a line was answered."""
        if (now := self._slowed.get(api_key_id)) is not None:
            # One more for each round of as many as are under way.
            self._slowed[api_key_id] = now + 1 / now
            if self._slowed[api_key_id] >= fastest:
                del self._slowed[api_key_id]
