"""Alternatives: models and providers that could do what the one that was asked for cannot, named in its refusal.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date

from apps.catalog.catalog_cache import Catalog, Offer
from apps.gateway.access.credentials import credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.tasks import Requirement, task_of
from apps.kernel.errors import InvalidRequest

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
    task = task_of(chat)
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
    task = task_of(chat)
    for model in catalog.models.values():
        if task.is_served_by(model, chat):
            yield from model.offers
