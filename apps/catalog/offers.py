"""Catalog values: immutable models, providers and offers as requests see them, and what a requested name means among
them, on a given day. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, Final

from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.errors import Gone, InvalidRequest
from apps.kernel.near_names import MAX_SUGGESTIONS, NearNames
from apps.kernel.prices import PriceCard

MODES = ("chat", "image_generation", "embedding", "moderation", "rerank", "audio_speech", "audio_transcription")
# From the most to the least stable; the last two are excluded from automatic routing.
STABILITIES = ("stable", "beta", "unstable", "experimental")


@dataclass(frozen=True, slots=True)
class CatalogProvider:
    """A provider of models; `base_url` includes overrides of the environment, without a trailing slash."""

    id: str
    name: str
    dialect: str
    auth: str
    base_url: str
    api_key_env: str
    facts: Mapping[str, Any]
    priority: float


@dataclass(frozen=True, slots=True)
class Offer:
    """A model at a provider, at the charged prices; token limits are None if unknown."""

    provider: CatalogProvider
    model_id: str
    model_name: str
    prices: PriceCard
    context_length: int | None
    max_output: int | None
    streaming: bool
    cancellation: bool
    vision: bool
    tools: bool
    parallel_tools: bool
    tool_choice: bool
    reasoning: bool
    structured_outputs: bool
    json_output: bool
    web_search: bool
    prompt_cache: bool
    temperature: bool
    stability: str
    # The provider's facts, overridden by the mapping's own.
    facts: Mapping[str, Any]
    deprecated_at: date | None
    deactivated_at: date | None
    priority: float
    # False if an operator switched off the mapping, its model or its provider.
    active: bool
    # The same model there under names with their own price; used only if requested by such a name.
    editions: tuple[Offer, ...] = ()
    is_edition: bool = False

    @property
    def dialect(self) -> str:
        """The wire format of the model: the provider's, unless the mapping has its own."""
        return str(self.facts.get("dialect", self.provider.dialect))

    @property
    def own_names(self) -> tuple[str, ...]:
        """The provider's names of the model: the one that is sent first, then other names there."""
        return (self.model_name, *self.facts.get("aliases", ()))

    def edition(self, name: str) -> Offer:
        """Return the edition with a name at the provider; this offer if none has it."""
        return next((one for one in self.editions if name in one.own_names), self)

    def is_live(self, today: date) -> bool:
        """Return whether requests may go there; the day of deactivation is the first on which they may not."""
        return self.active and (self.deactivated_at is None or today < self.deactivated_at)

    def is_deprecated(self, today: date) -> bool:
        """Return whether the provider has announced that it will shut the model off."""
        return self.deprecated_at is not None and self.deprecated_at <= today

    def name_for(self, asked: str) -> str:
        """Return the name to send: the requested name if the provider knows it, else the usual one.

        So a client that requests a dated or regional edition gets it.
        """
        return asked if asked in self.own_names else self.model_name


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model and its offers, at least one. `created` is in Unix seconds."""

    id: str
    name: str
    description: str
    family: str
    owned_by: str
    mode: str
    aliases: tuple[str, ...]
    created: int | None
    context_length: int | None
    max_output: int | None
    input_modalities: tuple[str, ...]
    output_modalities: tuple[str, ...]
    facts: Mapping[str, Any]
    offers: tuple[Offer, ...]

    @property
    def stability(self) -> str:
        """The stability of the most stable offer."""
        return min((offer.stability for offer in self.offers), key=STABILITIES.index)

    @property
    def deprecated_at(self) -> date | None:
        """The day on which the last provider deprecated it; None if one has not."""
        return _last(offer.deprecated_at for offer in self.offers)

    @property
    def deactivated_at(self) -> date | None:
        """The day on which the last provider shuts it off; None if one has no such day."""
        return _last(offer.deactivated_at for offer in self.offers)


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """All models by id, and all other names; `generation` is the token that it was read under."""

    models: Mapping[str, CatalogModel]
    providers: Mapping[str, CatalogProvider]
    generation: str
    # Alias -> model id.
    aliases: Mapping[str, str] = field(init=False)
    # Provider's own name -> its prefixed forms, `provider/own name`.
    names: Mapping[str, frozenset[str]] = field(init=False)
    # Prefixed form -> model id.
    prefixed: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        names = defaultdict(set)
        prefixed = {}
        for model in self.models.values():
            for usual in model.offers:
                for offer in (usual, *usual.editions):
                    for name in offer.own_names:
                        form = f"{offer.provider.id}/{name}"
                        names[name].add(form)
                        prefixed[form] = model.id
        aliases = {alias: model.id for model in self.models.values() for alias in model.aliases}
        object.__setattr__(self, "aliases", aliases)
        object.__setattr__(self, "names", {name: frozenset(forms) for name, forms in names.items()})
        object.__setattr__(self, "prefixed", prefixed)

    def find_offer(self, provider_id: str, name: str) -> Offer | None:
        """Return a provider's offer by name, its own or the catalog's; None if it has none."""
        model_id = self.prefixed.get(f"{provider_id}/{name}") or self.aliases.get(name, name)
        model = self.models.get(model_id)
        offers = model.offers if model is not None else ()
        return next((offer.edition(name) for offer in offers if offer.provider.id == provider_id), None)


def _last(days: Iterable[date | None]) -> date | None:
    known = list(days)
    stated = [day for day in known if day is not None]
    return max(stated) if len(stated) == len(known) else None


MAX_NAME = 255
# For the current catalog and the previous one.
_near_names: Final = IdentityCache[Catalog, NearNames](
    lambda catalog: NearNames([*catalog.models, *catalog.aliases]), most=2
)


@dataclass(frozen=True, slots=True)
class Reach:
    """The offers that a caller can call, and why not the others; those of one version are the same."""

    version: Hashable
    # Returns why an offer cannot be called; empty if it can.
    find_obstacle: Callable[[Offer], str] = field(compare=False)

    def allows(self, offer: Offer) -> bool:
        """Return whether an offer can be called."""
        return not self.find_obstacle(offer)


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
