"""Catalog values: immutable models, providers and offers as requests see them. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

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
