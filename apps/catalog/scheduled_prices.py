"""Scheduled price changes: an operator's prices of an offer that take effect at a stated time, within a minute.

An offer has at most one waiting change. It replaces all of the offer's price overrides when it is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import structlog
from django.db import transaction
from django.utils import timezone

from apps.catalog import price_history
from apps.catalog.models import ModelProvider, ScheduledPriceChange
from apps.kernel.errors import InvalidRequest

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
    before = price_history.card_of(offer)
    offer.price_overrides = row.overrides
    # Only this column: a load may write others concurrently.
    offer.save(update_fields=["price_overrides", "updated_at"])
    price_history.note_changes({at: before}, {at: price_history.card_of(offer)}, row.author)
    _decide(row, _State.APPLIED, row.author)
    return True


def _decide(row: ScheduledPriceChange, state: str, decided_by: str) -> None:
    row.state, row.decided_at, row.decided_by = state, timezone.now(), decided_by[:254]
    row.save(update_fields=["state", "decided_at", "decided_by"])
