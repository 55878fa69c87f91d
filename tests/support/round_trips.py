"""Round trips to a store, counted."""

from __future__ import annotations

from typing import Any

import pytest
from greenlet import getcurrent


def round_trips(monkeypatch: pytest.MonkeyPatch, redis: Any) -> list[str]:
    """Return the list of commands that this greenlet sends with a client from now on; background work is left out."""
    trips: list[str] = []
    asking, execute = getcurrent(), redis.execute_command

    def noted(*words: Any, **more: Any) -> Any:
        if getcurrent() is asking:
            trips.append(words[0])
        return execute(*words, **more)

    monkeypatch.setattr(redis, "execute_command", noted)
    return trips
