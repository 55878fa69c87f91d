"""Candidate: an offer that could answer a request, with a credential for its provider and its price for the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from apps.billing.pricing import Cost, cost_of
from apps.catalog.catalog_cache import Offer
from apps.gateway.access.credentials import Credential
from apps.gateway.client.http_request import BatchExchange
from apps.kernel.money import ZERO
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer with a credential for its provider, the model's name there, and the discount off its price.

    A discount is off what the service charges: a call with the organization's own credential has none.
    """

    offer: Offer
    credential: Credential
    model_name: str
    discount: Decimal = ZERO
    # Where its batch API answers: the share of the usual prices that `offer` has, and how it is asked.
    batch_share: Decimal | None = None
    exchange: BatchExchange | None = field(default=None, compare=False)
    # The provider's id, the catalog's id of the model, and the name under which their standing is kept.
    provider_id: str = field(init=False, compare=False)
    model_id: str = field(init=False, compare=False)
    mapping: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Name it."""
        provider, model = self.offer.provider.id, self.offer.model_id
        for name, value in (("provider_id", provider), ("model_id", model), ("mapping", f"{provider}/{model}")):
            object.__setattr__(self, name, value)

    @property
    def free(self) -> bool:
        """Whether it costs nothing."""
        return self.offer.prices.free

    @property
    def input_price(self) -> Decimal | None:
        """USD per million prompt tokens."""
        return self.offer.prices.input

    @property
    def output_price(self) -> Decimal | None:
        """USD per million completion tokens."""
        return self.offer.prices.output

    def cost_of(self, usage: Usage, models: Mapping[str, PriceCard] | None = None) -> Cost:
        """Return what it charges for `usage`, its discount taken off; `models` has the prices of other models that the
        answer took passes over."""
        return cost_of(usage, self.offer.prices, self.discount, models or {})
