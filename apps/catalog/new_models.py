"""New models: entries of price lists for models that a provider's file does not have, of families that it has. Pure.

Only a list that states abilities has them. A new model inherits the format, facts and family of a sibling: an offer of
the same provider whose name differs only in its version, such as `fox-2-mini` of `fox-1.5-mini`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

import msgspec

from apps.catalog.files import CatalogFiles, FamilyFile, ModelEntry, ProviderFile
from apps.catalog.files import Mapping as Offer
from apps.catalog.price_lists import Listed

# A new model whose prices differ from its sibling's by more than this factor needs a person.
MAX_FACTOR: Final = 3
# New models of one comparison; a list with more is hostile, or of another kind.
MAX_NEW: Final = 200
_ID: Final = re.compile(r"[a-z0-9][a-z0-9._:-]{0,119}")
_NAME: Final = re.compile(r"[!-~]{1,200}")
# A number of parameters, such as `27b`, is no version.
_VERSION: Final = re.compile(r"\d+(?![\d.]*b)(?:[.-]\d+(?![\d.]*b))*")
# Names of a day, a moving target, a preview or a variant of another model.
_PASSING: Final = re.compile(r"\d{4}-\d{2}-\d{2}|\d{6,}|-\d{4}(?!\d)|latest|preview|-exp|-beta|:")


@dataclass(frozen=True, slots=True)
class NewModel:
    """A model to add: its entry in the provider's file, its family, and its entry there unless that has the model."""

    model: str
    family: str
    entry: dict[str, Any]
    model_entry: dict[str, Any]
    sources: tuple[str, ...]
    reasons: tuple[str, ...]
    disputed: bool


class Families:
    """The catalog's models by name, with their families."""

    def __init__(self, catalog: CatalogFiles) -> None:
        self._found: dict[str, tuple[FamilyFile, ModelEntry]] = {
            name: (family, model)
            for family in catalog.families
            for model in family.models
            for name in (model.id, *model.aliases)
        }

    def find(self, name: str) -> tuple[FamilyFile, ModelEntry] | None:
        """Return the family and the model of an id or alias."""
        return self._found.get(name)


def find_new_models(
    file: ProviderFile, families: Families, listed: Mapping[str, Sequence[Listed]], today: date
) -> Iterator[NewModel]:
    """Yield the new models at a provider. `listed` are its entries in each list, by the list's name."""
    taken = {name.lower() for offer in file.models for name in (offer.id, *offer.own_names)}
    stated: dict[str, dict[str, Listed]] = {}
    for source, entries in listed.items():
        for entry in entries:
            is_sound = not entry.fault and entry.abilities is not None
            if is_sound and entry.name.lower() not in taken and not (entry.deactivated and entry.deactivated <= today):
                stated.setdefault(entry.name, {}).setdefault(source, entry)
    for name in sorted(stated):
        if (found := _new_model(file, families, name, stated[name])) is not None and found.model not in taken:
            taken.add(found.model)
            yield found


def _new_model(file: ProviderFile, families: Families, name: str, stated: Mapping[str, Listed]) -> NewModel | None:
    base = name.rpartition("/")[2].lower()
    known = families.find(base)
    sibling = _sibling(file, families, name)
    if (
        sibling is None
        or _NAME.fullmatch(name) is None
        or _ID.fullmatch(base) is None
        or _PASSING.search(base)
        or families.find(name) not in (None, known)
    ):
        return None
    family, like = families.find(sibling.id) or (None, None)
    entry = next(iter(stated.values()))
    if family is None or like is None or like.mode != "chat" or entry.abilities is None:
        return None
    model = base
    if known is not None:
        family, model = known[0], known[1].id
        if known[1].mode != "chat":
            return None
    elif sibling.own_names[0].rpartition("/")[2].lower() != sibling.id:
        # The provider does not name its models as we do.
        return None
    offer: dict[str, Any] = {"id": model, **({} if name == model else {"model_name": name}), "prices": entry.prices}
    offer |= {"tiers": list(entry.tiers)} if entry.tiers else {}
    sizes = {"context": entry.abilities.context, "max_output": entry.abilities.max_output}
    offer |= {key: size for key, size in sizes.items() if size is not None}
    offer |= {"features": list(entry.abilities.features), **_inherited(sibling)}
    offer |= {"deactivated": entry.deactivated} if entry.deactivated else {}
    about = {
        "id": model,
        "name": model,
        "input_modalities": list(entry.abilities.inputs),
        "output_modalities": ["text"],
        **({"owned_by": like.owned_by} if like.owned_by else {}),
        **({"context_length": offer["context"]} if "context" in offer else {}),
        **({"max_output": offer["max_output"]} if "max_output" in offer else {}),
    }
    disputes = _disputes(stated)
    reasons = (*disputes, *_reasons(sibling, entry))
    return NewModel(
        model, family.family, offer, {} if known else about, tuple(stated), reasons, disputed=bool(disputes)
    )


def _sibling(file: ProviderFile, families: Families, name: str) -> Offer | None:
    """Return the newest offer of the provider whose name differs only in its version."""
    shape = _VERSION.sub("#", name.lower())
    alike = [offer for offer in file.models if _VERSION.sub("#", offer.own_names[0].lower()) == shape]

    def age(offer: Offer) -> tuple[date, str]:
        found = families.find(offer.id)
        return (found[1].released if found else None) or date.min, offer.id

    return max(alike, key=age, default=None)


def _inherited(sibling: Offer) -> dict[str, Any]:
    """Return how a sibling is asked. The share of batch prices is not: no list states it."""
    facts = {name: value for name, value in msgspec.to_builtins(sibling.facts).items() if name != "batch"}
    kept: dict[str, Any] = {} if sibling.temperature else {"temperature": False}
    kept |= {"dialect": sibling.dialect} if isinstance(sibling.dialect, str) else {}
    return kept | ({"facts": facts} if facts else {})


def _disputes(stated: Mapping[str, Listed]) -> list[str]:
    names = dict.fromkeys(name for entry in stated.values() for name in entry.prices)
    return [
        f"sources disagree on {name}: {', '.join(f'{source} {price.normalize():f}' for source, price in said.items())}"
        for name in names
        if (said := {source: entry.prices[name] for source, entry in stated.items() if name in entry.prices})
        if len(set(said.values())) > 1
    ]


def _reasons(sibling: Offer, entry: Listed) -> Iterator[str]:
    for name in ("input", "output"):
        price: Decimal | None = entry.prices.get(name)
        usual = getattr(sibling.card, name)
        if not price:
            yield f"costs 0 for {name}"
        elif usual and not usual / MAX_FACTOR <= price <= usual * MAX_FACTOR:
            yield f"{name} differs more than {MAX_FACTOR}-fold from that of {sibling.id}"
    if (entry.prices.get("input") or 0) > (entry.prices.get("output") or 0):
        yield "input costs more than output; they look swapped"
    if entry.abilities is not None and entry.abilities.context is None:
        yield "states no context"
