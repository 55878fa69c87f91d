"""Identity cache: results computed from immutable, unhashable objects, found by object identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdentityCache(Generic[K, V]):
    """A function of one object, computed once for each; cleared when it has more than `most` entries."""

    def __init__(self, compute: Callable[[K], V], most: int = 4_096) -> None:
        self._compute = compute
        self._most = most
        # Keeping the object prevents another one from getting its id.
        self._known: dict[int, tuple[K, V]] = {}

    def __call__(self, key: K) -> V:
        """Return the function's result."""
        known = self._known.get(id(key))
        if known is not None:
            return known[1]
        if len(self._known) >= self._most:
            self._known.clear()
        value = self._compute(key)
        self._known[id(key)] = key, value
        return value
