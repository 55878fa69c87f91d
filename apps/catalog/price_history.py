"""Price history: who changed which prices when; and each scheduled price change, which takes effect at a stated time.

Rows of the history are only added. A scheduled change has an operator's prices of an offer that take effect at a stated
time, within a minute. An offer has at most one waiting change; it replaces all of the offer's price overrides when it
is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from django.db import transaction
from django.utils import timezone

from apps.catalog.billed_prices import bill_prices, find_factor_of
from apps.catalog.models import ModelProvider, PriceChange, Provider, ScheduledPriceChange
from apps.catalog.price_words import stated_prices
from apps.kernel.errors import InvalidRequest

# Ids of a provider and a model.
At = tuple[str, str]
Card = dict[str, Any]
# Author of price changes from the data files.
LOADER = "load_catalog"


class PriceStep(NamedTuple):
    """One changed price, in words; None if there was or is none."""

    name: str
    old: str | None
    new: str | None


def card_of(row: ModelProvider) -> Card:
    """Return the billed prices of a mapping; unreadable ones as they are stored."""
    return _stored_card(row.provider, row.model_id, row.prices, row.price_overrides, row.facts)


def cards_now() -> dict[At, Card]:
    """Return the billed prices of every mapping."""
    providers = Provider.objects.in_bulk()
    rows = ModelProvider.objects.values_list("provider_id", "model_id", "prices", "price_overrides", "facts")
    return {(provider, model): _stored_card(providers[provider], model, *stated) for provider, model, *stated in rows}


def _stored_card(
    provider: Provider, model: str, prices: Mapping[str, Any], overrides: Mapping[str, Any], facts: Mapping[str, Any]
) -> Card:
    try:
        factor = find_factor_of(provider, model, facts)
        return bill_prices(prices, overrides, factor, facts.get("editions", ())).as_stored()
    except (ValueError, TypeError):
        return {name: str(price) for name, price in {**prices, **overrides}.items()}


def note_changes(before: Mapping[At, Card], after: Mapping[At, Card], author: str | Mapping[At, str]) -> int:
    """Record the changes in the caller's transaction; return how many mappings changed.

    `author` may differ from mapping to mapping; the data files' is the default then.
    """
    authors = {} if isinstance(author, str) else author
    usual = author if isinstance(author, str) else LOADER
    rows = [
        PriceChange(provider=at[0], model=at[1], old=before.get(at, {}), new=card, author=authors.get(at, usual)[:254])
        for at, card in sorted(after.items())
        if card != before.get(at, {})
    ]
    PriceChange.objects.bulk_create(rows)
    return len(rows)


def history_of(mapping: ModelProvider, most: int) -> list[PriceChange]:
    """Return the latest price changes of a mapping, newest first."""
    rows = PriceChange.objects.filter(model=mapping.model_id, provider=mapping.provider_id)
    return list(rows.order_by("-id")[:most])


def find_model_changes(models: Collection[str], since: datetime, most: int) -> list[PriceChange]:
    """Return the latest price changes of models at all providers since a moment, newest first.

    A mapping's first prices are among them: they replace an empty card.
    """
    rows = PriceChange.objects.filter(model__in=models, created_at__gte=since)
    return list(rows.order_by("-id")[:most])


def steps_of(change: PriceChange) -> Iterator[PriceStep]:
    """Yield each changed price, in the active language."""
    old, new = dict(stated_prices(change.old)), dict(stated_prices(change.new))
    for name in new | old:
        if old.get(name) != new.get(name):
            yield PriceStep(name, old.get(name), new.get(name))


log = structlog.get_logger(__name__)
NOT_WAITING: Final = "This change was applied or withdrawn already"
_State = ScheduledPriceChange.State


def find_waiting(offer: ModelProvider) -> ScheduledPriceChange | None:
    """Return the waiting change of an offer, or None."""
    rows = ScheduledPriceChange.objects.filter(provider=offer.provider_id, model=offer.model_id, state=_State.WAITING)
    return rows.first()


def schedule(*, offer: ModelProvider, overrides: Mapping[str, Any], at: datetime, author: str) -> ScheduledPriceChange:
    """Schedule the offer's price overrides for a time. The caller has checked that none is waiting."""
    return ScheduledPriceChange.objects.create(
        provider=offer.provider_id,
        model=offer.model_id,
        overrides=dict(overrides),
        effective_at=at,
        author=author[:254],
    )


@transaction.atomic
def withdraw(change: ScheduledPriceChange, decided_by: str) -> None:
    """Withdraw a waiting change. Raises InvalidRequest if it does not wait any more."""
    row = ScheduledPriceChange.objects.select_for_update().get(pk=change.pk)
    if row.state != _State.WAITING:
        raise InvalidRequest(NOT_WAITING)
    _decide(row, _State.WITHDRAWN, decided_by)


def apply_due() -> int:
    """Apply the changes whose time has come; return how many. An interrupted run is completed by the next."""
    due = ScheduledPriceChange.objects.filter(state=_State.WAITING, effective_at__lte=timezone.now())
    return sum(_apply(row) for row in due.order_by("effective_at", "id"))


@transaction.atomic
def _apply(change: ScheduledPriceChange) -> bool:
    """Apply a change; return False if it does not wait any more, or its offer is gone."""
    row = ScheduledPriceChange.objects.select_for_update().get(pk=change.pk)
    if row.state != _State.WAITING:
        return False
    offers = ModelProvider.objects.select_for_update().filter(provider=row.provider, model=row.model)
    offer = offers.first()
    if offer is None:
        log.warning("catalog.scheduled_price_without_offer", offer=str(row))
        _decide(row, _State.WITHDRAWN, "the offer is gone")
        return False
    at = offer.provider_id, offer.model_id
    before = card_of(offer)
    offer.price_overrides = row.overrides
    # Only this column: a load may write others concurrently.
    offer.save(update_fields=["price_overrides", "updated_at"])
    note_changes({at: before}, {at: card_of(offer)}, row.author)
    _decide(row, _State.APPLIED, row.author)
    return True


def _decide(row: ScheduledPriceChange, state: str, decided_by: str) -> None:
    row.state, row.decided_at, row.decided_by = state, timezone.now(), decided_by[:254]
    row.save(update_fields=["state", "decided_at", "decided_by"])
