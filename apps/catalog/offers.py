"""Catalog values: models, providers and offers as requests see them; they never change. Pure.

Knows what a provider, an offer and a model are once they are read. Must never know rows, files or stores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from apps.kernel.prices import PriceCard

MODES = ("chat", "image_generation", "embedding", "moderation", "rerank", "audio_speech", "audio_transcription")
# From the surest to the least sure; the last two are never chosen automatically.
STABILITIES = ("stable", "beta", "unstable", "experimental")


@dataclass(frozen=True, slots=True)
class CatalogProvider:
    """Who serves models; `base_url` is as the environment has it, without a slash at its end."""

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
    """A model at a provider, at the prices that are charged; token limits are None where nobody states them."""

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
    # The provider's facts, with the mapping's own over them.
    facts: Mapping[str, Any]
    deprecated_at: date | None
    deactivated_at: date | None
    priority: float
    # False when an operator switched off the mapping, its model or its provider.
    active: bool
    # The same model there under names that have a price of their own; only who names one gets it.
    editions: tuple[Offer, ...] = ()
    is_edition: bool = False

    @property
    def dialect(self) -> str:
        """The wire format that the model is served in: the provider's, unless the mapping has its own."""
        return str(self.facts.get("dialect", self.provider.dialect))

    @property
    def own_names(self) -> tuple[str, ...]:
        """What the provider calls the model: the name that is sent first, then its other names there."""
        return (self.model_name, *self.facts.get("aliases", ()))

    def edition(self, name: str) -> Offer:
        """Return the edition that has a name at the provider; this offer where none has."""
        return next((one for one in self.editions if name in one.own_names), self)

    def is_live(self, today: date) -> bool:
        """Return whether requests may go there; the day of deactivation is the first on which they may not."""
        return self.active and (self.deactivated_at is None or today < self.deactivated_at)

    def is_deprecated(self, today: date) -> bool:
        """Return whether the provider has said that it will shut the model off."""
        return self.deprecated_at is not None and self.deprecated_at <= today

    def name_for(self, asked: str) -> str:
        """Return the name to send: what the client asked for where the provider knows that name, else the usual one.

        So a client that names a dated or regional edition gets that edition.
        """
        return asked if asked in self.own_names else self.model_name


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A model and who offers it; never without an offer. `created` is in Unix seconds."""

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
        """The surest of the offers'."""
        return min((offer.stability for offer in self.offers), key=STABILITIES.index)

    @property
    def deprecated_at(self) -> date | None:
        """The day on which the last provider deprecated it; None while one has not."""
        return _last(offer.deprecated_at for offer in self.offers)

    @property
    def deactivated_at(self) -> date | None:
        """The day on which the last provider shuts it off; None while one has no such day."""
        return _last(offer.deactivated_at for offer in self.offers)


@dataclass(frozen=True, slots=True, eq=False)
class Catalog:
    """All models by id, and every other name that leads to them; `generation` is the token it was read under."""

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
        """Return what a provider offers under a name, its own or the catalog's for the model; None for nothing."""
        model_id = self.prefixed.get(f"{provider_id}/{name}") or self.aliases.get(name, name)
        model = self.models.get(model_id)
        offers = model.offers if model is not None else ()
        return next((offer.edition(name) for offer in offers if offer.provider.id == provider_id), None)


def _last(days: Iterable[date | None]) -> date | None:
    known = list(days)
    stated = [day for day in known if day is not None]
    return max(stated) if len(stated) == len(known) else None
