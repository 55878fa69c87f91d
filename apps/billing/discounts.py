"""Discounts: the share off a request's price; the most specific unexpired discount applies.

An organization's own discounts come before global ones; among either, model and provider together come first, then
model, then provider. Discounts are not added up. Each process caches the global ones under the catalog's generation; an
organization's own are part of its keys' policies. A warm request reads neither store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import msgspec
import structlog
from django.db import DatabaseError, models

from apps.billing.models import Discount
from apps.kernel.concurrency.single_flight import SingleFlight
from apps.kernel.money import ZERO
from apps.kernel.postgres import database

log = structlog.get_logger(__name__)

# Seconds that other threads wait for the reader.
_PATIENCE = 10.0


class Share(NamedTuple):
    """A share off, 0 to 1, until it expires."""

    share: Decimal
    expires_at: datetime | None


# By provider and model; "" is every one.
Shares = Mapping[tuple[str, str], Share]
NOTHING_OFF: Shares = MappingProxyType({})


class Discounts(msgspec.Struct, frozen=True):
    """The discounts that a request is priced by: its organization's own, and everyone's."""

    own: Shares
    shared: Shares

    def on(self, provider: str, model: str) -> Decimal:
        """Return the current discount share for a model at a provider; 0 without a discount."""
        if not self.own and not self.shared:
            return ZERO
        now = datetime.now(UTC)
        for shares in (self.own, self.shared):
            for scope in ((provider, model), ("", model), (provider, ""), ("", "")):
                found = shares.get(scope)
                if found is not None and (found.expires_at is None or now < found.expires_at):
                    return found.share
        return ZERO


def own_of(organization_id: UUID) -> Shares:
    """Return an organization's own discounts. Raises DatabaseError."""
    return _shares_of(Discount.objects.filter(organization=organization_id))


class SharedDiscounts:
    """This process's copy of the discounts for everyone, and the catalog's generation that it was read under.

    `read` reads them from the database; it raises DatabaseError.
    """

    def __init__(self, read: Callable[[], Shares]) -> None:
        self._read = read
        self._shares: Shares | None = None
        self._token: str | None = None
        self._flights: SingleFlight[str, Shares] = SingleFlight(_PATIENCE)

    def under(self, token: str) -> Shares:
        """Return the copy if it was read under this generation, else read again.

        The token is read before the rows, so a change in between makes the copy stale, never wrongly fresh. If the
        database is down, an existing copy is used; raises DatabaseError without one.
        """
        if self._shares is not None and self._token == token:
            return self._shares
        try:
            return self._flights.run(token, partial(self._renew, token))
        except (DatabaseError, TimeoutError) as error:
            if self._shares is None:
                raise
            log.warning("discounts.kept", error=type(error).__name__)
            return self._shares

    def _renew(self, token: str) -> Shares:
        shares = self._read()
        self._shares, self._token = shares, token
        return shares


def read_shared() -> Shares:
    """Return the discounts for everyone. Raises DatabaseError."""
    return database.read(lambda: _shares_of(Discount.objects.filter(organization=None)))


shared_discounts = SharedDiscounts(read_shared).under


def _shares_of(rows: models.QuerySet[Discount]) -> Shares:
    return {(row.provider, row.model): Share(row.share, row.expires_at) for row in rows}
