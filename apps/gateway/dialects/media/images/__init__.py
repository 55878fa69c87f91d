"""Image dialects: wire formats of image generation and editing, and how a format is found by the facts of a model.

A request for images is a chat whose `image_request` describes them. An image dialect is a provider side
(`write_request`, `read_reply` …) for such chats, found by the name that the data files state under `images`. A model
that generates images in a chat is called in its provider's own dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import ProviderDialect, find_dialect, find_provider_dialect
from apps.gateway.dialects.media.images.provider.capabilities import capabilities_of
from apps.gateway.dialects.media.images.provider.chat import image_request_as_chat

IN_CHAT: Final = "chat"
_PACKAGE: Final = f"{__name__}.provider"


def find_image_dialect(facts: Mapping[str, Any], chat_dialect: str) -> ProviderDialect | None:
    """Return the format in which an offer is asked for images; None when it makes none, or it is not spoken here."""
    capabilities = capabilities_of(facts)
    if capabilities is None:
        return None
    return find_dialect(chat_dialect) if capabilities.dialect == IN_CHAT else find_image_format(capabilities.dialect)


def prepare_for_target(chat: Chat, target: Target) -> Chat:
    """Return a chat as its target is to be asked: a model that makes images in chats gets a chat, and one that does not
    stream them is asked for them whole, also where the client gets a stream."""
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        return chat
    if chat.stream and "stream" not in capabilities.takes:
        chat = replace(chat, stream=False)
    return image_request_as_chat(chat, target) if capabilities.dialect == IN_CHAT else chat


def find_image_format(name: str) -> ProviderDialect | None:
    """Return the image dialect of this name, None when the gateway does not speak it."""
    return find_provider_dialect(_PACKAGE, name)
