"""What a token may do: one frozen value per key, read once and trusted while its organization's generation stands.

Knows how to read a policy and when to read it again. Must never know what a request asks for.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from redis.exceptions import RedisError

from apps.billing.discounts import Shares, own_of
from apps.billing.periods import Ceiling, ceiling_of
from apps.guardrails.engine import Compiled as Guardrails
from apps.guardrails.in_force import find_guardrails
from apps.kernel import generation
from apps.kernel.errors import Gone, Overloaded, Unauthenticated
from apps.keys.authenticate import find_api_key
from apps.keys.iam import Rule
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.models import Organization, Project
from apps.organizations.plans import limits_of

log = structlog.get_logger(__name__)

# Seconds that a copy is trusted without asking the database, whatever its generation says: bounds what a lost
# generation can cost. Served beyond it only while the database is away.
MAX_AGE = 60.0
# Policies kept by a process; the least recently used goes first.
MAX_POLICIES = 10_000
INVALID_KEY = "Missing or invalid API key"


@dataclass(frozen=True, slots=True)
class OwnCredential:
    """An organization's own credential at a provider, still encrypted."""

    id: UUID
    provider: str
    provider_name: str
    base_url: str
    encrypted_token: bytes


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything about the caller that a request is decided by."""

    api_key_id: UUID
    project_id: UUID
    organization_id: UUID
    plan: str
    mode: str
    retention: str
    usage_limit: Decimal | None
    # What it may have used until its present period ends.
    ceiling: Ceiling | None
    # Requests a minute, of the organization and of the key, and requests at a time; None is unlimited.
    requests_per_minute: int | None
    key_requests_per_minute: int | None
    concurrency: int | None
    # What becomes of its requests while nobody can check them (`OutagePolicy`).
    outage_policy: str
    # Whether a late provider's streams are raced by a second one.
    hedging: bool
    # Seconds for which the project keeps answers, None when it keeps none.
    cache_seconds: int | None
    expires_at: datetime | None
    rules: tuple[Rule, ...]
    # Its organization's own shares off the price.
    discounts: Shares
    own_credentials: Mapping[str, tuple[OwnCredential, ...]]
    # What its requests are held against; None where nothing is in force.
    guardrails: Guardrails | None
    gone: str | None
    generation: str
    read_at: float
    # Whom it may ask, by the name of a model (`candidates.Reach`): found out once, forgotten with the policy.
    reached: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def spending_limit(self) -> Decimal | None:
        """What the key may have used in all, in USD, by the tighter of its limits; None is unlimited."""
        if self.ceiling is None or self.usage_limit is None:
            return self.usage_limit if self.ceiling is None else self.ceiling.usage
        return min(self.usage_limit, self.ceiling.usage)

    @property
    def is_of_the_past(self) -> bool:
        """Whether its period is over, and another has begun."""
        return self.ceiling is not None and self.ceiling.ends_at <= datetime.now(UTC)

    @property
    def refuses(self) -> bool:
        """Whether `check` will raise."""
        return self.gone is not None or (self.expires_at is not None and self.expires_at <= datetime.now(UTC))

    def stands(self) -> bool:
        """Ask whether nothing has changed since it was read; as far as anybody can tell without Redis.

        Who is let in learns that on the way (`admission`); this is for who is not.
        """
        try:
            return generation.read(generation.organization(self.organization_id)) == self.generation
        except RedisError:
            return True

    def check(self) -> None:
        """Raise Unauthenticated when the key has expired, Gone when its project or organization is no more."""
        if self.expires_at is not None and self.expires_at <= datetime.now(UTC):
            raise Unauthenticated("This API key has expired")
        if self.gone is not None:
            raise Gone(self.gone)


_policies: OrderedDict[bytes, Policy] = OrderedDict()
# Under what a token's policy is kept: nobody else can know it, and it costs a third of the digest that is stored.
_KEY = secrets.token_bytes(32)


def policy_of(token: str) -> Policy:
    """Return the policy of an API key. Raises Unauthenticated, Gone, and Overloaded when nothing can be asked."""
    digest = _place_of(token)
    policy = _policies.get(digest)
    if policy is None or _is_old(policy) or (policy.refuses and not policy.stands()):
        policy = _read_or_keep(token, digest, policy)
    else:
        _policies.move_to_end(digest)
    policy.check()
    return policy


def _place_of(token: str) -> bytes:
    return blake2b(token.encode(), digest_size=32, key=_KEY).digest()


def _is_old(policy: Policy) -> bool:
    return time.monotonic() - policy.read_at > MAX_AGE or policy.is_of_the_past


def forget(token: str, known: Policy | None = None) -> None:
    """Drop the copy: its generation has passed. With `known` only that one: another may have read a newer since."""
    digest = _place_of(token)
    if known is None or _policies.get(digest) is known:
        _policies.pop(digest, None)


def doubt(token: str, known: Policy) -> None:
    """Have a copy that nobody can confirm read again once it is a second old; it stays while the database is away."""
    now, digest = time.monotonic(), _place_of(token)
    if now - known.read_at > 1.0 and _policies.get(digest) is known:
        _policies[digest] = replace(known, read_at=min(known.read_at, now - MAX_AGE - 1.0))


def forget_all() -> None:
    """Drop every copy."""
    _policies.clear()


def _read_or_keep(token: str, digest: bytes, known: Policy | None) -> Policy:
    """Read the policy anew; when the database is away, go on with the copy there is."""
    try:
        policy = _read(token)
    except DatabaseError as error:
        if known is None:
            raise Overloaded("The gateway cannot check API keys right now; try again shortly") from error
        log.warning("policy.kept", api_key=str(known.api_key_id), error=type(error).__name__)
        return known
    finally:
        # A worker must not hold a database connection while a model answers.
        _let_go()
    if policy is None:
        _policies.pop(digest, None)
        raise Unauthenticated(INVALID_KEY)
    _policies[digest] = policy
    _policies.move_to_end(digest)
    while len(_policies) > MAX_POLICIES:
        _policies.popitem(last=False)
    return policy


def _read(token: str) -> Policy | None:
    """Read a key's policy from the database; None when the key is unknown or no longer works."""
    known = find_api_key(token)
    if known is None:
        return None
    # Others need the connection, should the store hang.
    _let_go()
    # The generation is read before the rows that count: a change in between makes the copy stale, never wrongly fresh.
    word = _generation_of(known.project.organization_id)
    key = find_api_key(token)
    if key is None or key.status != ApiKey.Status.ACTIVE:
        return None
    project, organization = key.project, key.project.organization
    return Policy(
        api_key_id=key.id,
        project_id=project.id,
        organization_id=organization.id,
        plan=organization.plan,
        mode=project.mode,
        retention=organization.retention_level,
        usage_limit=key.usage_limit,
        ceiling=ceiling_of(key, organization.id, datetime.now(UTC)),
        requests_per_minute=_requests_per_minute(organization),
        key_requests_per_minute=key.requests_per_minute,
        concurrency=limits_of(organization.plan).concurrency,
        outage_policy=organization.outage_policy,
        hedging=project.hedging_enabled,
        cache_seconds=project.cache_duration_seconds if project.caching_enabled else None,
        expires_at=key.expires_at,
        rules=_rules_of(key),
        discounts=own_of(organization.id),
        own_credentials=_credentials_of(organization),
        guardrails=find_guardrails(organization.id, organization.plan),
        gone=_why_gone(project, organization),
        generation=word,
        read_at=time.monotonic(),
    )


def _let_go() -> None:
    """Give the database connection back."""
    if not connection.in_atomic_block:
        connection.close()


def _generation_of(organization_id: UUID) -> str:
    """Return the organization's generation; without Redis a word that will stand for nothing later."""
    try:
        return generation.read(generation.organization(organization_id))
    except RedisError:
        return generation.fresh_word()


def _requests_per_minute(organization: Organization) -> int | None:
    """Return the organization's own rate, else that of its plan, as the operator has it; 0 is no limit."""
    if organization.requests_per_minute is not None:
        return organization.requests_per_minute or None
    stated: int | None = settings.RATE_LIMITS[organization.plan]
    return limits_of(organization.plan).requests_per_minute if stated is None else stated or None


def _rules_of(key: ApiKey) -> tuple[Rule, ...]:
    rows = IamRule.objects.filter(api_key=key, status=IamRule.Status.ACTIVE).order_by("created_at")
    return tuple(Rule(row.id, row.rule_type, row.rule_value) for row in rows)


def _credentials_of(organization: Organization) -> Mapping[str, tuple[OwnCredential, ...]]:
    """Return the organization's active credentials by provider id (`custom:<name>` for custom ones)."""
    found: dict[str, tuple[OwnCredential, ...]] = {}
    rows = ProviderKey.objects.filter(organization=organization, status=ProviderKey.Status.ACTIVE)
    for row in rows.order_by("created_at"):
        name = f"custom:{row.provider_name}" if row.provider == "custom" else row.provider
        credential = OwnCredential(row.id, row.provider, row.provider_name, row.base_url, bytes(row.encrypted_token))
        found[name] = (*found.get(name, ()), credential)
    return found


def _why_gone(project: Project, organization: Organization) -> str | None:
    if organization.status != Organization.Status.ACTIVE:
        return "This organization is no longer active"
    if project.status != Project.Status.ACTIVE:
        return f"This project has been {project.status}"
    return None
