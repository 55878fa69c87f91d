"""Availability: which offers a caller can call now, why not the others, and the refusals of models that none serves.

A credential that is refused or rate limited counts as there: only a call can tell. A refusal has a remedy, or models
and providers that could answer; names of environment variables are shown to the operator alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from typing import Final

from django.conf import settings

from apps.catalog.catalog_cache import Catalog
from apps.catalog.offers import CatalogProvider, Offer, Reach
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential, credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.access.schemes import can_fill_placeholders, service_secrets
from apps.gateway.canonical.chat import Chat
from apps.gateway.routing.candidate import Candidate
from apps.gateway.tasks import TASKS, Requirement
from apps.kernel.errors import InvalidRequest
from apps.keys.iam import first_refusal
from apps.organizations.plans import limits_of

_NO_CREDENTIAL: Final = "The operator has no credential for it"
_NO_PLACE: Final = "The operator has not set its region or account"
_NEEDS_PLAN: Final = "which require a pro or enterprise plan"


def find_obstacle(provider: CatalogProvider, *, has_own_key: bool = False) -> str:
    """Return why requests that are paid with credits, or with a provider key of one's own, do not reach a provider;
    empty if they do."""
    if not has_own_key and not service_secrets(provider.auth, provider.api_key_env, os.environ):
        return _NO_CREDENTIAL
    if not can_fill_placeholders(provider.auth, provider.base_url):
        return _NO_PLACE
    return ""


def reach_of(policy: Policy | None, catalog: Catalog) -> Reach:
    """Return the offers that a key can call: by the credentials of its project's mode, addresses, and access rules.

    Without a key, those that the operator's credentials reach.
    """
    if policy is None:
        obstacles = {one.id: find_obstacle(one) for one in catalog.providers.values()}
        return Reach(frozenset(obstacles.items()), lambda offer: obstacles[offer.provider.id])
    usable = {one.id: _usable_credentials(policy, one) for one in catalog.providers.values()}
    reasons = {one.id: "" if usable[one.id] else _why_unusable(policy, one) for one in catalog.providers.values()}
    if not policy.rules:
        return Reach(frozenset(reasons.items()), lambda offer: reasons[offer.provider.id])

    def find_reason(offer: Offer) -> str:
        if reason := reasons[offer.provider.id]:
            return reason
        found = (Candidate(offer, credential, offer.model_name) for credential in usable[offer.provider.id])
        is_allowed = any(first_refusal(policy.rules, one) is None for one in found)
        return "" if is_allowed else "The key's access rules deny it"

    return Reach((policy.api_key_id, policy.generation, frozenset(reasons.items())), find_reason)


def _why_unusable(policy: Policy, provider: CatalogProvider) -> str:
    """Return why a project has no usable credential at a provider."""
    if credentials_for(policy, provider):
        return _NO_PLACE
    if policy.mode == CREDITS:
        return _NO_CREDENTIAL
    may_have_keys = limits_of(policy.plan).provider_keys
    if policy.mode == API_KEYS:
        lacking = "and has none for it" if may_have_keys else _NEEDS_PLAN
        return f"The project uses its own provider keys, {lacking}"
    if may_have_keys:
        return "Neither the project nor the operator has a credential for it"
    return f"{_NO_CREDENTIAL}; the project may use provider keys, {_NEEDS_PLAN}"


def _usable_credentials(policy: Policy, provider: CatalogProvider) -> list[Credential]:
    is_complete = can_fill_placeholders(provider.auth, provider.base_url)
    return [one for one in credentials_for(policy, provider) if one.base_url or is_complete]


def without_credential(policy: Policy, offers: Sequence[Offer]) -> InvalidRequest:
    """Return the refusal of a model that no credential is there for."""
    providers = ", ".join(sorted({offer.provider.id for offer in offers}))
    if policy.mode == API_KEYS:
        return _not_found(
            f"This project uses your own provider keys, and there is none for: {providers}. "
            "Add one (POST /keys/provider)"
        )
    own = "Add a provider key of your own (POST /keys/provider)"
    help_ = f"{own} and set the project's mode to hybrid" if policy.mode == CREDITS else own
    if settings.DEVELOPMENT:
        variables = " or ".join(sorted({offer.provider.api_key_env for offer in offers}))
        help_ += f", or start the gateway with {variables}"
    return _not_found(f"No credential is configured for any provider of {offers[0].model_id} ({providers}). {help_}")


def not_at_provider(
    policy: Policy, name: str, offers: Sequence[Offer], provider_id: str, today: date
) -> InvalidRequest:
    """Return the refusal of a model at the provider that the client named, and nowhere else; `offers` are those that
    the name means."""
    there = [offer for offer in offers if offer.provider.id == provider_id]
    live = [offer for offer in there if offer.is_live(today)]
    if live and not credentials_for(policy, live[0].provider):
        return without_credential(policy, live)
    if live:
        return _not_found(f"{name}: the provider {provider_id} cannot be used by this project")
    ended = next(
        (it.deactivated_at for it in there if it.deactivated_at is not None and it.deactivated_at <= today), None
    )
    model_id = offers[0].model_id
    why = f"no longer serves it since {ended}" if ended is not None else f"is switched off for {model_id}"
    others = sorted({offer.provider.id for offer in offers if offer.is_live(today)})
    # No other provider has it: then it is gone, as announced.
    return _not_found(
        f"{name}: the provider {provider_id} {why}; these providers serve {model_id}: {', '.join(others)}"
    )


def _not_found(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="model_not_found", param="model")


# Named in one refusal.
_MAX_NAMED = 3
_UNSTABLE = {"unstable", "experimental"}


def unsupported(
    chat: Chat, need: Requirement, policy: Policy, catalog: Catalog, today: date, is_allowed: Callable[[Offer], bool]
) -> InvalidRequest:
    """Return the refusal of a requirement that no allowed offer meets, with the cheapest models that meet it, if any.
    `is_allowed` applies the access rules."""
    message = f"{chat.model} does not support {need.name}"
    found = _alternatives(chat, policy, catalog, today, is_allowed)
    if found:
        message += f"; for example {', '.join(found)} {'does' if len(found) == 1 else 'do'}"
    return InvalidRequest(message, code="unsupported_feature", param=need.param)


def _alternatives(
    chat: Chat, policy: Policy, catalog: Catalog, today: date, is_allowed: Callable[[Offer], bool]
) -> Sequence[str]:
    """Return `provider/model` of those that meet every requirement: the same model's first, then the cheapest."""
    task = TASKS[chat.task]
    needs = task.requirements_of(chat)
    own = chat.model.rpartition("/")[2]
    usable = [
        offer
        for offer in _offers(chat, catalog)
        if offer.is_live(today)
        and offer.stability not in _UNSTABLE
        and not offer.prices.unpriced
        and not offer.facts.get("development_only")
        and all(need.is_met_by(offer) for need in needs)
        and credentials_for(policy, offer.provider)
        and is_allowed(offer)
    ]
    usable.sort(key=lambda offer: (offer.model_id != own, task.list_price(chat, offer), offer.model_id))
    # One provider of each other model is enough.
    named: dict[str, str] = {}
    for offer in usable:
        named.setdefault(offer.model_id, f"{offer.provider.id}/{offer.model_id}")
    return list(named.values())[:_MAX_NAMED]


def _offers(chat: Chat, catalog: Catalog) -> Iterator[Offer]:
    task = TASKS[chat.task]
    for model in catalog.models.values():
        if task.is_served_by(model, chat):
            yield from model.offers
