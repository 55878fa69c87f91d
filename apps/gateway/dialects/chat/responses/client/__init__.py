"""OpenAI Responses, client side: reads requests, writes answers and errors.

Here is what a response repeats of its request, kept beside the chat that was read from it, and the encryption of its
reasoning. Neither providers nor the response cache see it. Makers that sign or encrypt thinking take it back only as it
was. Clients of this format keep one opaque text (`encrypted_content`) for each item of reasoning: it holds the blocks
as their maker gave them, with the format that tells whose they are. The caller has the cipher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from apps.gateway.canonical.chat import Chat, Reasoning
from apps.gateway.dialects.reading.fields import Malformed, Record

# The prefix that distinguishes our text from a provider's; the digit is the version of the layout.
_MARK: Final = "gwr1."
# Characters of one text; thinking of a million tokens is no longer.
_MAX_BYTES: Final = 16 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Reasoning]).decode


class ReasoningCipher(Protocol):
    """Authenticated encryption for one owner of reasoning."""

    def encrypt(self, content: bytes) -> str:
        """Return the content as a text that only this owner's cipher opens."""

    def decrypt(self, text: str) -> bytes:
        """Return the content. Raises ValueError for a text that was changed, or made for another client."""


def encrypt_blocks(blocks: Sequence[Reasoning], cipher: ReasoningCipher) -> str:
    """Return the text that carries blocks."""
    return _MARK + cipher.encrypt(_encode(list(blocks)))


def is_encrypted_here(content: str) -> bool:
    """Return whether a text is one of ours; any other is a provider's own."""
    return content.startswith(_MARK)


def decrypt_blocks(content: str, cipher: ReasoningCipher | None) -> list[Reasoning]:
    """Return the blocks that a text carries. Raises Malformed for one that was changed, or made for another client."""
    if len(content) > _MAX_BYTES:
        raise Malformed("is longer than any reasoning of a model")
    try:
        if cipher is not None:
            return _decode(cipher.decrypt(content.removeprefix(_MARK)))
    except (ValueError, msgspec.MsgspecError):
        pass
    raise Malformed("could not be verified: it was changed, or made for another organization; leave it out")


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
