"""Task `images`: generates or edits images, and nothing else.

A request of this kind is a chat whose `image_request` says what the images are to be like. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial

from msgspec.structs import replace

from apps.billing.pricing import cost_of
from apps.catalog.offers import CatalogModel, Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Finished
from apps.gateway.canonical.task_options import ImageRequest
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.media.images import (
    IN_CHAT,
    Need,
    capabilities_of,
    find_image_dialect,
    needs_of,
    prepare_for_target,
)
from apps.gateway.tasks import AttachedFile, CallPart, Requirement, Task
from apps.gateway.token_estimate import estimate_usage
from apps.kernel.errors import ApiError, InternalError, InvalidRequest
from apps.kernel.usage import Usage

# Tokens that an image model writes beside its images.
TOKENS_BESIDE_IMAGES = 1_024
# Source: https://platform.openai.com/docs/guides/image-generation, "Partial images cost", read 2026-11-23.
TOKENS_OF_PARTIAL_IMAGE = 100


def draws(model: CatalogModel) -> bool:
    """Return whether some offer of the model makes images."""
    return any(capabilities_of(offer.facts) is not None for offer in model.offers)


def draws_in_chat(model: CatalogModel) -> bool:
    """Return whether a model that makes images does it when it is chatted to."""
    stated = [capabilities for offer in model.offers if (capabilities := capabilities_of(offer.facts)) is not None]
    return any(capabilities.dialect == IN_CHAT for capabilities in stated)


def _check_model(model: CatalogModel, chat: Chat) -> None:
    """Raise InvalidRequest unless the model makes images in a way that is known here."""
    if not draws(model):
        raise InvalidRequest(
            f"{model.id} does not make images, or not in a way that is supported here",
            code="unsupported_feature",
            param="model",
        )


def _is_served_by(model: CatalogModel, chat: Chat) -> bool:
    return draws(model)


def _requirements_of(chat: Chat) -> list[Requirement]:
    needs = [
        Requirement(need.name, _test_for(need), need.param)
        for need in needs_of(chat, chat.image_request or ImageRequest())
    ]
    if (count := _count_images(chat)) > 1:
        needs.insert(0, Requirement(f"{count} images at a time", partial(_may_be_asked_together, chat), "n"))
    return needs


def _may_be_asked_together(chat: Chat, offer: Offer) -> bool:
    """Return whether all images can be had: by several calls only where their sum costs what its parts cost."""
    return not _split(chat, offer) or not (offer.prices.request or offer.prices.tiers)


def _split(chat: Chat, offer: Offer) -> list[CallPart]:
    """Return the calls that it takes to make all images; none where one call makes them."""
    capabilities = capabilities_of(offer.facts)
    if capabilities is None or (count := _count_images(chat)) == 1:
        return []
    # Events of a stream do not say of which image they are.
    most = 1 if chat.stream and "stream" in capabilities.takes else capabilities.most
    if count <= most:
        return []
    sizes = [min(most, count - first) for first in range(0, count, most)]
    return [CallPart(replace(chat, n=size if size > 1 else None), size) for size in sizes]


def _test_for(need: Need) -> Callable[[Offer], bool]:
    def is_met_by(offer: Offer) -> bool:
        capabilities = capabilities_of(offer.facts)
        return capabilities is not None and need.can(capabilities)

    return is_met_by


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    return find_image_dialect(offer.facts, offer.dialect)


def _count_images(chat: Chat) -> int:
    return chat.n or 1


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    """Return what the images cost at most, in USD, their prompt aside."""
    return cost_of(_usage_before_answer(chat, 0, offer), offer.prices).total


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    calls = len(_split(chat, offer)) or 1
    usage = estimate_usage(prompt_tokens * calls, TOKENS_BESIDE_IMAGES * calls, _count_images(chat), offer.prices)
    partial_images = chat.image_request.partial_images or 0 if chat.image_request is not None and chat.stream else 0
    if not partial_images or not usage.image_output:
        return usage
    tokens = partial_images * TOKENS_OF_PARTIAL_IMAGE * _count_images(chat)
    return replace(usage, image_output=usage.image_output + tokens)


def _files_to_screen(chat: Chat) -> Sequence[AttachedFile]:
    if chat.image_request is None or chat.image_request.mask is None:
        return ()
    return (AttachedFile("mask", chat.image_request.mask),)


def _find_missing_result(images: int, finish: Finished | None) -> ApiError | None:
    """Return the error of an answer without an image; the provider's own word may tell why it has none."""
    if images:
        return None
    why = f" ({finish.native})" if finish is not None and finish.native else ""
    error = InternalError(f"The model generated no images{why}")
    error.from_provider = True
    return error


TASK = Task(
    name="images",
    requirements_of=_requirements_of,
    check_model=_check_model,
    is_served_by=_is_served_by,
    find_dialect=_find_dialect,
    list_price=_list_price,
    count_images=_count_images,
    fits_context=False,
    usage_before_answer=_usage_before_answer,
    writes_tokens=False,
    files_to_screen=_files_to_screen,
    path_for_client=None,
    adapt_request=prepare_for_target,
    split=_split,
    may_bring_media=lambda chat, offer: True,
    fetches_images=True,
    find_missing_result=_find_missing_result,
    usage_without_counts=lambda chat, *counts: estimate_usage(*counts),
)
