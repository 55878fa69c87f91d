"""Moderation facts of a model (`facts.moderations`): how many inputs it takes at a time, and of which kinds.

docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.chat import Chat, Text
from apps.gateway.canonical.moderation import Moderation
from apps.gateway.dialects.fact import fact, facts_reader


class ModerationCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a data file may state under `moderations`. A model supports only the stated options."""

    dialect: Annotated[
        Literal["openai", "mistral"] | None,
        fact(
            "the moderation dialect: `openai` or `mistral` (`/moderations`, each with its categories)",
            default="`openai` of a provider of that dialect, else the model judges nothing",
        ),
    ] = None
    most: Annotated[int, fact("texts of one call; a request with more is split", ge=1, le=2048)] = 32
    takes: Annotated[frozenset[Literal["images"]], fact("`images`: images beside texts")] = frozenset()


def capabilities_of(facts: Mapping[str, Any]) -> ModerationCapabilities:
    """Return what an offer's facts say of moderation; nothing but the usual where they are silent."""
    return _read(facts) or _NOTHING_STATED


def moderation_of(chat: Chat) -> Moderation:
    """Return what a chat says of how it is to be judged."""
    return chat.moderation or Moderation()


def texts_of(chat: Chat) -> list[str]:
    """Return the texts to judge."""
    return [part.text for part in chat.messages[0].parts if isinstance(part, Text)]


_read = facts_reader("moderations", ModerationCapabilities)
_NOTHING_STATED = ModerationCapabilities()
