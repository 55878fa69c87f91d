"""Offline hold: what a request counts for that was admitted during an outage of the store, in this process only.

Amounts are in 1e-9 USD.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import msgspec

from apps.billing.balances import Scope
from apps.billing.ledger import Charge
from apps.gateway.metrics import OFFLINE_ALLOWANCE_USED
from apps.kernel.money import NANO, nanos_up

_total = 0


class OfflineAccount(msgspec.Struct, eq=False):
    """An organization's unchecked requests: their cost in 1e-9 USD, in all and by key, and how many are in progress."""

    spent: int = 0
    in_flight: int = 0
    keys: Counter[UUID] = msgspec.field(default_factory=Counter)

    def add(self, nanos: int, key: UUID | None) -> None:
        """Count more, or less, as let through."""
        self.spent += nanos
        if key is not None:
            self.keys[key] += nanos
        add_to_gauge(nanos)


class OfflineHold(msgspec.Struct, eq=False):
    """A request that was let in unchecked: it counts with what it may cost, in 1e-9 USD, and at its end with its cost.

    `organization_id` is whose credits it counts against, `key` whose limit; None where it counts against none.
    """

    account: OfflineAccount
    organization_id: UUID | None
    key: UUID | None
    key_limit_nanos: int | None
    amount_nanos: int = 0
    is_open: bool = True

    @property
    def balances(self) -> tuple[UUID, ...]:
        """The ids of the balances that it counts against."""
        return tuple(one for one in (self.organization_id, self.key) if one is not None)

    def balance_of(self, scope: Scope) -> tuple[UUID | None, int | None, int]:
        """Return the owner of a scope's balance, its limit, and the amount let through against it."""
        if scope == "organization":
            return self.organization_id, None, self.account.spent
        return self.key, self.key_limit_nanos, 0 if self.key is None else self.account.keys[self.key]

    def settle(self, charge: Charge) -> None:
        """Count what the request is charged instead of what it might have been."""
        if not self.is_open:
            return
        self.is_open = False
        used = nanos_up(charge.usage) if self.key is not None else 0
        more = max(nanos_up(charge.storage - charge.credits), used) - self.amount_nanos
        self.account.in_flight -= 1
        self.account.add(more, self.key)


def add_to_gauge(more: int) -> None:
    """Tell operators of more, or less, that is let through unchecked."""
    global _total
    _total += more
    OFFLINE_ALLOWANCE_USED.set(_total / NANO)
