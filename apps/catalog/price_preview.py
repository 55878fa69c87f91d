"""The cost of a usual request at given prices: shown before an operator changes any."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from apps.kernel.pages.admin import usd
from apps.kernel.prices import PriceCard

# Tokens of the requests whose cost is shown: a usual one, and one that reaches the tiers of long prompts.
USUAL: Final = 10_000
LONG: Final = 300_000
ANSWER: Final = 1_000
_MILLION: Final = Decimal(1_000_000)


def cost_lines(before: PriceCard | None, after: PriceCard) -> list[str]:
    """Return lines with the cost of a usual request before and after, and of a long one if prices depend on length.

    `before` is None for an offer that is not served yet.
    """
    has_tiers = bool(after.tiers or (before is not None and before.tiers))
    return [
        f"A request with {size:,} tokens of prompt and {ANSWER:,} of answer: "
        f"{'not served' if before is None else f'{usd(_cost(before, size))} USD'} → {usd(_cost(after, size))} USD"
        for size in (USUAL, *((LONG,) if has_tiers else ()))
    ]


def _cost(card: PriceCard, prompt: int) -> Decimal:
    reached = [tier for tier in card.tiers if prompt > tier.above_input_tokens]
    tier = max(reached, key=lambda one: one.above_input_tokens, default=None)

    def price(name: str) -> Decimal:
        own = getattr(tier, name, None) if tier is not None else None
        return own if own is not None else getattr(card, name) or Decimal(0)

    return (price("input") * prompt + price("output") * ANSWER) / _MILLION
