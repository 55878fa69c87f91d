"""How a provider's flavor of OpenAI's format differs: the facts that this dialect reads, each with what it is unstated.

Knows facts. Must never know who states them. docs/adding-a-dialect.md explains each to those who write data files.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.openai.wire import NAME


class Flavor(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider takes. What nothing is known about gets what every OpenAI-alike understands."""

    # The name of the limit on the answer, whichever of the two the client used.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    # Whether `stream_options` is understood; without it a provider reports usage unasked, or not at all.
    stream_usage: bool = True
    # Whether the role `developer` is understood; it is `system` otherwise.
    developer_role: bool = False
    # The field in which an assistant's message brings its thinking back.
    reasoning_field: Literal["reasoning", "reasoning_content"] | None = None
    # Fields beyond OpenAI's that are understood as we have them: of a request (`reasoning`, `plugins`, `image_config`,
    # `web_search`, `web_search_options`), of a message (`reasoning_details`, `images`), of a part (`cache_control`).
    takes: frozenset[str] = frozenset()
    # Fields of OpenAI's that are refused: left out.
    unsupported: frozenset[str] = frozenset()
    # Whether the chat was read from this format: what it keeps as `extra` belongs here.
    ours: bool = False


def flavor_of(chat: Chat, target: Target) -> Flavor:
    """Return how a chat has to be written for a target."""
    return msgspec.convert({**target.facts, "ours": chat.dialect == NAME}, Flavor)
