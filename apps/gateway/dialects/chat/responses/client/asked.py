"""OpenAI Responses, client side: what a response repeats of its request, kept beside the chat that was read from it.

Neither providers nor the response cache see it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects.chat.responses.client.encrypted_reasoning import ReasoningCipher
from apps.gateway.dialects.reading.fields import Record

_PLACE: Final = "asked_as_response"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request's fields except its input, as its client sent them (none: as they are read), and the gateway's own
    fields of the response."""

    fields: Record = {}
    # Encrypts reasoning for the client; None where there is no organization to encrypt it for.
    cipher: ReasoningCipher | None = None
    # The id of the response; None leaves it to the provider.
    response_id: str | None = None
    # Fields of every response object of this request that stored state knows of.
    echo: Record = {}


_NOTHING: Final = Asked()


def keep_asked(chat: Chat, asked: Asked) -> Chat:
    """Return the chat with what its response repeats."""
    vars(chat)[_PLACE] = asked
    return chat


def asked_of(chat: Chat) -> Asked:
    """Return what a chat's response repeats; nothing for one that was not read from this format."""
    found: Asked = vars(chat).get(_PLACE, _NOTHING)
    return found
