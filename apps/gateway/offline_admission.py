"""Letting requests in while the store gives no answer: by what this process knows, within an allowance.

An organization may be served beyond what anybody can check by `OFFLINE_ALLOWANCE_USD` in each process and no more, and
never beyond what it was last known to have; what was let through counts until the store has long answered again
(docs/adr/0084). Knows this process's own requests. Must never take silence for a yes.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from typing import NoReturn
from uuid import UUID

import msgspec
import structlog
from redis.exceptions import RedisError, ResponseError

from apps.billing import reservations
from apps.billing.balances import Scope
from apps.billing.ledger import Charge
from apps.billing.reservations import Answer, Outcome, Rate, RateLeft, Request
from apps.gateway import last_balances
from apps.gateway.last_balances import RETRY_AFTER
from apps.gateway.metrics import OFFLINE_ALLOWANCE_USED, OFFLINE_DECISIONS, UNRESERVED
from apps.gateway.policy import Policy
from apps.gateway.store_outage import OUTAGE, reason_of
from apps.kernel.errors import Overloaded
from apps.kernel.money import NANO, nanos_up
from apps.kernel.setting import Setting
from apps.organizations.models import OutagePolicy

log = structlog.get_logger(__name__)

_ALLOWANCE = Setting("OFFLINE_ALLOWANCE_USD")
# Seconds after an outage in which its records are settled and the copies moved; until then it counts on.
SETTLED_AFTER = 30.0
# Seconds after which the store no longer does what it was asked when nobody waited any more.
_HEARD_LATE = 3.0
_MOST_ACCOUNTS, _MOST_UNHEARD = 20_000, 20_000


class Account(msgspec.Struct, eq=False):
    """What an organization was let through unchecked: in 1e-9 USD, all of it and by key, and how many are under way."""

    spent: int = 0
    in_flight: int = 0
    keys: Counter[UUID] = msgspec.field(default_factory=Counter)


class OfflineHold(msgspec.Struct, eq=False):
    """A request that was let in unchecked: it counts with the worst case, and once it is known with its cost."""

    account: Account
    key: UUID | None
    amount: int
    is_open: bool = True

    def settle(self, charge: Charge) -> None:
        """Count what the request is charged instead of what it might have been."""
        if not self.is_open:
            return
        self.is_open = False
        used = nanos_up(charge.usage) if self.key is not None else 0
        more = max(nanos_up(charge.storage - charge.credits), used) - self.amount
        self.account.spent += more
        self.account.in_flight -= 1
        if self.key is not None:
            self.account.keys[self.key] += more
        _show(more)


_accounts: dict[UUID, Account] = defaultdict(Account)
# By bucket, when it will be full again; by the monotonic clock.
_full_at: dict[str, float] = {}
# Refused here, and perhaps reserved there: who asked, when, and what for.
_unheard: deque[tuple[float, str, UUID]] = deque(maxlen=_MOST_UNHEARD)
_total = 0


def decide(request: Request, policy: Policy, error: RedisError) -> tuple[Answer, OfflineHold | None]:
    """Answer for the store, which did not; with what the request holds here when it is let in.

    Raises Overloaded when that cannot be told, or what may be served unchecked is used up.
    """
    reason = reason_of(error)
    OUTAGE.failed(reason)
    try:
        answer, hold = _decide(request, policy)
    except _Refused as refused:
        _count(request, error, reason, refused.decision)
        raise Overloaded(refused.message, retry_after=RETRY_AFTER) from error
    _count(request, error, reason, "admitted" if hold is not None else answer.outcome.value)
    return answer, hold


def store_answers() -> None:
    """Note that a heartbeat came through: give back what was reserved for whom was refused, and forget what is settled.

    Raises RedisError.
    """
    OUTAGE.heartbeat_came_through()
    if OUTAGE.is_over_for(SETTLED_AFTER) and (_accounts or _full_at):
        _forget(kept={one: account for one, account in _accounts.items() if account.in_flight > 0})
    late = time.monotonic() - _HEARD_LATE
    while _unheard and _unheard[0][0] <= late:
        ready = [(worker, identifier) for at, worker, identifier in list(_unheard)[:500] if at <= late]
        reservations.release(ready)
        for _ in ready:
            _unheard.popleft()


def forget_all() -> None:
    """Know nothing, as at the start."""
    _forget(kept={})
    _unheard.clear()
    OUTAGE.forget()


class _Refused(Exception):
    """There is no answer that a client could act on but to come again."""

    def __init__(self, decision: str, message: str) -> None:
        super().__init__(message)
        self.decision, self.message = decision, message


def _decide(request: Request, policy: Policy) -> tuple[Answer, OfflineHold | None]:
    if policy.outage_policy == OutagePolicy.CLOSED:
        raise _Refused(
            "closed",
            "The gateway cannot check credits and limits right now, and the organization's outagePolicy is `closed`; "
            "try again shortly",
        )
    key = None if request.key_limit_nanos is None else request.api_key_id
    counted: list[tuple[Scope, UUID, int | None, Outcome]] = []
    if key is not None:
        counted.append(("key", key, request.key_limit_nanos, Outcome.OVER_LIMIT))
    if request.from_credits:
        counted.append(("organization", request.organization_id, None, Outcome.NO_CREDITS))
    for scope, identifier, limit, _ in counted:
        _find_out(scope, identifier, limit, request.amount_nanos + _spent(request.organization_id, scope, identifier))
    # From here on nothing waits: what is looked at is what is then taken.
    if len(_accounts) >= _MOST_ACCOUNTS and request.organization_id not in _accounts:
        _refuse_unknown()
    account = _accounts[request.organization_id]
    if (too_many := _too_many(request, account)) is not None:
        return too_many, None
    amount = request.amount_nanos if counted else 0
    for scope, identifier, limit, refusal in counted:
        left = _spendable(identifier, limit)
        if left is None:
            _refuse_unknown()
        if left < amount or left <= 0:
            return Answer(refusal, left_nanos=left), None
        if left < amount + _spent(request.organization_id, scope, identifier):
            _refuse_allowance()
    if amount and account.spent + amount > int(_ALLOWANCE.value * NANO):
        _refuse_allowance()
    return Answer(Outcome.HELD), _hold(account, key, amount, request.rates)


def _too_many(request: Request, account: Account) -> Answer | None:
    """Return the refusal that a rate or the number of requests at once calls for, if one does."""
    for rate in request.rates:
        if (used_up := _left_of(rate)) is not None:
            return Answer(Outcome.TOO_FAST, rate=used_up)
    if request.most_in_flight is not None and account.in_flight >= request.most_in_flight:
        return Answer(Outcome.TOO_MANY)
    return None


def _find_out(scope: Scope, identifier: UUID, limit: int | None, needed: int) -> None:
    """Ask the database where what is known here covers too little."""
    left = _spendable(identifier, limit)
    if left is None or left < needed or left <= 0:
        last_balances.find_in_database(scope, identifier)


def _spent(organization_id: UUID, scope: Scope, identifier: UUID) -> int:
    """Return what was let through unchecked and counts against a balance."""
    account = _accounts.get(organization_id)
    if account is None:
        return 0
    return account.spent if scope == "organization" else account.keys[identifier]


def _spendable(identifier: UUID, limit: int | None) -> int | None:
    """Return what can be spent, as far as it is known here: credits, or a limit less what was used of it."""
    known = last_balances.find(identifier)
    return known if known is None or limit is None else limit - known


def _hold(account: Account, key: UUID | None, amount: int, rates: tuple[Rate, ...]) -> OfflineHold:
    now = time.monotonic()
    for rate in rates:
        _full_at[rate.bucket] = max(_full_at.get(rate.bucket, 0.0), now) + 60 / rate.per_minute
    account.spent += amount
    account.in_flight += 1
    if key is not None:
        account.keys[key] += amount
    _show(amount)
    return OfflineHold(account, key, amount)


def _left_of(rate: Rate) -> RateLeft | None:
    """Return how a rate stands that is used up; a bucket of a minute's requests that fills evenly, in this process."""
    each = 60 / rate.per_minute
    now = time.monotonic()
    full_in = max(_full_at.get(rate.bucket, 0.0) - now, 0.0)
    wait = full_in + each - 60
    return RateLeft(rate.per_minute, 0, full_in, retry_after=wait) if wait > each * 1e-9 else None


def _count(request: Request, error: RedisError, reason: str, decision: str) -> None:
    OFFLINE_DECISIONS.labels(reason, decision).inc()
    if decision == "admitted":
        OUTAGE.admitted += 1
        UNRESERVED.inc()
        return
    OUTAGE.refused += 1
    # A store that said no has reserved nothing; one that said nothing may have.
    if not isinstance(error, ResponseError):
        _unheard.append((time.monotonic(), request.worker, request.id))


def _refuse_unknown() -> NoReturn:
    raise _Refused("unknown_balance", "The gateway cannot check credits right now; try again shortly")


def _refuse_allowance() -> NoReturn:
    raise _Refused(
        "allowance",
        "The gateway cannot check credits right now, and what it may serve unchecked is used up; try again shortly",
    )


def _forget(kept: dict[UUID, Account]) -> None:
    gone = sum(account.spent for one, account in _accounts.items() if one not in kept)
    _accounts.clear()
    _accounts.update(kept)
    _full_at.clear()
    _show(-gone)


def _show(more: int) -> None:
    global _total
    _total += more
    OFFLINE_ALLOWANCE_USED.set(_total / NANO)
