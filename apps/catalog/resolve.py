"""Model name resolution: from a requested name to the model, and the provider if one is named. Pure, for a given
day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Final

from apps.catalog.offers import Catalog, CatalogModel, CatalogProvider, Offer
from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.errors import Gone, InvalidRequest
from apps.kernel.near_names import MAX_SUGGESTIONS, NearNames

MAX_NAME = 255
# For the current catalog and the previous one.
_near_names: Final = IdentityCache[Catalog, NearNames](
    lambda catalog: NearNames([*catalog.models, *catalog.aliases]), most=2
)


@dataclass(frozen=True, slots=True)
class Resolved:
    """The meaning of a name. `name` is the part without a provider prefix: send `Offer.name_for(name)`.

    `offers` are the matching offers of the model, at least one; for an edition's name, at that edition's price.
    """

    model: CatalogModel
    provider: CatalogProvider | None
    name: str
    offers: tuple[Offer, ...]


class UnknownModel(InvalidRequest):
    """An unknown name; `statement` is the message without suggestions.

    Similar names are searched when the message is read: clients see only one of several unknown names in a request.
    """

    def __init__(self, catalog: Catalog, requested: str) -> None:
        self.statement = f"The model `{requested}` does not exist"
        super().__init__(self.statement, code="model_not_found", param="model")
        self._catalog = catalog
        self._requested = requested
        # Makes the property compute it on first read.
        del self.message

    @cached_property
    def message(self) -> str:  # type: ignore[override] # it can be set all the same
        """Return the error message for the client."""
        near = _near_names(self._catalog).find(self._requested.rpartition("/")[2])
        return f"{self.statement}; did you mean {_either(near)}?" if near else self.statement


def resolve(catalog: Catalog, requested: str, today: date | None = None) -> Resolved:
    """Return the meaning of `requested`: `model`, alias, `provider/model`, `provider/alias` or `provider/its own name`.

    Raises InvalidRequest (400 `model_not_found`) for an unknown name, and for a provider's own name without its prefix,
    and Gone (410) if every provider of the model has shut it off.
    """
    if len(requested) > MAX_NAME:
        raise _not_found(f"A model name has at most {MAX_NAME} characters")
    prefix, slash, rest = requested.partition("/")
    provider = catalog.providers.get(prefix) if slash else None
    name = rest if provider else requested
    model = _served(catalog, provider, name) if provider else _model(catalog, name)
    if model is None:
        raise _unknown(catalog, requested)
    today = today or datetime.now(UTC).date()
    offers = _offers_named(model, provider, name)
    if not any(offer.is_live(today) for offer in offers):
        gone = model.id if offers is model.offers else name
        raise Gone(f"{gone} is no longer served by any provider", param="model")
    return Resolved(model, provider, name, offers)


def _offers_named(model: CatalogModel, provider: CatalogProvider | None, name: str) -> tuple[Offer, ...]:
    """Return the matching offers of a model.

    For an edition's name, providers with the edition offer that. Others are left out unless the client named a
    provider: they would answer with another edition, often at a lower price, and would be chosen first.
    """
    offers = tuple(offer.edition(name) for offer in model.offers)
    if offers == model.offers:
        return model.offers
    return offers if provider else tuple(offer for offer in offers if name in offer.own_names)


def _model(catalog: Catalog, name: str) -> CatalogModel | None:
    return catalog.models.get(name) or catalog.models.get(catalog.aliases.get(name, ""))


def _served(catalog: Catalog, provider: CatalogProvider, name: str) -> CatalogModel | None:
    """Return the model that `name` means at a provider. Raises InvalidRequest naming providers that serve it."""
    if own := catalog.prefixed.get(f"{provider.id}/{name}"):
        return catalog.models[own]
    model = _model(catalog, name)
    if model is None or any(offer.provider.id == provider.id for offer in model.offers):
        return model
    others = ", ".join(sorted(offer.provider.id for offer in model.offers))
    raise _not_found(f"{provider.name} does not serve {name}; these providers do: {others}")


def _unknown(catalog: Catalog, requested: str) -> InvalidRequest:
    if prefixed := sorted(catalog.names.get(requested, ())):
        model = catalog.prefixed[prefixed[0]]
        return _not_found(
            f"`{requested}` is a provider's own name for {model}: ask for that, or for {_either(prefixed)}"
        )
    return UnknownModel(catalog, requested)


def _either(names: list[str]) -> str:
    return " or ".join(f"`{name}`" for name in names[:MAX_SUGGESTIONS])


def _not_found(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="model_not_found", param="model")
