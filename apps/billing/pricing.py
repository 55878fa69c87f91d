"""Usage x prices -> cost: the only place where tokens meet prices. Pure, exact, no rounding before the last digit.

The formulae are the specification's (section 1): a missing price counts as 0; no token is paid twice.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

from apps.kernel.money import ZERO, exact
from apps.kernel.prices import PriceCard, PriceTier
from apps.kernel.usage import Usage

MILLION = Decimal(1_000_000)
# A cache write that lives an hour costs 2x the input price where one of five minutes costs 1.25x (Anthropic).
LONG_WRITE = Decimal("1.6")
_NO_TIER = PriceTier(above_input_tokens=0)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a request costs in USD, part by part; `total` is the sum of the parts."""

    total: Decimal = ZERO
    input: Decimal = ZERO
    output: Decimal = ZERO
    cached_input: Decimal = ZERO
    cache_write: Decimal = ZERO
    image_input: Decimal = ZERO
    image_output: Decimal = ZERO
    request: Decimal = ZERO
    web_search: Decimal = ZERO
    discount_savings: Decimal = ZERO
    unpriced: bool = False


FREE = Cost()


def cost_of(usage: Usage, card: PriceCard, discount: Decimal = ZERO) -> Cost:
    """Return the cost of `usage` at `card`'s prices less `discount` (a share, 0 to 1).

    Tokens of a class without a price of its own are input or output like any other, and their part is 0. Reasoning is
    paid as output; audio has prices of its own and no part of its own. A picture is paid once: by its tokens where they
    were counted and have a price, else by the piece.
    """
    tier = _tier_of(usage, card)
    input_price, output_price = _first(tier.input, card.input), _first(tier.output, card.output)
    cached_price = card.cached_input if tier.cached_input is None else tier.cached_input
    write_price = card.cache_write if tier.cache_write is None else tier.cache_write

    plain_input, plain_output = usage.input, usage.output + usage.reasoning
    if cached_price is None:
        plain_input += usage.cache_read
    if write_price is None:
        plain_input += usage.cache_write + usage.cache_write_1h
    if card.image_input is None:
        plain_input += usage.image_input
    if card.image_output is None:
        plain_output += usage.image_output
    parts = {
        "input": plain_input * input_price + usage.audio_input * _first(card.audio_input, input_price),
        "output": plain_output * output_price + usage.audio_output * _first(card.audio_output, output_price),
        "cached_input": usage.cache_read * _first(cached_price),
        "cache_write": (usage.cache_write + usage.cache_write_1h * LONG_WRITE) * _first(write_price),
        "image_input": usage.image_input * _first(card.image_input),
        "image_output": usage.image_output * _first(card.image_output),
    }
    parts = {name: amount / MILLION for name, amount in parts.items()}
    # Who states both prices means the same picture: its tokens are paid where they were counted.
    if not (usage.image_output and card.image_output is not None):
        parts["image_output"] += usage.images * _first(card.image)
    parts["request"] = _first(card.request)
    parts["web_search"] = usage.web_searches * _first(card.web_search)

    full = sum(parts.values(), ZERO)
    if discount:
        parts = {name: amount * (1 - discount) for name, amount in parts.items()}
    parts = {name: exact(amount) for name, amount in parts.items()}
    total = sum(parts.values(), ZERO)
    return Cost(total=total, discount_savings=exact(full) - total, unpriced=card.unpriced, **parts)


def _tier_of(usage: Usage, card: PriceCard) -> PriceTier:
    """Return the highest tier that the prompt's size reaches, else one that changes nothing."""
    reached = [tier for tier in card.tiers if usage.prompt_tokens > tier.above_input_tokens]
    return max(reached, key=lambda tier: tier.above_input_tokens, default=_NO_TIER)


def _first(*prices: Decimal | None) -> Decimal:
    """Return the first price that is stated, 0 when none is."""
    return next((price for price in prices if price is not None), ZERO)
