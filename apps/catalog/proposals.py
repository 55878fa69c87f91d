"""Proposals: the catalog's prices compared with public lists, and the rules on what a person must decide. Pure.

A list states prices of a provider's names, and each is compared with the offer of that name. Editions have prices of
their own and are only reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec

from apps.catalog.files import CatalogFiles, Mapping, ProviderFile
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


class Change(msgspec.Struct, frozen=True):
    """One changed price in USD per million tokens; None where there was none."""

    name: str
    old: Decimal | None
    new: Decimal


@dataclass(frozen=True, slots=True)
class Proposal:
    """Changes of one offer that the lists suggest. `reasons` say why a person must decide; a disputed one cannot be
    accepted before one source is chosen. `tiers` and `deactivated` are None where they do not change."""

    provider: str
    model: str
    mapping: Mapping
    checked: date
    sources: tuple[str, ...]
    changes: tuple[Change, ...]
    tiers: tuple[dict[str, Any], ...] | None
    deactivated: date | None
    reasons: tuple[str, ...]
    disputed: bool

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self.provider}/{self.model}"

    @property
    def prices(self) -> dict[str, Any]:
        """All flat prices of the offer with the changes."""
        return self.mapping.prices | {change.name: change.new for change in self.changes}


@dataclass(frozen=True, slots=True)
class ListComparison:
    """The proposals, and notes on lists, entries and editions that were left out."""

    proposals: list[Proposal]
    notes: list[str]


class _Index:
    """The entries of a list by provider and name; a list may have several for one name."""

    def __init__(self, lists: PriceList) -> None:
        self.source = lists.source
        self._entries: dict[At, list[Listed]] = {}
        for entry in lists.entries:
            self._entries.setdefault((entry.provider.lower(), entry.name.lower()), []).append(entry)

    def of(self, file: ProviderFile, name: str) -> list[Listed]:
        """Return the entries of a provider's name."""
        also: Any = file.facts.also_called
        called = (file.id, *_LIST_NAMES.get(file.id, ()), *(also if isinstance(also, list) else ()))
        return [entry for one in called for entry in self._entries.get((one, name.lower()), ())]


def compare(
    catalog: CatalogFiles, lists: Sequence[PriceList], today: date, held: Set[At] = frozenset()
) -> ListComparison:
    """Return what the lists say that the files do not. `held` are offers whose prices an operator states."""
    notes: list[str] = []
    indexes = [index for one in lists if not _is_refused(catalog, index := _Index(one), notes)]
    found = [
        proposal
        for file in catalog.providers
        for mapping in file.models
        if (file.id, mapping.id) not in held
        if (proposal := _compare(file, mapping, indexes, today, notes)) is not None
    ]
    return ListComparison(found, notes)


def _is_refused(catalog: CatalogFiles, index: _Index, notes: list[str]) -> bool:
    judged = doubted = 0
    for file in catalog.providers:
        for mapping in file.models:
            for entry in index.of(file, mapping.own_names[0]):
                judged += 1
                doubted += bool(entry.fault) or any(_is_far(one.old, one.new) for one in _changes(mapping, entry))
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


def _changes(mapping: Mapping, entry: Listed) -> list[Change]:
    card = mapping.card
    return [
        Change(name, getattr(card, name), price)
        for name, price in entry.prices.items()
        # A list states 0 where the price is in another unit.
        if getattr(card, name) != price and (price or getattr(card, name) is not None)
    ]


def _compare(
    file: ProviderFile, mapping: Mapping, indexes: Sequence[_Index], today: date, notes: list[str]
) -> Proposal | None:
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
        return None
    changes, disputes = _merge_prices(mapping, stated)
    card = msgspec.structs.replace(mapping.card, **{change.name: change.new for change in changes})
    notes += [note for index in indexes for note in _editions(file, mapping, card, index)]
    tiers, tier_reasons = _merge_tiers(mapping, stated.values())
    ends = {source: entry.deactivated for source, entry in stated.items() if entry.deactivated}
    deactivated = next(iter(ends.values()), None)
    if len(set(ends.values())) > 1:
        disputes.append(f"sources disagree on the end: {', '.join(f'{one} {day}' for one, day in ends.items())}")
    if deactivated == mapping.deactivated and len(set(ends.values())) == 1:
        deactivated = None
    if not (changes or disputes or tiers is not None or deactivated):
        return None
    reasons += [*disputes, *tier_reasons, *_reasons(mapping, changes)]
    if deactivated and deactivated <= today:
        reasons.append(f"is out of service at once: its end is {deactivated}")
    return Proposal(
        file.id,
        mapping.id,
        mapping,
        file.checked,
        tuple(stated),
        tuple(changes),
        tiers,
        deactivated,
        tuple(reasons),
        bool(disputes),
    )


def _merge_prices(mapping: Mapping, stated: dict[str, Listed]) -> tuple[list[Change], list[str]]:
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
            changes.append(Change(name, old, new))
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


def _reasons(mapping: Mapping, changes: Sequence[Change]) -> Iterator[str]:
    for change in changes:
        if change.old is None:
            yield f"gains a price of {change.name}"
        elif not change.new:
            yield f"{change.name} falls to 0"
        elif not change.old:
            yield f"{change.name} was 0"
        elif _is_far(change.old, change.new):
            yield f"{change.name} moves more than {MAX_MOVE}-fold"
    card = mapping.card
    new = {"input": card.input, "output": card.output} | {change.name: change.new for change in changes}
    if card.input and card.output and card.input < card.output and (new["input"] or 0) > (new["output"] or 0):
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
        yield f"    {change.name} {_text(change.old)} -> {_text(change.new)}"
    if proposal.tiers is not None:
        yield f"    tiers {_tiers(proposal.mapping.tiers)} -> {_tiers(proposal.tiers)}"
    if proposal.deactivated:
        yield f"    deactivated {proposal.mapping.deactivated or '-'} -> {proposal.deactivated}"
    for reason in proposal.reasons:
        yield f"    ! {reason}"


def _tiers(tiers: Iterable[dict[str, Any]]) -> str:
    rows = [
        f"above {tier['above_input_tokens']}: "
        + ", ".join(f"{name} {_text(Decimal(str(p)))}" for name, p in tier.items() if name != "above_input_tokens")
        for tier in tiers
    ]
    return "; ".join(rows) or "none"
