"""Accepted changes: proposals that were applied, laid over the product's data files. Pure.

A change is left out where it no longer applies: its offer is gone, a newer file states the offer, or the files now have
a new model themselves. A load must never fail because of an older decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Protocol

Entries = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class AcceptedChange:
    """Keys of an offer's entry in a provider's file. `seen` is the day on which a price list stated them.

    A new model has a `family` and, unless the family's file has the model, `model_entry`, its entry there.
    """

    provider: str
    model: str
    seen: date
    entry: Mapping[str, Any]
    family: str = ""
    model_entry: Mapping[str, Any] = field(default_factory=dict)


class RawFile(Protocol):
    """A data file as written."""

    @property
    def table(self) -> Mapping[str, Any]:
        """The keys without models."""

    @property
    def models(self) -> list[dict[str, Any]]:
        """The models' entries."""


def lay_out(
    changes: Iterable[AcceptedChange], providers: Mapping[str, RawFile], families: Mapping[str, RawFile]
) -> tuple[Entries, Entries]:
    """Return the entries of provider files and of family files, by the files' names, oldest change first.

    `providers` and `families` are the product's files merged with the operator's.
    """
    offers: dict[tuple[str, str], dict[str, Any]] = {}
    models: dict[str, tuple[str, dict[str, Any]]] = {}
    owners = {name: str(one.get("id")) for file in families.values() for one in file.models for name in _names(one)}
    for change in changes:
        at, file = (change.provider, change.model), providers.get(change.provider)
        if file is None:
            continue
        stated = any(one.get("id") == change.model for one in file.models)
        if not change.family:
            checked = file.table.get("checked")
            is_older = stated and isinstance(checked, date) and checked > change.seen
            if (stated or at in offers) and not is_older:
                offers[at] = _merge(offers.get(at, {"id": change.model}), change.entry)
            continue
        taken = {name for one in file.models for name in _own_names(one)}
        taken |= {name for (other, _), one in offers.items() if other == change.provider for name in _own_names(one)}
        is_known = owners.get(change.model) == change.model
        fits = change.family in families and (is_known or (change.model not in owners and change.model_entry))
        own = set(_own_names(change.entry))
        if stated or not fits or own & taken or any(owners.get(one, change.model) != change.model for one in own):
            continue
        offers[at] = dict(change.entry)
        if not is_known:
            owners[change.model] = change.model
            models[change.model] = change.family, dict(change.model_entry)
    return _by_file((at[0], entry) for at, entry in offers.items()), _by_file(models.values())


def _merge(entry: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with a later change; prices one by one."""
    prices = {**entry.get("prices", {}), **change.get("prices", {})}
    return {**entry, **change, **({"prices": prices} if prices else {})}


def _names(model: Mapping[str, Any]) -> Iterator[str]:
    yield str(model.get("id"))
    yield from _texts(model.get("aliases"))


def _own_names(mapping: Mapping[str, Any]) -> Iterator[str]:
    """Yield the provider's names of a model."""
    yield str(mapping.get("model_name") or mapping.get("id"))
    yield from _texts(mapping.get("aliases"))
    editions = mapping.get("editions")
    for edition in editions if isinstance(editions, list) else ():
        yield from _texts(edition.get("names")) if isinstance(edition, dict) else ()


def _texts(stated: Any) -> list[str]:
    return [one for one in stated if isinstance(one, str)] if isinstance(stated, list) else []


def _by_file(entries: Iterable[tuple[str, dict[str, Any]]]) -> Entries:
    found: Entries = {}
    for stem, entry in entries:
        found.setdefault(stem, []).append(entry)
    return found
