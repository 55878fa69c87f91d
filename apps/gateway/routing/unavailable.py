"""Unavailable models: the refusals of a model, each with a remedy or with models and providers that could answer.

Names of environment variables are shown to the operator alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

from django.conf import settings

from apps.catalog.catalog_cache import Catalog, Offer
from apps.gateway.access.credentials import API_KEYS, CREDITS, credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.tasks import TASKS, Requirement
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
