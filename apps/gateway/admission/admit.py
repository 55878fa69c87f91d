"""Admission: checks generations, limits and credits, and reserves the worst-case cost, in one atomic round trip."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from math import ceil
from uuid import UUID

import gevent
import msgspec
from django.conf import settings
from redis.exceptions import RedisError

from apps.billing import balances, reservations
from apps.billing.ledger import Charge
from apps.billing.reservations import (
    ExtensionOutcome,
    Hold,
    HoldExtension,
    RateLimit,
    RateLimitStatus,
    ReservationOutcome,
    ReservationResult,
    SettledHold,
    reduce_to_cost,
)
from apps.billing.worker_leases import worker_name
from apps.catalog import catalog_cache
from apps.catalog.catalog_cache import Catalog
from apps.gateway.access import policy as policies
from apps.gateway.access.policy import Policy
from apps.gateway.admission import last_balances, offline_admission
from apps.gateway.admission.offline_hold import OfflineHold
from apps.gateway.admission.worst_case import WorstCase
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.errors import Gone, PaymentRequired, RateLimited
from apps.kernel.ids import new_id
from apps.kernel.money import NANO, nanos_up, plain
from apps.kernel.valkey import generation
from apps.kernel.valkey.store_keys import shard_of
from apps.logs.entry import Entry

# Refusals that other requests' holds cause, and the seconds that these may take to release them (docs/adr/0079).
_WORTH_A_RETRY = frozenset({ReservationOutcome.TOO_MANY, ReservationOutcome.OVER_LIMIT, ReservationOutcome.NO_CREDITS})
_RETRY_PAUSE = 0.005
# Seconds beyond the longest answer after which a request that was never removed no longer counts as in flight.
_FLIGHT_SLACK = 60
_TOTAL_TIMEOUT = CachedSetting("UPSTREAM_TOTAL_TIMEOUT")
_Question = Callable[[reservations.ReservationRequest], ReservationResult]


class AdmissionGrant(msgspec.Struct, frozen=True):
    """An admitted request: the rest of the tightest of its rate limits, None where there is none, and its hold.

    Where the store gave no answer it holds something in this process only.
    """

    rate: RateLimitStatus | None = None
    hold: Hold | OfflineHold | None = None


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
) -> AdmissionGrant | None:
    """Reserve for a request; None when policy or catalog have changed and must be read again.

    `rate_family` is its route's; `free` tells that its model costs nothing: then another rate holds as well.
    Raises RateLimited, PaymentRequired, Gone.
    Where the store gives no answer this process decides (`offline_admission`), which may raise Overloaded.
    """
    request = _request_of(policy, catalog, worst, entry.id, note, _rates_of(policy, rate_family, free=free))
    offline = None
    try:
        answer = _ask(reservations.reserve, request, policy)
        last_balances.remember(request, answer)
    except RedisError as error:
        policies.distrust(token, policy)
        answer, offline = offline_admission.decide(request, policy, error)
    if answer.outcome is not ReservationOutcome.HELD:
        if _is_stale(answer, policy, catalog, token):
            return None
        _raise_refusal(answer, policy, worst)
    return AdmissionGrant(answer.rate, offline or answer.hold)


def check(
    policy: Policy, catalog: Catalog, token: str, worst: WorstCase, *, rate_family: str | None, free: bool
) -> bool:
    """Refuse what `admit` would refuse now, before anything outside is asked for it; nothing is counted or held.

    For requests that name what has to be brought first; the others need not ask twice. False when policy or catalog
    have changed and must be read again. Raises as `admit` does. Where the store gives no answer, `admit` decides.
    """
    rates = () if rate_family is None else _rates_of(policy, rate_family, free=free)
    request = _request_of(policy, catalog, worst, new_id(), "", rates)
    try:
        answer = _ask(reservations.look, request, policy)
    except RedisError:
        return True
    if _is_stale(answer, policy, catalog, token):
        return False
    _raise_refusal(answer, policy, worst)
    return True


def _is_stale(answer: ReservationResult, policy: Policy, catalog: Catalog, token: str) -> bool:
    """Return whether policy or catalog have changed; then they will be read again."""
    if answer.outcome is not ReservationOutcome.STALE:
        return False
    catalog_token, organization_token = answer.generation_tokens or ("", "")
    _invalidate_stale(policy, catalog, token, catalog_token, organization_token)
    return True


def _request_of(
    policy: Policy, catalog: Catalog, worst: WorstCase, identifier: UUID, note: str, rates: tuple[RateLimit, ...]
) -> reservations.ReservationRequest:
    """Return the request for the store: amounts in nanos of a USD."""
    want = nanos_up(worst.cost)
    limit = policy.spending_limit
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
        key_limit_nanos=None if limit is None else int(limit * NANO),
        catalog_token=catalog.generation,
        organization_token=policy.generation,
        payload=note,
        rates=rates,
        most_in_flight=policy.concurrency,
        flight_seconds=int(_TOTAL_TIMEOUT.value) + _FLIGHT_SLACK,
    )


def _raise_refusal(answer: ReservationResult, policy: Policy, worst: WorstCase) -> None:
    """Raise the error for a request that the store refused: RateLimited, PaymentRequired, Gone."""
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
        case ReservationOutcome.OVER_LIMIT:
            raise PaymentRequired(
                f"The key's {_limit_of(policy)} is too low: "
                + _shortfall(worst, answer.left_nanos, "raise the key's limit"),
                code="usage_limit_exceeded",
            )
        case ReservationOutcome.NO_CREDITS:
            raise PaymentRequired(
                "Insufficient credits: " + _shortfall(worst, answer.left_nanos, "add credits under Billing")
            )
        case ReservationOutcome.UNKNOWN:
            raise Gone("This organization or API key no longer exists")


def _ask(question: _Question, request: reservations.ReservationRequest, policy: Policy) -> ReservationResult:
    """Ask the store, and again where what others hold may be on its way back. Raises RedisError, Overloaded."""
    answer = _ask_with_balances(question, request, policy)
    if answer.outcome in _WORTH_A_RETRY:
        # Another worker may have answered a request just now.
        gevent.sleep(_RETRY_PAUSE)
        answer = _ask_with_balances(question, request, policy)
    return answer


def _ask_with_balances(
    question: _Question, request: reservations.ReservationRequest, policy: Policy
) -> ReservationResult:
    """Ask the store, and again with balances that it does not know. Raises RedisError, Overloaded."""
    answer = question(request)
    # At most the organization's and the key's.
    for _ in range(2):
        if answer.outcome is ReservationOutcome.UNKNOWN:
            scope = answer.unknown or "organization"
            last_balances.publish(scope, policy.organization_id if scope == "organization" else policy.api_key_id)
            answer = question(request)
    return answer


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
                of_credits = balances.is_of_credits(extended.balance)
                scope: balances.Scope = "organization" if of_credits else "key"
                last_balances.publish(scope, policy.organization_id if of_credits else policy.api_key_id)
                extended = reservations.extend(hold, *asked)
    except RedisError as error:
        return offline_admission.extend_reserved(policy, hold, *asked, error)
    return extended


def settle(hold: Hold | OfflineHold, charge: Charge) -> SettledHold | None:
    """Hold no more than a request is charged; return what that makes of its reservation, where it has one."""
    if isinstance(hold, OfflineHold):
        hold.settle(charge)
        return None
    return reduce_to_cost(hold, charge)


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


def _limit_of(policy: Policy) -> str:
    """Return the limit that reservations, in words."""
    ceiling = policy.ceiling
    if ceiling is not None and ceiling.usage == policy.spending_limit:
        return f"limit of {plain(ceiling.amount)} USD a {ceiling.period}"
    return f"usage limit of {plain(policy.usage_limit or Decimal(0))} USD"


def _shortfall(worst: WorstCase, left_nanos: int, remedy: str) -> str:
    left = plain(max(Decimal(left_nanos) / NANO, Decimal(0)))
    if worst.least < worst.cost:
        return f"this request needs at least {plain(worst.least)} USD and {left} USD is left; {remedy}"
    return f"this request needs up to {plain(worst.cost)} USD and {left} USD is left; lower max_tokens or {remedy}"
