"""Task `moderations`: judges whether texts and images may be harmful.

A request of this kind is a chat of one message, each part of which is an input, unless all are one. Pure.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat, Image
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.values.moderations import capabilities_of, find_moderation_dialect, moderation_of
from apps.gateway.tasks import CallPart, ModelMode, Requirement, specialist_task
from apps.gateway.token_estimate import estimate_usage
from apps.kernel.money import ZERO
from apps.kernel.usage import Usage

_MODE: Final = ModelMode("moderation", "moderation")
_PLACE: Final = re.compile(r"messages\[0\]\.content(\[\d+\])(\.text)?")


def _requirements_of(chat: Chat) -> list[Requirement]:
    if Image not in chat.kinds:
        return []
    return [Requirement("image input", lambda offer: "images" in capabilities_of(offer.facts).takes, "input")]


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    return find_moderation_dialect(offer.facts, offer.dialect)


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    return offer.prices.input or ZERO


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    return Usage(input=prompt_tokens)


def _path_for_client(path: str) -> str:
    return _PLACE.sub(r"input\1", path)


def _split(chat: Chat, offer: Offer) -> list[CallPart]:
    """Return the calls that an offer's provider takes for all inputs, in their order."""
    if moderation_of(chat).together:
        return [CallPart(chat, 1)]
    [message] = chat.messages
    count, most = len(message.parts), capabilities_of(offer.facts).most
    if count <= most:
        return [CallPart(chat, count)]
    cuts = [message.parts[start : start + most] for start in range(0, count, most)]
    return [CallPart(replace(chat, messages=[replace(message, parts=parts)]), len(parts)) for parts in cuts]


TASK = specialist_task(
    _MODE,
    name="moderations",
    requirements_of=_requirements_of,
    find_dialect=_find_dialect,
    list_price=_list_price,
    usage_before_answer=_usage_before_answer,
    files_to_screen=lambda chat: (),
    path_for_client=_path_for_client,
    split=_split,
    may_bring_media=False,
    # Judgements are not paid for, whatever they weigh.
    usage_without_counts=lambda chat, prompt, written, images, prices: estimate_usage(prompt, 0, 0, prices),
)
