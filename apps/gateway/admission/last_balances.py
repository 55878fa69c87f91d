"""Last known balances: what organizations and keys had at their latest reservation, for outages of the store.

Amounts are in 1e-9 USD. Used only while the store does not answer.
"""

from __future__ import annotations

import time
from functools import partial
from threading import Lock
from uuid import UUID

import structlog
from django.db import DatabaseError

from apps.billing import balance_copies, balances, ledger
from apps.billing.balances import Balance, Scope
from apps.billing.reservations import ReservationOutcome, ReservationRequest, ReservationResult
from apps.kernel.concurrency.single_flight import SingleFlight
from apps.kernel.errors import Overloaded
from apps.kernel.postgres import database

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
    limit = request.key_limit_nanos
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
