"""Partners' models at Google Cloud: OpenAI's chat format at another address; a model is named `publisher/model`.

The models of a `publisher` (a fact) are served one by one instead: the name with the edition behind its `@` is in the
path, and the body has it without. Knows the address. Must never know a model by name.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import openai
from apps.gateway.dialects.openai import read_events, read_failure, read_reply
from apps.gateway.dialects.openai.shared.wire import FRAMING
from apps.gateway.dialects.vertex_address import model_path, place

__all__ = ["FRAMING", "NAME", "path", "read_events", "read_failure", "read_reply", "url", "write_request"]

NAME: Final = "vertex_openai"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL, which ends with project and location."""
    if publisher := target.facts.get("publisher"):
        method = "streamRawPredict" if chat.stream else "rawPredict"
        return model_path(publisher, target.model_name.removeprefix(f"{publisher}/"), method)
    return f"/endpoints/openapi{openai.path(chat, target)}"


def url(base_url: str, chat: Chat, target: Target) -> str:
    """Return where the request goes."""
    return place(base_url, path(chat, target))


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest for what cannot be said."""
    if publisher := target.facts.get("publisher"):
        name = target.model_name.removeprefix(f"{publisher}/").partition("@")[0]
        # Losses and what is to be restored are noted in the very same places.
        target = replace(target, model_name=name)
    return openai.write_request(chat, target)
