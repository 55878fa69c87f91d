"""Offline admission: lets requests in during a store outage (fail open), within an allowance.

Each process serves an organization unchecked for at most `OFFLINE_ALLOWANCE_USD`, and never beyond its last known
balance; requests let through count until the store has long answered again (docs/adr/0084). Silence of the store never
counts as consent. An outage is logged once at its beginning and once at its end.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from typing import NoReturn
from uuid import UUID

import msgspec
import structlog
from redis.exceptions import (
    BusyLoadingError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from apps.billing import reservations
from apps.billing.balances import Scope, is_of_credits
from apps.billing.reservations import (
    ExtensionOutcome,
    Hold,
    HoldExtension,
    RateLimit,
    RateLimitStatus,
    ReservationOutcome,
    ReservationRequest,
    ReservationResult,
)
from apps.gateway.access.policy import Policy
from apps.gateway.admission import offline_accounts
from apps.gateway.admission.offline_accounts import RETRY_AFTER, OfflineAccount, OfflineHold, add_to_gauge
from apps.gateway.metrics import OFFLINE_DECISIONS, STORE_SILENT, UNRESERVED
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.errors import Overloaded
from apps.kernel.money import NANO
from apps.kernel.valkey.redis import shard_of
from apps.kernel.zero_series import begin_at_zero
from apps.organizations.models import OutagePolicy

log = structlog.get_logger(__name__)

# The store's own words for refusing to work; whatever else it says is `refused`.
_WORDS = frozenset({"OOM", "READONLY", "MISCONF", "NOREPLICAS", "LOADING", "BUSY", "MASTERDOWN", "NOPERM", "NOAUTH"})
OUTAGE_REASONS = ("timeout", "unreachable", "refused", *(word.lower() for word in sorted(_WORDS)))
_CLASSES = ((OutOfMemoryError, "oom"), (ReadOnlyError, "readonly"), (BusyLoadingError, "loading"))
_ALLOWANCE = CachedSetting("OFFLINE_ALLOWANCE_USD")
# Seconds after an outage in which its records are settled and the copies moved; until then it counts on.
SETTLED_AFTER = 30.0
# Seconds after which the store no longer runs a command whose caller has stopped waiting.
_LATEST_EXECUTION = 3.0
_MAX_ACCOUNTS, _MAX_UNANSWERED = 20_000, 20_000
# The balances that a request may count against, and the refusal where one does not cover it.
_REFUSALS: tuple[tuple[Scope, ReservationOutcome], ...] = (
    ("key", ReservationOutcome.OVER_LIMIT),
    ("organization", ReservationOutcome.NO_CREDITS),
)


_accounts: dict[UUID, OfflineAccount] = defaultdict(OfflineAccount)
# By bucket, when it will be full again; by the monotonic clock.
_full_at: dict[str, float] = {}
# Refused here, and perhaps reserved there: when, in which shard, who asked, and what for.
_unanswered: deque[tuple[float, int, str, UUID]] = deque(maxlen=_MAX_UNANSWERED)


def decide(
    request: ReservationRequest, policy: Policy, error: RedisError
) -> tuple[ReservationResult, OfflineHold | None]:
    """Answer for the store, which did not; with what the request holds here when it is let in.

    Raises Overloaded when that is unknown, or the allowance for unchecked requests is used up.
    """
    reason = outage_reason(error)
    OUTAGE.record_failure(reason)
    try:
        answer, hold = _decide(request, policy)
    except _Refused as refused:
        _count(request, error, reason, refused.decision)
        raise Overloaded(refused.message, retry_after=RETRY_AFTER) from error
    _count(request, error, reason, "admitted" if hold is not None else answer.outcome.value)
    return answer, hold


def on_heartbeat() -> None:
    """Note a heartbeat that succeeded: release reservations of refused requests, and forget settled ones.

    Raises RedisError.
    """
    OUTAGE.record_heartbeat()
    if OUTAGE.is_over_for(SETTLED_AFTER) and (_accounts or _full_at):
        _forget(kept={one: account for one, account in _accounts.items() if account.in_flight > 0})
    late = time.monotonic() - _LATEST_EXECUTION
    while _unanswered and _unanswered[0][0] <= late:
        ready = [one for one in list(_unanswered)[:500] if one[0] <= late]
        for shard in {shard for _, shard, _, _ in ready}:
            reservations.release([(worker, identifier) for _, of, worker, identifier in ready if of == shard], shard)
        for _ in ready:
            _unanswered.popleft()


def forget_all() -> None:
    """Forget everything, as at the start."""
    _forget(kept={})
    _unanswered.clear()
    OUTAGE.forget()


# Why a request was not decided by the store, and what became of it.
begin_at_zero(
    OFFLINE_DECISIONS,
    OUTAGE_REASONS,
    ("admitted", "closed", "unknown_balance", "allowance", "over_limit", "no_credits", "too_fast", "too_many"),
)


class _Refused(Exception):
    """There is no answer that a client could act on but to come again."""

    def __init__(self, decision: str, message: str) -> None:
        super().__init__(message)
        self.decision, self.message = decision, message


def _decide(request: ReservationRequest, policy: Policy) -> tuple[ReservationResult, OfflineHold | None]:
    if policy.outage_policy == OutagePolicy.CLOSED:
        raise _Refused(
            "closed",
            "The gateway cannot check credits and limits right now, and the organization's outagePolicy is `closed`; "
            "try again shortly",
        )
    ceiling = None if request.limits is None else request.limits.key_ceiling
    counted = (
        request.organization_id if request.from_credits else None,
        None if ceiling is None else request.api_key_id,
        ceiling,
    )
    least = request.amount_nanos if request.least_nanos is None else request.least_nanos
    _refresh_balances(OfflineHold(_accounts.get(request.organization_id) or OfflineAccount(), *counted), least)
    # From here on nothing waits, so the values that are checked are those that are then taken.
    if len(_accounts) >= _MAX_ACCOUNTS and request.organization_id not in _accounts:
        _refuse_unknown()
    account = _accounts[request.organization_id]
    if (too_many := _too_many(request, account)) is not None:
        return too_many, None
    hold = OfflineHold(account, *counted)
    for scope, refusal in _REFUSALS:
        identifier, limit, _ = hold.balance_of(scope)
        if identifier is None:
            continue
        left = _spendable(identifier, limit)
        if left is None:
            _refuse_unknown()
        if left < least or left <= 0:
            return ReservationResult(refusal, left_nanos=left), None
    if hold.balances:
        if (free := _headroom(hold)) < least:
            _refuse_allowance()
        hold.amount_nanos = min(request.amount_nanos, max(least, request.part_nanos or 0), free)
    _count_in(hold, request.rates)
    return ReservationResult(ReservationOutcome.HELD), hold


def extend(hold: OfflineHold, want: int, part: int, least: int) -> HoldExtension[Hold | OfflineHold]:
    """Let a request that was let in unchecked have more, in 1e-9 USD: a useful part, but no less than the least."""
    more = _grow(hold, want, part, least)
    if not more:
        return HoldExtension(ExtensionOutcome.SHORT, hold)
    hold.amount_nanos += more
    return HoldExtension(ExtensionOutcome.HELD, hold)


def extend_reserved(
    policy: Policy, hold: Hold, want: int, part: int, least: int, error: RedisError
) -> HoldExtension[Hold | OfflineHold]:
    """Let a request that has a reservation have more while the store gives no answer: it counts beside the reservation
    until the outage has long been over, and its reservation is not told."""
    OUTAGE.record_failure(outage_reason(error))
    closed = policy.outage_policy == OutagePolicy.CLOSED
    ceiling = None if hold.limits is None else hold.limits.key_ceiling
    beside = OfflineHold(
        _accounts[policy.organization_id],
        policy.organization_id if any(is_of_credits(name) for name in hold.balances) else None,
        None if ceiling is None else policy.api_key_id,
        ceiling,
    )
    more = 0 if closed else _grow(beside, want, part, least)
    if not more:
        return HoldExtension(ExtensionOutcome.SHORT, hold)
    return HoldExtension(ExtensionOutcome.HELD, msgspec.structs.replace(hold, amount_nanos=hold.amount_nanos + more))


def _grow(hold: OfflineHold, want: int, part: int, least: int) -> int:
    """Count more for a request, and return how much; nothing where the least of it is not to be had."""
    free = _headroom(hold)
    if free < least:
        return 0
    more = min(want, max(least, part), free)
    hold.account.add(more, hold.key)
    return more


def _headroom(hold: OfflineHold) -> int:
    """Return what may still be let through unchecked, by the allowance and by the last known balances."""
    free = int(_ALLOWANCE.value * NANO) - hold.account.spent
    for scope, _ in _REFUSALS:
        identifier, limit, spent = hold.balance_of(scope)
        if identifier is not None:
            free = min(free, (_spendable(identifier, limit) or 0) - spent)
    return free


def _too_many(request: ReservationRequest, account: OfflineAccount) -> ReservationResult | None:
    """Return the refusal by a rate limit or the concurrency limit, if either is reached."""
    for rate in request.rates:
        if (used_up := _check_token_bucket(rate)) is not None:
            return ReservationResult(ReservationOutcome.TOO_FAST, rate=used_up)
    if request.most_in_flight is not None and account.in_flight >= request.most_in_flight:
        return ReservationResult(ReservationOutcome.TOO_MANY)
    return None


def _refresh_balances(hold: OfflineHold, least: int) -> None:
    """Query the database where the known balances cover too little."""
    for scope, _ in _REFUSALS:
        identifier, limit, spent = hold.balance_of(scope)
        if identifier is None:
            continue
        left = _spendable(identifier, limit)
        if left is None or left - spent < least or left <= 0:
            offline_accounts.find_in_database(scope, identifier)


def _spendable(identifier: UUID, limit: int | None) -> int | None:
    """Return what can be spent, as far as this process knows: credits, or a limit less its usage."""
    known = offline_accounts.find(identifier)
    return known if known is None or limit is None else limit - known


def _count_in(hold: OfflineHold, rates: tuple[RateLimit, ...]) -> None:
    now = time.monotonic()
    for rate in rates:
        _full_at[rate.bucket] = max(_full_at.get(rate.bucket, 0.0), now) + 60 / rate.per_minute
    hold.account.add(hold.amount_nanos, hold.key)
    hold.account.in_flight += 1


def _check_token_bucket(rate: RateLimit) -> RateLimitStatus | None:
    """Return the state of a rate limit that is used up, else None: a token bucket of this process alone."""
    each = 60 / rate.per_minute
    now = time.monotonic()
    full_in = max(_full_at.get(rate.bucket, 0.0) - now, 0.0)
    wait = full_in + each - 60
    return RateLimitStatus(rate.per_minute, 0, full_in, retry_after=wait) if wait > each * 1e-9 else None


def _count(request: ReservationRequest, error: RedisError, reason: str, decision: str) -> None:
    OFFLINE_DECISIONS.labels(reason, decision).inc()
    if decision == "admitted":
        OUTAGE.admitted += 1
        UNRESERVED.inc()
        return
    OUTAGE.refused += 1
    # A store that said no has reserved nothing; one that said nothing may have.
    if not isinstance(error, ResponseError):
        _unanswered.append((time.monotonic(), shard_of(request.organization_id), request.worker, request.id))


def _refuse_unknown() -> NoReturn:
    raise _Refused("unknown_balance", "The gateway cannot check credits right now; try again shortly")


def _refuse_allowance() -> NoReturn:
    raise _Refused(
        "allowance",
        "The gateway cannot check credits right now, and what it may serve unchecked is used up; try again shortly",
    )


def _forget(kept: dict[UUID, OfflineAccount]) -> None:
    gone = sum(account.spent for one, account in _accounts.items() if one not in kept)
    _accounts.clear()
    _accounts.update(kept)
    _full_at.clear()
    add_to_gauge(-gone)


def outage_reason(error: RedisError) -> str:
    """Return why there was no answer, in a word: `timeout`, `unreachable`, `refused` or the store's own in lower case.

    All of them are the same to a request: it has no confirmation that it is covered.
    """
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    if isinstance(error, RedisTimeoutError):
        return "timeout"
    if isinstance(error, ResponseError):
        word = str(error).partition(" ")[0]
        return word.lower() if word in _WORDS else "refused"
    return "unreachable"


class StoreOutage:
    """This process's view of it. One that flickers is one outage: it is over once a heartbeat came through and nothing
    failed since the one before."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget any outage, as at the start."""
        self.began_at: float | None = None
        self.ended_at = 0.0
        self.admitted = self.refused = 0
        self._failed_since_beat = False

    def record_failure(self, reason: str) -> None:
        """Note that a request was not answered."""
        self._failed_since_beat = True
        if self.began_at is None:
            self.began_at, self.admitted, self.refused = time.monotonic(), 0, 0
            STORE_SILENT.set(1)
            log.error("store.outage_began", reason=reason)

    def record_heartbeat(self) -> None:
        """Note that the store took a heartbeat, which it does where it takes reservations."""
        failed, self._failed_since_beat = self._failed_since_beat, False
        if failed or self.began_at is None:
            return
        self.ended_at = time.monotonic()
        seconds, self.began_at = round(self.ended_at - self.began_at, 1), None
        STORE_SILENT.set(0)
        log.info("store.outage_ended", seconds=seconds, admitted=self.admitted, refused=self.refused)

    def is_over_for(self, seconds: float) -> bool:
        """Whether there is none, and was none for so long."""
        return self.began_at is None and time.monotonic() - self.ended_at >= seconds


OUTAGE = StoreOutage()
