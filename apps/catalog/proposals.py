"""Proposals: the catalog's prices compared with public lists, and the rules on what a person must decide. Pure.

A list states prices of a provider's names, and each is compared with the offer of that name. Editions have prices of
their own and are only reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from apps.catalog.files import CatalogFiles, Mapping, ProviderFile
from apps.catalog.new_models import MAX_NEW, Families, NewModel, find_new_models
from apps.catalog.price_cards import write_card
from apps.catalog.price_lists import Listed, PriceList
from apps.kernel.prices import PriceCard

# A price that moves by more than this factor needs a person.
MAX_MOVE = 3
# Days after which a provider's file is marked as old.
MAX_AGE_DAYS = 60
# A list of at least so many of our prices is refused if more than this share of them moves by more than MAX_MOVE or is
# invalid: it is in another unit, or its columns are swapped.
MIN_JUDGED, MAX_DOUBTED = 5, Decimal("0.34")
_LIST_NAMES = {
    "alibaba": ("alibaba-cn",),
    "fireworks": ("fireworks-ai",),
    "novita": ("novita-ai",),
    "together": ("togetherai", "together-ai"),
    "vertex": ("google-vertex-anthropic",),
    "cloudflare": ("cloudflare-workers-ai",),
}

At = tuple[str, str]
# Kinds of proposals.
PRICES: Final = "prices"
DEACTIVATION: Final = "deactivation"
NEW_MODEL: Final = "new_model"


class Change(NamedTuple):
    """One changed field with its values in words; `-` where there was none."""

    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Changes of one offer that the lists suggest, all of one kind.

    `entry` has the changed keys of the offer's entry in its file. `reasons` say why a person must decide; a disputed
    proposal cannot be applied before one source is chosen. `falls`: no price rises. A new model has a `family` and, if
    it is new to that, `model_entry`.
    """

    provider: str
    model: str
    kind: str
    checked: date
    sources: tuple[str, ...]
    changes: tuple[Change, ...]
    entry: dict[str, Any]
    reasons: tuple[str, ...] = ()
    disputed: bool = False
    falls: bool = False
    family: str = ""
    model_entry: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class ListComparison:
    """The proposals, notes on lists, entries and editions that were left out, and the sources that were refused."""

    proposals: list[Proposal]
    notes: list[str]
    refused: tuple[str, ...] = ()


class _Index:
    """The entries of a list by provider and name; a list may have several for one name."""

    def __init__(self, lists: PriceList) -> None:
        self.source = lists.source
        self._entries: dict[At, list[Listed]] = {}
        self._by_provider: dict[str, list[Listed]] = {}
        for entry in lists.entries:
            self._entries.setdefault((entry.provider.lower(), entry.name.lower()), []).append(entry)
            self._by_provider.setdefault(entry.provider.lower(), []).append(entry)

    def of(self, file: ProviderFile, name: str) -> list[Listed]:
        """Return the entries of a provider's name."""
        return [entry for one in _called(file) for entry in self._entries.get((one, name.lower()), ())]

    def all_of(self, file: ProviderFile) -> list[Listed]:
        """Return all entries of a provider."""
        return [entry for one in _called(file) for entry in self._by_provider.get(one, ())]


def _called(file: ProviderFile) -> Iterator[str]:
    """Yield the names of a provider in lists."""
    also: Any = file.facts.also_called
    yield from (file.id, *_LIST_NAMES.get(file.id, ()), *(also if isinstance(also, list) else ()))


def compare(
    catalog: CatalogFiles, lists: Sequence[PriceList], today: date, held: Set[At] = frozenset()
) -> ListComparison:
    """Return what the lists say that the files do not. `held` are offers whose prices an operator states."""
    notes: list[str] = []
    indexes = [index for one in lists if not _is_refused(catalog, index := _Index(one), notes)]
    refused = tuple(one.source for one in lists if one.source not in {index.source for index in indexes})
    found = [
        proposal
        for file in catalog.providers
        for mapping in file.models
        if (file.id, mapping.id) not in held
        for proposal in _compare(file, mapping, indexes, today, notes)
    ]
    families = Families(catalog)
    added = (
        _added(file, new)
        for file in catalog.providers
        for new in find_new_models(file, families, {index.source: index.all_of(file) for index in indexes}, today)
    )
    found += islice(added, MAX_NEW)
    if next(added, None) is not None:
        notes.append(f"more than {MAX_NEW} new models; the others are left out")
    return ListComparison(found, notes, refused)


def _added(file: ProviderFile, new: NewModel) -> Proposal:
    prices = [Change(name, "-", _text(price)) for name, price in new.entry["prices"].items()]
    return Proposal(
        provider=file.id,
        model=new.model,
        kind=NEW_MODEL,
        checked=file.checked,
        sources=new.sources,
        changes=(Change("family", "-", new.family), *prices),
        entry=new.entry,
        reasons=new.reasons,
        disputed=new.disputed,
        family=new.family,
        model_entry=new.model_entry,
    )


def _is_refused(catalog: CatalogFiles, index: _Index, notes: list[str]) -> bool:
    judged = doubted = 0
    for file in catalog.providers:
        for mapping in file.models:
            for entry in index.of(file, mapping.own_names[0]):
                judged += 1
                doubted += bool(entry.fault) or any(_is_far(old, new) for _, old, new in _changes(mapping, entry))
    if judged >= MIN_JUDGED and doubted > judged * MAX_DOUBTED:
        notes.append(
            f"{index.source}: refused. {doubted} of {judged} prices are invalid or moved more than {MAX_MOVE}-fold; "
            "the list may be in another unit, or its columns are swapped"
        )
        return True
    if not judged:
        notes.append(f"{index.source}: has none of the catalog's models")
    return False


def _is_far(old: Decimal | None, new: Decimal) -> bool:
    if not old or not new:
        return False
    return not old / MAX_MOVE <= new <= old * MAX_MOVE


# A price by name, before and after.
_Moved = tuple[str, Decimal | None, Decimal]


def _changes(mapping: Mapping, entry: Listed) -> list[_Moved]:
    card = mapping.card
    return [
        (name, getattr(card, name), price)
        for name, price in entry.prices.items()
        # A list states 0 where the price is in another unit.
        if getattr(card, name) != price and (price or getattr(card, name) is not None)
    ]


def _compare(
    file: ProviderFile, mapping: Mapping, indexes: Sequence[_Index], today: date, notes: list[str]
) -> Iterator[Proposal]:
    usual, *aliases = (mapping.model_name or mapping.id, *mapping.aliases)
    at = f"{file.id}/{mapping.id}"
    stated: dict[str, Listed] = {}
    reasons: list[str] = []
    for index in indexes:
        own, others = index.of(file, usual), [one for alias in aliases for one in index.of(file, alias)]
        valid = [entry for entry in (*own, *others) if not entry.fault]
        notes += [f"{index.source}: {at}: {entry.fault}" for entry in (*own, *others) if entry.fault]
        if valid:
            stated[index.source] = valid[0]
            if any(entry.prices != valid[0].prices for entry in valid[1:]):
                reasons.append(f"{index.source} has several prices for the names of this offer")
    if not stated:
        return
    changes, disputes = _merge_prices(mapping, stated)
    card = msgspec.structs.replace(mapping.card, **{name: new for name, _, new in changes})
    notes += [note for index in indexes for note in _editions(file, mapping, card, index)]
    tiers, tier_reasons = _merge_tiers(mapping, stated.values())
    if changes or disputes or tiers is not None:
        words = [Change(name, _text(old), _text(new)) for name, old, new in changes]
        words += [] if tiers is None else [Change("tiers", _tiers(mapping.tiers), _tiers(tiers))]
        prices = {name: new for name, _, new in changes}
        yield Proposal(
            provider=file.id,
            model=mapping.id,
            kind=PRICES,
            checked=file.checked,
            sources=tuple(stated),
            changes=tuple(words),
            entry=({"prices": prices} if prices else {}) | ({} if tiers is None else {"tiers": list(tiers)}),
            reasons=(*reasons, *disputes, *tier_reasons, *_reasons(mapping, changes)),
            disputed=bool(disputes),
            falls=all(old is not None and new < old for _, old, new in changes) and _tiers_fall(mapping, tiers),
        )
    yield from _deactivation(file, mapping, stated, today)


def _deactivation(file: ProviderFile, mapping: Mapping, stated: dict[str, Listed], today: date) -> Iterator[Proposal]:
    ends = {source: entry.deactivated for source, entry in stated.items() if entry.deactivated}
    days = set(ends.values())
    if not days or days == {mapping.deactivated}:
        return
    end = next(day for day in ends.values() if day != mapping.deactivated)
    reasons = []
    if len(days) > 1:
        reasons.append(f"sources disagree on the end: {', '.join(f'{one} {day}' for one, day in ends.items())}")
    if end <= today:
        reasons.append(f"is out of service at once: its end is {end}")
    if mapping.deactivated and mapping.deactivated <= today:
        reasons.append(f"returns to service: its end was {mapping.deactivated}")
    yield Proposal(
        provider=file.id,
        model=mapping.id,
        kind=DEACTIVATION,
        checked=file.checked,
        sources=tuple(ends),
        changes=(Change("deactivated", str(mapping.deactivated or "-"), str(end)),),
        entry={"deactivated": end},
        reasons=tuple(reasons),
        disputed=len(days) > 1,
    )


def _merge_prices(mapping: Mapping, stated: dict[str, Listed]) -> tuple[list[_Moved], list[str]]:
    """Return the changes, and the prices on which the sources disagree."""
    changes, disputes = [], []
    names = dict.fromkeys(name for entry in stated.values() for name in entry.prices)
    for name in names:
        said = {source: entry.prices[name] for source, entry in stated.items() if name in entry.prices}
        old, new = getattr(mapping.card, name), next(iter(said.values()))
        if len(set(said.values())) > 1:
            disputes.append(f"sources disagree on {name}: {', '.join(f'{one} {_text(p)}' for one, p in said.items())}")
            new = next(price for price in said.values() if price != old)
        if new != old and (new or old is not None):
            changes.append((name, old, new))
    return changes, disputes


def _merge_tiers(mapping: Mapping, stated: Iterable[Listed]) -> tuple[tuple[dict[str, Any], ...] | None, list[str]]:
    """Return the tiers of long prompts that the first source with tiers has, None if unchanged; and its reasons."""
    listed = next((entry.tiers for entry in stated if entry.tiers is not None), None)
    if listed is None:
        return None, []
    own: dict[int, dict[str, Any]] = {tier["above_input_tokens"]: tier for tier in mapping.tiers}
    found = {tier["above_input_tokens"]: tier for tier in listed}
    reasons = [f"loses the tier above {above} tokens" for above in own.keys() - found.keys()]
    reasons += [f"gains the tier above {above} tokens" for above in found.keys() - own.keys()]
    new = tuple(own.get(above, {}) | tier for above, tier in found.items())
    if list(new) == [own[above] for above in sorted(own)]:
        return None, []
    moved = [
        f"{name} above {above} tokens moves more than {MAX_MOVE}-fold or to 0"
        for above, tier in found.items()
        for name, price in tier.items()
        if name in own.get(above, {}) and name != "above_input_tokens"
        if not price or _is_far(Decimal(str(own[above][name])), price)
        if price != own[above][name]
    ]
    return new, reasons + moved


def _tiers_fall(mapping: Mapping, tiers: Iterable[dict[str, Any]] | None) -> bool:
    """Return whether no price of a tier rises; a tier that comes or goes has a reason of its own."""
    own = {tier["above_input_tokens"]: tier for tier in mapping.tiers}
    return not any(
        price > Decimal(str(own.get(tier["above_input_tokens"], {}).get(name, 0)))
        for tier in tiers or ()
        for name, price in tier.items()
        if name != "above_input_tokens"
    )


def _reasons(mapping: Mapping, changes: Sequence[_Moved]) -> Iterator[str]:
    for name, old, new in changes:
        if old is None:
            yield f"gains a price of {name}"
        elif not new:
            yield f"{name} falls to 0"
        elif not old:
            yield f"{name} was 0"
        elif _is_far(old, new):
            yield f"{name} moves more than {MAX_MOVE}-fold"
    card = mapping.card
    after = {"input": card.input, "output": card.output} | {name: new for name, _, new in changes}
    if card.input and card.output and card.input < card.output and (after["input"] or 0) > (after["output"] or 0):
        yield "input costs more than output; they look swapped"


def _editions(file: ProviderFile, mapping: Mapping, usual: PriceCard, index: _Index) -> Iterator[str]:
    """Yield a note for each edition whose price differs, also once the offer has its proposed prices."""
    for edition in mapping.editions:
        card = write_card(edition.card(usual))
        for name in edition.names:
            for entry in index.of(file, name):
                other = [one for one, price in entry.prices.items() if Decimal(card.get(one, "0")) != price]
                if other and not entry.fault:
                    said = ", ".join(f"{one} {card.get(one, '-')} -> {_text(entry.prices[one])}" for one in other)
                    yield f"{index.source}: edition {file.id}/{name}: {said}; change `editions` by hand"


def _text(price: Decimal | None) -> str:
    return "-" if price is None else f"{price.normalize():f}"


def describe(proposal: Proposal, today: date) -> Iterator[str]:
    """Yield the lines of a proposal: its offer, sources and age, each change, and each reason for a person."""
    age = (today - proposal.checked).days
    old = f", {age} days ago" + ("; OLD" if age > MAX_AGE_DAYS else "")
    yield f"{proposal.name} ({', '.join(proposal.sources)}; ours checked {proposal.checked}{old})"
    for change in proposal.changes:
        yield f"    {change.name} {change.old} -> {change.new}"
    for reason in proposal.reasons:
        yield f"    ! {reason}"


def _tiers(tiers: Iterable[dict[str, Any]]) -> str:
    rows = [
        f"above {tier['above_input_tokens']}: "
        + ", ".join(f"{name} {_text(Decimal(str(p)))}" for name, p in tier.items() if name != "above_input_tokens")
        for tier in tiers
    ]
    return "; ".join(rows) or "none"
