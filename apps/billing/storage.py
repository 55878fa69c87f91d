"""What keeping a request's data costs: a price a token, for organizations that retain everything.

Charged to the credits, whoever's provider key answered; a key's usage is what its requests cost, without it. Pure.
"""

from __future__ import annotations

from decimal import Decimal

from apps.kernel.money import ZERO, exact

# USD per million tokens (specification, section 8).
PRICE = Decimal("0.01")
_MILLION = Decimal(1_000_000)


def price_storage(tokens: int, retention_level: str) -> Decimal:
    """Return what keeping a request of so many tokens costs in USD; only `retain` keeps what was said."""
    return exact(tokens * PRICE / _MILLION) if retention_level == "retain" else ZERO
