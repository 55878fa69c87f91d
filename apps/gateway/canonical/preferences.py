"""Routing preferences: what a client says about which provider shall answer, at what price, and how often to try."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal

import msgspec

# Retries after the first attempt: no client is given more.
MAX_RETRIES = 3

SortBy = Literal["price", "throughput", "latency"]


class MaxPrice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that a model may charge: USD per million tokens of the prompt and of the completion, USD for a request
    and for an image; None is any price."""

    prompt: Decimal | None = None
    completion: Decimal | None = None
    request: Decimal | None = None
    image: Decimal | None = None


class RoutingPreferences(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client's wishes. `models` are asked in this order when the one named before them fails.

    `order`, `only` and `ignore` name providers, in lower case. Without `allow_fallbacks` one provider of a model is
    tried, or those of `order`. `require_parameters` passes over providers that would leave a field out.
    `zero_data_retention` and `no_data_collection` are promises that a provider must have given.
    """

    models: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    sort: SortBy | None = None
    allow_fallbacks: bool = True
    require_parameters: bool = False
    zero_data_retention: bool = False
    no_data_collection: bool = False
    max_price: MaxPrice | None = None
    # Retries of a model, at most `MAX_RETRIES`; None is as many as usual.
    retries: int | None = None
    # Seconds that each call of a provider may take; None is as long as usual.
    timeout: float | None = None
    # The conversation, for the prompt cache of its provider.
    session: str | None = None
    # Words under which the request is logged.
    tags: tuple[str, ...] = ()

    @property
    def steers(self) -> bool:
        """Whether it says which providers shall answer, so that a provider in the model's name no longer does."""
        return bool(self.order or self.only or self.ignore or self.sort)
