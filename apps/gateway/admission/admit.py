"""Admission: checks generations, limits and credits, and reserves the worst-case cost, in one atomic round trip."""

from __future__ import annotations

import time
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache, partial
from math import ceil
from uuid import UUID

import gevent
import msgspec
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.billing import reservations
from apps.billing.balance_copies import parse_copy_key
from apps.billing.ledger import Charge
from apps.billing.limit_holds import NO_USE, MeasuredUse
from apps.billing.reservations import (
    ExtensionOutcome,
    Hold,
    HoldExtension,
    RateLimit,
    RateLimitStatus,
    ReachedLimit,
    ReservationOutcome,
    ReservationResult,
    SettledHold,
    TokenRequest,
    reduce_to_cost,
)
from apps.billing.worker_leases import worker_name
from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import Catalog
from apps.gateway.access import policy as policies
from apps.gateway.access.policy import Policy
from apps.gateway.admission import offline_accounts, offline_admission
from apps.gateway.admission.offline_accounts import OfflineHold
from apps.gateway.admission.worst_case import WorstCase
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.errors import NO_RETRY, ApiError, Gone, Overloaded, PaymentRequired, RateLimited
from apps.kernel.ids import new_id
from apps.kernel.money import NANO, nanos_up, plain
from apps.kernel.postgres import database
from apps.kernel.valkey import generation
from apps.kernel.valkey.redis import shard_of
from apps.limits import counters
from apps.limits.applied import AppliedLimit, AppliedLimits, describe, resets_at, text_of
from apps.limits.key_limits import words_of
from apps.logs.entry import Entry

# Refusals that other requests' holds cause, and the seconds that these may take to release them (docs/adr/0079).
_WORTH_A_RETRY = frozenset(
    {
        ReservationOutcome.TOO_MANY,
        ReservationOutcome.OVER_LIMIT,
        ReservationOutcome.NO_CREDITS,
        ReservationOutcome.LIMIT_REACHED,
    }
)
_RETRY_PAUSE = 0.005
# Seconds beyond the longest answer after which a request that was never removed no longer counts as in flight.
_FLIGHT_SLACK = 60
_TOTAL_TIMEOUT = CachedSetting("UPSTREAM_TOTAL_TIMEOUT")
_NO_TOKENS = TokenRequest()
_Question = Callable[[reservations.ReservationRequest], ReservationResult]


class ProviderLimitReached(Exception):
    """A limit of a provider does not cover the request, which others may answer."""

    def __init__(self, limit: AppliedLimit) -> None:
        super().__init__(limit.rule.name)
        self.limit = limit


class RerouteLimitReached(Exception):
    """A limit that reroutes does not cover the request; `refusal` is the error where none of its models can answer."""

    def __init__(self, limit: AppliedLimit, refusal: ApiError) -> None:
        super().__init__(limit.rule.name)
        self.limit, self.refusal = limit, refusal


class AdmissionGrant(msgspec.Struct, frozen=True):
    """An admitted request: the rest of the tightest of its rate limits, None where there is none, and its hold.

    Where the store gave no answer it holds something in this process only. `warned` are the limits that it exceeds and
    that refuse nothing.
    """

    rate: RateLimitStatus | None = None
    hold: Hold | OfflineHold | None = None
    warned: tuple[AppliedLimit, ...] = ()


def admit(
    policy: Policy,
    catalog: Catalog,
    token: str,
    worst: WorstCase,
    entry: Entry,
    note: str,
    *,
    rate_family: str | None,
    free: bool,
    limits: AppliedLimits | None = None,
) -> AdmissionGrant | None:
    """Reserve for a request; None when policy or catalog have changed and must be read again.

    `rate_family` is its route's; `free` tells that its model costs nothing: then another rate holds as well.
    Raises RateLimited, PaymentRequired, Gone; ProviderLimitReached where another provider may answer, and
    RerouteLimitReached where another model may.
    Where the store gives no answer this process decides (`offline_admission`), which may raise Overloaded.
    """
    rates = _rates_of(policy, rate_family, free=free)
    request = _request_of(policy, catalog, worst, entry.id, note, rates, limits)
    offline = None
    try:
        answer = _ask(reservations.reserve, request, policy, limits)
        offline_accounts.remember(request, answer)
    except RedisError as error:
        policies.distrust(token, policy)
        answer, offline = offline_admission.decide(request, policy, error)
    if answer.outcome is not ReservationOutcome.HELD:
        if _is_stale(answer, policy, catalog, token):
            return None
        _raise_refusal(answer, policy, worst, limits)
    warned = _named(answer, limits) if answer.limits else ()
    return AdmissionGrant(answer.rate, offline or answer.hold, warned)


def check(
    policy: Policy,
    catalog: Catalog,
    token: str,
    worst: WorstCase,
    *,
    rate_family: str | None,
    free: bool,
    limits: AppliedLimits | None = None,
) -> bool:
    """Refuse what `admit` would refuse now, before anything outside is asked for it; nothing is counted or held.

    For requests that name what has to be brought first; the others need not ask twice. False when policy or catalog
    have changed and must be read again. Raises as `admit` does. Where the store gives no answer, `admit` decides.
    """
    rates = () if rate_family is None else _rates_of(policy, rate_family, free=free)
    request = _request_of(policy, catalog, worst, new_id(), "", rates, limits)
    try:
        answer = _ask(reservations.look, request, policy, limits)
    except RedisError:
        return True
    if _is_stale(answer, policy, catalog, token):
        return False
    _raise_refusal(answer, policy, worst, limits)
    return True


def _is_stale(answer: ReservationResult, policy: Policy, catalog: Catalog, token: str) -> bool:
    """Return whether policy or catalog have changed; then they will be read again."""
    if answer.outcome is not ReservationOutcome.STALE:
        return False
    catalog_token, organization_token = answer.generation_tokens or ("", "")
    _invalidate_stale(policy, catalog, token, catalog_token, organization_token)
    return True


def _request_of(
    policy: Policy,
    catalog: Catalog,
    worst: WorstCase,
    identifier: UUID,
    note: str,
    rates: tuple[RateLimit, ...],
    limits: AppliedLimits | None,
) -> reservations.ReservationRequest:
    """Return the request for the store: amounts in nanos of a USD."""
    want = nanos_up(worst.cost)
    if limits is None and policy.limits is not None:
        # Calls of tools and the like: other limits do not count them.
        limits = policy.limits.of_key
    return reservations.ReservationRequest(
        id=identifier,
        worker=worker_name(),
        organization_id=policy.organization_id,
        api_key_id=policy.api_key_id,
        amount_nanos=want,
        # The same amounts where the client states a limit.
        part_nanos=want if worst.part == worst.cost else nanos_up(worst.part),
        least_nanos=want if worst.least == worst.cost else nanos_up(worst.least),
        from_credits=worst.from_credits,
        catalog_token=catalog.generation,
        organization_token=policy.generation,
        payload=note,
        rates=rates,
        most_in_flight=policy.concurrency,
        flight_seconds=int(_TOTAL_TIMEOUT.value) + _FLIGHT_SLACK,
        limits=None if limits is None else limits.holds,
        tokens=_NO_TOKENS if limits is None else _tokens_of(worst, limits),
    )


def _tokens_of(worst: WorstCase, limits: AppliedLimits) -> TokenRequest:
    """Return what a request holds of limits of tokens: its prompt's, and the longest answer of any candidate."""
    tariffs = worst.tariffs if limits.holds.has_answers else ()
    if len(tariffs) == 1:
        # The usual case.
        only = tariffs[0][1]
        return TokenRequest(only.max_tokens, only.useful_tokens, only.min_tokens, worst.prompt_tokens)
    want = part = least = 0
    for _, tariff in tariffs:
        if tariff.max_tokens > want:
            want = tariff.max_tokens
        if tariff.useful_tokens > part:
            part = tariff.useful_tokens
        if tariff.min_tokens > least:
            least = tariff.min_tokens
    return TokenRequest(want, part, least, worst.prompt_tokens)


def _named(answer: ReservationResult, limits: AppliedLimits | None) -> tuple[AppliedLimit, ...]:
    """Return the limits that the store's answer warns of."""
    return () if limits is None else tuple([limits.limits[place] for place in answer.limits])


def _raise_refusal(
    answer: ReservationResult, policy: Policy, worst: WorstCase, limits: AppliedLimits | None = None
) -> None:
    """Raise the error for a request that the store refused, as `admit` does."""
    match answer.outcome:
        case ReservationOutcome.TOO_FAST if answer.rate is not None:
            raise RateLimited(
                f"More than {answer.rate.per_minute} requests a minute; try again in {answer.rate.retry_after:.1f} s",
                retry_after=answer.rate.retry_after,
                headers=rate_headers(answer.rate),
            )
        case ReservationOutcome.TOO_MANY:
            raise RateLimited(
                f"More than {policy.concurrency} requests at once; try again when one of them has been answered",
                code="concurrency_exceeded",
                retry_after=1,
            )
        case ReservationOutcome.OVER_LIMIT if policy.limits is not None and policy.limits.of_key is not None:
            raise PaymentRequired(
                f"The key's {words_of(policy.limits.of_key.limits[0])} is too low: "
                + _shortfall(worst, answer.left_nanos, "raise the key's limit"),
                code="usage_limit_exceeded",
            )
        case ReservationOutcome.NO_CREDITS:
            raise PaymentRequired(
                "Insufficient credits: " + _shortfall(worst, answer.left_nanos, "add credits under Billing")
            )
        case ReservationOutcome.LIMIT_REACHED if answer.reached is not None and limits is not None:
            limit = limits.limits[answer.reached.place]
            if limit.is_optional:
                if answer.reached.used >= limit.capacity and policy.limits is not None:
                    policy.limits.note_used_up(limit)
                raise ProviderLimitReached(limit)
            refusal = _refusal_by(limit, answer.reached)
            raise RerouteLimitReached(limit, refusal) if limit.rule.reroutes_to else refusal
        case ReservationOutcome.UNKNOWN if answer.unknown == "limit":
            raise _unreadable()
        case ReservationOutcome.UNKNOWN:
            raise Gone("This organization or API key no longer exists")


def _refusal_by(limit: AppliedLimit, reached: ReachedLimit) -> PaymentRequired | RateLimited:
    """Return the error for a request that a limit refused."""
    is_money = limit.rule.is_money
    used, held, needed = [text_of(units, is_money=is_money) for units in (reached.used, reached.held, reached.needed)]
    message = (
        f"The {describe(limit)}, does not cover this request: {used} used and {held} held by requests in progress, "
        f"and it needs {needed}; {resets_at(limit)}"
    )
    if is_money:
        return PaymentRequired(message, code="limit_reached")
    if _is_hopeless(limit, reached):
        return RateLimited(message, code="limit_reached", headers=[NO_RETRY])
    left = None if limit.window.ends_at is None else max(limit.window.ends_at - time.time(), 1.0)
    if limit.counts_tokens and reached.held and reached.used + reached.needed <= limit.capacity:
        # Requests in progress hold the rest, and most use less than they hold.
        left = min(left or 1.0, 1.0)
    return RateLimited(message, code="limit_reached", retry_after=left)


def _is_hopeless(limit: AppliedLimit, reached: ReachedLimit) -> bool:
    """Return whether the request is refused for good: it needs more than the whole limit, or than the rest of one that
    never resets."""
    used = reached.used if limit.window.ends_at is None else 0
    return used + reached.needed > limit.capacity


def _ask(
    question: _Question,
    request: reservations.ReservationRequest,
    policy: Policy,
    limits: AppliedLimits | None = None,
) -> ReservationResult:
    """Ask the store, and again where what others hold may be on its way back. Raises RedisError, Overloaded."""
    answer = _ask_with_balances(question, request, policy, limits)
    if answer.outcome in _WORTH_A_RETRY and not _is_used_up(answer, limits):
        # Another worker may have answered a request just now.
        gevent.sleep(_RETRY_PAUSE)
        answer = _ask_with_balances(question, request, policy, limits)
    return answer


def _is_used_up(answer: ReservationResult, limits: AppliedLimits | None) -> bool:
    """Return whether a limit refuses even if nothing was held."""
    reached = answer.reached
    return reached is not None and limits is not None and reached.used >= limits.limits[reached.place].capacity


def _ask_with_balances(
    question: _Question, request: reservations.ReservationRequest, policy: Policy, limits: AppliedLimits | None
) -> ReservationResult:
    """Ask the store, and again with balances that it does not know. Raises RedisError, Overloaded."""
    answer = question(request)
    # At most the organization's, the key's, and those of limits.
    for _ in range(3):
        if answer.outcome is ReservationOutcome.UNKNOWN:
            scope = answer.unknown or "organization"
            if scope == "limit":
                _read_counters(partial(_publish_counters, answer, limits))
            else:
                offline_accounts.publish(
                    scope, policy.organization_id if scope == "organization" else policy.api_key_id
                )
            answer = question(request)
    return answer


def _publish_counters(answer: ReservationResult, limits: AppliedLimits | None) -> None:
    """Give the store copies of the counters that its answer names. Raises DatabaseError, RedisError."""
    if limits is not None:
        buckets = limits.buckets
        counters.publish_buckets([buckets[place] for place in answer.limits])


def _unreadable() -> Overloaded:
    return Overloaded(
        "The gateway cannot check limits right now; try again shortly", retry_after=offline_accounts.RETRY_AFTER
    )


def _read_counters(publish: Callable[[], None]) -> None:
    """Give the store copies of counters. Raises RedisError; Overloaded when the database is away."""
    try:
        publish()
    except DatabaseError as error:
        raise _unreadable() from error
    finally:
        # A model may take minutes to answer.
        database.release_connection()


def extend(
    policy: Policy, hold: Hold | OfflineHold, want: Decimal, part: Decimal, least: Decimal
) -> HoldExtension[Hold | OfflineHold]:
    """Hold more for a request in progress, in USD: the wanted amount, or a part of it, but no less than the least.

    Where the store gives no answer this process decides. Raises Overloaded; then it may be asked for again.
    """
    asked = nanos_up(want), nanos_up(part), nanos_up(least)
    if isinstance(hold, OfflineHold):
        return offline_admission.extend(hold, *asked)
    try:
        extended = reservations.extend(hold, *asked)
        for _ in range(2):
            if extended.growth is ExtensionOutcome.UNKNOWN:
                _publish_again(policy, extended.balance)
                extended = reservations.extend(hold, *asked)
    except RedisError as error:
        return offline_admission.extend_reserved(policy, hold, *asked, error)
    return extended


def _publish_again(policy: Policy, name: str) -> None:
    """Give the store the balance of which it lost the copy. Raises Overloaded, RedisError."""
    scope, identifier = parse_copy_key(name)
    if scope == "limit" and identifier is not None:
        _read_counters(partial(counters.publish_again, identifier, policy.organization_id))
    elif scope != "limit":
        offline_accounts.publish(scope, policy.organization_id if scope == "organization" else policy.api_key_id)


def settle(hold: Hold | OfflineHold, charge: Charge, use: MeasuredUse = NO_USE) -> SettledHold | None:
    """Hold no more than a request is charged; return what that makes of its reservation, where it has one."""
    if isinstance(hold, OfflineHold):
        hold.settle(charge)
        return None
    return reduce_to_cost(hold, charge, use)


def rate_headers(rate: RateLimitStatus) -> list[tuple[str, str]]:
    """Return the rate limit headers for the client; `ratelimit-reset` is in seconds."""
    return [
        ("ratelimit-limit", str(rate.per_minute)),
        ("ratelimit-remaining", str(rate.left)),
        ("ratelimit-reset", str(ceil(rate.reset))),
    ]


def _rates_of(policy: Policy, family: str | None, *, free: bool) -> tuple[RateLimit, ...]:
    """Return the rate limits of a request: its organization's, its key's, and that of free models.

    Families of routes (the route table's: chat, messages, images) are counted apart; free models are not.
    """
    if family is None:
        raise ValueError("The route admits requests and has no rate family")
    rates: list[RateLimit] = []
    if policy.requests_per_minute:
        rates.append(
            RateLimit(_bucket("organization", policy.organization_id, f":{family}"), policy.requests_per_minute)
        )
    if policy.key_requests_per_minute:
        rates.append(RateLimit(_bucket("key", policy.api_key_id, f":{family}"), policy.key_requests_per_minute))
    if free and settings.FREE_MODELS_PER_MINUTE:
        rates.append(RateLimit(_bucket("free", policy.organization_id, ""), settings.FREE_MODELS_PER_MINUTE))
    return tuple(rates)


@lru_cache(maxsize=8192)
def _bucket(kind: str, identifier: UUID, word: str) -> str:
    return f"{kind}:{identifier}{word}"


def is_current(policy: Policy, catalog: Catalog, token: str) -> bool:
    """Return whether policy and catalog still stand; if not they will be read again. For requests refused by them.

    Without Redis this is unknown, and a refusal remains.
    """
    try:
        shard = shard_of(policy.organization_id)
        catalog_token = generation.check_token(generation.CATALOG, catalog.generation, shard)
        organization_token = generation.read_generation_token(generation.organization_scope(policy.organization_id))
    except RedisError:
        return True
    if (catalog_token, organization_token) == (catalog.generation, policy.generation):
        return True
    _invalidate_stale(policy, catalog, token, catalog_token, organization_token)
    return False


def _invalidate_stale(
    policy: Policy, catalog: Catalog, token: str, catalog_token: str, organization_token: str
) -> None:
    if organization_token != policy.generation:
        policies.invalidate(token, policy)
    if catalog_token != catalog.generation:
        catalog_cache.refresh(catalog_token)


def _shortfall(worst: WorstCase, left_nanos: int, remedy: str) -> str:
    left = plain(max(Decimal(left_nanos) / NANO, Decimal(0)))
    if worst.least < worst.cost:
        return f"this request needs at least {plain(worst.least)} USD and {left} USD is left; {remedy}"
    return f"this request needs up to {plain(worst.cost)} USD and {left} USD is left; lower max_tokens or {remedy}"
