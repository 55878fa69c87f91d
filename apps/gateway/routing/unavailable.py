"""Unavailable models: the refusals of a model that no provider can be asked for, each with what would help.

Names of environment variables are shown to the operator alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from django.conf import settings

from apps.catalog.catalog_cache import Offer
from apps.gateway.access.credentials import API_KEYS, CREDITS, credentials_for
from apps.gateway.access.policy import Policy
from apps.kernel.errors import InvalidRequest


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
