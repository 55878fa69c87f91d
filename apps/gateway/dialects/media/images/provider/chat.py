"""Image requests as chats, for models that generate images in chats."""

from __future__ import annotations

from typing import Any

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.media.images.provider.capabilities import capabilities_of
from apps.gateway.dialects.media.images.provider.image_request import image_request_of, options_of

_CONFIGURED = {"aspect_ratio": "aspect_ratio", "resolution": "image_size", "quality": "image_quality", "seed": "seed"}


def image_request_as_chat(chat: Chat, target: Target) -> Chat:
    """Return the chat that asks for these images; wishes that the model does not take are noted as dropped."""
    capabilities = capabilities_of(target.facts)
    if capabilities is None:
        return chat
    options = options_of(chat, image_request_of(chat), capabilities, target)
    config: dict[str, Any] = {word: options[name] for name, word in _CONFIGURED.items() if name in options}
    return msgspec.structs.replace(
        chat,
        modalities=["text", "image"],
        image_config=config or None,
        n=chat.n if (chat.n or 1) > 1 else None,
        seed=None,
        user=options.get("user"),
        task="chat",
        image_request=None,
    )
