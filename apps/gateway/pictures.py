"""Which offers make pictures, in which wire format, and what a request for pictures needs of them and costs there.

Decides over values. Must never open a socket or ask a store.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from apps.billing.pricing import cost_of
from apps.catalog.offers import CatalogModel, Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Finished
from apps.gateway.canonical.images import Drawing
from apps.gateway.dialects import Outbound, find_dialect
from apps.gateway.dialects.images import IN_CHAT, find_image_dialect
from apps.gateway.dialects.images.provider.abilities import Need, abilities_of, needs_of
from apps.gateway.token_estimate import estimate_usage_before_answer
from apps.kernel.errors import ApiError, InternalError, InvalidRequest


def dialect_of(chat: Chat, offer: Offer) -> Outbound | None:
    """Return the wire format in which an offer is asked, None when it is not spoken here."""
    return find_dialect(offer.dialect) if chat.drawing is None else find_image_dialect(offer.facts, offer.dialect)


def draws(model: CatalogModel) -> bool:
    """Return whether somebody offers to make pictures with the model."""
    return any(abilities_of(offer.facts) is not None for offer in model.offers)


def draws_in_chat(model: CatalogModel) -> bool:
    """Return whether a model that makes pictures does it when it is chatted to."""
    stated = [abilities for offer in model.offers if (abilities := abilities_of(offer.facts)) is not None]
    return any(abilities.dialect == IN_CHAT for abilities in stated)


def check_draws(model: CatalogModel) -> None:
    """Raise InvalidRequest unless the model makes pictures in a way that is known here."""
    if not draws(model):
        raise InvalidRequest(
            f"{model.id} does not make images, or not in a way that is supported here",
            code="unsupported_feature",
            param="model",
        )


def tests_of(chat: Chat, drawing: Drawing) -> list[tuple[str, Callable[[Offer], bool], str]]:
    """Return what an offer must be able to do, each with its name for people and the client's field for it."""
    return [(need.name, _test(need), need.param) for need in needs_of(chat, drawing)]


def no_pictures(finish: Finished | None) -> ApiError:
    """Return the error of an answer that should have had pictures; the provider's own word may tell why it has none."""
    why = f" ({finish.native})" if finish is not None and finish.native else ""
    error = InternalError(f"The model generated no images{why}")
    error.from_provider = True
    return error


def price_of(chat: Chat, offer: Offer) -> Decimal:
    """Return what a request for pictures costs at most, in USD, its prompt aside."""
    return cost_of(estimate_usage_before_answer(chat, 0, offer), offer.prices).total


def _test(need: Need) -> Callable[[Offer], bool]:
    def can(offer: Offer) -> bool:
        abilities = abilities_of(offer.facts)
        return abilities is not None and need.can(abilities)

    return can
