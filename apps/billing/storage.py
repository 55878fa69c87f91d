"""Storage pricing: a price per token for storing requests, for organizations with retention level `retain`.

It is charged to the credits, also if the organization's own provider key answered, and does not count as a key's usage.
"""

from __future__ import annotations

from decimal import Decimal

from apps.kernel.money import ZERO, exact

# USD per million tokens (specification, section 8).
PRICE = Decimal("0.01")
_MILLION = Decimal(1_000_000)


def price_storage(tokens: int, retention_level: str) -> Decimal:
    """Return the storage cost of a request in USD; only `retain` stores content."""
    return exact(tokens * PRICE / _MILLION) if retention_level == "retain" else ZERO
