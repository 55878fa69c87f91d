"""Access policy: what an API key may do, one frozen value per key, trusted while its organization's generation stands.

`policy_cache` decides when to read one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID
from weakref import WeakValueDictionary

from django.conf import settings
from django.db.models import Q
from redis.exceptions import RedisError

from apps.billing.discounts import Shares, own_of
from apps.gateway.access.policy_cache import NoLongerValid, PolicyCache
from apps.gateway.client.http_request import ClientRequest
from apps.guardrails.configuration.compiled_cache import compiled_guardrails, find_config_in_force
from apps.guardrails.scanning.engine import CompiledGuardrails as Guardrails
from apps.guardrails.scanning.engine import EngineConfig
from apps.kernel.errors import ApiError, Gone, Unauthenticated, UpstreamRefused
from apps.kernel.postgres import database
from apps.kernel.valkey import generation
from apps.keys.authenticate import find_api_key
from apps.keys.iam import AccessRule
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.keys.own_models import OwnModels, ServerReplica, read_models, read_replicas
from apps.limits.applied import PolicyLimits, rule_of
from apps.limits.key_limits import find_tightest
from apps.limits.models import Limit
from apps.limits.plan_limits import plan_limits_of
from apps.logs import refusals
from apps.organizations.models import Organization, Project
from apps.organizations.plans import limits_of, rate_of
from apps.organizations.teams.access import with_wholes


@dataclass(frozen=True, slots=True)
class OwnCredential:
    """An organization's own credential at a provider, still encrypted."""

    id: UUID
    provider: str
    provider_name: str
    base_url: str
    encrypted_token: bytes
    organization_id: UUID
    # The models of a custom provider; the policies of its organization share them.
    models: OwnModels = field(default_factory=OwnModels, compare=False, repr=False)
    # The kind of its server, and its replicas, none where it has one address.
    server: str = ""
    replicas: tuple[ServerReplica, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything about the caller that a request is decided by."""

    api_key_id: UUID
    project_id: UUID
    organization_id: UUID
    plan: str
    mode: str
    retention: str
    # Requests a minute, of the organization and of the key, and requests at a time; None is unlimited.
    requests_per_minute: int | None
    key_requests_per_minute: int | None
    concurrency: int | None
    # How its requests are handled while the store cannot check them (`OutagePolicy`).
    outage_policy: str
    # Whether a late provider's streams are raced by a second one.
    hedging: bool
    # Seconds for which the project keeps answers, None when it keeps none.
    cache_seconds: int | None
    expires_at: datetime | None
    # Access rules about models.
    rules: tuple[AccessRule, ...]
    # Its organization's own shares off the price.
    discounts: Shares
    own_credentials: Mapping[str, tuple[OwnCredential, ...]]
    # The guardrails for its requests; None where none are in force.
    guardrails: Guardrails | None
    gone_reason: str | None
    generation: str
    read_at: float
    # By the name of a model, the candidates it may use (`candidates.ReachableCandidates`): cached with the policy.
    reachable_models: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    # Origins of web pages that may use the key; empty where the deployment's list alone holds.
    allowed_origins: frozenset[str] = frozenset()
    # Access rules about tools of MCP servers.
    tool_rules: tuple[AccessRule, ...] = ()
    # The limits that may hold for its requests, the key's own among them, prepared for the present windows; None
    # without any.
    limits: PolicyLimits | None = field(default=None, compare=False)
    # By the id that the organization chose for a model of its own servers: the model's name.
    own_aliases: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_period_over(self) -> bool:
        """Whether the window of the key's own limit is over, and another has begun."""
        if self.limits is None or self.limits.of_key is None:
            return False
        ends_at = self.limits.of_key.limits[0].window.ends_at
        return ends_at is not None and ends_at <= datetime.now(UTC).timestamp()

    @property
    def is_unusable(self) -> bool:
        """Whether `check` will raise."""
        return self.gone_reason is not None or (self.expires_at is not None and self.expires_at <= datetime.now(UTC))

    def for_guard_model(self) -> Policy:
        """Return the policy of a request that the gateway makes to a guard model for another one's sake.

        An organization's rule asks it, whatever models the key may use; the other request was counted and admitted,
        so that only limits of money hold.
        Without guardrails, no guard is asked about its own question.
        """
        return replace(
            self,
            requests_per_minute=None,
            key_requests_per_minute=None,
            concurrency=None,
            rules=(),
            guardrails=None,
            reachable_models={},
            limits=None if self.limits is None else self.limits.of_money,
        )

    def is_current(self) -> bool:
        """Return whether nothing has changed since it was read, as far as this is known without Redis.

        Admission checks this for requests that are let in; this is for requests that are refused.
        """
        try:
            return (
                generation.read_generation_token(generation.organization_scope(self.organization_id)) == self.generation
            )
        except RedisError:
            return True

    def check(self) -> None:
        """Raise Unauthenticated when the key has expired, Gone when its project or organization is no more."""
        if self.expires_at is not None and self.expires_at <= datetime.now(UTC):
            raise Unauthenticated("This API key has expired")
        if self.gone_reason is not None:
            raise Gone(self.gone_reason)


def find_policy(token: str) -> Policy:
    """Return the policy of an API key. Raises Unauthenticated, Gone, and Overloaded when nothing can be asked."""
    policy = _cache.find(token)
    policy.check()
    return policy


def find_known_policy(token: str) -> Policy | None:
    """Return the policy of an API key as this process last saw it, usable or not; None where it has not."""
    return _cache.peek(token)


def find_current_policy(token: str) -> Policy:
    """Return the policy of an API key as it is now; for who admits nothing, which is how others find out that a key was
    revoked, or a retention level changed. Raises Unauthenticated, Gone, Overloaded."""
    policy = find_policy(token)
    if policy.is_current():
        return policy
    invalidate(token, policy)
    return find_policy(token)


# Before a key's id: no client can send a value that begins like this, nor guess it.
_WITHIN = f"\0{secrets.token_hex(32)}:"


def token_of_key(api_key_id: UUID) -> str:
    """Return what stands for an API key's token in this process, for work that goes on without its client."""
    return f"{_WITHIN}{api_key_id}"


def _find_key(token: str) -> ApiKey | None:
    """Return the key of a token, a client's or one of `token_of_key`."""
    if not token.startswith(_WITHIN):
        return find_api_key(token)
    keys = ApiKey.objects.select_related("project__organization")
    return keys.filter(pk=token.removeprefix(_WITHIN)).first()


def _read(token: str, organization_id: UUID | None) -> Policy:
    """Read a key's policy from the database; `organization_id` is its organization's, where that is known already.

    Raises NoLongerValid when the key is unknown or no longer works, and DatabaseError.
    """
    if organization_id is None:
        known = database.read(partial(_find_key, token), brief=True)
        if known is None:
            raise NoLongerValid
        organization_id = known.project.organization_id
    # The generation is read before the rows that count: a change in between makes the copy stale, never wrongly fresh.
    # No connection is held meanwhile: others need it, should the store hang.
    generation_token = _generation_of(organization_id)
    policy, config = database.read(partial(_read_rows, token, generation_token))
    # Compiling takes its time, and others need the connection meanwhile.
    return replace(policy, guardrails=compiled_guardrails(policy.organization_id, config))


def _read_rows(token: str, generation_token: str) -> tuple[Policy, EngineConfig | None]:
    """Return a key's policy without its guardrails, and the configuration that they are made of."""
    key = _find_key(token)
    if key is None:
        raise NoLongerValid
    project, organization = key.project, key.project.organization
    if key.status != ApiKey.Status.ACTIVE:
        raise NoLongerValid(organization.id, generation_token)
    own_credentials = _credentials_of(organization)
    own_aliases = _aliases_in(own_credentials)
    rules = [_with_full_names(rule, own_aliases) for rule in _rules_of(key)]
    policy = Policy(
        api_key_id=key.id,
        project_id=project.id,
        organization_id=organization.id,
        plan=organization.plan,
        mode=project.mode,
        retention=organization.retention_level,
        requests_per_minute=rate_of(
            organization.plan, own=organization.requests_per_minute, stated=settings.RATE_LIMITS[organization.plan]
        ),
        key_requests_per_minute=key.requests_per_minute,
        concurrency=limits_of(organization.plan).concurrency,
        outage_policy=organization.outage_policy,
        hedging=project.hedging_enabled,
        cache_seconds=project.cache_duration_seconds if project.caching_enabled else None,
        expires_at=key.expires_at,
        rules=tuple(rule for rule in rules if not rule.is_about_tools),
        tool_rules=tuple(rule for rule in rules if rule.is_about_tools),
        discounts=own_of(organization.id),
        own_credentials=own_credentials,
        guardrails=None,
        gone_reason=_why_gone(project, organization),
        generation=generation_token,
        read_at=time.monotonic(),
        allowed_origins=frozenset(key.allowed_origins),
        limits=_limits_of(key, organization, own_aliases),
        own_aliases=own_aliases,
    )
    return policy, find_config_in_force(organization.id, organization.plan)


# By provider key and the moment of its last change; dropped with the last policy that has them.
_SHARED_MODELS: WeakValueDictionary[tuple[UUID, datetime], OwnModels] = WeakValueDictionary()
_cache = PolicyCache(_read)
distrust, invalidate, forget_all = _cache.distrust, _cache.invalidate, _cache.forget_all


def _generation_of(organization_id: UUID) -> str:
    """Return the organization's generation; without Redis a token that will stand for nothing later."""
    try:
        return generation.read_generation_token(generation.organization_scope(organization_id))
    except RedisError:
        return generation.new_generation_token()


def _rules_of(key: ApiKey) -> tuple[AccessRule, ...]:
    rows = IamRule.objects.filter(api_key=key, status=IamRule.Status.ACTIVE).order_by("created_at")
    return tuple(AccessRule(row.id, row.rule_type, row.rule_value) for row in rows)


def _limits_of(key: ApiKey, organization: Organization, aliases: Mapping[str, str]) -> PolicyLimits | None:
    found = Limit.objects.filter(
        Q(team=None) | Q(team__in=with_wholes(key.team_id, key.project.team_id)),
        Q(project=None) | Q(project=key.project_id),
        Q(member=None) | Q(member=key.created_by_id),
        Q(api_key=None) | Q(api_key=key.id),
        organization=organization,
    )
    rows = list(found.order_by("id"))
    rules = tuple(rule_of(row, aliases.get(row.model, "")) for row in [*rows, *plan_limits_of(organization, rows)])
    own = find_tightest(key, organization.id, datetime.now(UTC))
    return None if own is None and not rules else PolicyLimits(rules, own)


def _credentials_of(organization: Organization) -> Mapping[str, tuple[OwnCredential, ...]]:
    """Return the organization's active credentials by provider id (`custom:<name>` for custom ones)."""
    found: dict[str, tuple[OwnCredential, ...]] = {}
    rows = ProviderKey.objects.filter(organization=organization, status=ProviderKey.Status.ACTIVE)
    for row in rows.order_by("created_at"):
        name = f"custom:{row.provider_name}" if row.provider == "custom" else row.provider
        credential = OwnCredential(
            row.id,
            row.provider,
            row.provider_name,
            row.base_url,
            bytes(row.encrypted_token),
            organization.id,
            _models_of(row),
            row.server,
            read_replicas(row.replicas),
        )
        found[name] = (*found.get(name, ()), credential)
    return found


def _aliases_in(own: Mapping[str, tuple[OwnCredential, ...]]) -> Mapping[str, str]:
    return {
        model.alias: f"{provider_id}/{name}"
        for provider_id, credentials in own.items()
        for one in credentials
        for name, model in one.models.items()
        if model.alias
    }


def _with_full_names(rule: AccessRule, aliases: Mapping[str, str]) -> AccessRule:
    """Return an access rule that also has the full names of own models that it names by their aliases."""
    named = rule.value.get("models", ())
    full = [aliases[name] for name in named if name in aliases]
    return replace(rule, value={**rule.value, "models": [*named, *full]}) if full else rule


def _models_of(row: ProviderKey) -> OwnModels:
    """Return the models of a provider key, one copy for all policies in this process."""
    version = (row.id, row.updated_at)
    models = _SHARED_MODELS.get(version)
    if models is None:
        columns = row.found_models, row.model_settings, row.model_probes, row.observed_use
        models = _SHARED_MODELS[version] = read_models(*columns)
    return models


def _why_gone(project: Project, organization: Organization) -> str | None:
    if organization.refusal is not None:
        return organization.refusal
    if project.status != Project.Status.ACTIVE:
        return f"This project has been {project.status}"
    return None


def count_refusal(call: ClientRequest, error: ApiError) -> None:
    """Count an error that is a refusal of ours, for its key's owner to see. Raises nothing.

    A stream that a guardrail ends has begun, and is not counted: the log and the violations have it.
    """
    if not refusals.is_counted(error.status, error.code):
        return
    if error.from_provider or isinstance(error, UpstreamRefused):
        return
    try:
        policy = find_known_policy(call.presented_key)
    except ApiError:
        # There is no key to count it for.
        return
    if policy is not None:
        refusals.count(policy.organization_id, policy.api_key_id, error.status, error.code)
