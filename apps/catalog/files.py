"""The catalog's data files, read strictly: one TOML file per provider, one per model family.

An operator's folder with files of the same format is merged into the product's. Errors name the file and the key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
import structlog
from msgspec import UNSET, Meta, UnsetType

from apps.catalog.accepted_changes import AcceptedChange, lay_out
from apps.catalog.facts import check_dialect, read_facts
from apps.catalog.price_cards import Edition, read_card, write_card
from apps.kernel.prices import PriceCard

log = structlog.get_logger(__name__)

FOLDER = Path(__file__).parent
# Folders of provider files and of family files.
PROVIDERS, FAMILIES = "providers", "families"

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


def read_files(folder: Path = FOLDER, own: Path | None = None, accepted: Sequence[AcceptedChange] = ()) -> CatalogFiles:
    """Return the files below `folder`, merged with accepted changes and with those below `own`, the operator's folder.

    An operator's file with the name of another changes that: each of its keys replaces the key of that name. A model
    of the same id is merged likewise, and its prices one by one. Accepted changes come between the two, so the
    operator's files win; those that no longer apply are left out. Raises InvalidFiles with all problems.
    """
    problems: list[str] = [] if own is None else list(_strangers(own))
    raw = _read_folders(folder, own, accepted, problems)
    providers = list(_convert(raw[PROVIDERS], ProviderFile, Mapping, problems))
    families = list(_convert(raw[FAMILIES], FamilyFile, ModelEntry, problems))
    # Only valid files can be compared with each other.
    problems = problems or [*_names_twice(families, raw[FAMILIES]), *_loose_ends(providers, families, raw)]
    if problems:
        raise InvalidFiles("\n".join(problems))
    return CatalogFiles(providers, families)


def read_leniently(
    folder: Path = FOLDER, own: Path | None = None, accepted: Sequence[AcceptedChange] = ()
) -> CatalogFiles:
    """Return what `read_files` does, without the accepted changes of providers whose file is invalid with them.

    Newer files of the product must not fail because of older decisions. Raises InvalidFiles.
    """
    try:
        return read_files(folder, own, accepted)
    except InvalidFiles as error:
        if not accepted:
            raise
        log.error("catalog.accepted_changes_invalid", problems=str(error))
    read_files(folder, own)
    kept: list[AcceptedChange] = []
    for provider in sorted({change.provider for change in accepted}):
        tried = [change for change in accepted if change.provider == provider or change in kept]
        try:
            read_files(folder, own, tried)
        except InvalidFiles:
            continue
        kept = tried
    return read_files(folder, own, kept)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A file as written: its keys, its models, and the place that errors name. A merged file has the place of the
    operator's file, because the product's files are valid without it."""

    place: str
    table: dict[str, Any]
    models: list[dict[str, Any]]
    is_own: bool = False

    def merge(self, own: _Raw) -> _Raw:
        """Return this file with an operator's changes."""
        changes = list(own.models)
        models = []
        for model in self.models:
            # A second entry of the same id stays among the changes, and is refused as stated twice.
            change = next((one for one in changes if one.get("id") == model.get("id")), None)
            if change is not None:
                changes.remove(change)
            models.append(model if change is None else _merge_model(model, change))
        return replace(own, table=self.table | own.table, models=models + changes)


def _merge_model(model: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Return a model with an operator's changes. A price that is not stated there stays: without it, it would be 0."""
    merged = model | change
    usual, stated = model.get("prices"), change.get("prices")
    return merged | {"prices": usual | stated} if isinstance(usual, dict) and isinstance(stated, dict) else merged


def _strangers(own: Path) -> Iterator[str]:
    """Yield what an operator's folder has and the reader would pass over. Hidden names belong to version control, or
    to Kubernetes, which mounts folders through them."""
    for path in _visible(own):
        if path.is_dir() and path.name not in (PROVIDERS, FAMILIES, "lost+found"):
            yield f"{path}: not a folder of the catalog; the folders are {PROVIDERS} and {FAMILIES}"
        elif path.suffix == ".toml" and not path.is_dir():
            yield f"{path}: must be in the folder {PROVIDERS} or {FAMILIES}"
    for path in (*_visible(own / PROVIDERS), *_visible(own / FAMILIES)):
        if path.suffix != ".md" and (path.suffix != ".toml" or path.is_dir()):
            yield f"{path}: not a data file; their names end in .toml"


def visible_paths(own: Path) -> list[Path]:
    """Return the files and folders of an operator's folder that `read_files` looks at."""
    return [path for folder in (own, own / PROVIDERS, own / FAMILIES) for path in _visible(folder)]


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []  # Its reader reports it.


def stated_prices(own: Path | None) -> frozenset[tuple[str, str]]:
    """Return the offers, by provider and model, whose prices or end an operator's own files state.

    The files must be valid.
    """
    if own is None:
        return frozenset()
    return frozenset(
        (path.stem, str(model.get("id")))
        for path in _toml_files(own / PROVIDERS)
        for model in tomllib.loads(path.read_text("utf-8")).get("models", [])
        if model.keys() & {"prices", "tiers", "deactivated"}
    )


_Raws = dict[str, dict[str, _Raw]]


def _read_folders(folder: Path, own: Path | None, accepted: Sequence[AcceptedChange], problems: list[str]) -> _Raws:
    """Return the raw files of both folders by their name without extension."""
    names = (PROVIDERS, FAMILIES)
    raw = {name: dict(_read_raw(sorted((folder / name).glob("*.toml")), problems, is_own=False)) for name in names}
    if own is not None and not own.is_dir():
        problems.append(f"{own}: not a folder")
        own = None
    stated = {name: dict(_read_raw(_toml_files(own / name), problems, is_own=True)) for name in names} if own else {}
    if accepted:
        whole = {name: _merge_files(raw[name], stated.get(name, {})) for name in names}
        for name, layer in zip(names, lay_out(accepted, whole[PROVIDERS], whole[FAMILIES]), strict=True):
            changes = {stem: _Raw(f"accepted proposals for {stem}", {}, models) for stem, models in layer.items()}
            raw[name] = _merge_files(raw[name], changes)
    return {name: _merge_files(raw[name], stated.get(name, {})) for name in names}


def _merge_files(files: dict[str, _Raw], changes: dict[str, _Raw]) -> dict[str, _Raw]:
    return files | {stem: files[stem].merge(one) if stem in files else one for stem, one in changes.items()}


def _toml_files(folder: Path) -> list[Path]:
    return [path for path in _visible(folder) if path.suffix == ".toml" and not path.is_dir()]


def _read_raw(paths: list[Path], problems: list[str], *, is_own: bool) -> Iterator[tuple[str, _Raw]]:
    for path in paths:
        place = str(path) if is_own else f"{path.parent.name}/{path.name}"
        try:
            table = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
            models = table.pop("models", [])
            if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
                raise ValueError("each model must be a table under [[models]]")
            yield path.stem, _Raw(place, table, models, is_own)
        except (ValueError, RecursionError) as error:
            problems.append(f"{place}: {error}")
        except OSError as error:
            problems.append(f"{place}: {error.strerror}")


_File = TypeVar("_File", ProviderFile, FamilyFile)


def _convert(
    raw: dict[str, _Raw], kind: type[_File], entry_kind: type[Mapping | ModelEntry], problems: list[str]
) -> Iterator[_File]:
    for stem, found in raw.items():
        models = found.models
        try:
            file = msgspec.convert(found.table, kind)
            if isinstance(file, ProviderFile):
                check_dialect(file.dialect, "dialect")
                facts = read_facts(file.facts, file.dialect, _ENTRY_KEYS)
                file = msgspec.structs.replace(file, facts=facts)
            if file.key != stem:
                raise ValueError(f"the file must be named {file.key}.toml")
        except ValueError as error:
            problems.append(f"{found.place}: {error}")
            continue
        dialect = file.dialect if isinstance(file, ProviderFile) else ""
        if isinstance(file, ProviderFile) and file.tools:
            models = [{"tools": file.tools, **model} if _has_tools(model) else model for model in models]
        entries = list(_read_entries(found.place, models, entry_kind, dialect, problems))
        yield msgspec.structs.replace(file, models=entries)


def _has_tools(model: dict[str, Any]) -> bool:
    features = model.get("features")
    return isinstance(features, list) and "tools" in features


def _read_entries(
    place: str, entries: list[dict[str, Any]], kind: type[Mapping | ModelEntry], dialect: str, problems: list[str]
) -> Iterator[Mapping | ModelEntry]:
    seen = set()
    for number, entry in enumerate(entries, start=1):
        name = str(entry.get("id", number))
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


def _names_twice(families: list[FamilyFile], raw: dict[str, _Raw]) -> Iterator[str]:
    """Yield each name (id or alias) that belongs to more than one model."""
    holders: dict[str, str] = {}
    for family in _own_last(families, raw):
        for model in family.models:
            for name in (model.id, *model.aliases):
                holder = holders.setdefault(name, model.id)
                if holder != model.id or model.aliases.count(name) + (name == model.id) > 1:
                    yield f"{raw[family.key].place}: models[{model.id}]: `{name}` already names {holder}"


def _own_last(files: list[_File], raw: dict[str, _Raw]) -> Iterable[_File]:
    """Return the files with an operator's last: theirs is the file to change where two disagree."""
    return sorted(files, key=lambda file: raw[file.key].is_own)


def _loose_ends(
    providers: list[ProviderFile], families: list[FamilyFile], raw: dict[str, dict[str, _Raw]]
) -> Iterator[str]:
    """Yield references to entries that do not exist."""
    known = {provider.id for provider in providers}
    owner_of: dict[str, str] = {}
    for family in families:
        for model in family.models:
            owner_of |= dict.fromkeys((model.id, *model.aliases), model.id)
            if model.owned_by and model.owned_by not in known:
                yield f"{raw[FAMILIES][family.key].place}: models[{model.id}].owned_by: no provider {model.owned_by!r}"
    for provider in providers:
        own: dict[str, str] = {}
        for mapping in provider.models:
            place = f"{raw[PROVIDERS][provider.id].place}: models[{mapping.id}]"
            if owner_of.get(mapping.id) != mapping.id:
                yield f"{place}: no family has this model"
            for name in mapping.own_names:
                for holder in {own.setdefault(name, mapping.id), owner_of.get(name, mapping.id)} - {mapping.id}:
                    yield f"{place}: `{name}` already names {holder}"
