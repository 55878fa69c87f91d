"""Letting a request in: one atomic round trip checks generations, limits and credits, and reserves the worst case.

Knows what a request may cost at most and who it counts against. Must never know how it will be answered.
"""

from __future__ import annotations

import time
from decimal import Decimal
from functools import lru_cache, partial
from math import ceil
from uuid import UUID

import gevent
import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError
from redis.exceptions import RedisError

from apps.billing import balances, ledger, reservations
from apps.billing.reservations import Hold, Outcome, Rate, RateLeft
from apps.billing.storage import storage_cost_of
from apps.catalog import snapshot
from apps.catalog.snapshot import Catalog
from apps.gateway import policy as policies
from apps.gateway import worker
from apps.gateway.candidates import Candidates
from apps.gateway.canonical.chat import Chat
from apps.gateway.credentials import CREDITS
from apps.gateway.estimate import worst_usage_of
from apps.gateway.hedge import Hedge, loss_of
from apps.gateway.metrics import UNRESERVED
from apps.gateway.policy import Policy
from apps.kernel import database, generation
from apps.kernel.errors import Gone, Overloaded, PaymentRequired, RateLimited
from apps.kernel.money import NANO, nanos_up, plain
from apps.kernel.setting import Setting
from apps.kernel.single_flight import SingleFlight
from apps.logs.entry import Entry

log = structlog.get_logger(__name__)

# What is refused because of what others hold, and how many seconds they may take to give it back (docs/adr/0079).
_TAKEN_UP = frozenset({Outcome.TOO_MANY, Outcome.OVER_LIMIT, Outcome.NO_CREDITS})
_ON_ITS_WAY = 0.005
# Seconds beyond the longest answer after which a request that nobody took out no longer counts as in flight.
_FLIGHT_SLACK = 60
_LONGEST = Setting("UPSTREAM_TOTAL_TIMEOUT")
# Balances that are being read, which others wait for as many seconds.
_balances_read: SingleFlight[tuple[balances.Scope, UUID], list[balances.Balance]] = SingleFlight(10.0)


class Estimate(msgspec.Struct, frozen=True):
    """The worst case of a request: its prompt's tokens, and what the dearest candidate would charge.

    `credits` is whether any candidate is paid from credits.
    """

    prompt_tokens: int
    cost: Decimal
    credits: bool


def estimate(
    chat: Chat, candidates: Candidates, prompt: int, hedge: Hedge | None = None, retention: str = "none"
) -> Estimate:
    """Return the worst case over all candidates for a prompt of about so many tokens, with a second call if hedged.

    Where credits pay for an answer that is retained, they pay for its storage as well.
    """
    worst, credits = Decimal(0), False
    for one in candidates.fitting:
        usage = worst_usage_of(chat, prompt, one.offer)
        cost = one.cost_of(usage).total
        if cost > 0:
            cost += storage_cost_of(usage.total_tokens, retention)
        worst = max(worst, cost)
        credits = credits or (one.credential.mode == CREDITS and cost > 0)
    if hedge is not None:
        worst += min(hedge.cap, max(loss_of(one, prompt).total for one in candidates.fitting))
    return Estimate(prompt, worst, credits)


class Admitted(msgspec.Struct, frozen=True):
    """A request that was let in: how the tightest of its rates stands, None where nobody counts, and what it holds.

    `hold` is None for one that was let through unreserved.
    """

    rate: RateLeft | None = None
    hold: Hold | None = None


def admit(
    policy: Policy, catalog: Catalog, token: str, worst: Estimate, entry: Entry, note: str, *, free: bool
) -> Admitted | None:
    """Reserve for a request; None when policy or catalog have changed and must be read again.

    `free` tells that its model costs nothing: then another rate holds as well. Raises RateLimited and PaymentRequired.
    While Redis is away requests are let through unreserved, and counted.
    """
    request = reservations.Request(
        id=entry.id,
        worker=worker.name(),
        organization_id=policy.organization_id,
        api_key_id=policy.api_key_id,
        amount_nanos=nanos_up(worst.cost),
        from_credits=worst.credits,
        key_limit_nanos=None if policy.spending_limit is None else int(policy.spending_limit * NANO),
        catalog_word=catalog.generation,
        organization_word=policy.generation,
        payload=note,
        rates=_rates_of(policy, entry.route, free=free),
        most_in_flight=policy.concurrency,
        flight_seconds=int(_LONGEST.value) + _FLIGHT_SLACK,
    )
    try:
        answer = _reserve(request, policy)
        if answer.outcome in _TAKEN_UP:
            # Another worker may have answered a request just now, and what it held be on its way back.
            gevent.sleep(_ON_ITS_WAY)
            answer = _reserve(request, policy)
    except RedisError as error:
        return _let_through(policy, token, error)
    match answer.outcome:
        case Outcome.STALE:
            catalog_word, organization_word = answer.words or ("", "")
            _renew(policy, catalog, token, catalog_word, organization_word)
            return None
        case Outcome.TOO_FAST if answer.rate is not None:
            raise RateLimited(
                f"More than {answer.rate.per_minute} requests a minute; try again in {answer.rate.retry_after:.1f} s",
                retry_after=answer.rate.retry_after,
                headers=rate_headers(answer.rate),
            )
        case Outcome.TOO_MANY:
            raise RateLimited(
                f"More than {policy.concurrency} requests at once; try again when one of them has been answered",
                code="concurrency_exceeded",
                retry_after=1,
            )
        case Outcome.OVER_LIMIT:
            raise PaymentRequired(
                f"The key's {_limit_of(policy)} does not cover the request: "
                + _shortfall(worst.cost, answer.left_nanos),
                code="usage_limit_exceeded",
            )
        case Outcome.NO_CREDITS:
            raise PaymentRequired(
                "The organization's credits do not cover the request: " + _shortfall(worst.cost, answer.left_nanos)
            )
        case Outcome.UNKNOWN:
            raise Gone("This organization or API key no longer exists")
        case _:
            return Admitted(answer.rate, answer.hold)


def _reserve(request: reservations.Request, policy: Policy) -> reservations.Answer:
    """Ask for a reservation, and again with balances that the store does not know. Raises RedisError, Overloaded."""
    answer = reservations.reserve(request)
    # At most the organization's and the key's.
    for _ in range(2):
        if answer.outcome is Outcome.UNKNOWN:
            balances.put(_read_balance(policy, answer.unknown or "organization"))
            answer = reservations.reserve(request)
    return answer


def rate_headers(rate: RateLeft) -> list[tuple[str, str]]:
    """Return the headers that tell a client how its rate stands; `ratelimit-reset` is in seconds."""
    return [
        ("ratelimit-limit", str(rate.per_minute)),
        ("ratelimit-remaining", str(rate.left)),
        ("ratelimit-reset", str(ceil(rate.reset))),
    ]


def _rates_of(policy: Policy, route: str, *, free: bool) -> tuple[Rate, ...]:
    """Return what a request counts against: its organization's rate, its key's, and that of free models.

    Chats, messages and images (the first word of a route) are counted apart; free models are not.
    """
    family = route.partition("_")[0]
    rates: list[Rate] = []
    if policy.requests_per_minute:
        rates.append(Rate(_bucket("organization", policy.organization_id, f":{family}"), policy.requests_per_minute))
    if policy.key_requests_per_minute:
        rates.append(Rate(_bucket("key", policy.api_key_id, f":{family}"), policy.key_requests_per_minute))
    if free and settings.FREE_MODELS_PER_MINUTE:
        rates.append(Rate(_bucket("free", policy.organization_id, ""), settings.FREE_MODELS_PER_MINUTE))
    return tuple(rates)


@lru_cache(maxsize=8192)
def _bucket(kind: str, identifier: UUID, word: str) -> str:
    return f"{kind}:{identifier}{word}"


def knew_the_latest(policy: Policy, catalog: Catalog, token: str) -> bool:
    """Return whether policy and catalog still stand; if not they will be read again. For requests refused by them.

    Without Redis nobody can tell, and a refusal stands.
    """
    try:
        catalog_word = generation.read(generation.CATALOG)
        organization_word = generation.read(generation.organization(policy.organization_id))
    except RedisError:
        return True
    if (catalog_word, organization_word) == (catalog.generation, policy.generation):
        return True
    _renew(policy, catalog, token, catalog_word, organization_word)
    return False


def _renew(policy: Policy, catalog: Catalog, token: str, catalog_word: str, organization_word: str) -> None:
    if organization_word != policy.generation:
        policies.forget(token, policy)
    if catalog_word != catalog.generation:
        snapshot.refresh(catalog_word)


def _let_through(policy: Policy, token: str, error: RedisError) -> Admitted:
    """Admit without Redis. Nobody can tell then whether the policy still stands, so it is read again when it is old."""
    log.warning("admission.unreserved", error=type(error).__name__)
    UNRESERVED.inc()
    if time.monotonic() - policy.read_at > 1.0:
        policies.forget(token, policy)
    return Admitted()


def _limit_of(policy: Policy) -> str:
    """Return the limit that holds, in words."""
    ceiling = policy.ceiling
    if ceiling is not None and ceiling.usage == policy.spending_limit:
        return f"limit of {plain(ceiling.amount)} USD a {ceiling.period}"
    return f"usage limit of {plain(policy.usage_limit or Decimal(0))} USD"


def _shortfall(cost: Decimal, left_nanos: int) -> str:
    left = plain(max(Decimal(left_nanos) / NANO, Decimal(0)))
    return f"it may cost up to {plain(cost)} USD and {left} USD is left; lower max_tokens or raise what is left"


def _read_balance(policy: Policy, scope: balances.Scope) -> list[balances.Balance]:
    """Read a balance that Redis has no copy of, once for all who ask. Raises Overloaded when the database is away."""
    subject = policy.organization_id if scope == "organization" else policy.api_key_id
    try:
        return _balances_read.run(
            (scope, subject), partial(database.read, partial(ledger.balances_of, scope, [subject]), brief=True)
        )
    except (DatabaseError, TimeoutError) as error:
        raise Overloaded("The gateway cannot check credits right now; try again shortly") from error
