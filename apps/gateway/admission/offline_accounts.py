"""Offline accounts: what a process knows of organizations and keys during an outage of the store. Amounts in 1e-9 USD.

Last known balances are those at the latest reservation. An offline hold is what a request counts for that was admitted
meanwhile, in this process only.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from threading import Lock
from uuid import UUID

import msgspec
import structlog
from django.db import DatabaseError

from apps.billing import balance_copies, balances, ledger
from apps.billing.balances import Balance, Scope
from apps.billing.ledger import Charge
from apps.billing.reservations import ReservationOutcome, ReservationRequest, ReservationResult
from apps.gateway.metrics import OFFLINE_ALLOWANCE_USED
from apps.kernel.concurrency.single_flight import SingleFlight
from apps.kernel.errors import Overloaded
from apps.kernel.money import NANO, nanos_up
from apps.kernel.postgres import database

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


log = structlog.get_logger(__name__)

# Organizations and keys that are remembered; the least recently updated goes first.
_MAX_BALANCES = 20_000
# Seconds for which the database is not asked again about the same one, nor about any after it failed.
_RETRY_SECONDS = 2.0
# The clients' error message then, and its `Retry-After` in seconds.
_UNCHECKABLE = "The gateway cannot check credits right now; try again shortly"
RETRY_AFTER = 2.0

# The amount that each organization can spend, or each key has used; both include the holds of that time.
_balances: dict[UUID, int] = {}
_asked_at: dict[UUID, float] = {}
_failed_until = 0.0
_reading = Lock()
# Balances that are being read, which others who ask wait for as many seconds.
_reads: SingleFlight[tuple[Scope, UUID], list[Balance]] = SingleFlight(10.0)


def remember(request: ReservationRequest, answer: ReservationResult) -> None:
    """Remember the balances that the store returned with a reservation."""
    limit = None if request.limits is None else request.limits.key_ceiling
    if answer.credits_left is not None:
        _remember_balance(request.organization_id, answer.credits_left)
    elif answer.outcome is ReservationOutcome.NO_CREDITS:
        _remember_balance(request.organization_id, answer.left_nanos)
    if limit is not None:
        if answer.key_left is not None:
            _remember_balance(request.api_key_id, limit - answer.key_left)
        elif answer.outcome is ReservationOutcome.OVER_LIMIT:
            _remember_balance(request.api_key_id, limit - answer.left_nanos)


def forget_all() -> None:
    """Forget every balance, as at the start."""
    global _failed_until
    _balances.clear()
    _asked_at.clear()
    _failed_until = 0.0


def read(scope: Scope, identifier: UUID) -> list[Balance]:
    """Read a balance that the store has no copy of; none where there is no such thing.

    Raises Overloaded when the database is away as well.
    """
    asked = partial(database.read, partial(ledger.balances_of, scope, [identifier]), brief=True)
    try:
        found = _reads.run((scope, identifier), asked)
    except (DatabaseError, TimeoutError) as error:
        raise Overloaded(_UNCHECKABLE, retry_after=RETRY_AFTER) from error
    for balance in found:
        _remember_balance(identifier, balance.nanos)
    return found


def publish(scope: Scope, identifier: UUID) -> None:
    """Read a balance that the store has no copy of, and give it one. Raises Overloaded as `read` does, RedisError."""
    found = read(scope, identifier)
    try:
        balance_copies.repair_copies(balances.publish_or_raise(found))
    except DatabaseError as error:
        raise Overloaded(_UNCHECKABLE, retry_after=RETRY_AFTER) from error
    finally:
        # A model may take minutes to answer.
        database.release_connection()


def find(identifier: UUID) -> int | None:
    """Return what an organization can spend, or what a key has used, as far as it is known here."""
    return _balances.get(identifier)


def find_in_database(scope: Scope, identifier: UUID) -> None:
    """Ask the database, unless it was asked a moment ago, for what `find` returns then. One at a time asks it.

    Pending ledger entries and holds are not in it: an organization may have less.
    """
    global _failed_until
    with _reading:
        now = time.monotonic()
        if now < _failed_until or now < _asked_at.get(identifier, 0.0) + _RETRY_SECONDS:
            return
        _asked_at.pop(identifier, None)
        _asked_at[identifier] = now
        _shorten(_asked_at)
        try:
            read(scope, identifier)
        except Overloaded as error:
            _failed_until = time.monotonic() + _RETRY_SECONDS
            log.warning("balances.not_read", error=type(error.__cause__).__name__)


def _remember_balance(identifier: UUID, nanos: int) -> None:
    # Out and in again: the last one told is the last one to go.
    _balances.pop(identifier, None)
    _balances[identifier] = nanos
    if len(_balances) > _MAX_BALANCES:
        del _balances[next(iter(_balances))]


def _shorten(kept: dict[UUID, float]) -> None:
    while len(kept) > _MAX_BALANCES:
        del kept[next(iter(kept))]
