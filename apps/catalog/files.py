"""The catalog's data files, read strictly: one TOML file per provider, one per model family.

Errors name the file and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from apps.catalog.facts import check_dialect, read_facts
from apps.catalog.price_cards import Edition, read_card, write_card
from apps.kernel.prices import PriceCard

FOLDER = Path(__file__).parent

Auth = Literal[
    "bearer",
    "token",
    "x-api-key",
    "x-goog-api-key",
    "x-key",
    "xi-api-key",
    "api-key",
    "aws-sigv4",
    "google-service-account",
]
Mode = Literal["chat", "image_generation", "embedding", "moderation", "rerank", "audio_speech", "audio_transcription"]
Stability = Literal["stable", "beta", "unstable", "experimental"]
Modality = Literal["text", "image", "audio", "video", "pdf", "embedding", "moderation", "rerank"]
Feature = Literal[
    "vision",
    "tools",
    "parallel_tools",
    "tool_choice",
    "reasoning",
    "structured_outputs",
    "json_output",
    "web_search",
    "prompt_cache",
]
ProviderId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
ModelId = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9._:-]*$", max_length=120)]
Text = Annotated[str, Meta(min_length=1, max_length=200)]
Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a file: unknown keys are errors."""


class ReasoningBudget(_Table, frozen=True):
    """Limits in tokens of the reasoning that a request may ask for; unknown limits are absent."""

    min: int | UnsetType = UNSET
    max: int | UnsetType = UNSET


# Parts of a price card that are tables of their own.
_BESIDE_PRICES = ("tiers", "service_tiers", "regions", "tools", "search_sizes")


class Mapping(_Table, frozen=True):
    """A model at a provider."""

    id: ModelId
    model_name: Text | None = None
    aliases: list[Text] = []
    # Names with their own price.
    editions: list[Edition] = []
    prices: dict[str, Any] = {}
    tiers: list[dict[str, Any]] = []
    service_tiers: dict[str, dict[str, Any]] = {}
    regions: dict[str, Decimal] = {}
    tools: dict[str, Decimal] = {}
    search_sizes: dict[str, Decimal] = {}
    context: Tokens | None = None
    max_output: Tokens | None = None
    features: list[Feature] = []
    # Default: by the model's mode (chats can stream and be cancelled).
    streaming: bool | None = None
    cancellation: bool | None = None
    temperature: bool = True
    reasoning_efforts: list[Text] | UnsetType = UNSET
    reasoning_budget: ReasoningBudget | UnsetType = UNSET
    # A wire format other than the provider's usual one.
    dialect: str | UnsetType = UNSET
    dimensions: Tokens | UnsetType = UNSET
    stability: Stability = "stable"
    deprecated: date | None = None
    deactivated: date | None = None
    # Differences at this provider from its dialect: validated once the dialect is known.
    facts: Any = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        names = self.own_names
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"`{twice}` is stated twice")
        for edition in self.editions:
            # With the factor applied, prices have the same bounds as stated ones.
            _ = read_card(write_card(edition.card(self.card)))
        _ = self.card

    @property
    def own_names(self) -> list[str]:
        """The provider's names of the model, including its editions; the first is sent."""
        return [self.model_name or self.id, *self.aliases, *(name for one in self.editions for name in one.names)]

    @property
    def card(self) -> PriceCard:
        """The price card there. Raises ValueError naming an invalid price."""
        beside = {name: getattr(self, name) for name in _BESIDE_PRICES}
        return read_card({name: stated for name, stated in beside.items() if stated} | self.prices)


# Keys of a model's entry, which must not be in its facts.
_ENTRY_KEYS = frozenset(Mapping.__struct_fields__) | set(get_args(Feature))


class ProviderFile(_Table, frozen=True, kw_only=True):
    """One file of `providers/`."""

    id: ProviderId
    name: Text
    dialect: str
    auth: Auth
    base_url: Annotated[str, Meta(pattern=r"^https?://\S+[^/\s]$", max_length=300)]
    api_key_env: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=80)]
    website: Annotated[str, Meta(pattern=r"^(https?://\S+)?$", max_length=200)] = ""
    # The day on which a person last compared the file with the provider's own pages.
    checked: date
    # Prices of tools that the provider runs, for all of its models with tools and without own prices.
    tools: dict[str, Decimal] = {}
    facts: Any = msgspec.field(default_factory=dict)
    models: list[Mapping] = []

    @property
    def key(self) -> str:
        """The file's name without its extension."""
        return self.id


class ModelEntry(_Table, frozen=True, kw_only=True):
    """A model, independent of providers."""

    id: ModelId
    name: Text
    description: str = ""
    owned_by: ProviderId | None = None
    mode: Mode = "chat"
    aliases: list[ModelId] = []
    released: date | None = None
    knowledge: Annotated[str, Meta(pattern=r"^\d{4}(-\d\d){0,2}$")] | None = None
    open_weights: bool | None = None
    context_length: Tokens | None = None
    max_output: Tokens | None = None
    input_modalities: list[Modality]
    output_modalities: list[Modality]


class FamilyFile(_Table, frozen=True):
    """One file of `families/`."""

    family: ProviderId
    # As clients of other model lists know it: GPT, Claude, Llama …
    tokenizer: Text | None = None
    models: list[ModelEntry] = []

    @property
    def key(self) -> str:
        """The file's name without its extension."""
        return self.family


class CatalogFiles(msgspec.Struct, frozen=True):
    """All files, each valid by itself and with the others."""

    providers: list[ProviderFile]
    families: list[FamilyFile]


class InvalidFiles(ValueError):
    """The data files are invalid; the message has one line per problem, with file and key."""


def read_files(folder: Path = FOLDER) -> CatalogFiles:
    """Return the files below `folder`. Raises InvalidFiles with all problems."""
    problems: list[str] = []
    providers = _read_folder(folder / "providers", ProviderFile, Mapping, problems)
    families = _read_folder(folder / "families", FamilyFile, ModelEntry, problems)
    # Only valid files can be compared with each other.
    problems = problems or [*_names_twice(families), *_loose_ends(providers, families)]
    if problems:
        raise InvalidFiles("\n".join(problems))
    return CatalogFiles(providers, families)


_File = TypeVar("_File", ProviderFile, FamilyFile)


def _read_folder(
    folder: Path, kind: type[_File], entry_kind: type[Mapping | ModelEntry], problems: list[str]
) -> list[_File]:
    files = []
    for path in sorted(folder.glob("*.toml")):
        place = f"{folder.name}/{path.name}"
        try:
            raw = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
            entries = raw.pop("models", [])
            file = msgspec.convert(raw, kind)
            if isinstance(file, ProviderFile):
                check_dialect(file.dialect, "dialect")
                facts = read_facts(file.facts, file.dialect, _ENTRY_KEYS)
                file = msgspec.structs.replace(file, facts=facts)
            if file.key != path.stem:
                raise ValueError(f"the file must be named {file.key}.toml")
        except ValueError as error:
            problems.append(f"{place}: {error}")
            continue
        dialect = file.dialect if isinstance(file, ProviderFile) else ""
        if isinstance(file, ProviderFile) and file.tools:
            entries = [
                {"tools": file.tools, **entry} if "tools" in entry.get("features", ()) else entry for entry in entries
            ]
        models = list(_read_entries(place, entries, entry_kind, dialect, problems))
        files.append(msgspec.structs.replace(file, models=models))
    return files


def _read_entries(
    place: str, entries: list[dict[str, Any]], kind: type[Mapping | ModelEntry], dialect: str, problems: list[str]
) -> Iterator[Mapping | ModelEntry]:
    seen = set()
    for number, entry in enumerate(entries, start=1):
        name = entry.get("id", number)
        try:
            if name in seen:
                raise ValueError("the file has this model twice")
            seen.add(name)
            read = msgspec.convert(entry, kind)
            yield _with_facts(read, dialect) if isinstance(read, Mapping) else read
        except ValueError as error:
            problems.append(f"{place}: models[{name}]: {error}")


def _with_facts(mapping: Mapping, dialect: str) -> Mapping:
    """Return a mapping with its facts validated for the dialect that it is served in."""
    if mapping.dialect is not UNSET:
        dialect = mapping.dialect
        check_dialect(dialect, "dialect")
    return msgspec.structs.replace(mapping, facts=read_facts(mapping.facts, dialect, _ENTRY_KEYS))


def _names_twice(families: list[FamilyFile]) -> Iterator[str]:
    """Yield each name (id or alias) that belongs to more than one model."""
    holders: dict[str, str] = {}
    for family in families:
        for model in family.models:
            for name in (model.id, *model.aliases):
                holder = holders.setdefault(name, model.id)
                if holder != model.id or model.aliases.count(name) + (name == model.id) > 1:
                    yield f"families/{family.family}.toml: models[{model.id}]: `{name}` already names {holder}"


def _loose_ends(providers: list[ProviderFile], families: list[FamilyFile]) -> Iterator[str]:
    """Yield references to entries that do not exist."""
    known = {provider.id for provider in providers}
    owner_of: dict[str, str] = {}
    for family in families:
        for model in family.models:
            owner_of |= dict.fromkeys((model.id, *model.aliases), model.id)
            if model.owned_by and model.owned_by not in known:
                yield f"families/{family.family}.toml: models[{model.id}].owned_by: no provider {model.owned_by!r}"
    for provider in providers:
        own: dict[str, str] = {}
        for mapping in provider.models:
            place = f"providers/{provider.id}.toml: models[{mapping.id}]"
            if owner_of.get(mapping.id) != mapping.id:
                yield f"{place}: no family has this model"
            for name in mapping.own_names:
                for holder in {own.setdefault(name, mapping.id), owner_of.get(name, mapping.id)} - {mapping.id}:
                    yield f"{place}: `{name}` already names {holder}"
