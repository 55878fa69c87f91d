"""Pricing: usage x prices -> cost, the only place where tokens meet prices. Pure and exact, rounded at the last digit.

The formulas are the specification's (section 1): a missing price counts as 0; no token is paid twice. Storing requests
has a price per token for organizations with retention level `retain`: it is charged to the credits, also if the
organization's own provider key answered, and does not count as a key's usage.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from apps.kernel.money import ZERO, exact
from apps.kernel.prices import PriceCard, PriceTier, multiply_tokens
from apps.kernel.usage import TOKEN_COUNTS, Usage

MILLION = Decimal(1_000_000)
MINUTE = Decimal(60_000)
_NO_TIER = PriceTier(above_input_tokens=0)
_NO_MODELS: Mapping[str, PriceCard] = {}
_NOTHING = Usage()
_NO_TOKENS = dict.fromkeys(TOKEN_COUNTS, 0)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a request in USD by component; `total` is their sum."""

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


class Bill(PriceCard, frozen=True, omit_defaults=True, kw_only=True):
    """Everything that determines a request's cost, stored with its log row: the applied prices, and the usage.

    The prices are those of the service tier and region that served the answer; `models` has the prices of other models
    that the answer called. `discount` is a share, `hedge_cost` the cost of a hedged call that lost the race and
    `hedge_savings` the discount on it, in USD; `waived` says why nothing is charged: `failed`, `empty` or `cached`.
    `batch_share` is set if the provider's batch API answered: token prices are this share of the usual ones.
    """

    discount: Decimal = ZERO
    used: Usage = Usage()
    # Stored under their first names.
    hedge_cost: Decimal = msgspec.field(default=ZERO, name="outrun")
    hedge_savings: Decimal = msgspec.field(default=ZERO, name="outrun_saved")
    waived: str = ""
    batch_share: Decimal | None = None
    models: dict[str, PriceCard] = {}


def bill_at(card: PriceCard, **terms: Any) -> Bill:
    """Return a bill at a card's prices; `terms` are a bill's own fields."""
    if card.service_tiers or card.regions:
        used = terms.get("used", _NOTHING)
        card = card.at(used.service_tier, used.region)
    return Bill(**dict(zip(PriceCard.__struct_fields__, msgspec.structs.astuple(card), strict=False)), **terms)


def at_share(card: PriceCard, share: Decimal, cached_share: Decimal | None = None) -> PriceCard:
    """Return the card with token prices at a share; cached input may have its own share.

    Prices per unit stay. Batches have no other service tiers.
    """
    return msgspec.structs.replace(multiply_tokens(card, share, cached_share), service_tiers={})


def cost_by(bill: Bill) -> Cost:
    """Return the cost of a bill: for a log row's bill, exactly the row's cost."""
    if bill.waived:
        return FREE
    cost = cost_of(bill.used, bill, bill.discount, bill.models)
    if not (bill.hedge_cost or bill.hedge_savings):
        return cost
    return msgspec.structs.replace(
        cost,
        total=cost.total + bill.hedge_cost,
        input=cost.input + bill.hedge_cost,
        discount_savings=cost.discount_savings + bill.hedge_savings,
    )


def cost_of(
    usage: Usage, card: PriceCard, discount: Decimal = ZERO, models: Mapping[str, PriceCard] = _NO_MODELS
) -> Cost:
    """Return the cost of `usage` at `card`'s prices less `discount` (a share, 0 to 1).

    Tokens of a class without its own price count as input or output, and their component is 0. Reasoning is priced as
    output; audio has its own prices but no component. An image is paid once: by its tokens if they were counted and
    have a price, else per image. Characters and minutes are input; search units and tool calls are part of the request.
    `models` has the prices of other models that the answer called. If the provider states the cost of the answer, the
    components add up to it.
    """
    if (usage.service_tier and card.service_tiers) or (usage.region and card.regions):
        card = card.at(usage.service_tier, usage.region)
    told = usage.reported_cost
    if usage.plain and told is None and not (discount or card.tiers or card.request):
        return _cost_of_text(usage, card)
    parts = _parts_of(usage, card) if not usage.passes else _parts_of_passes(usage, card, models)
    if told is not None:
        parts = _parts_as_told(parts, told)
    full = _to_the_ledger(parts)
    parts = _to_the_ledger([amount * (1 - discount) for amount in parts]) if discount else full
    total = sum(parts, ZERO)
    return Cost(
        total=total,
        discount_savings=sum(full, ZERO) - total,
        unpriced=told is None and (card.unpriced or any(name not in card.tools for name in usage.tool_calls or ())),
        input=parts[0],
        output=parts[1],
        cached_input=parts[2],
        cache_write=parts[3],
        image_input=parts[4],
        image_output=parts[5],
        request=parts[6],
        web_search=parts[7],
    )


def price_text(read: int, written: int, card: PriceCard, discount: Decimal = ZERO) -> Decimal:
    """Return the total cost of reading and writing so many tokens of text, as `cost_of` does, in USD."""
    if discount or card.tiers or card.request:
        return cost_of(Usage(input=read, output=written), card, discount).total
    return _price_of_tokens(read, card.input) + _price_of_tokens(written, card.output)


def _price_of_tokens(tokens: int, price: Decimal | None) -> Decimal:
    return exact(tokens * price / MILLION) if tokens and price else ZERO


def _cost_of_text(usage: Usage, card: PriceCard) -> Cost:
    """Return the cost of the common case: text input and output, each at one price."""
    read = _price_of_tokens(usage.input, card.input)
    written = _price_of_tokens(usage.output + usage.reasoning, card.output)
    unpriced = card.input is None and card.output is None and card.unpriced
    return Cost(total=read + written, input=read, output=written, unpriced=unpriced)


def _parts_of_passes(usage: Usage, card: PriceCard, models: Mapping[str, PriceCard]) -> list[Decimal]:
    """Return the components of an answer with several passes: the tokens of each, and other units once.

    A pass over a model without known prices costs as much as one over the requested model.
    """
    parts = _parts_of(msgspec.structs.replace(usage, **_NO_TOKENS, passes=()), card)
    for one in usage.passes:
        prices = models.get(one.model)
        prices = card if prices is None else prices.at("", usage.region)
        tokens = _parts_of(one.usage, msgspec.structs.replace(prices, request=None))
        parts = [part + more for part, more in zip(parts, tokens, strict=True)]
    return parts


def _parts_of(usage: Usage, card: PriceCard) -> list[Decimal]:
    """Return the components in the order of `Cost`, before discount and rounding."""
    tier = _tier_of(usage, card) if card.tiers else _NO_TIER
    input_price = card.input if tier.input is None else tier.input
    output_price = card.output if tier.output is None else tier.output
    cached_price = card.cached_input if tier.cached_input is None else tier.cached_input
    write_price = card.cache_write if tier.cache_write is None else tier.cache_write
    hour_price = card.cache_write_1h if tier.cache_write_1h is None else tier.cache_write_1h
    if hour_price is None:
        hour_price = write_price

    plain_input, plain_output = usage.input, usage.output + usage.reasoning
    cached, cached_media = usage.cache_read, ZERO
    if usage.cache_read_audio and card.cached_audio is not None:
        audio = min(usage.cache_read_audio, cached)
        cached, cached_media = cached - audio, _paid(audio, card.cached_audio)
    if usage.cache_read_image and card.cached_image is not None:
        images = min(usage.cache_read_image, cached)
        cached, cached_media = cached - images, cached_media + _paid(images, card.cached_image)
    if cached_price is None:
        plain_input += cached
    if write_price is None:
        plain_input += usage.cache_write
    if hour_price is None:
        plain_input += usage.cache_write_1h
    if card.image_input is None:
        plain_input += usage.image_input
    if card.image_output is None:
        plain_output += usage.image_output
    audio_input_price = input_price if card.audio_input is None else card.audio_input
    audio_output_price = output_price if card.audio_output is None else card.audio_output
    # A card with both prices means the same image: its tokens are paid if they were counted.
    by_the_piece = 0 if usage.image_output and card.image_output is not None else usage.images
    called = ZERO
    for name, count in (usage.tool_calls or {}).items():
        # With a price per grounded request, map searches are paid once per request.
        most = 1 if name == "google_maps" and card.grounded_request is not None else count
        called += max(min(count, most), 0) * card.tools.get(name, ZERO)
    return [
        _paid(plain_input, input_price)
        + _paid(usage.audio_input, audio_input_price)
        + _paid(usage.characters, card.characters)
        + _listened_to(usage.audio_milliseconds, card) * (card.audio_minute or ZERO) / MINUTE,
        _paid(plain_output, output_price) + _paid(usage.audio_output, audio_output_price),
        _paid(cached, cached_price) + cached_media,
        _paid(usage.cache_write, write_price) + _paid(usage.cache_write_1h, hour_price),
        _paid(usage.image_input, card.image_input),
        _paid(usage.image_output, card.image_output) + by_the_piece * (card.image or ZERO),
        (card.request or ZERO) + usage.search_units * (card.search_unit or ZERO) + called,
        _searched(usage, card) if usage.web_searches else ZERO,
    ]


def _parts_as_told(parts: list[Decimal], told: Decimal) -> list[Decimal]:
    """Return components that add up to the cost stated by the provider.

    A surplus is added to the component of the request; if the stated cost is lower, all are reduced in proportion.
    """
    full = sum(parts, ZERO)
    if told < full:
        parts = [exact(part * told / full) if part else ZERO for part in parts]
        largest = parts.index(max(parts))
        parts[largest] += told - sum(parts, ZERO)
        return parts
    return [*parts[:6], parts[6] + told - full, *parts[7:]]


def _searched(usage: Usage, card: PriceCard) -> Decimal:
    """Return the cost of web searches; if it depends on their size, the provider's own figure takes precedence."""
    if card.search_sizes and usage.reported_search_cost is not None:
        return usage.reported_search_cost
    each = card.search_sizes.get(usage.search_size, card.web_search)
    return usage.web_searches * (each or ZERO) + (card.grounded_request or ZERO)


def _listened_to(milliseconds: int, card: PriceCard) -> Decimal:
    """Return the billable milliseconds of a recording."""
    return max(Decimal(milliseconds), (card.audio_minimum or ZERO) * 1000) if milliseconds else ZERO


def _to_the_ledger(parts: list[Decimal]) -> list[Decimal]:
    """Return the components rounded to the ledger's resolution."""
    return [exact(amount) if amount else ZERO for amount in parts]


def _tier_of(usage: Usage, card: PriceCard) -> PriceTier:
    """Return the highest tier that the prompt's size reaches, else an empty tier."""
    reached = [tier for tier in card.tiers if usage.prompt_tokens > tier.above_input_tokens]
    return max(reached, key=lambda tier: tier.above_input_tokens, default=_NO_TIER)


def _paid(tokens: int | Decimal, price: Decimal | None) -> Decimal:
    """Return the cost of tokens at a price per million; 0 without a price."""
    return tokens * price / MILLION if tokens and price else ZERO


# USD per million tokens (specification, section 8).
STORAGE_PRICE = Decimal("0.01")
_MILLION = Decimal(1_000_000)


def price_storage(tokens: int, retention_level: str) -> Decimal:
    """Return the storage cost of a request in USD; only `retain` stores content."""
    return exact(tokens * STORAGE_PRICE / _MILLION) if retention_level == "retain" else ZERO
