"""The catalog's data files, read strictly: one TOML file a provider, one a family of models. Pure but for reading them.

Knows what a file may say, and names file and key of whatever it may not. Must never know tables or the network.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from apps.catalog.image_facts import Images
from apps.catalog.price_cards import read_card
from apps.kernel.prices import PriceCard

FOLDER = Path(__file__).parent

Dialect = Literal[
    "openai",
    "responses",
    "anthropic",
    "azure_anthropic",
    "google",
    "vertex",
    "vertex_anthropic",
    "vertex_openai",
    "bedrock",
    "cohere",
    "stability",
    "bfl",
]
Auth = Literal["bearer", "x-api-key", "x-goog-api-key", "x-key", "api-key", "aws-sigv4", "google-service-account"]
Mode = Literal["chat", "image_generation", "embedding"]
Stability = Literal["stable", "beta", "unstable", "experimental"]
Modality = Literal["text", "image", "audio", "video", "pdf", "embedding"]
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
    """A table of a file: a key that is not named here is an error."""


class Variable(_Table, frozen=True):
    """What fills a `{name}` of the address: the first of these environment variables that is set, or the default."""

    env: list[Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=80)]]
    default: Text | UnsetType = UNSET


class Facts(_Table, frozen=True):
    """How a provider (or one of its models) differs from others of its dialect; what is not said is the default.

    The keys and their defaults are described in `docs/adding-a-provider.md`.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | UnsetType = UNSET
    stream_usage: bool | UnsetType = UNSET
    reasoning_field: Literal["reasoning_content", "reasoning", "content"] | UnsetType = UNSET
    thinking_switch: Literal["reasoning_effort", "thinking", "enable_thinking"] | UnsetType = UNSET
    forced_choice_unthinking: bool | UnsetType = UNSET
    tool_choices: list[Literal["auto", "none", "required", "named"]] | UnsetType = UNSET
    tool_call_ids: Literal["any", "short", "nine_alphanumerics"] | UnsetType = UNSET
    message_names: bool | UnsetType = UNSET
    speaks_after_tools: bool | UnsetType = UNSET
    prefill_field: Literal["prefix", "partial"] | UnsetType = UNSET
    media_parts: Literal["openai", "flat"] | UnsetType = UNSET
    seed_field: Literal["seed", "random_seed"] | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    adds: dict[str, Any] | UnsetType = UNSET
    developer_role: bool | UnsetType = UNSET
    reasoning_form: (
        Literal["thinking", "reasoning", "reasoning_effort", "reasoning_config", "reasoningConfig"] | UnsetType
    ) = UNSET
    tool_results: Literal["alone", "without_files"] | UnsetType = UNSET
    result_status: bool | UnsetType = UNSET
    structured_outputs: Literal["native", "tool", "json_object"] | UnsetType = UNSET
    prefill: bool | UnsetType = UNSET
    unsupported: list[str] | UnsetType = UNSET
    takes: list[str] | UnsetType = UNSET
    betas: list[str] | UnsetType = UNSET
    moderated: bool | UnsetType = UNSET
    development_only: bool | UnsetType = UNSET
    variables: dict[str, Variable] | UnsetType = UNSET
    media_urls: bool | UnsetType = UNSET
    count_dialect: Dialect | UnsetType = UNSET
    publisher: ProviderId | UnsetType = UNSET
    images: Images | UnsetType = UNSET


class ReasoningBudget(_Table, frozen=True):
    """Bounds in tokens of the reasoning that a request may ask for; a bound that is not known is not said."""

    min: int | UnsetType = UNSET
    max: int | UnsetType = UNSET


class Mapping(_Table, frozen=True):
    """A model at a provider."""

    id: ModelId
    model_name: Text | None = None
    aliases: list[Text] = []
    prices: dict[str, Any] = {}
    tiers: list[dict[str, Any]] = []
    context: Tokens | None = None
    max_output: Tokens | None = None
    features: list[Feature] = []
    # What is not said: as the model's mode has it (chat streams, and a chat can be broken off).
    streaming: bool | None = None
    cancellation: bool | None = None
    temperature: bool = True
    reasoning_efforts: list[Text] | UnsetType = UNSET
    reasoning_budget: ReasoningBudget | UnsetType = UNSET
    # Another wire format than the provider's usual one.
    dialect: Dialect | UnsetType = UNSET
    dimensions: Tokens | UnsetType = UNSET
    stability: Stability = "stable"
    deprecated: date | None = None
    deactivated: date | None = None
    facts: Facts = Facts()

    def __post_init__(self) -> None:
        _ = self.card

    @property
    def own_names(self) -> list[str]:
        """What the provider calls the model; the first is what is sent."""
        return [self.model_name or self.id, *self.aliases]

    @property
    def card(self) -> PriceCard:
        """What the model costs there. Raises ValueError naming a price that cannot be meant."""
        return read_card({"tiers": self.tiers} | self.prices)


class ProviderFile(_Table, frozen=True, kw_only=True):
    """One file of `providers/`."""

    id: ProviderId
    name: Text
    dialect: Dialect
    auth: Auth
    base_url: Annotated[str, Meta(pattern=r"^https?://\S+[^/\s]$", max_length=300)]
    api_key_env: Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=80)]
    website: Annotated[str, Meta(pattern=r"^(https?://\S+)?$", max_length=200)] = ""
    # The day on which a person last compared the file with the provider's own pages.
    checked: date
    facts: Facts = Facts()
    models: list[Mapping] = []

    @property
    def key(self) -> str:
        """The file's name, without its ending."""
        return self.id


class ModelEntry(_Table, frozen=True, kw_only=True):
    """A model, whoever serves it."""

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
        """The file's name, without its ending."""
        return self.family


class CatalogFiles(msgspec.Struct, frozen=True):
    """All files, each fit in itself and all fit for each other."""

    providers: list[ProviderFile]
    families: list[FamilyFile]


class InvalidFiles(ValueError):
    """The data files say what they may not; the message has one line a problem, with file and key."""


def read_files(folder: Path = FOLDER) -> CatalogFiles:
    """Return the files below `folder`. Raises InvalidFiles with every problem there is."""
    problems: list[str] = []
    providers = _read_folder(folder / "providers", ProviderFile, Mapping, problems)
    families = _read_folder(folder / "families", FamilyFile, ModelEntry, problems)
    # Only files that are fit in themselves can be compared with each other.
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
            if file.key != path.stem:
                raise ValueError(f"the file must be named {file.key}.toml")
        except ValueError as error:
            problems.append(f"{place}: {error}")
            continue
        models = list(_read_entries(place, entries, entry_kind, problems))
        files.append(msgspec.structs.replace(file, models=models))
    return files


def _read_entries(
    place: str, entries: list[dict[str, Any]], kind: type[Mapping | ModelEntry], problems: list[str]
) -> Iterator[Mapping | ModelEntry]:
    seen = set()
    for number, entry in enumerate(entries, start=1):
        name = entry.get("id", number)
        try:
            if name in seen:
                raise ValueError("the file has this model twice")
            seen.add(name)
            yield msgspec.convert(entry, kind)
        except ValueError as error:
            problems.append(f"{place}: models[{name}]: {error}")


def _names_twice(families: list[FamilyFile]) -> Iterator[str]:
    """Yield each name (id or alias) that more than one model would answer to."""
    holders: dict[str, str] = {}
    for family in families:
        for model in family.models:
            for name in (model.id, *model.aliases):
                holder = holders.setdefault(name, model.id)
                if holder != model.id or model.aliases.count(name) + (name == model.id) > 1:
                    yield f"families/{family.family}.toml: models[{model.id}]: `{name}` already names {holder}"


def _loose_ends(providers: list[ProviderFile], families: list[FamilyFile]) -> Iterator[str]:
    """Yield what one file says and another does not back."""
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
