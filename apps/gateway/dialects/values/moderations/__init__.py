"""Moderation formats: the facts that a model may state, and judgements as each reads them.

A request to judge content is a chat whose `moderation` says whether its parts are one input. A format is a provider
side for such chats; it is found by the name that the data files state under `moderations`, else by that of the
provider's chat dialect where the two go together. docs/adding-a-provider.md explains each fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from apps.gateway.canonical.chat import Chat, Text
from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.task_options import Judgement, Moderation
from apps.gateway.dialects import fact, facts_reader
from apps.gateway.dialects.reading.answers import count_at, unreadable_answer
from apps.kernel.usage import Usage


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


def events_of(judgements: Sequence[Judgement], usage: Any) -> Iterator[Event]:
    """Yield the events of a whole answer; `usage` is what the provider says that it counted, if it says anything."""
    if not judgements:
        yield unreadable_answer("The provider sent an answer without judgements")
        return
    yield Started()
    yield ResultsGiven(values=list(judgements))
    yield Finished(reason="stop")
    if tokens := count_at(usage, "prompt_tokens"):
        yield UsageReported(usage=Usage(input=tokens))
