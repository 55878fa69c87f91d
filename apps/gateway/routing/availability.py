"""Availability: which offers a caller can call now, and why the operator's credentials do not reach a provider.

A credential that is refused or rate limited counts as there: only a call can tell.
"""

from __future__ import annotations

import os

from apps.catalog.catalog_cache import Catalog
from apps.catalog.offers import CatalogProvider, Offer
from apps.catalog.views import Reach
from apps.gateway.access.credentials import Credential, credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.access.schemes import can_fill_placeholders, service_secrets
from apps.gateway.routing.candidate import Candidate
from apps.keys.iam import first_refusal


def find_obstacle(provider: CatalogProvider) -> str:
    """Return why requests that are paid with credits do not reach a provider; empty if they do."""
    if not service_secrets(provider.auth, provider.api_key_env, os.environ):
        return "The operator has no credential for it"
    if not can_fill_placeholders(provider.auth, provider.base_url):
        return "The operator has not set its region or account"
    return ""


def reach_of(policy: Policy | None, catalog: Catalog) -> Reach:
    """Return the offers that a key can call: by the credentials of its project's mode, addresses, and access rules.

    Without a key, those that the operator's credentials reach.
    """
    if policy is None:
        reached = frozenset(one.id for one in catalog.providers.values() if not find_obstacle(one))
        return Reach(reached, lambda offer: offer.provider.id in reached)
    usable = {one.id: found for one in catalog.providers.values() if (found := _usable_credentials(policy, one))}
    if not policy.rules:
        return Reach(frozenset(usable), lambda offer: offer.provider.id in usable)

    def allows(offer: Offer) -> bool:
        found = (Candidate(offer, credential, offer.model_name) for credential in usable.get(offer.provider.id, ()))
        return any(first_refusal(policy.rules, one) is None for one in found)

    return Reach((policy.api_key_id, policy.generation, frozenset(usable)), allows)


def _usable_credentials(policy: Policy, provider: CatalogProvider) -> list[Credential]:
    is_complete = can_fill_placeholders(provider.auth, provider.base_url)
    return [one for one in credentials_for(policy, provider) if one.base_url or is_complete]
